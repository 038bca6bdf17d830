"""Every YAML file that comes with resnas loads, varies, builds, is feasible, and fits its JSON Schema."""

import random
from pathlib import Path
from typing import Any

import pytest

from resnas import study
from resnas.space import SearchSpace
from resnas.study import Study
from resnas.tasks import TASKS
from resnas.yaml_file import load_yaml

ROOT = Path(__file__).parents[1]
SPACES = sorted((ROOT / "search_spaces").glob("*.yaml"))
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))


def name(path: Path) -> str:
    return path.name


def test_there_are_files_to_check():
    assert {path.stem for path in SPACES} >= {"quickstart", "four_families", "every_option"}
    assert {path.stem for path in STUDIES} >= {"quickstart", "four_families", "digits", "khop"}


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_a_study_draws_architectures_of_every_family_that_it_can_build(path):
    loaded = Study.load(path)
    space = loaded.search_space
    shape = loaded.task.shape()
    source = random.Random(0)
    drawn = [space.build(space.draw(source)) for _ in range(200)]
    feasible = {architecture.family for architecture in drawn if space.infeasible(architecture, shape) is None}
    assert feasible == {variant.name for variant in space.variants}
    baseline = space.baseline()
    assert baseline is not None
    assert space.infeasible(space.build(baseline), shape) is None
    assert loaded.budget.steps >= loaded.budget.validations


@pytest.mark.parametrize("path", SPACES, ids=name)
def test_every_family_of_a_space_is_feasible_for_the_default_text_task(path):
    space = SearchSpace.load(path)
    shape = TASKS["text"]().shape()
    source = random.Random(0)
    drawn = [space.build(space.draw(source)) for _ in range(300)]
    feasible = [architecture for architecture in drawn if space.infeasible(architecture, shape) is None]
    assert {architecture.family for architecture in feasible} == {variant.name for variant in space.variants}


@pytest.mark.parametrize("path", SPACES, ids=name)
def test_a_space_loads_and_its_plain_form_is_read_back(path):
    space = SearchSpace.load(path)
    assert SearchSpace.from_dict(space.to_dict()) == space
    assert space.parameters


@pytest.mark.parametrize("path", [*SPACES, *STUDIES], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_says_first_how_to_check_it(path):
    comment = path.read_text().split("resnas:")[0]
    assert f"python cli.py check {path.parent.name}/{path.name}" in comment


def test_every_option_names_every_option():
    values = load_yaml(ROOT / "search_spaces" / "every_option.yaml").values
    schema = SearchSpace.json_schema()
    architecture = _deref(schema["properties"]["architecture"], schema)
    assert set(values["architecture"]) == set(architecture["properties"])
    assert set(values["training"]) == set(_deref(schema["properties"]["training"], schema)["properties"])
    assert set(values["constraints"]) == set(_deref(schema["properties"]["constraints"], schema)["properties"])
    for variant in SearchSpace.load(ROOT / "search_spaces" / "every_option.yaml").variants:
        entry = next(
            item for item in values["architecture"]["residual"] if item == variant.name or variant.name in item
        )
        given = entry[variant.name] if isinstance(entry, dict) else {}
        assert set(given) == set(variant.topology.model_fields)


SCHEMAS = [(path, SearchSpace.json_schema) for path in SPACES] + [(path, study.json_schema) for path in STUDIES]


@pytest.mark.parametrize(
    ("path", "json_schema"), SCHEMAS, ids=[f"{path.parent.name}/{path.name}" for path, _ in SCHEMAS]
)
def test_the_json_schema_fits_the_file_and_no_misspelling(path, json_schema):
    values = load_yaml(path).values
    schema = json_schema()
    assert fits(values, schema, schema)
    for mapping in _mappings(values):
        if values.get("objectives") is mapping:
            continue  # the metrics of a user's task are not in the schema
        for key in list(mapping):
            mapping[f"{key}x"] = mapping.pop(key)
            assert not fits(values, schema, schema), f"{key}x was let pass"
            mapping[key] = mapping.pop(f"{key}x")


def test_editors_are_told_what_every_key_means():
    for schema in (SearchSpace.json_schema(), study.json_schema()):
        for definition in [schema, *schema["$defs"].values()]:
            for key, field in definition.get("properties", {}).items():
                assert field.get("description") or _deref(field, schema).get("description"), key


def _mappings(value: Any) -> list[dict[str, Any]]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return ([value] if isinstance(value, dict) else []) + [mapping for item in inner for mapping in _mappings(item)]


def _deref(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    return root["$defs"][reference.rpartition("/")[2]] if reference else schema


def fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Check a value by the keywords of JSON Schema that these schemas use."""
    schema = _deref(schema, root)
    types = {
        "object": lambda one: isinstance(one, dict),
        "array": lambda one: isinstance(one, list),
        "string": lambda one: isinstance(one, str),
        "boolean": lambda one: isinstance(one, bool),
        "null": lambda one: one is None,
        "number": lambda one: isinstance(one, int | float) and not isinstance(one, bool),
        "integer": lambda one: isinstance(one, int | float) and not isinstance(one, bool) and one == int(one),
    }
    if "anyOf" in schema and not any(fits(value, one, root) for one in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(fits(value, one, root) for one in schema["oneOf"]) != 1:
        return False
    if "type" in schema and not types[schema["type"]](value):
        return False
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return False
    if isinstance(value, list):
        return all(fits(item, schema.get("items", {}), root) for item in value)
    if not isinstance(value, dict):
        return True
    known, extra = schema.get("properties", {}), schema.get("additionalProperties", True)
    return all(key in value for key in schema.get("required", [])) and all(
        fits(item, known[key], root) if key in known else extra if isinstance(extra, bool) else fits(item, extra, root)
        for key, item in value.items()
    )
