import json
import math
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resnas.errors import InputError
from resnas.yaml_file import dotted, load_yaml, parse_yaml, set_dotted, written

CORE_SCALARS = [
    ("1e-4", 1e-4),
    ("2e6", 2e6),
    ("1.", 1.0),
    (".5", 0.5),
    ("+3", 3),
    ("010", 10),
    ("0o17", 15),
    ("0x1f", 31),
    ("-.inf", -math.inf),
    ("true", True),
    ("FALSE", False),
    ("~", None),
    ("Null", None),
    ("", None),
    ("off", "off"),
    ("no", "no"),
    ("yes", "yes"),
    ("12:30:45", "12:30:45"),
    ("2020-01-01", "2020-01-01"),
    ("1_000", "1_000"),
    ("=", "="),
    ("'1e-4'", "1e-4"),
    ("1/sqrt(layer)", "1/sqrt(layer)"),
]


@pytest.mark.parametrize(("text", "value"), CORE_SCALARS)
def test_scalars_are_those_of_yaml_1_2(text, value):
    found = parse_yaml(f"key: {text}", "f.yaml").values["key"]
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_one_only_where_yaml_says_so():
    assert math.isnan(parse_yaml("key: .nan", "f.yaml").values["key"])


def test_the_merge_key_is_an_ordinary_key():
    assert parse_yaml("<<: {a: 1}", "f.yaml").values == {"<<": {"a": 1}}


def test_an_alias_repeats_its_value():
    assert parse_yaml("a: &x [1, 2]\nb: *x", "f.yaml").values == {"a": [1, 2], "b": [1, 2]}


numbers = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | st.text("abcxyz 019.-_:/", max_size=8)
keys = st.text("abcdefgh", min_size=3, max_size=8)
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))


@given(st.dictionaries(keys, trees, min_size=1, max_size=4), st.sampled_from([None, 1, 2]))
def test_json_is_yaml_1_2(values, indent):
    read = parse_yaml(json.dumps(values, indent=indent), "f.yaml").values
    assert read == values
    assert repr(read) == repr(values)


def test_every_key_and_item_has_its_line():
    text = "# comment\na:\n  b: [1,\n      2]\n  'c d':\n    - e: 3\n"
    assert parse_yaml(text, "f.yaml").lines == {
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "b", 0): 3,
        ("a", "b", 1): 4,
        ("a", "c d"): 5,
        ("a", "c d", 0): 6,
        ("a", "c d", 0, "e"): 6,
    }


def test_where_falls_back_to_what_is_above():
    document = parse_yaml("a:\n  b: 1\n", "f.yaml")
    assert document.where(("a", "b", "c")) == "f.yaml:2"
    assert document.where(("a", "x")) == "f.yaml:1"
    assert document.where(("x",)) == "f.yaml"
    assert document.order(("a", "b", 7)) == 2


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", ["f.yaml:5", "b.c", "given twice", "line 3"]),
        ("a:\n\tb: 2\n", ["f.yaml:2", "a tab", "spaces"]),
        ("a: [1,\nb: 2", ["f.yaml:2", "is not YAML"]),
        ("a: b: c", ["f.yaml:1", "is not YAML"]),
        ("- 1\n- 2\n", ["f.yaml:1", "must be a mapping", "not [1, 2]"]),
        ("just text", ["f.yaml:1", "must be a mapping", "just text"]),
        ("", ["f.yaml", "is empty"]),
        ("# only a comment\n", ["f.yaml", "is empty"]),
        ("a: 1\n1: 2", ["f.yaml:2", "a key", "must be a name, not 1"]),
        ("a:\n  ? [x]\n  : 2", ["f.yaml:2", "a key in a", "sequence"]),
        ("a: &x\n  b: *x", ["f.yaml:2", "a.b", "refers to itself"]),
        ("a: !!set {b}", ["f.yaml:1", "a", "!!set", "not supported"]),
        ("a: !!python/object:os.system {}", ["f.yaml:1", "!!python/object:os.system", "not supported"]),
        ("a: !!int six", ["f.yaml:1", "'six'", "!!int"]),
        ("a: 1\nb: \x07", ["f.yaml:2", "'\\x07'", "not allowed"]),
        ("a: 1\n---\nb: 2", ["f.yaml:2", "is not YAML"]),
        ("[" * 5000, ["f.yaml", "nested too deeply"]),
    ],
)
def test_bad_text_is_one_sentence_with_its_place(text, parts):
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "f.yaml")
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "quickstart.yaml").write_text("a: 1")
    (tmp_path / "latin.yaml").write_bytes("a: ü".encode("latin-1"))
    with pytest.raises(InputError, match=r"quikstart\.yaml: no such file \(did you mean 'quickstart'\?\)"):
        load_yaml(tmp_path / "quikstart.yaml")
    with pytest.raises(InputError, match="is a folder"):
        load_yaml(tmp_path)
    with pytest.raises(InputError, match="not UTF-8 text"):
        load_yaml(tmp_path / "latin.yaml")


