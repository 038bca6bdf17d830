"""A text corpus as bytes, torch-free: which files it is made of, how it is split, what compressors make of it."""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import importlib
import itertools
import math
import os
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from resnas.errors import InputError, nearest

PYTHON_STDLIB = "python-stdlib"
BASELINE_BYTES = 2**20
"""The compressors see at most this much of the validation text, so that they take about a second."""

_SKIPPED_FOLDERS = {
    *("test", "tests", "idle_test"),  # tests repeat one another
    *("encodings", "pydoc_data"),  # tables, not text that people wrote
    *("lib-dynload", "site-packages", "dist-packages", "__pycache__"),  # not the library's source
}
_SKIPPED_PREFIXES = ("config-", "_sysconfigdata", "sitecustomize")  # hold paths and choices of this machine


@dataclass(frozen=True)
class TextFile:
    """One file of the corpus."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Parts:
    """The files of each part. Where there are too few, a part is one piece of the text, named by its byte range."""

    train: tuple[TextFile, ...]
    validation: tuple[TextFile, ...]
    test: tuple[TextFile, ...]


@dataclass(frozen=True)
class Corpus:
    """The text of each part, and a sentence on how it was made."""

    train: bytes
    validation: bytes
    test: bytes
    description: str


def read_corpus(corpus: str | Sequence[str], validation_share: float, test_share: float, needed_bytes: int) -> Corpus:
    """Read and split a corpus; every part has at least `needed_bytes`.

    Raises:
        InputError: a file is missing, unreadable or empty, or there are too few bytes.
    """
    files = read_files(corpus)
    parts = split_files(files, validation_share, test_share, needed_bytes)
    texts = {part: b"".join(file.content for file in getattr(parts, part)) for part in ("train", "validation", "test")}
    for part, text in texts.items():
        if len(text) < needed_bytes:
            total = math.ceil(needed_bytes / min(validation_share, test_share, 1 - validation_share - test_share))
            raise InputError(
                f"corpus {_said(corpus)}: too short: its {part} part has {len(text)} bytes and needs {needed_bytes} "
                f"(context + 1), so about {total} bytes in all with these shares; there are "
                f"{sum(len(text) for text in texts.values())}. Give more text, larger shares or a shorter context"
            )
    return Corpus(**texts, description=_description(corpus, files, parts))


def read_files(corpus: str | Sequence[str]) -> list[TextFile]:
    """Return the different files of a corpus, sorted by name; content that occurs twice is read once.

    Raises:
        InputError: see `read_corpus`.
    """
    files = [
        file
        for pattern in ([corpus] if isinstance(corpus, str) else corpus)
        for file in (_stdlib_files() if pattern == PYTHON_STDLIB else _user_files(pattern))
    ]
    different: dict[bytes, TextFile] = {}
    for file in sorted(files, key=lambda file: file.name):
        if file.content:
            different.setdefault(file.content, file)
    if not different:
        raise InputError(f"corpus {_said(corpus)}: empty: no file of it has any bytes")
    return list(different.values())


def split_files(files: Sequence[TextFile], validation_share: float, test_share: float, needed_bytes: int) -> Parts:
    """Hold out whole files in the order of a hash of their content, so that the split depends on nothing else.

    The largest file stays in training. Each other one is offered to the held-out part that lacks the larger share of
    what it should get, which takes it if that brings it nearer; one still shorter than `needed_bytes` then takes the
    smallest training files. So no part is empty. Fewer than three files are joined and cut into three pieces instead.
    """
    total = sum(len(file.content) for file in files)
    wanted = {"validation": total * validation_share, "test": total * test_share}
    if len(files) < 3:
        return _split_by_position(files, round(wanted["validation"]), round(wanted["test"]))
    missing = dict(wanted)
    held_out: dict[str, list[TextFile]] = {"validation": [], "test": []}
    by_hash = sorted(files, key=lambda file: hashlib.sha256(file.content).digest())
    largest = max(by_hash, key=lambda file: len(file.content))
    train = [largest]
    for file in by_hash:
        if file is largest:
            continue
        part = max(missing, key=lambda part: missing[part] / wanted[part])
        if len(file.content) < 2 * missing[part]:
            held_out[part].append(file)
            missing[part] -= len(file.content)
        else:
            train.append(file)
    train.sort(key=lambda file: len(file.content), reverse=True)
    for taken in held_out.values():
        while len(train) > 1 and sum(len(file.content) for file in taken) < needed_bytes:
            taken.append(train.pop())

    def by_name(part: list[TextFile]) -> tuple[TextFile, ...]:
        return tuple(sorted(part, key=lambda file: file.name))

    return Parts(by_name(train), by_name(held_out["validation"]), by_name(held_out["test"]))


@functools.lru_cache(maxsize=4)
def compressed_bits_per_byte(text: bytes) -> dict[str, float]:
    """Return the compressed bits per byte of text (its first `BASELINE_BYTES`) by compressor, at default settings."""
    text = text[:BASELINE_BYTES]
    bits = {}
    for name in ("gzip", "bz2", "lzma"):
        with contextlib.suppress(ImportError):  # Python can be built without one
            bits[name] = 8 * len(importlib.import_module(name).compress(text)) / len(text)
    return bits


def unigram_bits_per_byte(text: bytes) -> float:
    """Return the entropy of the text's byte frequencies, in bits: no model without context does better on it."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())


