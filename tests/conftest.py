"""What several tests use: one small study, really searched once per session; one Ray cluster of several nodes; and the
rule for what a machine lacks.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two OpenMP jobs on two cores slow each other tenfold

import pytest
from hypothesis import settings

settings.register_profile("shared cores", deadline=None)  # other test processes make any example slow now and then
settings.load_profile("shared cores")

SPACE = """
resnas: 1
architecture:
  depth: 2
  width: 16
  heads: 2
  residual:
    - fixed
    - scalar_learned
    - windowed_depth_attention: {window: 2}
    - full_depth_attention
"""
STUDY = """
resnas: 1
space: space.yaml
task: {khop: {length: 16, max_hops: 2}}
budget: {steps: 6, batch_size: 4, validations: 2, validation_batches: 2, measure_at: [0.5, 1.0]}
search: {sampler: grid, n_trials: 4, seed: 1}
"""


def need(component: str, there: bool) -> None:
    """Skip a test whose component this machine lacks; fail it where RESNAS_TEST_EVERYTHING is set, as in CI."""
    if not there:
        reason = f"needs {component}"
        pytest.fail(reason) if os.environ.get("RESNAS_TEST_EVERYTHING") else pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster():
    """Return a Ray cluster whose head has one CPU; tests add nodes to it, and remove them."""
    need("ray", importlib.util.find_spec("ray") is not None)
    from ray.cluster_utils import Cluster

    # Not tmp_path: the paths of Ray's sockets must be short
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        yield made
        made.shutdown()


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory):
    """Return the study; its results lie beside it."""
    from resnas.executor import LocalExecutor
    from resnas.search import Coordinator
    from resnas.study import Study

    folder = tmp_path_factory.mktemp("finished")
    (folder / "space.yaml").write_text(SPACE)
    (folder / "small.yaml").write_text(STUDY)
    study = Study.load(folder / "small.yaml")
    assert Coordinator(study, LocalExecutor(2)).run()
    return study


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder that is a disk of its own of 4 MB; skipped where this user may not mount one."""
    folder = tmp_path / "small_disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    can_mount = shutil.which("mount") and subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    need("the right to mount a small disk", bool(can_mount))
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
