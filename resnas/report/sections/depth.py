"""Dilution over depth, and who reads from whom."""

from __future__ import annotations

from resnas.report.depth_figures import REFERENCE, matrix_figure, profile_figure
from resnas.report.exhibit import Part, ReportFigure, Section, identifier
from resnas.report.material import Material
from resnas.report.profiles import Band, against_even, bands, best_matrices
from resnas.report.words import nothing

BAND = (
    "Lines are means over the architectures of a family (each the mean of its seeds), bars the 90 % interval of that "
    "mean (Student’s, over three architectures or more), bands hold the middle 90 % of architectures; n counts "
    "architectures. Depths that are not drawn at first are switched on in the legend."
)
ZIGZAG = "Attention and MLP take turns, and a zigzag is their difference in size."
MIXING = (
    "The depth-mixing matrix of the best architecture of each family, after training: a row is a read, a column is a "
    "source. Colour is the mean size of a weight over the even split of its read, so neutral means “no preference”, "
    "blue “read more than others”, orange “read less”; a blank cell is not read. The sign of a weight is not shown."
)


def dilution(material: Material) -> Section:
    """Return the profiles over depth."""
    drawn: list[Part] = list(_profiles(material))
    parts = drawn or [nothing("No complete trial has its measurements over depth.")]
    return Section("depth", "Dilution over depth", parts)


def _profiles(material: Material) -> list[ReportFigure]:
    drawn = []
    if newest := bands(material, "newest_share", 2, logarithmic=True):
        positions = max((band.positions for band in newest), key=len)
        reference = [{"family": REFERENCE, "read": read, "mean": 1 / read} for read in positions]
        drawn.append(
            ReportFigure(
                id="newest-share",
                title="Newest share over depth",
                caption="The share of each read that comes from the newest source. A line that falls like the dotted "
                "1/l is full PreNorm dilution, a level line is none. Both axes are logarithmic, means are geometric, "
                f"and what lies far below is in the file only. {BAND} {ZIGZAG}",
                rows=[*_rows(newest, "read"), *reference],
                figure=profile_figure(newest, "read", "newest share", logarithmic=True, reference=True),
            )
        )
    if hidden := bands(material, "hidden_size", 1):
        drawn.append(
            ReportFigure(
                id="hidden-size",
                title="Hidden magnitude over depth",
                caption="How large the read of each sublayer is. In a PreNorm stream it grows with depth, which is "
                f"what shrinks the share of each new output. {BAND}",
                rows=_rows(hidden, "sublayer"),
                figure=profile_figure(hidden, "sublayer", "root mean square of the read"),
            )
        )
    if contribution := bands(material, "contribution_ratio", 1):
        drawn.append(
            ReportFigure(
                id="contribution-ratio",
                title="Contribution ratio over depth",
                caption="‖f‖ / ‖h + f‖ of each sublayer’s output f and read h: near 0 it changes almost nothing. "
                f"Compare depths within a family rather than families. {BAND}",
                rows=_rows(contribution, "sublayer"),
                figure=profile_figure(contribution, "sublayer", "‖f‖ / ‖h + f‖"),
            )
        )
    return drawn


def _rows(found: list[Band], position: str) -> list[dict[str, object]]:
    return [row for band in found for row in band.to_rows(position)]


def mixing(material: Material) -> Section:
    """Return the learned depth-mixing matrix of the best architecture of each family."""
    drawn: list[ReportFigure] = []
    for one, number, matrix in best_matrices(material):
        relative = against_even(matrix)
        rows: list[dict[str, object]] = [
            {"read": read, "source": source, "weight": weight, "log2_over_even": relative[read - 1][source]}
            for read, weights in enumerate(matrix, start=1)
            for source, weight in enumerate(weights)
        ]
        drawn.append(
            ReportFigure(
                id=identifier(f"matrix-{one.family}"),
                title=one.family,
                caption=f"{one.label}, depth {one.depth}, key {one.key}, trial {number}.",
                rows=rows,
                figure=matrix_figure(matrix),
                narrow=True,
            )
        )
    parts: list[Part] = [f"<p>{MIXING}</p>", *drawn]
    title = "Who reads from whom"
    return Section("mixing", title, parts if drawn else [nothing("No complete trial has its depth-mixing matrix.")])
