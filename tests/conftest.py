"""One small study, really searched once per test session, for the tests that look at results."""

import os
import subprocess

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two OpenMP jobs on two cores slow each other tenfold

import pytest

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
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True, timeout=10
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command for a small disk")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