def _split_by_position(files: Sequence[TextFile], validation_bytes: int, test_bytes: int) -> Parts:
    text = b"".join(file.content for file in files)
    cuts = [0, len(text) - validation_bytes - test_bytes, len(text) - test_bytes, len(text)]
    return Parts(*((TextFile(f"bytes {start} to {end}", text[start:end]),) for start, end in itertools.pairwise(cuts)))


def _stdlib_files() -> list[TextFile]:
    """Return the library source of the running Python, named by its path inside the library, newlines as `\\n`."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = {path.relative_to(root).as_posix(): path for path in _stdlib_paths(root)}
    if not paths:
        raise InputError(f"corpus {PYTHON_STDLIB!r}: this Python has no library source in {root}; name your own files")
    return [TextFile(name, _read(paths[name]).replace(b"\r\n", b"\n").replace(b"\r", b"\n")) for name in sorted(paths)]


def _stdlib_paths(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [
            name for name in subfolders if name not in _SKIPPED_FOLDERS and not name.startswith(_SKIPPED_PREFIXES)
        ]
        for name in names:
            if name.endswith(".py") and not name.startswith(_SKIPPED_PREFIXES):
                yield Path(folder, name)


def _user_files(pattern: str) -> list[TextFile]:
    """Return the files that a path or pattern of the user means; a pattern may meet empty ones, such as __init__.py."""
    path = Path(pattern).expanduser()
    if path.is_dir():
        raise InputError(f"corpus {pattern!r} is a folder: name its files, as in {(path / '*.txt').as_posix()!r}")
    if path.is_file():
        content = _read(path)
        if not content:
            raise InputError(f"corpus {pattern!r}: the file is empty")
        return [TextFile(path.as_posix(), content)]
    found = [Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]
    if not found:
        neighbours = [PYTHON_STDLIB, *(near.as_posix() for near in path.parent.glob("*"))]
        raise InputError(
            f"corpus: no file matches {pattern!r} (current folder: {Path.cwd()}); give a path, a pattern such as "
            f"'texts/**/*.txt' or {PYTHON_STDLIB!r}{nearest(pattern, neighbours)}"
        )
    return [TextFile(path.as_posix(), _read(path)) for path in found]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"corpus: cannot read {str(path)!r}: {error.strerror}") from error


def _said(corpus: str | Sequence[str]) -> str:
    return repr(corpus) if isinstance(corpus, str) else ", ".join(map(repr, corpus))


def _description(corpus: str | Sequence[str], files: Sequence[TextFile], parts: Parts) -> str:
    held_out = [
        f"{sum(len(file.content) for file in part):,} bytes" + (f" in {len(part)} files" if len(files) > 2 else "")
        for part in (parts.validation, parts.test)
    ]
    rule = (
        "whole files are held out" if len(files) > 2 else "too few files to hold out whole ones, so the end is held out"
    )
    return (
        f"{_said(corpus)}: {sum(len(file.content) for file in files):,} bytes in {len(files)} different files; "
        f"{rule}: {held_out[0]} for validation, {held_out[1]} for the test"
    )
