"""Where studies are kept: which URL counts, what each kind of file needs to be safe, who may drive a study."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from sqlalchemy.exc import OperationalError
from test_search import SPACE, STUDY

from resnas.dashboard import open_server
from resnas.errors import InputError, ResnasError
from resnas.executor import LocalExecutor
from resnas.passwords import kept_from_children, without_passwords
from resnas.search import Coordinator, existing_study, load_trials, open_study, storage
from resnas.search.claim import claimed
from resnas.search.journal import open_journal
from resnas.search.opening import make_results_folder, writing
from resnas.search.storage import locate
from resnas.study import Study


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Return a function that writes a small study and loads it with overrides."""
    for variable in ("RESNAS_STORAGE", "OPTUNA_STORAGE"):
        monkeypatch.delenv(variable, raising=False)

    def load(*overrides: str) -> Study:
        (tmp_path / "space.yaml").write_text(SPACE)
        (tmp_path / "small.yaml").write_text(STUDY)
        return Study.load(tmp_path / "small.yaml", overrides)

    return load


@pytest.mark.parametrize(
    ("url", "kind", "path"),
    [
        (None, "sqlite", "small/study.db"),
        ("sqlite:///kept.db", "sqlite", "kept.db"),
        ("sqlite:////elsewhere/kept.db", "sqlite", "/elsewhere/kept.db"),
        ("journal:kept", "journal", "kept"),
        ("journal:///kept.log", "journal", "kept.log"),
        ("journal:////elsewhere/kept", "journal", "/elsewhere/kept"),
        ("folder/kept.journal", "journal", "folder/kept.journal"),
        ("kept.log", "journal", "kept.log"),
        ("postgresql+psycopg://user@host/name", "postgresql", None),
    ],
)
def test_a_url_is_a_kind_and_files_are_relative_to_the_study(make, tmp_path, url, kind, path):
    found = locate(make(f"storage={url}") if url else make())
    assert found.kind == kind
    assert found.path == (None if path is None else tmp_path / path)


def test_the_study_file_goes_before_the_environment_and_our_variable_before_optunas(make, tmp_path):
    environment = {"RESNAS_STORAGE": "journal:ours", "OPTUNA_STORAGE": "journal:optuna"}
    assert locate(make("storage=journal:named"), environment).path == tmp_path / "named"
    assert locate(make(), environment).path == tmp_path / "ours"
    assert locate(make(), {**environment, "RESNAS_STORAGE": ""}).path == tmp_path / "optuna"
    assert locate(make(), environment).given_by == "RESNAS_STORAGE"


def test_a_missing_driver_is_one_sentence_that_says_what_to_install(make, monkeypatch):
    for name in ("psycopg", "psycopg2"):
        monkeypatch.setitem(sys.modules, name, None)
    for scheme in ("postgresql", "postgresql+psycopg"):
        with pytest.raises(InputError, match=r"pip install 'resnas\[postgres\]'") as caught:
            open_study(make(f"storage={scheme}://user:secret@127.0.0.1:1/none"))
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(make, url):
    with pytest.raises(InputError, match="gone with the process"):
        open_study(make(f"storage='{url}'"))


