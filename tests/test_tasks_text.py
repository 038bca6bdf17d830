"""The `text` task: which bytes it holds out, its windows, its baselines, and its errors on the user's files."""

from __future__ import annotations

import itertools
import math
import os
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from resnas.errors import InputError
from resnas.tasks.corpus import (
    PYTHON_STDLIB,
    TextFile,
    compressed_bits_per_byte,
    read_corpus,
    read_files,
    split_files,
    unigram_bits_per_byte,
)
from resnas.tasks.text import Text
from resnas.tasks.text_data import spread_evenly


@pytest.fixture(autouse=True)
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, content: bytes) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(content)


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def rows(batches) -> list[bytes]:
    """Each window with its last target, as bytes."""
    return [
        bytes([*window, target[-1]])
        for inputs, targets in batches
        for window, target in zip(inputs.tolist(), targets.tolist(), strict=True)
    ]


def test_stdlib_files_are_real_source_without_tests_or_machine_paths():
    files = read_files(PYTHON_STDLIB)
    names = [file.name for file in files]
    assert names == sorted(names)
    assert {"argparse.py", "asyncio/events.py", "unittest/case.py"} <= set(names)
    for name in names:
        assert name.endswith(".py")
        folders = set(name.split("/")[:-1])
        assert not folders & {"test", "tests", "encodings", "pydoc_data", "site-packages", "lib-dynload"}
        assert "_sysconfigdata" not in name
    assert sum(len(file.content) for file in files) > 5e6
    assert all(file.content and b"\r" not in file.content for file in files)


def test_stdlib_holds_out_whole_files():
    files = read_files(PYTHON_STDLIB)
    parts = split_files(files, 0.05, 0.1, needed_bytes=65)
    contents = [{file.content for file in part} for part in (parts.train, parts.validation, parts.test)]
    assert all(not left & right for left, right in itertools.combinations(contents, 2))
    assert set.union(*contents) == {file.content for file in files}
    corpus = read_corpus(PYTHON_STDLIB, 0.05, 0.1, needed_bytes=65)
    assert corpus.validation == b"".join(file.content for file in parts.validation)
    assert corpus.train == b"".join(file.content for file in parts.train)
    total = sum(len(file.content) for file in files)
    assert len(corpus.validation) / total == pytest.approx(0.05, abs=0.015)
    assert len(corpus.test) / total == pytest.approx(0.1, abs=0.015)


@given(st.lists(st.integers(1, 5000), min_size=3, max_size=30), st.floats(0.01, 0.45), st.floats(0.01, 0.45))
def test_split_files_uses_each_file_once(sizes: list[int], validation_share: float, test_share: float):
    files = [TextFile(f"{index:02}", index.to_bytes(2, "big") + bytes(size)) for index, size in enumerate(sizes)]
    parts = split_files(files, validation_share, test_share, needed_bytes=1)
    used = [file for part in (parts.train, parts.validation, parts.test) for file in part]
    assert sorted(used, key=lambda file: file.name) == files
    assert parts.train
    assert parts.validation
    assert parts.test
    for part, share in ((parts.validation, validation_share), (parts.test, test_share)):
        wanted = share * sum(len(file.content) for file in files)
        assert len(part) == 1 or sum(len(file.content) for file in part) < 2 * wanted
    renamed = [TextFile(f"other{file.name}", file.content) for file in reversed(files)]
    assert {file.content for file in split_files(renamed, validation_share, test_share, 1).test} == {
        file.content for file in parts.test
    }


def test_equal_files_are_read_once_so_they_cannot_straddle():
    for index in range(12):
        write(f"{index:02}.txt", noise(500, seed=index % 4))
    corpus = read_corpus("*.txt", 0.2, 0.2, needed_bytes=9)
    parts = [corpus.train, corpus.validation, corpus.test]
    assert sum(map(len, parts)) == 4 * 500
    for seed in range(4):
        assert sum(noise(500, seed) in part for part in parts) == 1


def test_one_file_is_cut_into_parts_and_no_window_crosses_a_cut():
    text = noise(20_000)  # random bytes: a window occurs once, so its place is known
    write("book.txt", text)
    task = Text(corpus="book.txt", context=16, validation_share=0.1, test_share=0.2)
    data = task.load()
    assert "too few files" in data.description
    places = {split: [text.find(row) for row in rows(data.batches(split, 32))] for split in ("validation", "test")}
    training = [text.find(row) for row in rows(itertools.islice(data.train_batches(512, 0), 40))]
    assert min(training) >= 0
    assert max(training) + 17 <= 14_000
    assert min(training) < 50
    assert max(training) > 13_900
    assert (min(places["validation"]), min(places["test"])) == (14_000, 16_000)
    assert max(places["validation"]) + 17 <= 16_000
    assert sorted(places["test"]) == list(range(16_000, 20_000 - 16, 16))  # no byte is predicted twice


def test_windows_of_the_stdlib_lie_in_their_part():
    corpus = read_corpus(PYTHON_STDLIB, 0.05, 0.05, needed_bytes=65)
    data = Text().load()
    assert all(row in corpus.train for row in rows([next(data.train_batches(16, 0))]))
    assert all(row in corpus.validation for row in rows(data.batches("validation", 16, 1)))
    assert all(row in corpus.test for row in rows(data.batches("test", 16, 1)))


def test_targets_are_the_inputs_shifted_by_one():
    data = Text().load()
    for inputs, targets in [next(data.train_batches(32, 0)), *data.batches("test", 32, 2)]:
        assert torch.equal(inputs[:, 1:], targets[:, :-1])


