from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from harness._json import JSON, encode_text
from harness.tools import (
    REWRITES,
    check_strict_dialect,
    sanitize_tool_schema,
)
from harness.tools._constraint_rewrites import LEVELS
from tests.strategies import anything, json_values
from tests.tools.schemas import accepted, arguments, judged, object_schemas, sanitized, text

# -- all of it ----------------------------------------------------------------------------------


@pytest.mark.rule("R-SCHEMA-01", "R-SCHEMA-19")
@given(object_schemas)
def test_it_is_pure_and_what_is_sanitized_stays(schema: dict[str, JSON]) -> None:
    before = copy.deepcopy(schema)
    result = sanitize_tool_schema(schema)
    assert text(schema) == text(before)
    assert text(sanitize_tool_schema(before)) == text(result)
    assert text(sanitize_tool_schema(result)) == text(result)
    assert check_strict_dialect(result) == ()


@pytest.mark.rule("R-SCHEMA-01")
def test_keys_keep_their_order() -> None:
    result = sanitize_tool_schema(
        {
            "$comment": "x",
            "additionalProperties": False,
            "properties": {
                "z": {"minLength": 1, "title": "Z", "type": ["null", "string"]},
                "a": {},
            },
            "type": "object",
            "required": ["z"],
        }
    )
    assert text(result) == text(
        {
            "$comment": "x",
            "additionalProperties": False,
            "properties": {
                "z": {
                    "anyOf": [{"minLength": 1, "type": "string"}, {"type": "null"}],
                    "title": "Z",
                },
                "a": {},
            },
            "type": "object",
            "required": ["z"],
        }
    )


@pytest.mark.rule("R-SCHEMA-02")
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(object_schemas, st.lists(arguments, min_size=2, max_size=8))
def test_what_a_schema_accepts_the_result_accepts(
    schema: dict[str, JSON], candidates: list[JSON]
) -> None:
    result = sanitize_tool_schema(schema)
    assume("Accepts " not in text(result))  # a type was lost, and the description says so
    right = judged(schema, [{}, *candidates])
    assume(right)
    assert right is not None
    assert accepted(result, right) == right


@pytest.mark.rule("R-SCHEMA-02")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (
            {
                "oneOf": [
                    {"properties": {"a": {}}, "additionalProperties": False},
                    {"properties": {"b": {}}, "required": ["b"], "additionalProperties": False},
                ]
            },
            {"b": 1},
        ),
        ({"oneOf": [{"enum": [1]}, {"type": "integer", "minimum": 2}]}, 2),
        ({"oneOf": [{"enum": [1]}, {"enum": [2]}], "anyOf": [True]}, 2),
        ({"not": {"enum": [1]}}, 2),
        ({"if": {"enum": [1]}, "then": False}, 2),
        ({"contains": {"enum": [1]}, "maxContains": 1}, [1, 2]),
        ({"allOf": [{"additionalProperties": True}], "unevaluatedProperties": False}, {"a": 1}),
        ({"not": {"type": ["string", "null"], "not": {"type": "null"}}}, None),
        ({"not": {"required": ["ghost"]}}, {}),
    ],
)
def test_what_was_loosened_is_not_held_against_a_value_above(schema: Any, value: JSON) -> None:
    result = sanitized(schema)
    assert accepted(schema, [value]) == [value]
    assert accepted(result, [value]) == [value]
    assert text(sanitized(result)) == text(result)