@pytest.mark.parametrize(
    "url", ["mysql+pymysql://u:s3cret@host/db", "redis://:s3cret@host", "s3cret", "u:s3cret@host/db"]
)
def test_a_storage_in_which_two_machines_would_not_see_each_other_is_refused(make, url):
    for use in (open_study, existing_study, lambda study: claimed(study).__enter__()):
        with pytest.raises(
            InputError, match=r"cannot use .*: a study is kept in SQLite .* journal .* PostgreSQL"
        ) as caught:
            use(make(f"storage='{url}'"))
        assert "s3cret" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_sqlite_on_a_network_file_system_is_refused_and_a_journal_is_not(make, tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    folder = str(tmp_path.resolve()).replace("_", r"\137")  # as the kernel writes what could be misread
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/home {folder} nfs4 rw 0 0\n")
    monkeypatch.setattr(storage, "MOUNTS", mounts)
    with pytest.raises(InputError, match=r"network file system \(nfs4 at .*journal:study\.journal"):
        open_study(make())
    assert not (tmp_path / "small" / "study.db").exists()
    open_study(make("storage=journal:kept"))
    mounts.write_text(mounts.read_text() + f"disk {folder}/small ext4 rw 0 0\n")
    open_study(make())


def test_sqlite_writes_ahead_and_waits_for_the_disk(make):
    backend = open_study(make())._storage._backend
    with backend.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 60_000


def test_asking_for_a_study_makes_no_storage(make, tmp_path):
    for url in ("sqlite:///kept.db", "journal:kept", "sqlite:///small.db"):
        with pytest.raises(InputError, match="no results yet"):
            load_trials(make(f"storage={url}"))
    assert not list(tmp_path.glob("*kept*"))
    (tmp_path / "small.db").touch()
    with pytest.raises(InputError, match="no results yet"):
        load_trials(make("storage=sqlite:///small.db"))


HOLDER = """
    import sys, time
    from pathlib import Path
    from resnas.search.claim import claimed
    from resnas.search.opening import make_results_folder
    from resnas.study import Study

    study = Study.load(Path(sys.argv[1]), sys.argv[2:])
    make_results_folder(study)
    with claimed(study) as claim:
        print(claim.owner, flush=True)
        sys.stdin.read()
"""


def holder(study: Study, *overrides: str) -> tuple[subprocess.Popen, str]:
    """Return a process that drives a study, and the name of its claim."""
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(study.path), *overrides]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_the_second_coordinator_is_told_who_is_first_and_a_dead_one_keeps_no_lock(make):
    study = make()
    process, owner = holder(study)
    with pytest.raises(ResnasError, match=rf"process {process.pid} on .* since 2\d\d\d-"), claimed(study):
        pass
    process.kill()
    process.communicate()
    assert "process" in (study.results_folder / "lock").read_text()
    with claimed(study) as claim:
        assert claim.is_alive(claim.owner)
        assert not claim.is_alive(owner)
        with claim.exclusive():
            assert str(os.getpid()) in (study.results_folder / "lock").read_text()


def test_studies_of_one_name_in_one_file_have_one_coordinator(make, tmp_path):
    one = make("storage=sqlite:///../kept.db")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for file in (tmp_path / "space.yaml", one.path):
            (tmp_path / name / file.name).write_text(file.read_text())
    first, second = (Study.load(tmp_path / name / "small.yaml", ["storage=sqlite:///../kept.db"]) for name in "ab")
    for study in (first, second):
        make_results_folder(study)
    with claimed(first), pytest.raises(ResnasError, match="another search"), claimed(second):
        pass


def test_coordinators_that_start_together_do_not_stand_in_each_others_way(make):
    study, errors = make(), []

    def start() -> None:
        try:
            for _ in range(200):
                make_results_folder(study)
        except InputError as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        starting = [threading.Thread(target=start) for _ in range(4)]
        for one in starting:
            one.start()
        for one in starting:
            one.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors
    assert [path.name for path in study.results_folder.iterdir()] == ["trials"]


def test_what_ends_a_search_is_named_for_what_it_is(make, tmp_path):
    study = make()
    folder = study.results_folder

    def sentence(error: Exception) -> str:
        with pytest.raises(ResnasError, match="the same command goes on") as caught, writing(study):
            raise error
        return str(caught.value).partition(". What was recorded")[0]

    of_results = [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded", str(folder / "results.csv")),
        OSError(errno.EROFS, "Read-only file system", folder / "trials" / "0000"),
        OSError(errno.ENOENT, "No such file or directory", str(folder / "results.csv"), None, "elsewhere"),
        OSError(errno.EACCES, "Permission denied", os.fsencode(folder)),
    ]
    others = [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.EMFILE, "Too many open files", str(folder / "results.csv")),
        OSError(errno.EAGAIN, "Resource temporarily unavailable"),  # no process may be forked
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        OSError(errno.ENOENT, "No such file or directory", "nvidia-smi"),
        OSError(errno.ENOENT, "No such file or directory"),
        OSError(errno.EACCES, "Permission denied", str(tmp_path / "data.csv")),
        OSError(errno.ENOSPC, "No space left on device", "/dev/shm/x"),
    ]
    assert [sentence(error) for error in of_results] == [f"cannot write to {folder}: {error}" for error in of_results]
    assert [sentence(error) for error in others] == [f"the system refused: {error}" for error in others]
    assert sentence(OperationalError("INSERT", {}, Exception("disk full"))).startswith("cannot write to sqlite:///")
    with pytest.raises(ValueError, match="a mistake"), writing(study):
        raise ValueError("a mistake")


