"""Whose checkpoints are kept, and that a search stops while there is still space on the disk."""

import itertools
import random
import shutil
import time
from pathlib import Path

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import FrozenTrial, TrialState

from resnas.errors import InputError, ResnasError
from resnas.search.disk import FreeSpace, KeptCheckpoints, check_free
from resnas.search.opening import trial_folder
from resnas.study import Study

STUDY = "resnas: 1\nspace: space.yaml\ntask: {khop: {length: 16, max_hops: 2}}\n"
OTHERS = ("log.txt", "result.json", "metrics.csv", "tensorboard/events")


def a_study(folder: Path, *overrides: str) -> Study:
    (folder / "space.yaml").write_text("resnas: 1\narchitecture:\n  depth: [1, 2]\n  residual: [fixed]\n")
    (folder / "small.yaml").write_text(STUDY)
    return Study.load(folder / "small.yaml", overrides)


@pytest.fixture
def study(tmp_path) -> Study:
    return a_study(tmp_path, "search.keep_checkpoints=2")


def leave(study: Study, number: int) -> None:
    """Let a trial have left all its files."""
    folder = trial_folder(study, number)
    for name in (*OTHERS, "checkpoints/best.ckpt", "checkpoints/last.ckpt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def left(study: Study) -> list[int]:
    """Return the trials that have checkpoints, and check that all have their other files."""
    folders = sorted((study.results_folder / "trials").iterdir())
    for folder in folders:
        for name in OTHERS:
            assert (folder / name).exists(), folder / name
    return [int(folder.name) for folder in folders if (folder / "checkpoints").exists()]


def trial(
    number: int, ending: str, values: list[float] | None = None, key: str = "", replicate: int = 0
) -> FrozenTrial:
    state = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "running": TrialState.RUNNING}.get(
        ending, TrialState.FAIL
    )
    attributes = {"resnas.key": key or f"k{number}", "resnas.replicate": replicate, "resnas.ending": ending}
    made = optuna.trial.create_trial(state=TrialState.COMPLETE, values=values or [0.0], user_attrs=attributes)
    made.number = number
    made.state = state
    if values is None:
        made.values = None
    return made


def test_the_best_trials_keep_their_checkpoints(study):
    kept = KeptCheckpoints(study, [])
    steps = [(3.0, [0]), (2.0, [0, 1]), (4.0, [0, 1]), (1.0, [1, 3]), (1.0, [3, 4])]
    for number, (value, expected) in enumerate(steps):
        leave(study, number)
        kept.ended(number, f"k{number}", 0, [value])
        assert left(study) == expected


@pytest.mark.parametrize(("keep", "expected"), [(0, []), (1, [2]), (9, [0, 1, 2])])
def test_how_many_and_which_way_are_the_study_s(tmp_path, keep, expected):
    study = a_study(tmp_path, f"search.keep_checkpoints={keep}", "objectives={effective_depth: maximize}")
    kept = KeptCheckpoints(study, [])
    for number, value in enumerate([1.0, 2.0, 3.0]):
        leave(study, number)
        kept.ended(number, f"k{number}", 0, [value])
    assert left(study) == expected


def test_trials_that_did_not_end_complete_keep_none(study):
    kept = KeptCheckpoints(study, [])
    leave(study, 0)
    kept.ended(0, "k", 0)
    assert left(study) == []


def test_the_pareto_front_comes_first(tmp_path):
    study = a_study(tmp_path, "search.keep_checkpoints=3", "objectives=[val_loss, parameters]")
    kept = KeptCheckpoints(study, [])
    for number, values in enumerate([[1.0, 9.0], [1.1, 10.0], [1.2, 11.0], [5.0, 1.0], [6.0, 0.5]]):
        leave(study, number)
        kept.ended(number, f"k{number}", 0, values)
    assert left(study) == [0, 3, 4]


@settings(max_examples=60)
@given(
    points=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12),
    keep=st.integers(0, 6),
)
def test_what_is_taken_up_is_what_the_definition_says(tmp_path_factory, points, keep):
    """The definition, over all pairs: front first, then the first objective, then who came first."""
    study = a_study(tmp_path_factory.mktemp("front"), f"search.keep_checkpoints={keep}", "objectives=[val_loss, flops]")

    def beaten(one: tuple) -> bool:
        return any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in points)

    trials = [trial(number, "complete", [float(a), float(b)]) for number, (a, b) in enumerate(points)]
    for number in range(len(points)):
        leave(study, number)
    order = sorted(range(len(points)), key=lambda one: (beaten(points[one]), points[one][0], one))
    needless = KeptCheckpoints(study, trials).needless
    kept = set(range(len(points))) - set(needless)
    assert kept == set(order[:keep])


