import copy
from typing import Any

import pytest

from harness._errors import ToolDefinitionError
from harness._json import JSON
from harness.tools import ArgsInvalid
from harness.tools._object_schema import ObjectSchema

REMOTE: dict[str, JSON] = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["query"],
    "additionalProperties": False,
}


def test_a_json_schema_is_told_as_it_was_written_and_kept() -> None:
    written = copy.deepcopy(REMOTE)
    schema = ObjectSchema(written, tool="tool")
    written["properties"] = {}
    schema.json_schema()["properties"] = {}
    assert schema.json_schema() == REMOTE


def test_a_json_schema_holds_callers_to_its_names_only() -> None:
    schema = ObjectSchema(REMOTE, tool="tool")
    assert schema.parse({"query": 1}) == {"query": 1}
    with pytest.raises(ArgsInvalid) as caught:
        schema.parse({"limit": 1, "x": 2})
    assert [str(issue) for issue in caught.value.issues] == [
        "query: required, but missing",
        "x: unknown name, expected one of query, limit",
    ]


def test_a_json_schema_that_is_open_takes_other_names() -> None:
    schema = ObjectSchema({"type": "object"}, tool="tool")
    assert schema.parse({"x": 1}) == {"x": 1}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({}, "its schema has the type None, expected a JSON Schema of type 'object'"),
        ({"type": "array"}, "its schema has the type 'array', expected .*"),
        ({"type": "object", "required": "x"}, "its schema requires 'x', expected a list of names"),
        ({"type": "object", "required": [1]}, r"its schema requires \[1\], expected .*"),
        ({"type": "object", "properties": []}, r"its schema has the properties \[\], expected .*"),
    ],
)
def test_a_json_schema_of_anything_but_an_object_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"^'tool' cannot be a tool: {reason}$"):
        ObjectSchema(schema, tool="tool")
