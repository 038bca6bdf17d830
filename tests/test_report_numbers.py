"""Every number in the page stands in the CSV file that its figure or table names; planted effects are reported."""

import csv
import json
import math
import re
import time
from html import unescape
from html.parser import HTMLParser

import pytest
from planted import CONFIRMATIONS, FAILING_RATE, planted_study, planted_trials
from test_report_figures import GROUPED, ranking

from resnas.report import Material, ReportFigure, ReportTable, exhibits, note, write_report
from resnas.report.anytime import best_over_time, choice, random_search
from resnas.report.association import associations, sentences
from resnas.report.budget import agreements
from resnas.report.endings import failed_shares
from resnas.report.words import number

REFUSED = ranking(refusal="no reliable ranking: too few trials")


@pytest.fixture(scope="module", params=["val_loss", "[val_loss, dilution]"], ids=["one objective", "two objectives"])
def planted(request, tmp_path_factory):
    """Return a study of 60 architectures with failures, replicates and confirmations, and its trials."""
    study = planted_study(tmp_path_factory.mktemp("planted"), request.param)
    trials = planted_trials(study, 60)
    (study.results_folder / "confirm.json").write_text(json.dumps(CONFIRMATIONS))
    return study, trials


def read(path) -> list[dict]:
    with path.open(newline="") as file:
        return [{name: parsed(value) for name, value in row.items()} for row in csv.DictReader(file)]


def parsed(text: str):
    try:
        return float(text)
    except ValueError:
        return text


def is_in(values: list, row: dict) -> bool:
    """Whether a row holds all these values."""
    return all(any(is_same(value, held) for held in row.values()) for value in values)


def is_same(value, held) -> bool:
    if isinstance(value, str):
        plain = re.sub(r" \+ \d+$", "", unescape(value.replace("<br>", " ")))
        return held in (plain, parsed(plain))  # a level may be named by a number
    return isinstance(held, float) and math.isclose(value, held, rel_tol=1e-9, abs_tol=1e-12)


def plotted(trace) -> list[list]:
    """Return what each point of a trace says: its position, the ends of its bars, the value of a cell."""
    if trace.type == "heatmap":
        return [
            [trace.y[i], trace.x[j], value]
            for i, row in enumerate(trace.z)
            for j, value in enumerate(row)
            if value is not None and math.isfinite(value)
        ]
    points = []
    for k, (x, y) in enumerate(zip(trace.x, trace.y, strict=True)):
        point = [x, y]
        for value, bars in ((x, trace.error_x), (y, trace.error_y)):
            if bars.array is not None and bars.array[k] is not None and math.isfinite(bars.array[k]):
                point += [value + bars.array[k], value - bars.arrayminus[k]]
        points.append(point)
    return points


def check_figure(one: ReportFigure, rows: list[dict]) -> int:
    checked = 0
    for trace in one.figure.data:
        for point in plotted(trace):
            assert any(is_in(point, row) for row in rows), (one.id, trace.name, point)
            checked += 1
    return checked