def test_earlier_runs_are_taken_up_and_tidied(study):
    trials = [
        trial(0, "complete", [2.0]),
        trial(1, "complete", [1.0]),
        trial(2, "pruned"),
        trial(3, "failed"),
        trial(4, "interrupted", key="a"),  # has gone on and ended as trial 6
        trial(5, "interrupted", key="b"),
        trial(6, "complete", [3.0], key="a"),
        trial(7, "running", key="c"),
        trial(8, "interrupted", key="b"),  # has gone on from trial 5
        trial(9, "interrupted", key="b", replicate=1),
        trial(10, "infeasible"),
    ]
    for one in trials:
        leave(study, one.number)
    kept = KeptCheckpoints(study, trials)
    assert left(study) == list(range(11))
    assert kept.needless == [2, 3, 4, 5, 6, 10]
    kept.tidy()
    assert left(study) == [0, 1, 7, 8, 9]
    assert kept.to_go_on("b", 0) == str(trial_folder(study, 8) / "checkpoints" / "last.ckpt")
    assert kept.to_go_on("b", 1) == str(trial_folder(study, 9) / "checkpoints" / "last.ckpt")
    assert kept.to_go_on("a", 0) is None


def test_an_interrupted_trial_keeps_its_checkpoint_until_it_has_gone_on_to_an_end(study):
    kept = KeptCheckpoints(study, [])
    leave(study, 0)
    kept.interrupted(0, "k", 0)
    assert left(study) == [0]
    assert kept.to_go_on("k", 0) == str(trial_folder(study, 0) / "checkpoints" / "last.ckpt")
    leave(study, 1)
    kept.interrupted(1, "k", 0)
    assert left(study) == [1]
    leave(study, 2)
    shutil.rmtree(trial_folder(study, 2) / "checkpoints")  # interrupted before its first checkpoint
    kept.interrupted(2, "k", 0)
    assert left(study) == [1]
    leave(study, 3)
    kept.ended(3, "other", 0, [1.0])
    assert left(study) == [1, 3]
    leave(study, 4)
    kept.ended(4, "k", 0, [2.0])
    assert left(study) == [3, 4]
    assert kept.to_go_on("k", 0) is None


def test_trials_under_way_are_left_alone(study):
    kept = KeptCheckpoints(study, [])
    for number in range(6):
        leave(study, number)
    for number in range(4):
        kept.ended(number, f"k{number}", 0, [float(number)])
    assert left(study) == [0, 1, 4, 5]


def test_an_ending_costs_the_same_after_a_thousand_trials(study):
    values = [random.Random(1).random() for _ in range(1000)]
    trials = [trial(number, "complete", [value]) for number, value in enumerate(values)]
    (study.results_folder / "trials").mkdir(parents=True)
    started = time.perf_counter()
    kept = KeptCheckpoints(study, trials)
    taken_up_s = time.perf_counter() - started
    times = []
    for number in range(1000, 1050):
        started = time.perf_counter()
        kept.ended(number, f"k{number}", 0, [0.5])
        times.append(time.perf_counter() - started)
    print(f"{taken_up_s=:.3f}, an ending {1e3 * sorted(times)[25]:.3f} ms")
    assert taken_up_s < 2
    assert sorted(times)[25] < 0.01


def test_too_little_space_is_refused_with_what_to_do(study, small_disk):
    tight = a_study(small_disk, "search.min_free_gib=1")
    with pytest.raises(InputError) as caught:
        check_free(tight)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for words in (
        str(tight.results_folder),
        "0.0039 GiB",
        "1 GiB",
        f"python cli.py clean {tight.path}",
        "min_free_gib",
    ):
        assert words in sentence
    check_free(a_study(small_disk, "search.min_free_gib=0"))
    check_free(a_study(small_disk, "search.min_free_gib=0.003"))


def test_space_that_runs_out_during_the_search_stops_it(small_disk):
    study = a_study(small_disk, "search.min_free_gib=0.002")
    seconds = itertools.count()
    space = FreeSpace(study, every_s=3, clock=lambda: next(seconds))
    space.check()
    (small_disk / "ballast").write_bytes(b"x" * 3 * 2**20)
    with pytest.raises(ResnasError, match="stopped before the disk is full") as caught:
        check_often(space)
    assert caught.type is ResnasError
    assert next(seconds) <= 9
    (small_disk / "ballast").unlink()
    check_often(space)


def check_often(space: FreeSpace) -> None:
    for _ in range(5):
        space.check()
