"""What can be said of the Ray executor without a cluster: refusals in a sentence, the code it sends, lost slots."""

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import need
from test_executor import TASK, spec

from resnas.errors import InputError
from resnas.executor import Ended, Limits
from resnas.executor.cluster import Cluster
from resnas.executor.ray import lost
from resnas.executor.shipping import dotted_names, stage
from resnas.executor.slot import TEMPORARY, TOKEN, Slot


@pytest.fixture
def ray():
    need("ray", importlib.util.find_spec("ray") is not None)
    import ray

    return ray


def test_a_cluster_that_cannot_be_reached_is_a_sentence_within_seconds(ray):
    started_s = time.monotonic()
    with pytest.raises(InputError, match=r"no Ray cluster answers at 127.0.0.1:9 \(Connection refused\)"):
        Cluster("127.0.0.1:9", [])
    assert time.monotonic() - started_s < 5


def test_what_is_no_ray_cluster_is_a_sentence_within_seconds(ray, monkeypatch):
    monkeypatch.setattr("resnas.executor.cluster.ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(InputError, match=f"what listens at {address} does not answer as a Ray cluster does"):
            Cluster(address, [])


@pytest.mark.parametrize("address", ["here", "ray://127.0.0.1:10001", "127.0.0.1:", "host:6379/x"])
def test_an_address_of_another_form_is_a_sentence(ray, address):
    with pytest.raises(InputError, match=f"must be host:port, or auto .* not '{address}'"):
        Cluster(address, [])


def test_no_cluster_on_this_machine_is_a_sentence(ray, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(InputError, match="cannot use the Ray cluster at auto: Could not find any running Ray instance"):
        Cluster("auto", [])


def test_without_ray_the_command_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"needs Ray; install it with: pip install 'resnas\[ray\]'"):
        Cluster(None, [])


def test_a_share_of_more_than_one_gpu_is_refused():
    done = subprocess.run(
        [sys.executable, "cli.py", "search", "--executor", "ray", "--gpus-per-trial", "2"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "search.gpus_per_trial" in done.stderr


def test_a_missing_or_wrong_token_is_a_sentence_within_seconds(ray, monkeypatch, tmp_path):
    """The head alone, without a node: it is what asks for the token."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = Path(ray.__file__).parent / "core" / "src" / "ray" / "gcs"
    command = [
        folder / "gcs_server",
        f"--gcs_server_port={port}",
        f"--log_dir={tmp_path}",
        "--node-ip-address=127.0.0.1",
    ]
    command += ["--config_list=e30=", "--session-name=test"]
    with (tmp_path / "output").open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as head:
        try:
            wait_for_port(port)
            for mode, token in (("disabled", ""), ("token", "fedcba9876543210" * 4), ("token", "")):
                monkeypatch.setenv("RAY_AUTH_MODE", mode)
                monkeypatch.setenv("RAY_AUTH_TOKEN", token)
                with pytest.raises(InputError, match="its token is missing or wrong; set RAY_AUTH_MODE"):
                    Cluster(f"127.0.0.1:{port}", [])
        finally:
            head.kill()


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 1).close()
        time.sleep(0.1)
    raise AssertionError("the head did not start")


def test_lost_slots_are_classified(ray):
    errors = ray.exceptions
    assert lost(errors.ActorDiedError(), "here").cause == "node lost"
    assert lost(errors.ActorUnavailableError("socket closed", None), "here").cause == "node lost"
    assert lost(errors.NodeDiedError("gone"), "here").cause == "node lost"
    assert lost(errors.OutOfMemoryError("killed due to memory pressure"), "here").cause == "out of memory"
    assert lost(errors.RaySystemError("broken"), "here").cause == "exception"


def test_names_are_found_wherever_they_stand():
    study = {"task": {"mine.tasks:Mine": {"module": "data:Loader"}}, "architecture": [{"fading:Fading": {}}, "fixed"]}
    assert dotted_names(study) == {"mine.tasks:Mine", "data:Loader", "fading:Fading"}


def test_the_code_that_is_sent_runs_where_nothing_else_is(tmp_path, monkeypatch):
    home, target = tmp_path / "home", tmp_path / "target"
    for name, text in {
        "alone.py": "import beside\nclass Thing: pass",
        "beside.py": "",
        "package/__init__.py": "",
        "package/inner.py": "class Thing: pass",
        "package/last.ckpt": "weights",
        "package/table.csv": "1,2",
        "spread/inner.py": "class Thing: pass",
        "studies/a.yaml": "",
        ".git/config": "",
        "notes.txt": "",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    target.mkdir()
    monkeypatch.syspath_prepend(home)
    stage(target, ["alone:Thing", "package.inner:Thing", "spread.inner:Thing", "numpy:ndarray", "nothing.here:Thing"])
    sent = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    mine = {"alone.py", "beside.py", "package/__init__.py", "package/inner.py", "package/table.csv", "spread/inner.py"}
    assert {name for name in sent if not name.startswith("resnas")} == mine
    code = "import alone, package.inner, spread.inner, resnas, resnas.executor; print(resnas.__file__, alone.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=target, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(target / "resnas" / "__init__.py"), str(target / "alone.py")]


def test_code_too_large_to_send_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "huge.py").write_text("class Thing: pass\n")
    os.truncate(tmp_path / "home" / "huge.py", 60 * 2**20)
    (tmp_path / "target").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "home")
    with pytest.raises(InputError, match="more than 50 MiB"):
        stage(tmp_path / "target", ["huge:Thing"])


def test_a_slot_removes_what_killed_slots_have_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"{TEMPORARY}{os.getpid()}-alive").mkdir()
    (tmp_path / f"{TEMPORARY}{2**22 + 1}-dead").mkdir()  # above the largest process number
    from resnas.executor import slot

    slot._sweep()
    assert [path.name for path in tmp_path.iterdir()] == [f"{TEMPORARY}{os.getpid()}-alive"]


def test_a_folder_that_cannot_be_made_is_an_ending(tmp_path, monkeypatch):
    slot = object.__new__(Slot)  # its executor is none of this test's business

    class Full:
        def submit(self, number, spec, limits):
            raise OSError(28, "No space left on device")

    slot._executor, slot._temporary = Full(), None
    (tmp_path / TOKEN).write_text("token")
    event, files = slot.begin(1, spec(tmp_path, task=TASK), Limits(), "token")
    assert isinstance(event, Ended)
    assert event.result.cause == "disk full"
    assert files == {}
