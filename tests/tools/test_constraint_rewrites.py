import pytest

from harness._json import JSON
from harness.tools import sanitize_tool_schema
from tests.tools.schemas import sanitized


@pytest.mark.rule("R-SCHEMA-15")
@pytest.mark.parametrize(
    ("schema", "result"),
    [
        (
            {"type": "integer", "enum": [1, 2]},
            {"type": "integer", "description": "Allowed values: 1, 2."},
        ),
        (
            {"type": "boolean", "enum": [True]},
            {"type": "boolean", "description": "Allowed values: true."},
        ),
        ({"enum": ["a", "b"]}, {"enum": ["a", "b"], "type": "string"}),
        ({"enum": ["a", 1, None]}, {"description": 'Allowed values: "a", 1, null.'}),
        ({"enum": [1, 2.5]}, {"type": "number", "description": "Allowed values: 1, 2.5."}),
        ({"type": "string", "enum": ["é", 1]}, {"type": "string", "enum": ["é"]}),
        (
            {"type": "integer", "enum": ["1"]},
            {"type": "integer", "description": 'Allowed values: "1".'},
        ),
        (
            {"type": "string", "enum": []},
            {"type": "string", "description": "Allowed values: none."},
        ),
        ({"enum": "a"}, {"description": 'Allowed values: "a".'}),
        (
            {"type": ["integer", "null"], "enum": [1, None]},
            {
                "anyOf": [
                    {"type": "integer", "description": "Allowed values: 1."},
                    {"type": "null"},
                ]
            },
        ),
    ],
)
def test_only_texts_are_listed(schema: JSON, result: JSON) -> None:
    assert sanitized(schema) == result


@pytest.mark.rule("R-SCHEMA-16")
@pytest.mark.parametrize(
    ("required", "left"),
    [
        (["a", "ghost", "a"], {"required": ["a"], "description": 'Also required: "ghost".'}),
        (["a", "a"], {"required": ["a"]}),
        (["ghost"], {"description": 'Also required: "ghost".'}),
        ([], {}),
        (True, {}),
        ([["a"], 1], {}),
    ],
)
def test_only_properties_are_required(required: JSON, left: dict[str, JSON]) -> None:
    assert sanitized({"properties": {"a": {}}, "required": required}) == {
        "properties": {"a": {}},
        **left,
    }


@pytest.mark.rule("R-SCHEMA-17")
def test_a_branch_may_require_what_is_around_it() -> None:
    schema: dict[str, JSON] = {
        "type": "object",
        "properties": {"a": {}, "b": {}},
        "anyOf": [{"required": ["a"]}, {"allOf": [{"required": ["b"]}], "properties": {}}],
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
        "else": {"oneOf": [{"required": ["b"]}]},
    }
    assert sanitize_tool_schema(schema) == schema


@pytest.mark.rule("R-SCHEMA-17")
def test_an_object_inside_may_not_require_what_is_around_it() -> None:
    inside = {"required": ["a"]}
    schema = {"properties": {"a": {}, "c": inside}, "dependentSchemas": {"a": inside}}
    lost = {"description": 'Also required: "a".'}
    assert sanitized(schema) == {
        "properties": {"a": {}, "c": lost},
        "dependentSchemas": {"a": lost},
    }


@pytest.mark.rule("R-SCHEMA-18")
@pytest.mark.parametrize(
    ("others", "left"),
    [
        (False, {"description": "No other properties."}),
        (True, {}),
        (
            {"type": ["string"], "additionalProperties": True},
            {"additionalProperties": {"type": "string"}},
        ),
    ],
)
def test_only_the_root_is_closed(others: JSON, left: JSON) -> None:
    assert sanitized({"additionalProperties": others}) == left
    kept = {"type": "string"} if isinstance(others, dict) else others
    root = {"type": "object", "properties": {}, "additionalProperties": others}
    assert sanitize_tool_schema(root) == {**root, "additionalProperties": kept}