class Cells(HTMLParser):
    """The text of the cells that hold numbers, row by row."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.within = False
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.within = ("class", "number") in attributes
            if self.within:
                self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.within = self.within and tag != "td"

    def handle_data(self, text):
        if self.within:
            self.rows[-1][-1] += f" {text}"


def written_numbers(cell: str) -> list[str]:
    return re.findall(r"−?\d[\d.\u202f]*(?:e[+−]?\d+)?", cell)


def check_table(one: ReportTable, rows: list[dict]) -> int:
    ways = [
        {number(value, digits) for value in row.values() if isinstance(value, float) for digits in (2, 3, 4)}
        | {part for value in row.values() if isinstance(value, str) for part in written_numbers(value)}
        for row in rows
    ]
    checked = 0
    for cells in Cells(one.html).rows:
        said = [text for cell in cells for text in written_numbers(cell)]
        assert not said or any(set(said) <= held for held in ways), (one.id, said)
        checked += len(said)
    return checked


def test_every_number_of_every_figure_and_table_is_in_its_file(planted):
    study, trials = planted
    page = write_report(Material(study, trials), [GROUPED, REFUSED]).read_text()
    shown = exhibits(Material(study, trials), [GROUPED, REFUSED])
    checked = {}
    for one in shown:
        rows = read(study.results_folder / one.file)
        assert len(rows) == len(one.rows) > 0
        assert f'<a href="{one.file}">' in page
        checked[one.id] = check_figure(one, rows) if isinstance(one, ReportFigure) else check_table(one, rows)
    words_only = {"protocol", "metrics", "glossary-properties", "basis-dilution"}  # the last has a test of its own
    assert {name for name, count in checked.items() if not count} == words_only
    expected = {"architectures", "best-against-rival", "families", "newest-share", "matrix-fixed", "association"}
    expected |= {"loss-against-dilution", "importance-dilution", "effect-dilution", "properties-dilution"}
    expected |= {"levels-dilution", "interactions-dilution"}
    expected |= {
        "confirmed-dilution",
        "confirmed-test_loss",
        "confirmations",
        "best-so-far-val_loss",
        "best-over-time-val_loss",
        "failures",
    }
    assert expected | {"failed-shares", "budget-correlation"} | words_only <= set(checked)
    assert {path.name for path in (study.results_folder / "report").iterdir()} == {f"{one.id}.csv" for one in shown}


def test_the_numbers_of_the_answer_are_in_the_files_that_it_names(planted):
    study, trials = planted
    page = write_report(Material(study, trials), [GROUPED]).read_text()
    box = page[page.index('<div class="answer">') : page.index("<nav")]
    files = re.findall(r'href="(report/[\w-]+\.csv)"', box)
    assert {"report/architectures.csv", "report/best-against-rival.csv"} <= set(files)
    held = {
        number(value, digits)
        for file in files
        for row in read(study.results_folder / file)
        for value in row.values()
        if isinstance(value, float)
        for digits in (2, 3, 4)
    }
    finding = re.search(r'<p class="finding">(.*?)</p>', box)[1]
    said = [text.rstrip(".") for text in written_numbers(finding) if "." in text.rstrip(".")]
    assert len(said) >= 9
    assert set(said) <= held


def test_the_check_above_can_fail(planted):
    study, trials = planted
    for one in exhibits(Material(study, trials), [GROUPED]):
        if one.id not in ("newest-share", "families"):
            continue
        halved = [{name: v / 2 + 1e-3 if isinstance(v, float) else v for name, v in row.items()} for row in one.rows]
        with pytest.raises(AssertionError):
            check_figure(one, halved) if isinstance(one, ReportFigure) else check_table(one, halved)


def test_files_of_an_earlier_page_are_gone(planted):
    study, trials = planted
    stale = study.results_folder / "report" / "effect-late_share.csv"
    write_report(Material(study, trials), [])
    stale.write_text("old")
    write_report(Material(study, trials), [])
    assert not stale.exists()


def test_planted_associations_are_found_within_families(planted):
    material = Material(*planted)
    found = {one.family: one for one in associations(material, "val_loss", "minimize") if one.depth is None}
    assert {name: one.finding for name, one in found.items()} == {
        "fixed": "better",
        "scalar_learned": "better",
        "windowed_depth_attention": "worse",
        "full_depth_attention": "worse",
    }
    said = sentences(associations(material, "val_loss", "minimize"), "val_loss")
    assert len(said) == 4
    assert said[0].startswith("fixed: less dilution went with a better val_loss over ")
    turned = {one.family: one for one in associations(material, "val_loss", "maximize") if one.depth is None}
    assert turned["fixed"].finding == "worse"


def test_the_share_of_failures_is_that_of_the_levels(planted):
    material = Material(*planted)
    found = failed_shares(material)
    assert found[0].property == "learning_rate"
    rates = {str(row["key"]): row["learning_rate"] for row in material.rows}
    failing = sum(rate > FAILING_RATE for rate in rates.values())
    assert failing > 0
    by_property = {}
    for level in found:
        assert level.interval.low <= level.share <= level.interval.high
        by_property.setdefault(level.property, []).append(level)
    for levels in (by_property["learning_rate"], by_property["family"], by_property["depth"]):
        assert sum(level.failed for level in levels) == failing
        assert sum(level.architectures for level in levels) == len(rates)
    assert [level.failed for level in by_property["learning_rate"]] == [0, 0, failing]


def test_the_best_so_far_waits_for_all_seeds_and_never_gets_worse(planted):
    material = Material(*planted)
    moments = best_over_time(material, "val_loss", "minimize")
    plain, best = [], math.inf
    for count in range(1, len(material.rows) + 1):
        ended = {row["number"] for row in material.rows[:count]}
        whole = [one for one in material.architectures if all(row["number"] in ended for row in one.rows)]
        new = min((one.mean("val_loss") for one in whole), default=math.inf)
        if whole and any(row["number"] == material.rows[count - 1]["number"] for one in whole for row in one.rows):
            best = min(best, new)
            plain.append((count, best))
    assert [(one.trials, one.best) for one in moments] == plain
    assert [one.train_time_s for one in moments] == pytest.approx([10 * one.trials for one in moments])
    assert moments[-1].key == material.architectures[0].key


def test_random_search_pays_for_its_failures_and_is_judged_on_its_own_draws(planted):
    material = Material(*planted)
    found = random_search(material, "val_loss", "minimize")
    origins = {}
    for row in material.rows:
        origins.setdefault(row["key"], row["origin"])
    drawn = [one for one in material.architectures if origins[one.key] == "random"]
    paid = [row for row in material.rows if origins[row["key"]] == "random"]
    assert any(row["ending"] == "failed" for row in paid)
    assert found.trials_each == pytest.approx(len(paid) / len(drawn))
    assert found.train_time_s_each == pytest.approx(10 * len(paid) / len(drawn))
    assert found.best[-1].mean == pytest.approx(min(one.mean("val_loss") for one in drawn))
    chosen = choice(material, "val_loss", "minimize")
    others = [one.mean("val_loss") for one in material.architectures if origins[one.key] == "tpe"]
    assert (chosen.n, chosen.best) == (len(others), min(others))
    assert chosen.random == found.best[chosen.n - 1]


def test_the_order_settles_as_the_noise_of_early_values_fades(planted):
    found = {(one.metric, one.step): one for one in agreements(Material(*planted))}
    losses = [found["val_loss", step].correlation.value for step in (25, 50, 75, 100)]
    assert losses[0] < losses[2] < losses[3] == pytest.approx(1)
    assert found["dilution", 50].share == 0.5
    assert found["dilution", 50].correlation.low < found["dilution", 50].correlation.value < 1


def test_confirmations_stand_in_the_answer_in_a_section_and_in_the_note(planted):
    study, trials = planted
    page = write_report(Material(study, trials), [GROUPED]).read_text()
    answer = page[page.index('id="answer"') : page.index('<section id="architectures"')]
    for one in CONFIRMATIONS:
        assert one["sentence"] in answer
        assert f">{one.get('verdict_text', one['verdict'])}</span>" in page
    assert "one run of five failed; the rate was tuned anew" in page
    assert "about 12 more seeds" in note(Material(study, trials), [])
    forest = next(one for one in exhibits(Material(study, trials), []) if one.id == "confirmed-dilution")
    assert [trace.name for trace in forest.figure.data] == ["confirmed", "refuted", "undecided"]
    assert len({trace.marker.symbol for trace in forest.figure.data}) == 3


@pytest.mark.parametrize("text", ["not JSON", "{}", '[1, {}, {"verdict": "confirmed", "sentence": 3}]', "null"])
def test_a_confirmation_that_cannot_be_read_is_left_out(tmp_path, text):
    study = planted_study(tmp_path)
    trials = planted_trials(study, 3)
    (study.results_folder / "confirm.json").write_text(text)
    assert 'id="confirmations"' not in write_report(Material(study, trials), []).read_text()


def test_sections_stand_in_the_order_in_which_a_reader_asks(planted):
    study, trials = planted
    page = write_report(Material(study, trials), [GROUPED]).read_text()
    order = ["answer", "architectures", "depth", "mixing", "trade-off", "properties", "confirmations", "search"]
    order += ["failures", "budget", "provenance", "glossary"]
    places = [page.index(f'id="{name}"') for name in order]
    assert places == sorted(places)


@pytest.mark.slow
def test_a_thousand_trials_are_reported_in_twenty_seconds(tmp_path):
    study = planted_study(tmp_path)
    trials = planted_trials(study, 540)
    assert len(trials) > 1000
    started = time.perf_counter()
    path = write_report(Material(study, trials), [GROUPED])
    assert time.perf_counter() - started < 20
    assert path.stat().st_size < 8e6
