"""All figures of a study, with their titles and captions: the same for the page and the dashboard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape

import plotly.graph_objects as go

from resnas.ranking import Ranking
from resnas.report import figures, ranking_figures
from resnas.report.figures import ReportFigure
from resnas.report.material import Material
from resnas.report.profiles import bands, best_matrices

BAND = (
    "Lines are means over the architectures of a family (each the mean of its seeds); bands hold the middle 90 % of "
    "them; n counts architectures."
)
ZIGZAG = "Attention and MLP take turns, and a zigzag is their difference in size."


def study_figures(material: Material, rankings: Sequence[Ranking]) -> list[ReportFigure]:
    """Return every figure that there is data for."""
    return [
        *ranking(rankings),
        *over_depth(material),
        *who_reads_whom(material),
        *loss_against_dilution(material),
        *over_trials(material),
    ]


def ranking(rankings: Sequence[Ranking]) -> list[ReportFigure]:
    """Return importance and effect for each target; one figure with the refusal where there is no reliable ranking."""
    found = []
    for one in rankings:
        importance = ReportFigure(
            _id(f"importance-{one.target}"),
            f"Importance for {one.target}",
            "How much worse the held-out predictions get when a property is permuted, with its 90 % interval. “+ 2” "
            "says that two more properties were moved along, because the trials cannot tell them apart.",
            ranking_figures.importance_figure(one),
        )
        effect = ReportFigure(
            _id(f"effect-{one.target}"),
            f"Effect on {one.target}",
            "Estimated change from low to high values, from false to true, or between the extreme levels, with its "
            "90 % interval; colour and symbol say the verdict.",
            ranking_figures.effect_figure(one),
        )
        found += [importance, effect] if one.reliable else [importance]
    return found


def over_depth(material: Material) -> list[ReportFigure]:
    """Return the profiles over depth; none where no trial has its measurements."""
    drawn = []
    newest = bands(material, "newest_share", 2)
    if newest:
        drawn.append(
            ReportFigure(
                "newest-share",
                "Newest share over depth",
                "The share of each read that comes from the newest source. A line that falls like the dotted 1/l is "
                "full PreNorm dilution, a level line is none. Both axes are logarithmic, and a band may reach below "
                f"the picture. {BAND} {ZIGZAG}",
                figures.profile_figure(newest, "read", "newest share", logarithmic=True, reference=True),
            )
        )
    hidden = bands(material, "hidden_size", 1)
    if hidden:
        drawn.append(
            ReportFigure(
                "hidden-size",
                "Hidden magnitude over depth",
                "How large the read of each sublayer is. In a PreNorm stream it grows with depth, which is what "
                f"shrinks the share of each new output. {BAND}",
                figures.profile_figure(hidden, "sublayer", "root mean square of the read"),
            )
        )
    contribution = bands(material, "contribution_ratio", 1)
    if contribution:
        drawn.append(
            ReportFigure(
                "contribution-ratio",
                "Contribution ratio over depth",
                "‖f‖ / ‖h + f‖ of each sublayer’s output f and read h: near 0 it changes almost nothing. Compare "
                f"depths within a family rather than families. {BAND}",
                figures.profile_figure(contribution, "sublayer", "‖f‖ / ‖h + f‖"),
            )
        )
    return drawn


def who_reads_whom(material: Material) -> list[ReportFigure]:
    """Return the learned depth-mixing matrix of the best architecture of each family."""
    return [
        ReportFigure(
            _id(f"matrix-{one.family}"),
            one.family,
            f"{one.label}, trial {one.rows[0]['number']}",
            figures.matrix_figure(matrix),
        )
        for one, matrix in best_matrices(material)
    ]


def loss_against_dilution(material: Material) -> list[ReportFigure]:
    """Return the objective against dilution."""
    if not any(one.values("dilution") for one in material.architectures):
        return []
    name = next((name for name in material.objectives if name != "dilution"), "val_loss")
    return [
        ReportFigure(
            "loss-against-dilution",
            f"{name} against dilution",
            "Each point is a complete trial. Less dilution (left) is only worth having where the objective is good "
            "as well.",
            figures.scatter_figure(material.architectures, "dilution", name),
        )
    ]


def over_trials(material: Material) -> list[ReportFigure]:
    """Return the best so far per objective, and the Pareto front where there are several."""
    drawn = []
    if not material.architectures:
        return []
    for name, direction in material.objectives.items():
        figure = figures.best_so_far_figure(material.compared, name, direction)
        caption = (
            "Each point is a complete trial, the line is the best up to it. Filled points were "
            "chosen by the search in the light of earlier trials, so they crowd where it looked good; hollow ones "
            "were not. A level line says that nothing better was found."
        )
        drawn.append(ReportFigure(_id(f"best-so-far-{name}"), f"Best {name} so far", caption, figure))
    if len(material.objectives) > 1:
        drawn.append(_front(material))
    return drawn


def _front(material: Material) -> ReportFigure:
    x_name, y_name = list(material.objectives)[:2]
    figure: go.Figure = figures.scatter_figure(material.architectures, x_name, y_name, material.objectives)
    caption = (
        f"Ringed architectures are beaten by no other one in all of {', '.join(material.objectives)}; the ring lies "
        "at the mean over seeds."
    )
    return ReportFigure("pareto-front", "Pareto front", caption, figure)


def _id(text: str) -> str:
    """Return a valid HTML id: letters, digits, `-` and `_`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", unescape(text))
