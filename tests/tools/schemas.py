"""JSON Schemas with all that a provider may refuse, at random, and a validator that judges them."""

import json
from collections.abc import Sequence
from typing import Any, cast

import jsonschema
from hypothesis import strategies as st
from referencing.exceptions import Unresolvable

from harness._json import JSON
from harness.tools import check_strict_dialect, sanitize_tool_schema

NAMES = ("a", "b", "ghost")
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")

_scalars: st.SearchStrategy[JSON] = st.sampled_from(
    [None, True, False, 0, 1, 2.0, 2.5, "", "a", "b"]
)
values: st.SearchStrategy[JSON] = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)
"""Values over which the schemas below disagree."""

arguments = st.dictionaries(st.sampled_from(NAMES), values, max_size=3)

_types: st.SearchStrategy[JSON] = st.one_of(
    st.sampled_from(_TYPES),
    st.sampled_from(_TYPES).map(lambda each: [each]),
    st.sampled_from(_TYPES).map(lambda each: [each, "null"]),
    st.sampled_from(_TYPES).map(lambda each: ["null", each, each]),
    st.sampled_from([["integer", "number"], ["number", "null", "integer"], list[JSON]()]),
)
_references = st.sampled_from(
    ["#", "#/$defs/a", "#/properties/a", "#/properties/a/properties/b", "#/properties/a/anyOf/0"]
)
_leaf_keywords: dict[str, st.SearchStrategy[JSON]] = {
    "type": _types,
    "nullable": st.booleans(),
    "enum": st.lists(values, min_size=1, max_size=3),
    "const": _scalars,
    "required": st.lists(st.sampled_from(NAMES), max_size=3),
    "description": st.sampled_from(["", "What it is."]),
    "default": st.just({"type": ["string", "null"], "a": {"type": ["string"]}}),
    "minLength": st.just(1),
    "minimum": st.just(1),
    "minItems": st.just(1),
    "minProperties": st.just(1),
    "maxContains": st.just(1),
    "unevaluatedProperties": st.just(False),
    "unevaluatedItems": st.just(False),
    "additionalProperties": st.booleans(),
    "$ref": _references,
}


def _schemas(inner: st.SearchStrategy[JSON]) -> st.SearchStrategy[JSON]:
    several = st.lists(inner, min_size=1, max_size=3).map(lambda each: cast("JSON", each))
    named = st.dictionaries(st.sampled_from(NAMES[:2]), inner, max_size=2).map(
        lambda each: cast("JSON", each)
    )
    applicators: dict[str, st.SearchStrategy[JSON]] = {
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), several),
        **dict.fromkeys(("properties", "patternProperties", "$defs"), named),
        **dict.fromkeys(
            (
                *("not", "if", "then", "else", "items", "contains", "propertyNames"),
                "additionalProperties",
            ),
            inner,
        ),
        "dependentSchemas": named,
    }
    return st.sets(st.sampled_from([*_leaf_keywords, *applicators]), max_size=4).flatmap(
        lambda keys: st.fixed_dictionaries(
            {key: (applicators | _leaf_keywords)[key] for key in sorted(keys)}
        )
    )


_leaves: st.SearchStrategy[JSON] = st.sets(
    st.sampled_from(sorted(_leaf_keywords)), max_size=3
).flatmap(lambda keys: st.fixed_dictionaries({key: _leaf_keywords[key] for key in sorted(keys)}))
_any_schemas: st.SearchStrategy[JSON] = st.recursive(
    st.booleans() | _leaves, _schemas, max_leaves=8
)

object_schemas: st.SearchStrategy[dict[str, JSON]] = st.tuples(
    _schemas(_any_schemas), st.dictionaries(st.sampled_from(NAMES[:2]), _any_schemas)
).map(lambda parts: {**cast("dict[str, JSON]", parts[0]), "type": "object", "properties": parts[1]})
"""Schemas of objects, with everything that the sanitizer looks at."""


def accepted(schema: JSON, candidates: Sequence[JSON]) -> list[JSON]:
    """Return those of *candidates* that *schema* accepts; it raises if it is no schema."""
    assert isinstance(schema, dict)
    validator = jsonschema.Draft202012Validator(schema)
    return [each for each in candidates if validator.is_valid(each)]


def judged(schema: JSON, candidates: Sequence[JSON]) -> list[JSON] | None:
    """Return those that *schema* accepts, or None if it refers in circles or to nothing."""
    try:
        return accepted(schema, candidates)
    except (Unresolvable, RecursionError, TypeError):  # a pointer into what is no container
        return None


def sanitized(schema: Any) -> Any:
    """What becomes of *schema*, in a parameter."""
    root = sanitize_tool_schema({"type": "object", "properties": {"it": schema}})
    assert check_strict_dialect(root) == ()
    properties = root["properties"]
    assert isinstance(properties, dict)
    return properties["it"]


def text(schema: object) -> str:
    """The schema with the order of its keys."""
    return json.dumps(schema)
