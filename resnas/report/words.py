"""How numbers and durations are written, and the words of the glossary."""

from __future__ import annotations

import math
from html import escape
from typing import Any

GLOSSARY = {
    "sublayer": "One attention or one MLP. A layer is both; depth counts layers, so there are S = 2 · depth sublayers.",
    "source": "What a read may use: v₀ is the embedding, v_l the output of sublayer l (a delta, before any sum).",
    "read": "Read l is what sublayer l consumes. Read S + 1 is the readout, before the final norm and the head.",
    "residual topology": "The rule that makes a read from the sources; its YAML name is the family.",
    "depth-mixing matrix": "M, lower triangular: read_l = Σ M(i→l) · v_i over the sources i before l.",
    "fixed": "All weights are one: the plain residual stream, and the baseline.",
    "scalar_learned": "Learned numbers, the same for every token; starts as fixed.",
    "windowed_depth_attention": "A softmax over the newest sources (the window) and, as an option, the embedding; "
    "older sources are dropped, or pooled into one remainder source.",
    "full_depth_attention": "A softmax over all sources (Attention Residuals, arXiv 2603.15031).",
    "newest share": "The share of a read, by size, that comes from the newest source. It falls as 1/l in an equal-norm "
    "PreNorm stream.",
    "hidden size": "Root mean square over features of what a sublayer reads, before its norm.",
    "contribution ratio": "‖f‖ / ‖h + f‖ of a sublayer's output f and its read h. Describes one topology from within.",
    "architecture": "One choice of every value of the search space. Its key is a hash of these values.",
    "seed": "Start of the random numbers of weights and batches. Two seeds of one architecture differ by luck.",
    "supported": "Beats shuffled residuals of a model without the property (p < 0.05, corrected for the number of "
    "properties), its interval lies above 0, and a second surrogate needs it, too.",
    "suggestive": "Better than such shuffled residuals (p < 0.2), but not clearly enough to build on.",
    "not separable from noise": "No evidence of an effect. That is not evidence of no effect.",
}
MISSING = "–"


def number(value: Any, digits: int = 4) -> str:
    """Write a number with so many significant digits and a true minus sign; whole numbers in groups of three."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return MISSING
    if isinstance(value, bool | str):
        return str(value)
    if float(value).is_integer() and abs(value) >= 1000:
        return f"{int(value):,}".replace(",", "\u202f").replace("-", "−")
    return f"{value:.{digits}g}".replace("-", "−")


def duration(seconds: float) -> str:
    """Write a duration in its two largest units."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    hours, rest_minutes = divmod(minutes, 60)
    return f"{hours} h {rest_minutes} min" if hours else f"{minutes} min {rest_s} s"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun: `1 seed`, `3 seeds`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def joined(words: list[str]) -> str:
    """Join words: `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def nothing(sentence: str) -> str:
    """Return a paragraph that says why something is not there."""
    return f'<p class="refusal">{escape(sentence)}</p>'
