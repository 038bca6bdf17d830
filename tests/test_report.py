"""The report: one file, nothing from outside, nothing hostile passes, and half a study is still a report."""

import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from resnas.analysis import analyse
from resnas.comparison import Trained, pareto_front, trained
from resnas.report import Material, note, study_figures, write_report
from resnas.search import load_trials


def page(study, trials) -> str:
    return write_report(Material(study, trials), analyse(study, trials)).read_text()


def without_plotly(text: str) -> str:
    """Leave out the library itself, which names addresses that it never loads here."""
    return re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)


def addresses(text: str) -> list[str]:
    """Return what every src, href and the like of a page names."""
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            found.extend(value for name, value in attributes if name in ("src", "href", "srcset", "action", "data"))

    Reader().feed(text)
    assert found
    return found


def test_the_report_is_one_file_that_loads_nothing_from_outside(finished_study):
    text = page(finished_study, load_trials(finished_study))
    assert 1e6 < len(text) < 8e6
    named = [address for address in addresses(text) if not address.startswith(("data:", "#"))]
    assert all(re.fullmatch(r"report/[\w-]+\.csv", address) for address in named)
    assert all((finished_study.results_folder / address).is_file() for address in named)
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']?https?:", without_plotly(text))
    assert "@import" not in text
    assert not re.findall(r"url\(\s*[\"']?http", without_plotly(text))
    assert (finished_study.results_folder / "ranking.csv").exists()


def test_the_report_says_what_must_be_said(finished_study):
    trials = load_trials(finished_study)
    text = without_plotly(page(finished_study, trials))
    for trial in trials:
        assert trial.user_attrs["resnas.key"] in text
    for words in ("no reliable ranking", "effective_depth", "can be gamed", "Failures", "sha256", "torch", "Glossary"):
        assert words in text, words


def test_hostile_names_are_escaped(finished_study):
    trials = load_trials(finished_study)
    hostile = [
        SimpleNamespace(
            number=trial.number,
            values=trial.values,
            params=trial.params,
            state=trial.state,
            datetime_start=trial.datetime_start,
            datetime_complete=trial.datetime_complete,
            duration=trial.duration,
            intermediate_values=trial.intermediate_values,
            user_attrs={**trial.user_attrs, "resnas.label": "<script>alert('x')</script>"},
        )
        for trial in trials
    ]
    text = page(finished_study, hostile)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_a_study_without_a_finished_trial_has_a_report(finished_study, tmp_path):
    text = page(finished_study, [])
    assert "No trial was completed" in text
    page(finished_study, load_trials(finished_study))  # leave the shared study as it was


def test_figures_have_unique_ids_captions_and_data(finished_study):
    trials = load_trials(finished_study)
    figures = study_figures(Material(finished_study, trials), analyse(finished_study, trials))
    ids = [one.id for one in figures]
    assert len(set(ids)) == len(ids) >= 6
    assert all(one.caption and one.title for one in figures)
    json.dumps([one.figure.to_plotly_json() for one in figures], default=str)


def test_profiles_drawn_are_those_measured(finished_study):
    """One architecture per family here, so the line of a family is its measurement."""
    trials = load_trials(finished_study)
    material = Material(finished_study, trials)
    figure = next(one for one in study_figures(material, []) if "newest" in one.id.lower()).figure
    fixed = next(trace for trace in figure.data if (trace.name or "").startswith("fixed") and trace.y is not None)
    number = next(row["number"] for row in material.compared if row["family"] == "fixed")
    assert list(fixed.y) == pytest.approx(material.measurements[number]["profiles"]["newest_share"])


def test_the_note_names_the_answer_and_warns_of_the_other_importances(finished_study):
    trials = load_trials(finished_study)
    text = note(Material(finished_study, trials), analyse(finished_study, trials))
    assert "no reliable ranking" in text
    assert "Optuna" in text


def rows(*values: tuple[str, float, float]) -> list[dict]:
    return [{"key": key, "label": key, "family": "fixed", "depth": 1, "a": a, "b": b} for key, a, b in values]


def test_architectures_are_means_over_seeds_best_first():
    ordered = trained(
        rows(("x", 1.0, 0.0), ("y", 3.0, 0.0), ("x", 4.0, 0.0), ("z", float("nan"), 0.0)), {"a": "minimize"}
    )
    assert [(one.key, one.mean("a"), len(one.rows)) for one in ordered] == [("x", 2.5, 2), ("y", 3.0, 1)]
    assert ordered[0].deviation("a") == pytest.approx(4.5**0.5)
    assert [one.key for one in trained(rows(("x", 1.0, 0.0), ("y", 3.0, 0.0)), {"a": "maximize"})] == ["y", "x"]


def test_pareto_front_keeps_what_nothing_beats():
    objectives = {"a": "minimize", "b": "maximize"}
    every = [Trained((row,)) for row in rows(("w", 1.0, 1.0), ("x", 2.0, 2.0), ("y", 2.0, 1.0), ("z", 1.0, 1.0))]
    assert [one.key for one in pareto_front(every, objectives)] == ["w", "x", "z"]
