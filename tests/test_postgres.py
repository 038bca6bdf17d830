"""Studies in a real PostgreSQL server: several coordinators, a server that goes away, passwords, Optuna's own tools."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path

import optuna
import pytest
from conftest import need
from optuna.distributions import FloatDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState, create_trial
from postgres import PASSWORD, Server, Wire, missing
from test_search import SPACE, STUDY
from test_storage import holder, read_all, search_with_the_dashboard_open

from resnas.cli import cleaning
from resnas.errors import InputError, ResnasError
from resnas.executor import LocalExecutor
from resnas.results import COUNTED, Recorded
from resnas.search import Coordinator, advisory, existing_study, load_trials, open_study, patience
from resnas.search.claim import claimed
from resnas.search.cleaning import find_needless
from resnas.search.opening import check_data, make_results_folder
from resnas.search.patience import TOKEN, PatientStorage
from resnas.study import Study


@pytest.fixture(scope="module")
def server():
    """A server that the tests may stop and start."""
    need(missing(), not missing())
    running = Server()
    yield running
    running.remove()


@pytest.fixture
def make(server, tmp_path, monkeypatch):
    """Return a function that writes a small study in a database of its own and loads it with overrides."""
    monkeypatch.delenv("OPTUNA_STORAGE", raising=False)
    monkeypatch.setenv("RESNAS_STORAGE", server.url(server.new_database()))

    def load(*overrides: str, name: str = "small", space: str = SPACE) -> Study:
        (tmp_path / "space.yaml").write_text(space)
        (tmp_path / f"{name}.yaml").write_text(STUDY)
        study = Study.load(tmp_path / f"{name}.yaml", overrides)
        make_results_folder(study)
        return study

    return load


def start_search(study: Study, *overrides: str, **variables: str) -> subprocess.Popen:
    """Start a search in a process of its own."""
    options = [part for override in overrides for part in ("--set", override)]
    command = [sys.executable, "-m", "resnas.cli", "search", str(study.path), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def wait_for(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_complete(study: Study) -> None:
    """Check that the total is exact, that nothing runs or waits, and that no architecture has a seed twice."""
    trials = load_trials(study)
    assert not [trial.number for trial in trials if trial.state in (TrialState.RUNNING, TrialState.WAITING)]
    counted = [Recorded.of(trial) for trial in trials if Recorded.of(trial).ending in COUNTED]
    assert len(counted) == study.search.n_trials
    assert max(Counter((one.key, one.replicate) for one in counted).values()) == 1
    assert [trial.number for trial in trials] == list(range(len(trials)))


def test_a_plain_url_uses_the_driver_that_is_there(make):
    backend = open_study(make())._storage._backend
    assert isinstance(backend, PatientStorage)
    assert backend.engine.driver == "psycopg"
    with backend.engine.connect() as connection:
        parameters = connection.connection.dbapi_connection.info.get_parameters()
    assert (parameters["tcp_user_timeout"], parameters["application_name"]) == ("30000", "resnas")


@pytest.mark.slow
def test_processes_that_make_the_study_at_the_same_time_share_it(make, tmp_path):
    code = (
        "import sys; from resnas.search import open_study; from resnas.study import Study; "
        "print(open_study(Study.load(sys.argv[1]))._study_id)"
    )
    command = [sys.executable, "-c", code, str(make().path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0] for process in processes] == ["1\n"] * 4
    other = make(space=SPACE.replace("depth: [1, 2]", "depth: [1, 3]"))
    with pytest.raises(InputError, match="was started with other settings"):
        open_study(other)
    check_data(other, existing_study(other), "a" * 64)
    with pytest.raises(InputError, match="was started with other data"):
        check_data(other, existing_study(other), "b" * 64)


def test_asking_for_a_study_makes_no_tables(make, server):
    study = make()
    with pytest.raises(InputError, match="no results yet"):
        load_trials(study)
    database = os.environ["RESNAS_STORAGE"].rpartition("/")[2]
    assert server.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database) == [(0,)]


def test_coordinators_know_who_lives_and_take_turns(make, server, monkeypatch):
    study = make()
    other, owner = holder(study)
    with claimed(study) as claim:
        assert claim.owner != owner
        assert claim.is_alive(owner)
        assert claim.is_alive(claim.owner)
        assert claim.is_alive(owner)  # looking takes nothing away
        os.kill(other.pid, signal.SIGSTOP)
        assert claim.is_alive(owner)
        os.kill(other.pid, signal.SIGKILL)
        other.communicate()
        wait_for(lambda: not claim.is_alive(owner))
        # of a process elsewhere nothing but its lock can be seen: it may be connecting again
        monkeypatch.setattr(advisory, "GRACE_S", 0.5)
        assert claim.is_alive("elsewhere:1:f00")
        wait_for(lambda: not claim.is_alive("elsewhere:1:f00"))
        with claimed(study) as second:
            inside = []

            def enter() -> None:
                with second.exclusive():
                    inside.append("second")

            with claim.exclusive(), claim.exclusive():
                waiting = threading.Thread(target=enter)
                waiting.start()
                time.sleep(0.5)
                inside.append("first")
            waiting.join()
            assert inside == ["first", "second"]


def database() -> str:
    """Return the name of the database in which the study of a test is kept."""
    return os.environ["RESNAS_STORAGE"].rpartition("/")[2]


def test_who_has_the_turn_knows_whether_it_has_had_it_all_along(make, server):
    with claimed(make()) as claim:
        assert not claim.has_turn()
        with claim.exclusive():
            assert claim.has_turn()
            with claim.exclusive():
                assert claim.has_turn()
            assert claim.has_turn()
            server.cut(claim._turn_key, database())
            assert not claim.has_turn()
            assert claim.is_alive(claim.owner)
            claim._ask("SELECT 1")  # connects again, and takes the turn that nobody else has
            assert server.execute(f"SELECT pg_try_advisory_lock({claim._turn_key})", database()) == [(False,)]
            assert not claim.has_turn()
        assert not claim.has_turn()
        with claim.exclusive():
            assert claim.has_turn()
        assert server.execute(f"SELECT pg_try_advisory_lock({claim._turn_key})", database()) == [(True,)]


def test_a_cut_connection_is_made_again_during_a_turn_and_the_next_in_turn_waits(make, server, monkeypatch):
    """The first is at work for long, and must not be taken for dead; what it does last is done before the second."""
    monkeypatch.setattr(advisory, "LOOK_AFTER_S", 0.2)
    monkeypatch.setattr(advisory, "SETTLE_S", 2.0)
    study = make()
    with claimed(study) as first, claimed(study) as second:
        entered, cut = [], []

        def enter() -> None:
            with second.exclusive():
                entered.append(time.monotonic())
                assert second.has_turn()

        waiting = threading.Thread(target=enter)
        with first.exclusive():
            waiting.start()
            time.sleep(0.5)
            cut.append(time.monotonic())
            server.cut(first._turn_key, database())
            lock = f"SELECT pg_try_advisory_xact_lock({first._key(first.owner)})"
            wait_for(lambda: server.execute(lock, database()) == [(False,)])
            waiting.join()
            assert not first.has_turn()
        assert 1.9 < entered[0] - cut[0] < 20
        # a turn that ended as it should is followed at once
        monkeypatch.setattr(advisory, "SETTLE_S", 60.0)
        waiting = threading.Thread(target=enter)
        with first.exclusive():
            waiting.start()
            time.sleep(0.5)
            left = time.monotonic()
        waiting.join()
        assert entered[1] - left < 20


def test_the_next_in_turn_waits_while_the_server_has_given_back_the_turn_of_a_broken_connection_but_not_all(
    make, monkeypatch
):
    """A server that ends a connection gives its locks back one by one; here it has not come further than the first."""
    monkeypatch.setattr(advisory, "SETTLE_S", 1.0)
    with claimed(make()) as first, claimed(make()) as second:
        entered = []

        def enter() -> None:
            with second.exclusive():
                entered.append(time.monotonic())

        for _ in range(2):  # the second time after a turn that has ended
            waiting = threading.Thread(target=enter)
            with first.exclusive():
                waiting.start()
                time.sleep(0.5)
                left = time.monotonic()
                first._ask("SELECT pg_advisory_unlock(:key)", key=first._turn_key)
                waiting.join()
            assert 0.9 < entered[-1] - left < 20


def test_two_who_count_and_start_at_the_same_time_do_not_overshoot(make, server, monkeypatch):
    """The first has counted when its connection is cut and the second starts the last trial; the first gives back."""
    monkeypatch.setattr(advisory, "SETTLE_S", 0.0)
    study = make()
    trials, total = open_study(study), 2
    trials.ask()
    with claimed(study) as first, claimed(study) as second:

        def start(claim, meanwhile=lambda: None) -> bool:
            with claim.exclusive():
                if len(trials.get_trials(states=(TrialState.RUNNING,))) >= total:
                    return False
                meanwhile()
                trial = trials.ask()
                if not claim.has_turn():
                    trials.tell(trial, state=TrialState.FAIL)
                    return False
                return True

        def cut() -> None:
            server.cut(first._turn_key, database())
            other = threading.Thread(target=lambda: started.append(start(second)))
            other.start()
            other.join()

        started: list[bool] = []
        started.append(start(first, cut))
        assert started == [True, False]
        assert [trial.state.name for trial in trials.get_trials()] == ["RUNNING", "RUNNING", "FAIL"]


@pytest.fixture
def cleaned(make, monkeypatch):
    """Return a study with needless checkpoints of its trial 0, and a function that cleans it as something happens."""
    study = make()
    optuna_study = open_study(study)
    optuna_study.tell(optuna_study.ask(), 0.5)
    for name in ("0000/checkpoints/last.ckpt", "0000/log.txt", "0007/log.txt"):
        (study.results_folder / "trials" / name).parent.mkdir(parents=True, exist_ok=True)
        (study.results_folder / "trials" / name).write_text(name)

    def clean(meanwhile=lambda: None) -> set[str]:
        def find(*arguments):
            meanwhile()
            return find_needless(*arguments)

        monkeypatch.setattr(cleaning, "find_needless", find)
        cleaning.run_clean(study.path, False, 0, [], "csv")
        return left()

    def left() -> set[str]:
        trials = study.results_folder / "trials"
        return {str(path.relative_to(trials)) for path in trials.rglob("*") if path.is_file()}

    return study, optuna_study, clean, left


def test_cleaning_leaves_a_trial_that_starts_meanwhile_and_whatever_comes_after_the_last(cleaned, capsys):
    study, optuna_study, clean, _ = cleaned
    started = threading.Event()
    with claimed(study) as other:

        def start() -> None:
            with other.exclusive():
                trial = optuna_study.ask()
                trial.set_user_attr("resnas.owner", other.owner)
                folder = study.results_folder / "trials" / f"{trial.number:04d}"
                folder.mkdir()
                (folder / "log.txt").write_text("just started")
                (folder / "result.json.1-a.partial").write_text("being written")
            started.set()

        starting = threading.Thread(target=start)
        assert clean(lambda: (starting.start(), started.wait(1))) >= {"0000/log.txt", "0007/log.txt"}
        starting.join()
        files = {"0000/log.txt", "0007/log.txt", "0001/log.txt", "0001/result.json.1-a.partial"}
        with pytest.raises(ResnasError, match="another search is running"):
            clean()
        optuna_study.tell(1, 0.25)
        assert clean() == files  # the coordinator lives and trains nothing; its file may be being written
    partial = study.results_folder / "trials" / "0001" / "result.json.1-a.partial"
    os.utime(partial, (0, 0))
    assert clean() == files - {"0001/result.json.1-a.partial"}
    assert "0000/checkpoints" in capsys.readouterr().out


def test_cleaning_deletes_nothing_once_its_turn_is_lost(cleaned, server, capsys):
    study, _, clean, left = cleaned
    before = left()
    with pytest.raises(ResnasError, match="deleted 0 of 1; the connection"):
        clean(lambda: server.cut(advisory.lock_key("turn", study.name), database()))
    assert left() == before
    assert clean() == before - {"0000/checkpoints/last.ckpt"}


def test_a_lost_host_is_noticed_within_a_minute(make):
    with claimed(make()) as claim:
        shown = {name: claim._ask(f"SHOW {name}") for name in advisory.SETTINGS}
    idle, interval, count = (int(shown[f"tcp_keepalives_{name}"]) for name in ("idle", "interval", "count"))
    assert idle + interval * count <= 60


@pytest.mark.slow
def test_a_claim_outlasts_a_restart_of_the_server(make, server):
    study = make()
    with claimed(study) as first, claimed(study) as second:
        server.stop("immediate")
        time.sleep(1)
        server.start()
        key = second._key(second.owner) % 2**64
        held = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = {key >> 32}::bigint::oid"
        database = os.environ["RESNAS_STORAGE"].rpartition("/")[2]
        wait_for(lambda: server.execute(held, database) == [(1,)], 20)  # without being asked for anything
        with first.exclusive():
            server.stop("immediate")
            server.start()
            assert first.is_alive(second.owner)  # connects again, and its turn is still its turn
            assert server.execute(f"SELECT pg_try_advisory_lock({first._turn_key})", database) == [(False,)]
            server.stop("immediate")
            server.start()
        with first.exclusive():
            assert server.execute(f"SELECT pg_try_advisory_lock({first._turn_key})", database) == [(False,)]
        assert second.is_alive(first.owner)


def test_a_claim_that_cannot_be_had_again_is_an_error(make, server, monkeypatch):
    monkeypatch.setattr(advisory, "PATIENCE_S", 0.5)
    try:
        with claimed(make()) as claim:
            server.stop()
            with pytest.raises(ResnasError, match="claim on the study 'small' was lost") as caught, claim.exclusive():
                pass
            assert PASSWORD not in str(caught.value)
    finally:
        server.start()


def test_calls_whose_outcome_is_unknown_count_once(make, server, monkeypatch):
    """Each call is done, and its confirmation is lost."""
    wire = Wire(server.port)
    monkeypatch.setenv("RESNAS_STORAGE", os.environ["RESNAS_STORAGE"].replace(str(server.port), str(wire.port)))
    study = open_study(make())
    storage, number = study._storage, study._study_id

    def unsure(call, *arguments):
        wire.cut_next = True
        answer = call(*arguments)
        assert not wire.cut_next
        return answer

    trial = unsure(storage.create_new_trial, number)
    unsure(storage.set_trial_param, trial, "x", 0.5, FloatDistribution(0, 1))
    unsure(storage.set_trial_user_attr, trial, "resnas.owner", "me")
    unsure(storage.set_trial_intermediate_value, trial, 1, 0.5)
    assert unsure(storage.set_trial_state_values, trial, TrialState.COMPLETE, [0.25])
    unsure(storage.create_new_trial, number, create_trial(state=TrialState.WAITING, system_attrs={"fixed_params": {}}))
    first, queued = study.get_trials()
    assert (first.state, first.values, first.params) == (TrialState.COMPLETE, [0.25], {"x": 0.5})
    assert (first.user_attrs, first.intermediate_values) == ({"resnas.owner": "me"}, {1: 0.5})
    assert (queued.number, queued.state, queued.system_attrs["fixed_params"]) == (1, TrialState.WAITING, {})
    assert len({one.system_attrs[TOKEN] for one in (first, queued)}) == 2
    with pytest.raises(UpdateFinishedTrialError):
        storage.set_trial_state_values(trial, TrialState.FAIL)
    # the start of a queued trial is what may be done without being known: it runs and has no owner
    assert not unsure(storage.set_trial_state_values, queued._trial_id, TrialState.RUNNING)
    (orphan,) = study.get_trials(states=(TrialState.RUNNING,))
    assert "resnas.owner" not in orphan.user_attrs
    wire.close()


def test_a_server_that_stays_away_is_one_sentence_and_no_second_wait(make, server, monkeypatch, caplog):
    monkeypatch.setattr(patience, "PATIENCE_S", 1.0)
    study = open_study(make())
    server.stop()
    try:
        with pytest.raises(ResnasError, match=r"the storage postgresql\S+:\*\*\*@\S+ is away for 1 s") as caught:
            study.set_user_attr("a", 1)
        assert PASSWORD not in str(caught.value) + caplog.text
        assert "trying again" in caplog.text
        monkeypatch.setattr(patience, "PATIENCE_S", 60.0)
        started = time.monotonic()
        with pytest.raises(ResnasError):
            study.set_user_attr("a", 1)
        assert time.monotonic() - started < 20
    finally:
        server.start()
    study.set_user_attr("a", 2)
    assert study.user_attrs["a"] == 2


@pytest.mark.slow
def test_a_server_that_is_restarted_during_a_search_costs_nothing(make, server):
    study = make("search.n_trials=6", "budget.steps=60", "search.pruner=median")
    executor, ended = LocalExecutor(2), []
    restarts = threading.Thread(target=lambda: (server.stop("immediate"), time.sleep(3), server.start()))

    def watch(snapshot) -> None:
        ended.append(sum(snapshot.endings.values()))
        if snapshot.endings and not restarts.ident:
            restarts.start()

    assert Coordinator(study, executor, watch).run()
    restarts.join()
    is_complete(study)
    assert not [trial for trial in load_trials(study) if trial.state == TrialState.FAIL]
    assert "resnas.key" in load_trials(study)[-1].user_attrs


@pytest.mark.slow
def test_the_dashboard_does_not_disturb_a_search_and_optuna_reads_it(make):
    study = make()
    assert search_with_the_dashboard_open(study) > 3
    read_all(study, os.environ["RESNAS_STORAGE"].replace("postgresql:", "postgresql+psycopg:"))


def descendants(process: int) -> set[int]:
    """Return the processes that a process has started, and those that they have."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


