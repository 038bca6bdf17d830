"""The `text` task: byte-level language modelling on the Python library's source or on the user's own files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from resnas.record import Count
from resnas.tasks.corpus import PYTHON_STDLIB, Corpus, compressed_bits_per_byte, read_corpus, unigram_bits_per_byte
from resnas.tasks.task import Direction, Task, TaskShape

if TYPE_CHECKING:
    from resnas.tasks.text_data import TextData

HeldOutShare = Annotated[float, Field(gt=0, lt=0.5)]
BYTE_VALUES = 256


class Text(Task):
    """Predict the next byte of text from the bytes before it."""

    corpus: str | Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = PYTHON_STDLIB
    """`python-stdlib` (the running Python's own library source), or a path or pattern of your files (`texts/**/*.txt`),
    relative to the current folder, or a list of these. Any bytes are allowed: the model sees bytes, not letters."""
    context: Count = 64
    """Bytes per example."""
    validation_share: HeldOutShare = 0.05
    """Share of the bytes, in whole files where there are three different ones, that is held out for validation."""
    test_share: HeldOutShare = 0.05
    """Share of the bytes that is held out for the test."""

    metric_directions: ClassVar[dict[str, Direction]] = {"bits_per_byte": "minimize"}

    def shape(self) -> TaskShape:
        """Return 256 tokens in, 256 classes out, one prediction per position."""
        return TaskShape("tokens", BYTE_VALUES, self.context, outputs=BYTE_VALUES, causal=True, pooled=False)

    def load(self) -> TextData:
        """Read and split the corpus. Raises `InputError`: a file is missing, unreadable or empty, or all too short."""
        from resnas.tasks.text_data import TextData

        return TextData(self._read(), self.context)

    def baselines(self) -> dict[str, float]:
        """Return what compressors and byte frequencies reach on the validation text, in bits per byte."""
        validation = self._read().validation
        return {
            **{f"bits_per_byte/{name}": bits for name, bits in compressed_bits_per_byte(validation).items()},
            "bits_per_byte/unigram entropy": unigram_bits_per_byte(validation),
        }

    def _read(self) -> Corpus:
        return read_corpus(self.corpus, self.validation_share, self.test_share, needed_bytes=self.context + 1)