@given(st.integers(1, 3000))
def test_spread_evenly_visits_all_and_spreads_early(count: int):
    order = spread_evenly(count).tolist()
    assert sorted(order) == list(range(count))
    if count >= 100:
        gaps = [right - left for left, right in itertools.pairwise([0, *sorted(order[:10]), count])]
        assert max(gaps) < 0.4 * count


def test_uniform_logits_cost_eight_bits_per_byte():
    data = Text().load()
    batch = data.batches("validation", 8, 1)[0]
    bits, count = data.metrics(torch.zeros(8, 64, 256), batch)["bits_per_byte"]
    assert count == 8 * 64
    assert bits / count == pytest.approx(8, rel=1e-6)


def test_unigram_entropy_is_the_loss_of_the_byte_frequencies():
    write("book.txt", b"abacabad" * 500)
    data = Text(corpus="book.txt", context=8).load()
    counts = torch.tensor([b"abacabad".count(bytes([value])) for value in range(256)]) / 8
    logits = counts.clamp(min=1e-30).log()
    sums = [
        data.metrics(logits.expand(*inputs.shape, 256), (inputs, targets))
        for inputs, targets in data.batches("test", 9)
    ]
    bits = sum(s["bits_per_byte"][0] for s in sums) / sum(s["bits_per_byte"][1] for s in sums)
    assert unigram_bits_per_byte(b"abacabad" * 25) == pytest.approx(1.75)
    assert bits == pytest.approx(1.75, rel=0.02)


def test_compressors_find_no_pattern_in_noise_and_much_in_repetition():
    for bits in compressed_bits_per_byte(noise(50_000)).values():
        assert 8 < bits < 8.2
    for bits in compressed_bits_per_byte(b"to be or not to be " * 3000).values():
        assert bits < 0.2
    code = Text().baselines()
    assert (
        code["bits_per_byte/bz2"] < code["bits_per_byte/gzip"] < code["bits_per_byte/unigram entropy"] < math.log2(256)
    )


def test_user_files_may_be_a_list_of_patterns_and_any_bytes():
    write("a.txt", noise(3000, 1))
    write("deep/er/b.bin", bytes(range(256)) * 20)
    write("deep/c.bin", "größer\r\n".encode() * 300)
    write("deep/__init__.py", b"")
    files = read_files(("*.txt", "deep/**/*"))
    assert [file.name for file in files] == ["a.txt", "deep/c.bin", "deep/er/b.bin"]
    assert files[1].content == "größer\r\n".encode() * 300
    both = read_files((PYTHON_STDLIB, "a.txt", "./a.txt"))
    assert len(both) == len(read_files(PYTHON_STDLIB)) + 1
    assert Text.model_validate({"corpus": ["*.txt", "deep/**/*"]}).load().batches("validation", 4, 1)


def test_a_changed_byte_and_a_moved_cut_change_the_hash():
    write("book.txt", noise(5000))
    task = Text(corpus="book.txt")
    first = task.load().sha256
    assert Text(corpus="book.txt", test_share=0.06).load().sha256 != first
    left, right = (
        {"validation_share": share, "test_share": 0.3 - share} for share in (0.1, 0.2)
    )  # equal training parts
    assert Text(corpus="book.txt", **left).load().sha256 != Text(corpus="book.txt", **right).load().sha256
    write("book.txt", noise(4999) + b"!")
    assert task.load().sha256 != first


@pytest.mark.parametrize(
    ("corpus", "sentence"),
    [
        ("bok.txt", r"no file matches 'bok.txt' .*did you mean 'book.txt'\?"),
        ("python-stdlb", r"no file matches 'python-stdlb' .*did you mean 'python-stdlib'\?"),
        ("*.md", r"no file matches '\*\.md' \(current folder: .+\)"),
        (("book.txt", "gone/*.txt"), r"no file matches 'gone/\*\.txt'"),
        ("folder", r"'folder' is a folder: name its files, as in 'folder/\*\.txt'"),
        ("empty.txt", r"'empty.txt': the file is empty"),
        (("book.txt", "empty.txt"), r"'empty.txt': the file is empty"),
        ("empt*.txt", r"'empt\*.txt': empty: no file of it has any bytes"),
        ("short.txt", r"'short.txt': too short: its validation part has 32 bytes and needs 65 .* about 1300 bytes"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_explained(corpus, sentence: str):
    write("book.txt", noise(5000))
    write("empty.txt", b"")
    write("short.txt", noise(640))
    Path("folder").mkdir()
    with pytest.raises(InputError, match=sentence):
        Text(corpus=corpus).load()


def test_the_length_that_the_message_asks_for_is_enough():
    write("book.txt", noise(1300))
    data = Text(corpus="book.txt").load()
    assert all(data.batches(split, 1) for split in ("validation", "test"))


def test_an_unreadable_file_is_named():
    unreadable = Path("/proc/self/mem")  # unreadable to everybody, where it exists
    if os.access("/", os.W_OK) and not unreadable.exists():
        pytest.skip("a superuser can read every file")
    if not unreadable.exists():
        unreadable = Path("secret.txt")
        unreadable.write_bytes(b"secret")
        unreadable.chmod(0)
    with pytest.raises(InputError, match=rf"cannot read '{unreadable}': \w+"):
        Text(corpus=str(unreadable)).load()


@pytest.mark.parametrize(
    "options", [{"context": 0}, {"validation_share": 0}, {"test_share": 0.5}, {"corpus": []}, {"corpora": "x"}]
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Text.model_validate(options)
