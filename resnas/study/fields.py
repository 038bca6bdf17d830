"""What stands in a study file, as records: budget, search, ranking, limits of metrics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from resnas.by_name import empty_mapping
from resnas.problems import given
from resnas.record import Count, CountOrZero, NonNegative, Positive, Record, Share
from resnas.results import Direction
from resnas.space.model import FormatVersion
from resnas.study.placement import Placement


def _names(value: Any) -> Any:
    """Let one name stand for a list of one; refuse what is no list of different names."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"must be a name or a list of names, not {given(value)}")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is given twice")
    return names


def _directions(value: Any) -> Any:
    """Let names stand for a mapping whose directions are those of the metrics."""
    if isinstance(value, dict):
        if not value:
            raise ValueError("must name at least one metric")
        return value
    return dict.fromkeys(_names(value))


def _rising_to_one(shares: list[float]) -> list[float]:
    if not shares or shares[0] <= 0 or shares[-1] != 1 or sorted(set(shares)) != shares:
        raise ValueError(f"must be shares above 0 that rise and end with 1.0, not {given(shares)}")
    return shares


class Budget(Record):
    """What every trial may use, the same for all."""

    steps: Count = 300
    """Training steps."""
    batch_size: Count = 16
    """Examples per step."""
    validations: Count = 4
    """How many times during training the validation metrics are taken (at most), the last after the last step."""
    validation_batches: Count = 16
    """Fixed batches of the validation split that are used."""
    measure_at: Annotated[list[Share], AfterValidator(_rising_to_one)] = Field([0.25, 0.5, 1.0])
    """Shares of the steps at which dilution is measured; the last is 1.0."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """How matrices are multiplied (bfloat16 by autocast; the stream stays in float32): auto is bfloat16 on a GPU that
    has it, float32 on a CPU, where bfloat16 pays from a width of about 128 if the processor multiplies it natively."""


class Search(Placement):
    """How architectures are chosen and trials are run."""

    sampler: Literal["tpe", "random", "grid", "nsga2"] = "tpe"
    """How the next architecture is chosen."""
    pruner: Literal["none", "asha", "median"] = "none"
    """How trials that look bad are stopped early; only with one objective."""
    n_trials: Count = 60
    """Trials of the study in all, those of earlier runs included."""
    replicates: Count = 1
    """Seeds per architecture."""
    duplicates: Literal["replicate", "redraw"] = "replicate"
    """What becomes of a proposal whose architecture has its seeds already: a further seed, or another draw."""
    random_share: Share = 0.4
    """Share of the trials, the first ones, that are drawn at random, because adaptive sampling biases a ranking."""
    seed: CountOrZero = 0
    """All other seeds derive from this one."""
    trial_timeout_s: Positive = 3600.0
    """Seconds after which a trial is ended."""
    timeout_s: Positive | None = None
    """Seconds after which a run of the search ends, trials under way included; null is no limit."""
    memory_limit_gib: Positive | None = None
    """Most memory of one trial in GiB, its child processes included; null is no limit."""
    retries: CountOrZero = 1
    """How often a trial is run again that ended for a reason outside it (killed by a signal, its node lost)."""
    max_failures: Count = 8
    """So many failed trials in a row end the search."""
    max_failure_share: Share = 0.5
    """A larger share of failed trials, of at least twice `max_failures`, ends the search."""
    keep_checkpoints: CountOrZero = 10
    """Trials, the best ones, whose checkpoints are kept; those of trials under way are kept as well."""
    min_free_gib: NonNegative = 1.0
    """Free disk space in GiB below which the search stops before the disk is full."""


class Bound(Record):
    """What a metric must keep to; at least one of the two."""

    min: float | None = None
    """The least that is wanted."""
    max: float | None = None
    """The most that is wanted."""

    @model_validator(mode="after")
    def _some(self) -> Bound:
        if self.min is None and self.max is None:
            raise ValueError("must have min or max")
        return self

    def excesses(self, name: str, value: float) -> dict[str, float]:
        """Return how far a value is beyond each limit, by a readable name; at most 0 where it keeps to it."""
        above = {} if self.max is None else {f"{name} ≤ {self.max:g}": value - self.max}
        below = {} if self.min is None else {f"{name} ≥ {self.min:g}": self.min - value}
        return above | below


class Ranking(Record):
    """What the properties of architectures are ranked by."""

    targets: Annotated[list[str], BeforeValidator(_names, json_schema_input_type=str | list[str])] = Field(
        ["dilution", "val_loss"]
    )
    """Metrics, each with a ranking of its own."""


class StudyFields(Record):
    """Everything in a study file but its task."""

    resnas: FormatVersion = Field(1, validate_default=False)
    """Version of the file format."""
    space: str
    """Search space, a path relative to this file."""
    budget: Annotated[Budget, BeforeValidator(empty_mapping)] = Budget()
    """What every trial may use, the same for all."""
    objectives: Annotated[
        dict[str, Direction | None],
        BeforeValidator(_directions, json_schema_input_type=str | list[str] | dict[str, Direction]),
    ] = Field({"val_loss": "minimize"})
    """Metrics to search for: a name, a list of names, or {name: minimize or maximize}."""
    limits: Annotated[dict[str, Bound], BeforeValidator(empty_mapping)] = Field(default_factory=dict)
    """Limits of metrics, {name: {max: number}} or {min: number}: an architecture beyond them is trained and kept, but
    never the best one, and the sampler avoids its like."""
    search: Annotated[Search, BeforeValidator(empty_mapping)] = Search()
    """How architectures are chosen and trials are run."""
    ranking: Annotated[Ranking, BeforeValidator(empty_mapping)] = Ranking()
    """What the properties of architectures are ranked by."""
    storage: str | None = Field(None, repr=False)
    """Where trials are kept: sqlite:///FILE, journal:FILE or postgresql://… (FILE relative to this file); null is the
    variable RESNAS_STORAGE, else OPTUNA_STORAGE, else an SQLite file in the results folder."""