@pytest.mark.rule("R-SCHEMA-02")
def test_what_was_loosened_is_followed_through_references() -> None:
    schema: Any = {
        "type": "object",
        "properties": {"it": {"oneOf": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/few"}]}},
        "$defs": {"one": {"enum": [1]}, "few": {"$ref": "#/$defs/two"}, "two": {"enum": [2]}},
    }
    result: Any = sanitize_tool_schema(schema)
    assert accepted(result, [{"it": 1}, {"it": 2}]) == [{"it": 1}, {"it": 2}]
    assert result["properties"]["it"]["description"] == "Exactly one of the alternatives applies."
    # And what was not loosened is left alone.
    schema["$defs"] = {"one": {"const": 1}, "few": {"$ref": "#/$defs/two"}, "two": {"const": 2}}
    assert sanitize_tool_schema(schema) == schema


@pytest.mark.rule("R-SCHEMA-02", "R-SCHEMA-19")
@pytest.mark.parametrize(
    ("schema", "note"),
    [
        ({"type": ["string", "boolean"]}, "Accepts string or boolean."),
        ({"type": "integer", "enum": [1, 2]}, "Allowed values: 1, 2."),
        ({"required": ["a", "ghost"], "properties": {"a": {}}}, 'Also required: "ghost".'),
        ({"type": "object", "additionalProperties": False}, "No other properties."),
        ({"not": {"enum": [1]}}, "Further conditions apply."),
        ({"oneOf": [{"enum": [1]}, {}]}, "Exactly one of the alternatives applies."),
    ],
)
def test_the_description_says_what_was_lost_once(schema: Any, note: str) -> None:
    assert sanitized(schema)["description"] == note
    assert sanitized({"description": "", **schema})["description"] == note
    described = sanitized({"description": "It.", **schema})
    assert described["description"] == f"It. {note}"
    assert sanitized({**schema, "description": f"It. {note}"}) == described
    assert sanitized(described) == described


@pytest.mark.rule("R-SCHEMA-03")
def test_what_looks_like_a_schema_and_is_data_is_untouched() -> None:
    odd: JSON = {
        "type": ["string", "null"],
        "required": ["ghost"],
        "additionalProperties": False,
        "named": {"type": ["string"], "enum": [1]},
    }
    schema: JSON = {
        **dict.fromkeys(("default", "const", "x-unknown"), odd),
        "examples": [odd],
    }
    assert sanitized(schema) == schema


@pytest.mark.rule("R-SCHEMA-03")
@pytest.mark.parametrize(
    "keyword",
    "items additionalItems unevaluatedItems contains additionalProperties propertyNames "
    "unevaluatedProperties then else contentSchema".split(),
)
def test_the_one_schema_under_a_keyword_is_sanitized(keyword: str) -> None:
    assert sanitized({keyword: {"type": ["string"]}}) == {keyword: {"type": "string"}}


@pytest.mark.rule("R-SCHEMA-03")
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf", "prefixItems", "items"])
def test_every_schema_in_a_list_is_sanitized(keyword: str) -> None:
    schema = {keyword: [{"type": ["string"]}, True, {"type": ["null"]}]}
    assert sanitized(schema) == {keyword: [{"type": "string"}, True, {"type": "null"}]}


@pytest.mark.rule("R-SCHEMA-03", "R-SCHEMA-04")
@pytest.mark.parametrize(
    "keyword",
    "properties patternProperties $defs definitions dependentSchemas dependencies".split(),
)
@pytest.mark.parametrize("name", "properties type required enum items anyOf default not".split())
def test_a_name_is_no_keyword_whatever_it_is(keyword: str, name: str) -> None:
    schema = {keyword: {name: {"type": ["string"]}, "other": {"enum": ["x"]}}}
    assert sanitized(schema) == {
        keyword: {name: {"type": "string"}, "other": {"enum": ["x"], "type": "string"}}
    }


@pytest.mark.rule("R-SCHEMA-04")
def test_parameters_may_have_the_names_of_keywords() -> None:
    names = ["properties", "type", "required", "enum", "items", "anyOf"]
    result = sanitize_tool_schema(
        {
            "type": "object",
            "properties": {name: {"type": ["string", "null"]} for name in names},
            "required": names,
        }
    )
    union = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert result["properties"] == dict.fromkeys(names, union)
    assert result["required"] == names


@pytest.mark.rule("R-SCHEMA-05")
@pytest.mark.parametrize(
    "root", [None, {}, {"type": "string"}, [], 3, True, {"type": None}, {"type": ["string", 1]}]
)
def test_what_is_no_object_schema_becomes_one_without_properties(root: Any) -> None:
    assert sanitize_tool_schema(root) == {"type": "object", "properties": {}}


@pytest.mark.rule("R-SCHEMA-05")
@pytest.mark.parametrize("properties", [{}, {"properties": None}, {"properties": ["a"]}])
def test_a_root_object_names_its_properties(properties: Any) -> None:
    result = sanitize_tool_schema({"title": "It", **properties})
    assert result == {"title": "It", "type": "object", "properties": {}}


# -- anything -----------------------------------------------------------------------------------


@pytest.mark.rule("R-SCHEMA-06")
@given(
    st.recursive(
        anything | object_schemas,
        lambda inner: st.dictionaries(
            st.sampled_from(
                "type enum const required properties items anyOf $ref nullable description not "
                "additionalProperties oneOf $defs".split()
            ),
            inner | st.lists(inner, max_size=2),
        ),
        max_leaves=10,
    )
)
def test_nothing_raises(schema: object) -> None:
    result = sanitize_tool_schema(schema)
    assert check_strict_dialect(result) == ()


@pytest.mark.rule("R-SCHEMA-06")
@given(st.dictionaries(st.sampled_from(["x-one", "format", "$id", "2"]), json_values))
def test_keywords_that_nobody_knows_are_kept(keywords: dict[str, JSON]) -> None:
    assert sanitized(keywords) == keywords


def nested(keyword: str, depth: int, innermost: JSON) -> JSON:
    for _ in range(depth):
        innermost = {keyword: innermost}
    return innermost


@pytest.mark.rule("R-SCHEMA-06")
def test_what_is_nested_beyond_a_hundred_levels_is_replaced() -> None:
    fits: Any = {"type": "object", "properties": {}, "items": nested("items", 99, {"title": "x"})}
    assert sanitize_tool_schema(fits) == fits
    cut: JSON = {"description": "What is nested too deeply is left out."}
    result = sanitize_tool_schema({**fits, "items": fits})
    assert result["items"] == {
        "type": "object",
        "properties": {},
        "items": nested("items", LEVELS - 1, cut),
    }
    assert accepted(result, [{}]) == [{}]
    encode_text({"tools": [{"function": {"parameters": result}}]})


@pytest.mark.rule("R-SCHEMA-06")
def test_data_that_is_nested_beyond_a_hundred_levels_is_left_out() -> None:
    deep = nested("x", 10_000, None)
    for schema in ({"default": deep}, {"properties": {"a": [deep]}}, {"items": [[deep]]}):
        result = sanitized({"title": "It", **schema})
        assert result == {"title": "It", "description": "What is nested too deeply is left out."}


@pytest.mark.rule("R-SCHEMA-06")
@pytest.mark.parametrize("keyword", ["items", "not", "default", "allOf", "oneOf"])
def test_nesting_of_ten_thousand_levels_is_no_recursion(keyword: str) -> None:
    schema: JSON = {"type": ["object", "null"]}
    for _ in range(10_000):
        schema = {
            keyword: [schema] if keyword.endswith("Of") else schema,
            "type": ["array", "null"],
        }
    result = sanitize_tool_schema({"type": "object", "properties": {"it": schema}})
    encode_text(result)
    assert text(sanitize_tool_schema(result)) == text(result)


def wide(count: int) -> dict[str, JSON]:
    """A schema with *count* of everything that could be slow."""
    names = [f"p{number}" for number in range(count)]
    properties: dict[str, JSON] = {name: {"type": ["string", "null"]} for name in names}
    return {
        "type": "object",
        "properties": properties,
        "required": [*names, *names, *(f"ghost{number}" for number in range(count))],
        "oneOf": [{"required": [name], "enum": [number]} for number, name in enumerate(names)],
        "$defs": {
            "many": {"enum": [*names, *range(count)], "type": [*names, "string", "integer"]},
            "all": {"anyOf": [{"$ref": f"#/properties/p{number}"} for number in range(count)]},
        },
    }


@pytest.mark.rule("R-SCHEMA-06")
def test_the_time_is_linear_in_the_size() -> None:
    took = []
    for count in (500, 4_000):
        schema = wide(count)
        runs = []
        for _ in range(3):
            begun = time.process_time()
            sanitize_tool_schema(schema)
            runs.append(time.process_time() - begun)
        took.append(min(runs))
    # Eight times the size; a square would be 64 times the time.
    assert took[1] < 24 * took[0]


# -- the table ----------------------------------------------------------------------------------


def test_the_rows_are_numbered_and_have_a_rule_each() -> None:
    assert [row.number for row in REWRITES] == list(range(1, len(REWRITES) + 1))
    assert all(row.seen and row.becomes and row.rule.startswith("R-SCHEMA-") for row in REWRITES)


EXAMPLES: dict[int, Any] = {
    1: {"type": "string"},
    2: {"type": "object", "properties": {}, "items": nested("items", 101, {"title": "x"})},
    **{
        number: {"type": "object", "properties": {"it": schema}}
        for number, schema in {
            3: {"type": "string", "nullable": True},
            4: {"type": ["string"]},
            5: {"enum": ["a"]},
            6: {"type": ["string", "boolean"]},
            7: {"type": ["string", "null"]},
            8: {"type": "integer", "enum": [1]},
            9: {"required": ["ghost"]},
            10: {"additionalProperties": False},
            11: {"oneOf": [{"additionalProperties": False}, {}]},
            12: {"not": {"additionalProperties": False}},
            13: {"if": {"additionalProperties": False}},
            14: {"contains": {"additionalProperties": False}, "maxContains": 1},
            15: {"allOf": [{"additionalProperties": False}], "unevaluatedProperties": False},
        }.items()
    },
}


@pytest.mark.parametrize("row", REWRITES, ids=lambda row: row.number)
def test_every_row_rewrites_something_and_notes_what_it_says(row: Any) -> None:
    result = text(sanitize_tool_schema(EXAMPLES[row.number]))
    assert result != text(EXAMPLES[row.number])
    if row.note is not None and row.number != 7:  # a union loses nothing
        assert row.note.partition("{")[0] in result
