"""The model card: what was trained on what, what was measured, how sure that is, and where it ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from resnas import cost
from resnas.comparison import Trained
from resnas.export.evidence import Difference, Evidence, difference
from resnas.export.source import Source
from resnas.results import METRICS, unit_of

COMPARED = ("val_loss", "dilution", "effective_depth", "late_share")
"""Metrics that stand beside the objectives."""
SHOWN = ("val_loss", "test_loss", "dilution", "effective_depth", "late_share", "parameters", "step_time_s")
"""Metrics of the model, beside the objectives and those of its task."""


def card(source: Source, evidence: Evidence | None, modules: str) -> str:
    """Return the card as Markdown.

    Args:
        source: the model.
        evidence: what its study says; None where there is none.
        modules: a sentence about the modules beside it.
    """
    architecture = source.architecture
    sections = {
        f"# {architecture.label} ({architecture.key})": _summary(source),
        "## Use": _use(modules),
        "## Training": _training(source),
        "## This model": _measured(source, evidence),
        "## Against `fixed`": _against(evidence),
        "## What the study found": _found(evidence),
        "## Limits": _limits(source, evidence),
    }
    return "\n\n".join(part for heading, text in sections.items() for part in (heading, text)) + "\n"


def _summary(source: Source) -> str:
    one, shape = source.architecture, source.shape
    kind = "decoder" if shape.causal else "encoder"
    return (
        f"A Transformer {kind} with the residual topology `{one.family}`: {one.depth} layers, width {one.width}, "
        f"{one.heads} heads, {cost.parameters(one, shape):,} parameters. {source.origin}. Weights are those after the "
        f"last step. All values stand in `architecture.yaml`."
    )


def _use(modules: str) -> str:
    return f"""In Python, with resnas:

```python
import resnas

model = resnas.load_exported(".")  # this folder
```

To train the architecture anew: `python cli.py train STUDY.yaml --architecture architecture.yaml`.

{modules}"""


def _training(source: Source) -> str:
    (task, options), *_ = source.task.items()
    facts = {
        "task": f"`{task}`: {_listed(options)}" if options else f"`{task}`",
        "data (sha256)": source.result.data_sha256,
        "budget": _listed(source.budget),
        "optimiser": _listed(source.architecture.training.model_dump()),
        "options of Lightning's Trainer": _listed(source.trainer),
        "seed of the weights, of the batches": f"{source.seed}, {source.data_seed}",
        "versions and machine": _listed(source.versions),
    }
    return _table(("what", "value"), [(name, text) for name, text in facts.items() if text])


def _measured(source: Source, evidence: Evidence | None) -> str:
    here = evidence.here if evidence else None
    metrics = source.result.metrics
    objectives = list(evidence.objectives) if evidence else []
    names = [*objectives, *SHOWN, *(name for name in metrics if name not in METRICS and not unit_of(name))]
    left_out = ("gradient_norm_max", "train_loss")
    rows = []
    for name in dict.fromkeys(name for name in names if name in metrics and name not in left_out):
        row = [f"`{name}`", _number(metrics[name])]
        if here is not None:
            row.append(_spread(here, name))
        rows.append((*row, unit_of(name)))
    headings = ["metric", "this model"]
    if evidence and here:
        headings.append(f"in the study `{evidence.study}` ({evidence.steps} steps)")
    text = _table((*headings, "unit"), rows)
    if here is None:
        return text + "\n\nNo study beside it has trained this architecture, so its spread over seeds is not known."
    seeds = len(here.rows)
    how = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed, so its spread is not known"
    return f"{text}\n\nThis model: one seed, each figure measured once. In the study: {how}."


def _against(evidence: Evidence | None) -> str:
    if evidence is None or evidence.here is None:
        return "Not known: no study beside it has trained this architecture."
    here, baseline = evidence.here, evidence.baseline
    if baseline is None:
        return f"Not known: the study `{evidence.study}` has no complete trial of `fixed`."
    if baseline.key == here.key:
        return "This is the best `fixed` of its study, the baseline itself."
    names = dict.fromkeys([*evidence.objectives, *COMPARED])
    rows = [
        (f"`{name}`", _spread(here, name), _spread(baseline, name), *_shown(difference(here, baseline, name)))
        for name in names
        if math.isfinite(here.mean(name) - baseline.mean(name))
    ]
    seeds = [len(one.rows) for one in (here, baseline)]
    return (
        _table(("metric", "this architecture", "best `fixed`", "difference", "90 % interval"), rows)
        + f"\n\nTrials of {evidence.steps} steps in the study `{evidence.study}`, {seeds[0]} and {seeds[1]} seeds; the "
        f"best `fixed` is `{baseline.key}`. Intervals are Welch's, over seeds. To be picked as the best of several "
        "flatters a figure."
    )


def _shown(found: Difference) -> tuple[str, str]:
    interval = "one seed, no interval" if found.interval is None else " to ".join(map(_number, found.interval))
    return _number(found.mean), interval


def _found(evidence: Evidence | None) -> str:
    if evidence is None:
        return "No study lies beside it."
    lines = [*evidence.verdicts] or ["Its properties were not ranked."]
    lines += [f"Confirmation: {sentence}" for sentence in evidence.confirmations]
    if not evidence.confirmations:
        lines.append("No claim of the ranking was confirmed by controlled runs.")
    return "\n".join(f"- {line}" for line in lines)


def _limits(source: Source, evidence: Evidence | None) -> str:
    parameters = cost.parameters(source.architecture, source.shape)
    (task, *_), steps = source.task, source.budget["steps"]
    lines = [
        f"A small model ({parameters:,} parameters), a short budget ({steps} steps), one corpus (`{task}`): what it "
        "shows there need not hold for larger models, longer training or other data.",
        "One seed made these weights.",
    ]
    if evidence and evidence.here:
        lines.append(
            f"It was found among {evidence.architectures} architectures; the best of many is flattered by luck."
        )
    if evidence and evidence.data_sha256 and evidence.data_sha256 != source.result.data_sha256:
        lines.append("It was trained on other data than the trials of the study; their figures cannot be compared.")
    return "\n".join(f"- {line}" for line in lines)


def _spread(one: Trained, name: str) -> str:
    """Write the mean over seeds with its standard deviation."""
    deviation = one.deviation(name)
    mean = _number(one.mean(name))
    return mean if deviation is None else f"{mean} ± {_number(deviation, 2)}"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _number(value: float, digits: int = 4) -> str:
    """Write a number for people; nothing for one that is not known."""
    if not math.isfinite(value):
        return "–"
    text = f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"
    return text.replace("-", "−")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
