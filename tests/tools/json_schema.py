"""A validator for the part of JSON Schema that our own schemas use, to hold them to account.

It is a second reading of the schema, by the standard, and knows nothing of Python types. Only in
one thing it is stricter: ``1.0`` is no integer, since msgspec, which is what checks, takes none.
"""

import math
from typing import Any

from harness._json import JSON

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = frozenset(
    {
        *("title", "description", "default", "discriminator", "$defs"),
        *("type", "enum", "anyOf", "$ref", "properties", "required", "additionalProperties"),
        *("items", "prefixItems", "minItems", "maxItems", "propertyNames"),
        *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"),
        *("minLength", "maxLength"),
    }
)


def is_valid(value: JSON, schema: Any, root: Any = None) -> bool:
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    assert schema.keys() <= _KNOWN, schema
    if "$ref" in schema:
        definition = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
        return is_valid(value, definition, root)
    if "anyOf" in schema and not any(is_valid(value, each, root) for each in schema["anyOf"]):
        return False
    if "enum" in schema and not any(
        type(value) is type(each) and value == each for each in schema["enum"]
    ):
        return False
    if "type" in schema and not _has_type(value, schema["type"]):
        return False
    match value:
        case dict():
            return _valid_object(value, schema, root)
        case list():
            return _valid_array(value, schema, root)
        case str():
            least, most = schema.get("minLength", 0), schema.get("maxLength", len(value))
            return bool(least <= len(value) <= most)
        case int() | float() if not isinstance(value, bool):
            return _in_bounds(value, schema)
    return True


def _has_type(value: JSON, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _valid_object(value: dict[str, JSON], schema: Any, root: Any) -> bool:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    return all(name in value for name in schema.get("required", ())) and all(
        is_valid(each, properties.get(name, others), root) for name, each in value.items()
    )


def _valid_array(value: list[JSON], schema: Any, root: Any) -> bool:
    first = schema.get("prefixItems", [])
    rest = schema.get("items", True)
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    return least <= len(value) <= most and all(
        is_valid(each, first[index] if index < len(first) else rest, root)
        for index, each in enumerate(value)
    )


def _in_bounds(value: float, schema: Any) -> bool:
    return bool(
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and schema.get("exclusiveMinimum", -math.inf) < value
        and value < schema.get("exclusiveMaximum", math.inf)
    )
