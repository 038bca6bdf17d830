"""Files are whole whatever happens while they are written: errors, SIGKILL, a disk that is full."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from resnas.atomic import PARTIAL, write_bytes, write_text
from resnas.files import write_json
from resnas.results import write_csv

SIZE = 1_000_000


def leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob(f"*{PARTIAL}"))


def test_a_file_is_made_with_its_folder_and_replaced(tmp_path):
    path = tmp_path / "new" / "a.txt"
    write_text(path, "ä\r\nb\n")
    assert path.read_bytes() == "ä\r\nb\n".encode()
    write_text(path, "c")
    assert path.read_text() == "c"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_error_while_writing_keeps_the_old_content_and_leaves_nothing_behind(tmp_path, monkeypatch, step):
    path = tmp_path / "a.json"
    write_json(path, [1])

    def refuse(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse) if step == "fsync" else monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, [2])
    assert path.read_text() == "[\n 1\n]"
    assert not leftovers(tmp_path)


def test_a_process_killed_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path):
    """A child writes as fast as it can; the kills fall before, into and between the writes."""
    path = tmp_path / "a.txt"
    chance = random.Random(1)
    seen, interrupted = set(), 0
    write_text(path, "0" * SIZE)
    for _ in range(40):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                for number in range(10_000):
                    write_text(path, str(number % 10) * SIZE)
            os._exit(0)
        time.sleep(chance.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        content = path.read_text()
        assert content == content[0] * SIZE
        seen.add(content[0])
        interrupted += len(leftovers(tmp_path))
        for partial in leftovers(tmp_path):
            partial.unlink()
    assert len(seen) > 1
    assert interrupted > 5  # else the kills never fell into a write, and nothing was tested


def test_two_writers_at_once_leave_one_of_their_files(tmp_path):
    path = tmp_path / "a.txt"
    children = []
    for letter in "ab":
        child = os.fork()
        if child == 0:
            try:
                for _ in range(10):
                    write_text(path, letter * SIZE)
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert set(path.read_text()) in ({"a"}, {"b"})
    assert not leftovers(tmp_path)


def test_a_full_disk_keeps_the_old_content_and_leaves_nothing_behind(small_disk):
    table, values, data = small_disk / "results.csv", small_disk / "a.json", small_disk / "a.bin"
    write_csv([{"a": 1}], table)
    write_json(values, [1])
    write_bytes(data, b"old")
    before = {path: path.read_bytes() for path in (table, values, data)}
    for write in (
        lambda: write_csv([{"a": "x" * SIZE} for _ in range(6)], table),
        lambda: write_json(values, ["x" * 6 * SIZE]),
        lambda: write_bytes(data, b"x" * 6 * SIZE),
    ):
        with pytest.raises(OSError, match="No space left"):
            write()
        assert {path: path.read_bytes() for path in before} == before
        assert not leftovers(small_disk)
    write_bytes(data, b"new")
    assert data.read_bytes() == b"new"


def test_the_small_disk_is_really_one(small_disk):
    assert subprocess.run(["stat", "-f", "-c", "%T", small_disk], capture_output=True, text=True).stdout == "tmpfs\n"