def test_a_byte_order_mark_and_windows_lines_do_no_harm(tmp_path):
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    document = load_yaml(path)
    assert document.values == {"a": 1, "b": 2}
    assert document.where(("b",)) == f"{path}:2"


DOCUMENT = textwrap.dedent(
    """\
    a: {b: 1, c: [1, 2]}
    empty:
    residual:
      - fixed
      - windowed: {window: 2}
      - my.module:Class: {x: 1}
    """
)


@pytest.mark.parametrize(
    ("setting", "place", "value"),
    [
        ("a.b=[6, 8]", ("a", "b"), [6, 8]),
        ("a.c=1e-3", ("a", "c"), 1e-3),
        ("a.b=null", ("a", "b"), None),
        ("a.b=x=y", ("a", "b"), "x=y"),
        ("empty.deep.er=no", ("empty", "deep", "er"), "no"),
        ("new.key={low: 1, high: 2}", ("new", "key"), {"low": 1, "high": 2}),
        ("residual.windowed.window=4", ("residual", 1, "windowed", "window"), 4),
        ("residual.my.module:Class.x=4", ("residual", 2, "my.module:Class", "x"), 4),
        ("residual.fixed.option=4", ("residual", 0, "fixed", "option"), 4),
    ],
)
def test_set_replaces_one_value_and_says_where_it_came_from(setting, place, value):
    before = parse_yaml(DOCUMENT, "f.yaml")
    after = set_dotted(before, setting)
    found = after.values
    for part in place:
        found = found[part]
    assert found == value
    assert after.where((*place, "below")) == f"--set {setting}"
    assert before.values == parse_yaml(DOCUMENT, "f.yaml").values
    assert after.where(("a",)) == "f.yaml:1"


def test_the_last_setting_wins():
    document = parse_yaml(DOCUMENT, "f.yaml")
    for setting in ("a.b=1", "a=3", "a=4"):
        document = set_dotted(document, setting)
    assert document.values["a"] == 4
    assert document.where(("a", "b")) == "--set a=4"


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("a.b", "must be dotted.key=value"),
        ("a.b=", "must be dotted.key=value"),
        ("=3", "must be dotted.key=value"),
        ("a..b=3", "must be dotted.key=value"),
        ("a.b.c=3", "a.b is 1"),
        ("a.b=[1", "is not YAML"),
        ("a.b={x: 1, x: 2}", "given twice"),
        ("residual.windwed.window=4", "did you mean 'windowed'?"),
    ],
)
def test_bad_settings_are_refused(setting, part):
    with pytest.raises(InputError) as caught:
        set_dotted(parse_yaml(DOCUMENT, "f.yaml"), setting)
    assert str(caught.value).startswith(f"--set {setting}")
    assert part in str(caught.value)


def test_written_is_one_line():
    assert written(["a", 1, True, None, {"b": 2.5}]) == "[a, 1, true, null, {b: 2.5}]"
    assert written("plain") == "plain"
    assert dotted(("a", 1, "b")) == "a.b"