def test_a_process_out_of_files_is_told_so_by_the_system(make):
    """A real limit: 30 files, taken by sockets."""
    code = """
        import resource, socket, sys
        from pathlib import Path
        from resnas.search.opening import writing
        from resnas.study import Study

        study = Study.load(Path(sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
        try:
            with writing(study):
                taken = [socket.socket() for _ in range(40)]
        except Exception as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(make().path)]
    assert subprocess.check_output(command, text=True).startswith(
        "the system refused: [Errno 24] Too many open files. "
    )


def journal_of_three(path: Path) -> list[bytes]:
    """Write a journal with three trials; return its lines."""
    study = optuna.create_study(storage=JournalStorage(JournalFileBackend(str(path))), study_name="small")
    for number in range(3):
        trial = study.ask()
        study.tell(trial, trial.suggest_float("x", 0, 1))
        study._storage.set_study_user_attr(study._study_id, "umläut", f"{number} ✓")
    return path.read_bytes().splitlines(keepends=True)


def test_a_journal_torn_at_any_byte_of_its_last_record_goes_on(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    path = tmp_path / "small.journal"
    *before, last = journal_of_three(path)
    for length in range(len(last) + 1):
        path.write_bytes(b"".join(before) + last[:length])
        caplog.clear()
        study = optuna.load_study(storage=open_journal(path), study_name="small")
        assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3
        whole = length >= len(last) - 1  # only its line end is missing
        assert study.user_attrs == {"umläut": f"{2 if whole else 1} ✓"}
        study.set_user_attr("further", length)
        torn = sorted(tmp_path.glob("*.torn-*"))
        assert [file.read_bytes() for file in torn] == ([] if whole or not length else [last[:length]])
        assert ("torn" in caplog.text) == bool(torn)
        for file in torn:
            file.unlink()
        plain = optuna.load_study(storage=JournalStorage(JournalFileBackend(str(path))), study_name="small")
        assert plain.user_attrs["further"] == length
        assert len(plain.trials) == 3


@pytest.mark.parametrize("tail", [b"\0" * 200, b"\0" * 30 + b"\n", b'{"op_code": 4\n', b"\0\0\n\0\0\n"])
def test_what_a_loss_of_power_leaves_at_the_end_of_a_journal_is_put_aside(tmp_path, tail, caplog):
    path = tmp_path / "small.journal"
    whole = b"".join(journal_of_three(path))
    path.write_bytes(whole + tail)
    assert len(open_journal(path).get_all_trials(0)) == 3
    assert path.read_bytes() == whole
    assert (tmp_path / "small.journal.torn-0").read_bytes() == tail


def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(make, tmp_path):
    (tmp_path / "notes.log").write_text("Dear diary,\nnothing happened.\n\ntoday\n")
    with pytest.raises(InputError, match="storage: cannot use"):
        open_study(make("storage=notes.log"))
    assert "nothing happened.\n" in (tmp_path / "notes.log").read_text()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("cannot use postgresql://u:s3cret@host/db: no route", ""),
        ("cannot use postgresql://u:a@s3cret@host/db", ""),
        ("no user s3cret", "postgresql://u:s3cret@host/db"),
        ("could not translate s3cret@host", "postgresql://u:pa@s3cret@host/db"),
        ("it is 's3cr et'", "postgresql://u:s3cr%20et@host/db"),
        ("connect(host=h password=s3cret)", ""),
        ("{'url': 'mysql://u:s3cret@h/d'}", ""),
    ],
)
def test_passwords_are_hidden_wherever_they_stand(text, url):
    assert "s3cr" not in without_passwords(text, url)


def test_an_error_never_says_a_password_even_where_the_storage_is_misspelt(make):
    for override in ("storage={url: postgresql://u:s3cret@h/d}", "storag=postgresql://u:s3cret@h/d"):
        with pytest.raises(InputError, match="storag") as caught:
            make(override)
        assert "s3cret" not in str(caught.value) + repr(caught.value)
    assert "s3cret" not in repr(make("storage=postgresql://u:s3cret@h/d"))


def test_texts_without_passwords_stay_as_they_are():
    text = "studies/a.yaml:3: see https://host:80/x and u@host; postgresql is a database"
    assert without_passwords(text, "postgresql://u:postgres@host/db") == text


def test_children_do_not_inherit_storage_urls(monkeypatch):
    monkeypatch.setenv("RESNAS_STORAGE", "postgresql://u:s3cret@host/db")
    show = [sys.executable, "-c", "import os; print(os.environ.get('RESNAS_STORAGE'))"]
    with kept_from_children():
        assert subprocess.check_output(show, text=True).strip() == "None"
    assert "s3cret" in os.environ["RESNAS_STORAGE"]


def read_all(study: Study, url: str) -> None:
    """Read the study with Optuna's own commands."""
    named = ["--study-name", study.name, "--storage", url]
    if url.endswith(".journal"):
        named += ["--storage-class", "JournalFileBackend"]
    command = Path(sys.executable).parent / "optuna"

    def read(what: str) -> str:
        return subprocess.check_output([command, what, *named, "-f", "json"], text=True, stderr=subprocess.DEVNULL)

    assert len(json.loads(read("trials"))) == len(load_trials(study))
    assert json.loads(read("best-trial"))["number"] == existing_study(study).best_trial.number


