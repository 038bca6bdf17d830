"""Trials whose disk is full: the cause has that name, whatever could not be written and however that was said."""

import errno
import io
import os
from pathlib import Path

import pytest
import torch
from test_executor import ending, spec

from resnas.executor import Limits, LocalExecutor
from resnas.executor.process import cause_of


@pytest.fixture(scope="module")
def executor():
    made = LocalExecutor(workers=1)
    yield made
    made.stop()


def fill(folder: Path, left_kib: int) -> Path:
    """Fill the disk of a folder but for some KiB."""
    ballast = folder / "ballast"
    status = os.statvfs(folder)
    with ballast.open("wb") as file:
        file.write(b"x" * (status.f_bavail * status.f_frsize - left_kib * 1024))
    return ballast


@pytest.mark.parametrize("left_kib", [0, 8, 24, 64])
def test_a_trial_on_a_full_disk_fails_with_that_cause(executor, small_disk, left_kib):
    """From a disk on which not even the log can be begun, to one with room for the logs but not for a checkpoint."""
    ballast = fill(small_disk, left_kib)
    executor.submit(1, spec(small_disk / "trial"), Limits())
    result = ending(executor).result
    assert (result.state, result.cause) == ("failed", "disk full"), result
    assert result.reason.startswith("disk full: ")
    assert not list(small_disk.rglob("*.partial"))
    if left_kib:
        return
    ballast.unlink()
    executor.submit(2, spec(small_disk / "again"), Limits())
    assert ending(executor).result.state == "complete"


def test_a_folder_that_cannot_be_made_ends_the_trial_and_not_the_search(executor, tmp_path):
    (tmp_path / "trials").write_text("a file where the folder should be")
    executor.submit(1, spec(tmp_path / "trials" / "0001"), Limits())
    result = ending(executor).result
    assert (result.state, result.cause) == ("failed", "exception")
    assert "NotADirectoryError" in result.reason


def raised(raiser) -> BaseException:
    try:
        raiser()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_torch_s_own_words_for_a_full_disk(small_disk):
    fill(small_disk, 64)
    model = {"weights": torch.zeros(200_000)}
    assert cause_of(raised(lambda: torch.save(model, small_disk / "model.pt"))) == "disk full"

    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    assert cause_of(raised(lambda: torch.save(model, Full()))) == "disk full"


def test_the_first_exception_counts_also_where_a_second_one_hides_it():
    def hide() -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            raise RuntimeError("while clearing up")  # noqa: B904 (an exception that hides another is the case here)

    def wrap() -> None:
        try:
            hide()
        except RuntimeError as error:
            raise ValueError("the logger has failed") from error

    assert cause_of(raised(hide)) == cause_of(raised(wrap)) == "disk full"
    endless = ValueError("a")
    endless._cause_of__ = RuntimeError("b")
    endless._cause_of__.__context__ = endless
    assert cause_of(endless) == "exception"
    assert cause_of(OSError(errno.EACCES, "Permission denied")) == "exception"
    assert cause_of(MemoryError()) == "out of memory"