@pytest.mark.slow
def test_the_password_is_nowhere_but_where_the_user_put_it(make, tmp_path):
    study = make("search.n_trials=3", "budget.steps=60")
    seen: set[int] = set()
    process = start_search(study, "search.n_trials=3", "budget.steps=60")
    while process.poll() is None:
        for child in descendants(process.pid):
            for name in ("cmdline", "environ"):
                try:
                    assert PASSWORD.encode() not in Path(f"/proc/{child}/{name}").read_bytes()
                    seen.add(child)
                except OSError:
                    continue
        time.sleep(0.2)
    output = process.communicate()[0]
    assert process.returncode == 0, output
    assert len(seen) >= 4  # the fork server and the trials
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"environment.json", "study.yaml", "report.html", "log.txt", "results.csv"} <= {path.name for path in files}
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]
    assert PASSWORD not in output


def test_no_error_says_the_password_not_even_a_traceback(make, server, monkeypatch):
    study = make()
    right = os.environ["RESNAS_STORAGE"]
    wrong = [
        right.replace(PASSWORD, "wr0ng-" + PASSWORD),
        right + "_missing",
        right.replace(str(server.port), "1"),
        right.replace(str(server.port), PASSWORD),
        right.replace("@", "@@"),
        right + f"?password={PASSWORD}&nonsense={PASSWORD}",
        right.replace("postgresql", "postgresql+nonsense"),
    ]
    for url in wrong:
        monkeypatch.setenv("RESNAS_STORAGE", url)
        for use in (open_study, existing_study, lambda study: claimed(study).__enter__()):
            with pytest.raises(InputError, match="RESNAS_STORAGE: cannot use") as caught:
                use(study)
            assert PASSWORD not in str(caught.value)
    for url in (wrong[0], wrong[-2]):
        monkeypatch.setenv("RESNAS_STORAGE", url)
        command = [sys.executable, "-m", "resnas.cli", "status", str(study.path), "--debug"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2
        assert "Traceback" in done.stderr
        assert PASSWORD not in done.stdout + done.stderr


WORKER = """
    import sys, time
    from optuna.trial import TrialState
    from resnas.search import open_study
    from resnas.search.claim import claimed
    from resnas.study import Study

    study, total = Study.load(sys.argv[1]), int(sys.argv[2])
    with claimed(study) as claim:
        trials = open_study(study)
        while True:
            with claim.exclusive():
                found = trials.get_trials(deepcopy=False)
                running = [one for one in found if one.state == TrialState.RUNNING]
                for one in running:
                    if not claim.is_alive(one.user_attrs.get("resnas.owner", claim.owner + "?")):
                        trials.tell(one.number, state=TrialState.FAIL)
                        running.remove(one)
                done = sum(one.state == TrialState.COMPLETE for one in found)
                trial = None
                time.sleep(0.1)  # so that two who count at the same time both go on
                if done + len(running) < total:
                    trial = trials.ask()
                    trial.set_user_attr("resnas.owner", claim.owner)
            if trial is not None:
                time.sleep(0.02)
                trials.tell(trial, trial.number)
            elif not running:
                break
            else:
                time.sleep(0.1)
    print("done", flush=True)
"""


@pytest.mark.slow
def test_a_total_under_claims_is_exact_whoever_dies(make, server):
    """Three workers as simple as can be; one is killed, and the server is restarted under the others."""
    study = make()
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(study.path), "60"]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(3)]

    def complete() -> int:
        try:
            return sum(trial.state == TrialState.COMPLETE for trial in load_trials(study))
        except InputError:
            return 0

    try:
        wait_for(lambda: complete() >= 10)
        workers[0].kill()
        wait_for(lambda: complete() >= 25)
        server.stop("immediate")
        time.sleep(1)
        server.start()
        outputs = [worker.communicate(timeout=60)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert [worker.returncode for worker in workers] == [-signal.SIGKILL, 0, 0], outputs
    trials = load_trials(study)
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.FAIL}
    assert complete() == 60
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert len(trials) <= 61  # the one that the killed worker had
    assert len({trial.user_attrs.get("resnas.owner") for trial in trials} - {None}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_two_coordinators_share_a_study_and_its_total(make, killed):
    overrides = ("search.n_trials=10", "search.replicates=2", "budget.steps=120", "search.workers=1")
    study = make(*overrides)
    searches = [start_search(study, *overrides) for _ in range(2)]
    try:
        if killed:
            wait_for(lambda: len(list((study.results_folder / "trials").glob("*/log.txt"))) >= 3)
            searches[0].kill()
        outputs = [search.communicate(timeout=120)[0] for search in searches]
    finally:
        for search in searches:
            search.kill()
            search.communicate()
    assert [search.returncode for search in searches] == [-signal.SIGKILL if killed else 0, 0], outputs
    is_complete(study)
    owners = {trial.user_attrs.get("resnas.owner") for trial in load_trials(study)}
    assert len(owners - {None}) == 2
    best = json.loads((study.results_folder / "environment.json").read_text())
    assert best["seed"] == study.search.seed
    assert isinstance(existing_study(study).best_trial, optuna.trial.FrozenTrial)