def search_with_the_dashboard_open(study: Study) -> int:
    """Run a search while the dashboard is opened and read again and again; return how often it was."""
    finished, opened, errors = threading.Event(), [], []

    def look() -> None:
        while not finished.is_set():
            try:
                with open_server(study, port=0) as server:
                    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
                    number = existing_study(study)._study_id
                    address = f"http://127.0.0.1:{server.server_port}/api/studies/{number}"
                    with urllib.request.urlopen(f"{address}?after=0") as answer:
                        opened.append(len(json.loads(answer.read())["trials"]))
                    note = json.dumps({"body": f"seen {len(opened)}", "version": len(opened)}).encode()
                    put = urllib.request.Request(
                        f"{address}/note", note, {"Content-Type": "application/json"}, method="PUT"
                    )
                    urllib.request.urlopen(put).close()
                    server.shutdown()
            except InputError:  # the study does not exist yet
                time.sleep(0.05)
            except Exception as error:
                errors.append(error)
                return

    looking = threading.Thread(target=look)
    looking.start()
    try:
        assert Coordinator(study, LocalExecutor(1)).run()
    finally:
        finished.set()
        looking.join()
    assert not errors
    assert [trial.state for trial in load_trials(study)] == [TrialState.COMPLETE] * study.search.n_trials
    assert max(opened) > 0
    return len(opened)


@pytest.mark.parametrize("url", ["sqlite:///kept.db", pytest.param("journal:kept.journal", marks=pytest.mark.slow)])
def test_the_dashboard_does_not_disturb_a_search_and_optuna_reads_it(make, tmp_path, url):
    study = make(f"storage={url}")
    assert search_with_the_dashboard_open(study) > 3
    read_all(study, f"sqlite:///{tmp_path / 'kept.db'}" if url.startswith("sqlite") else str(tmp_path / "kept.journal"))


@pytest.mark.slow
def test_a_killed_search_on_a_journal_goes_on(make):
    study = make("storage=journal:kept.journal", "budget.steps=3000")
    overrides = ["--set", "budget.steps=3000", "--set", "storage=journal:kept.journal"]
    command = [sys.executable, "-m", "resnas.cli", "search", str(study.path), *overrides]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (study.results_folder / "trials" / "0000" / "log.txt").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    limits = ("search.n_trials=1", "search.trial_timeout_s=1")
    again = make("storage=journal:kept.journal", "budget.steps=3000", *limits)
    assert Coordinator(again, LocalExecutor(1)).run()
    assert [trial.state for trial in load_trials(again)] == [TrialState.FAIL] * 2
