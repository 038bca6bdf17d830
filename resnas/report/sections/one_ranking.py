"""What is shown of one ranking: its sentence, figures and tables, and what it rests on."""

from __future__ import annotations

from html import escape

from resnas.ranking import Ranking
from resnas.report import level_figures, ranking_figures, ranking_tables
from resnas.report.exhibit import Folded, Part, ReportFigure, identifier
from resnas.report.material import Material, called
from resnas.report.ranking_basis import basis
from resnas.report.words import nothing


def parts(material: Material, ranking: Ranking) -> list[Part]:
    """Return the parts of a ranking in reading order; of one that was refused, the reason and what it rests on."""
    if not ranking.reliable:
        return [nothing(ranking.sentence()), Folded("What it rests on", [basis(material, ranking)])]
    figures = [importance(ranking), effect(ranking), levels(ranking)]
    tables = [
        ranking_tables.effects(ranking),
        ranking_tables.interactions(ranking),
        ranking_tables.beside_optuna(material, ranking),
        basis(material, ranking),
    ]
    summary = f"Every property, interactions, Optuna’s importances, and what the ranking of {ranking.target} rests on"
    return [
        f"<p>{escape(ranking.sentence())}</p>",
        *(one for one in figures if one is not None),
        Folded(summary, [one for one in tables if one is not None]),
    ]


def importance(ranking: Ranking) -> ReportFigure:
    """Return the figure of importance; of a refused ranking its reason."""
    return ReportFigure(
        id=identifier(f"importance-{ranking.target}"),
        title=f"Importance for {called(ranking.target)}",
        caption="How much worse predictions of held-out architectures get when a property is permuted among them, "
        "exactly over all permutations, with its 90 % interval. “+ 2” says that two more properties were moved along, "
        "because the trials cannot tell them apart. Colour and symbol say the verdict, for which an interval above 0 "
        "is not enough: the property must also beat shuffled residuals of a model without it.",
        rows=ranking_tables.effect_rows(ranking),
        figure=ranking_figures.importance_figure(ranking),
        narrow=True,
    )


def effect(ranking: Ranking) -> ReportFigure:
    """Return the figure of effects."""
    return ReportFigure(
        id=identifier(f"effect-{ranking.target}"),
        title=f"Effect on {called(ranking.target)}",
        caption="Estimated change from the lowest to the highest fifth of a number (of at most five values, from the "
        "lowest to the highest), from false to true, or from the lowest to the highest level of a name, with its 90 % "
        "interval. Colour says the verdict, which is about importance; a hollow symbol with a dot, that the interval "
        "holds 0, so the direction is not clear. Of grey ones nothing is claimed, wherever their interval lies.",
        rows=ranking_tables.effect_rows(ranking),
        figure=ranking_figures.effect_figure(ranking),
        narrow=True,
    )


def levels(ranking: Ranking) -> ReportFigure | None:
    """Return the figure of partial dependence; None where no property is supported or suggestive."""
    if not level_figures.drawn_effects(ranking):
        return None
    return ReportFigure(
        id=identifier(f"levels-{ranking.target}"),
        title=f"How {called(ranking.target)} differs between levels",
        caption="The estimated target at each level of the supported and suggestive properties, all else as it is in "
        f"the study (partial dependence), with 90 % intervals; at most {level_figures.MOST_PANELS} properties, one of "
        "each group. Dotted: the mean over the levels. Intervals of two levels may overlap although their difference "
        "is clear, which the effect and its interval say. The file has every property.",
        rows=level_figures.level_rows(ranking),
        figure=level_figures.level_figure(ranking),
    )
