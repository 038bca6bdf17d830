"""The `digits` task: handwritten digits of 8×8 pixels, with square patches as the tokens of an encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from resnas.tasks.task import Direction, Task, TaskShape

if TYPE_CHECKING:
    from resnas.tasks.digits_data import DigitsData

SIDE_PIXELS = 8
CLASSES = 10


class Digits(Task):
    """Tell which digit a small image shows (1,797 images of scikit-learn, from UCI's optdigits)."""

    patch: Literal[1, 2, 4] = 2
    """Side of a patch in pixels: 64, 16 or 4 tokens of 1, 4 or 16 features."""

    metric_directions: ClassVar[dict[str, Direction]] = {"accuracy": "maximize"}

    def shape(self) -> TaskShape:
        """Return (8 / patch)² patches of patch² features in, one of ten classes out."""
        tokens = (SIDE_PIXELS // self.patch) ** 2
        return TaskShape("patches", self.patch**2, tokens, outputs=CLASSES, causal=False, pooled=True)

    def load(self) -> DigitsData:
        """Load, split and standardise the images, which come with scikit-learn."""
        from resnas.tasks.digits_data import DigitsData

        return DigitsData(self.patch)

    def baselines(self) -> dict[str, float]:
        """Return the validation accuracy of the most frequent class and of the nearest training image."""
        from resnas.tasks.digits_data import baselines

        return baselines()
