import pytest

from harness._json import JSON
from harness.tools import sanitize_tool_schema
from tests.tools.schemas import sanitized


@pytest.mark.rule("R-SCHEMA-07")
@pytest.mark.parametrize(
    ("kinds", "kind"),
    [
        (["string"], {"type": "string"}),
        (["string", "string"], {"type": "string"}),
        ([], {}),
        ([1, None, {}], {}),
        (["null", "null"], {"type": "null"}),
    ],
)
def test_a_type_array_of_one_type_is_that_type(kinds: JSON, kind: JSON) -> None:
    assert sanitized({"type": kinds}) == kind


@pytest.mark.rule("R-SCHEMA-08", "R-SCHEMA-10")
def test_a_nullable_type_is_a_union() -> None:
    assert sanitized({"type": ["string", "null"], "minLength": 1}) == {
        "anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]
    }


@pytest.mark.rule("R-SCHEMA-10")
@pytest.mark.parametrize("kind", "string integer number boolean array object".split())
def test_wherever_a_value_may_be_null_a_branch_says_so(kind: str) -> None:
    def around(schema: JSON) -> JSON:
        return {
            "items": schema,
            "properties": {"a": schema, "b": {"allOf": [schema], "then": schema}},
            "$defs": {"a": {"additionalProperties": schema}},
        }

    union: JSON = {"anyOf": [{"type": kind}, {"type": "null"}]}
    assert sanitized(around({"type": [kind, "null"]})) == around(union)
    assert sanitized(around({"type": kind, "nullable": True})) == around(union)


@pytest.mark.rule("R-SCHEMA-09")
def test_annotations_stay_outside_the_union_and_all_else_moves_in() -> None:
    annotations = {
        "title": "It",
        "description": "What it is.",
        "default": None,
        "examples": ["x"],
        "deprecated": True,
        "readOnly": True,
        "writeOnly": False,
        "$comment": "x",
    }
    bearing = {"pattern": "x", "maxLength": 3, "anyOf": [{"minLength": 1}], "x-unknown": 1}
    assert sanitized({**annotations, "type": ["null", "string"], **bearing}) == {
        **annotations,
        "anyOf": [{"type": "string", **bearing}, {"type": "null"}],
    }


@pytest.mark.rule("R-SCHEMA-11")
@pytest.mark.parametrize(
    ("schema", "result"),
    [
        (
            {"type": ["string", "null"], "enum": ["a", None]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        ),
        ({"type": ["string", "null"], "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        (
            {"type": ["string", "null"], "const": None, "title": "It"},
            {"type": "null", "title": "It"},
        ),
        ({"type": ["string", "null"], "const": "a"}, {"type": "string", "const": "a"}),
        ({"type": ["string", "null"], "enum": [None]}, {"type": "null"}),
        (
            {"type": "string", "nullable": True, "maxLength": 1},
            {"anyOf": [{"type": "string", "maxLength": 1}, {"type": "null"}]},
        ),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"nullable": True, "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        (
            {"enum": ["a", None]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        ),
        ({"type": "string", "nullable": False}, {"type": "string", "nullable": False}),
        ({"nullable": True, "title": "It"}, {"nullable": True, "title": "It"}),
    ],
)
def test_null_is_allowed_by_a_list_of_values_or_not_at_all(schema: JSON, result: JSON) -> None:
    assert sanitized(schema) == result


@pytest.mark.rule("R-SCHEMA-12")
@pytest.mark.parametrize(
    ("kinds", "result"),
    [
        (
            ["string", "number", "boolean"],
            {"type": "string", "description": "Accepts string, number or boolean."},
        ),
        (["boolean", "string"], {"type": "string", "description": "Accepts boolean or string."}),
        (["boolean", "array"], {"type": "boolean", "description": "Accepts boolean or array."}),
        (["integer", "number"], {"type": "number"}),
        (["number", "null", "integer"], {"anyOf": [{"type": "number"}, {"type": "null"}]}),
        (
            ["integer", "boolean", "null"],
            {
                "anyOf": [{"type": "integer"}, {"type": "null"}],
                "description": "Accepts integer, boolean or null.",
            },
        ),
    ],
)
def test_several_types_collapse_to_one_and_the_description_lists_them(
    kinds: JSON, result: JSON
) -> None:
    assert sanitized({"type": kinds}) == result


@pytest.mark.rule("R-SCHEMA-12")
def test_keywords_that_cannot_apply_to_the_type_that_is_left_go() -> None:
    keywords: dict[str, JSON] = {
        "minLength": 1,
        "format": "date",
        "minimum": 1,
        "items": {},
        "properties": {},
        "required": [],
        "title": "It",
        "x-unknown": 1,
    }
    assert sanitized({"type": ["integer", "string"], **keywords}) == {
        "type": "string",
        "minLength": 1,
        "format": "date",
        "title": "It",
        "x-unknown": 1,
        "description": "Accepts integer or string.",
    }


@pytest.mark.rule("R-SCHEMA-12")
def test_types_that_no_listed_value_has_need_no_union() -> None:
    assert sanitized({"type": ["integer", "string"], "enum": ["a"]}) == {
        "type": "string",
        "enum": ["a"],
    }


NULLABLE: dict[str, JSON] = {"type": ["object", "null"]}


@pytest.mark.rule("R-SCHEMA-13")
def test_the_root_is_no_union() -> None:
    assert sanitize_tool_schema({**NULLABLE, "properties": {"a": NULLABLE}}) == {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "object"}, {"type": "null"}]}},
        "description": "Accepts object or null.",
    }
    assert sanitize_tool_schema({"type": "object", "nullable": True})["type"] == "object"
    assert sanitize_tool_schema({"type": ["string", "object"]}) == {
        "type": "object",
        "properties": {},
        "description": "Accepts string or object.",
    }


@pytest.mark.rule("R-SCHEMA-13")
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_a_branch_of_the_root_is_no_union_and_a_property_in_it_is_one(keyword: str) -> None:
    result = sanitize_tool_schema(
        {"type": "object", keyword: [{**NULLABLE, "properties": {"a": NULLABLE}}]}
    )
    assert result[keyword] == [
        {
            "type": "object",
            "properties": {"a": {"anyOf": [{"type": "object"}, {"type": "null"}]}},
            "description": "Accepts object or null.",
        }
    ]


@pytest.mark.rule("R-SCHEMA-11", "R-SCHEMA-13")
def test_where_no_union_stands_null_leaves_the_list_as_well() -> None:
    schema = {"anyOf": [{"type": ["string", "null"], "enum": ["a", None]}]}
    assert sanitize_tool_schema(schema)["anyOf"] == [
        {"type": "string", "enum": ["a"], "description": "Accepts string or null."}
    ]


@pytest.mark.rule("R-SCHEMA-13", "R-SCHEMA-14", "R-SCHEMA-17")
def test_a_branch_that_requires_what_is_around_it_is_no_union() -> None:
    around: dict[str, JSON] = {"properties": {"a": {}, "b": {}}}
    leaning: JSON = {**NULLABLE, "required": ["a"]}
    assert sanitized({**around, "allOf": [leaning]})["allOf"] == [
        {"type": "object", "required": ["a"], "description": "Accepts object or null."}
    ]
    own: JSON = {**NULLABLE, "required": ["b"], "properties": {"b": {}}}
    assert sanitized({**around, "allOf": [own]})["allOf"] == [
        {
            "anyOf": [
                {"type": "object", "required": ["b"], "properties": {"b": {}}},
                {"type": "null"},
            ]
        }
    ]
