from typing import Any

import jsonschema
import pytest

from harness._json import JSON
from harness.tools import sanitize_tool_schema
from tests.tools.schemas import accepted


@pytest.mark.rule("R-SCHEMA-20")
def test_references_and_what_no_rule_names_pass_through() -> None:
    schema: dict[str, JSON] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "tree": {"$ref": "#/$defs/Tree"},
            "list": {"type": "array"},
            "far": {"$ref": "https://example.org/far.json#/x"},
            "lost": {"$ref": "#/$defs/nowhere"},
        },
        "$defs": {"Tree": {"type": "object", "properties": {"kids": {"$ref": "#/$defs/Tree"}}}},
    }
    assert sanitize_tool_schema(schema) == schema


@pytest.mark.rule("R-SCHEMA-02")
@pytest.mark.parametrize("rest", ["/b", "/b~1c/prefixItems/0", "/%C3%A9"])
def test_a_pointer_into_what_became_a_union_still_points_there(rest: str) -> None:
    properties: JSON = {
        "b": {"type": "integer"},
        "b/c": {"prefixItems": [{"minLength": 1}]},
        "é": {},
    }
    schema: JSON = {
        "type": "object",
        "properties": {
            "a": {"type": ["object", "null"], "properties": properties},
            "c": {"$ref": f"#/properties/a/properties{rest}"},
            "d": {"$ref": "#/properties/a"},
        },
    }
    result: Any = sanitize_tool_schema(schema)
    assert result["properties"]["c"] == {"$ref": f"#/properties/a/anyOf/0/properties{rest}"}
    assert result["properties"]["d"] == {"$ref": "#/properties/a"}
    some: list[JSON] = [{"c": 1, "d": None}, {"c": "", "d": {}}, {"c": "x", "d": {"b": 1}}]
    assert accepted(result, some) == accepted(schema, some)
    assert sanitize_tool_schema(result) == result


@pytest.mark.rule("R-SCHEMA-02")
def test_a_pointer_into_a_one_of_that_became_an_any_of_still_points_there() -> None:
    schema: JSON = {"oneOf": [{"enum": [1]}, {"minLength": 1}]}
    root: Any = {
        "type": "object",
        "properties": {"a": schema, "b": {"$ref": "#/properties/a/oneOf/1"}},
    }
    result: Any = sanitize_tool_schema(root)
    assert result["properties"]["b"] == {"$ref": "#/properties/a/anyOf/1"}


@pytest.mark.rule("R-SCHEMA-02")
def test_a_reference_to_what_has_gone_goes_too() -> None:
    schema: JSON = {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "object"], "properties": {"b": {"type": "integer"}}},
            "c": {"$ref": "#/properties/a/properties/b"},
        },
    }
    result: Any = sanitize_tool_schema(schema)
    assert result["properties"]["c"] == {"description": "Further conditions apply."}


NULLABLE: dict[str, JSON] = {"type": ["string", "null"]}
CLOSED: dict[str, JSON] = {"type": "object", "additionalProperties": False}


@pytest.mark.rule("R-SCHEMA-02")
@pytest.mark.parametrize(
    ("pointed_at", "reference", "instance"),
    [
        (
            {"anyOf": [{"type": "integer"}], "oneOf": [{"type": "string"}, CLOSED]},
            "#/properties/a/oneOf/0",
            "x",
        ),
        ({"not": CLOSED}, "#/properties/a/not", {}),
        ({"$anchor": "A", **NULLABLE}, "#A", None),
        ({"$id": "http://x/a", **NULLABLE}, "http://x/a", None),
    ],
    ids=["another union stands there", "dropped", "an anchor", "an id"],
)
def test_what_a_reference_accepted_is_accepted_after_what_it_points_at_has_changed(
    pointed_at: dict[str, JSON], reference: str, instance: object
) -> None:
    schema: dict[str, JSON] = {
        "type": "object",
        "properties": {"a": pointed_at, "b": {"$ref": reference}},
    }
    result = sanitize_tool_schema(schema)
    for each in (schema, result):
        assert jsonschema.Draft202012Validator(each).is_valid({"b": instance})
    assert sanitize_tool_schema(result) == result


@pytest.mark.rule("R-SCHEMA-01")
def test_a_reference_that_led_nowhere_is_left_as_it_is() -> None:
    schema: dict[str, JSON] = {
        "type": "object",
        "properties": {"a": {**NULLABLE}, "b": {"$ref": "#/properties/a/oneOf/1"}},
    }
    result = sanitize_tool_schema(schema)
    assert sanitize_tool_schema(result) == result
