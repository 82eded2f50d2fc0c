"""Where in a JSON Schema the schemas are, and what its keywords are about.

The same dictionary can be a schema, a map from names to schemas, or a value that happens to look
like one. Only the keyword above it tells which, so whoever walks a schema asks here: a parameter
may be called ``items``, and a default may be an object with a ``type``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from harness._json import JSON

__all__ = [
    "ANNOTATIONS",
    "BESIDE",
    "COMPOSITIONS",
    "KEYWORDS_OF",
    "SubSchema",
    "plain_values",
    "sub_schemas",
]

ANNOTATIONS: Final = frozenset(
    "title description default examples deprecated readOnly writeOnly $comment"
    " $id $anchor $dynamicAnchor".split()
)
"""What speaks of a value, and rules none out, or gives the schema a name."""

COMPOSITIONS: Final = frozenset("anyOf oneOf allOf if then else".split())
"""What applies further schemas to the very object that the schema around them describes."""

BESIDE: Final = COMPOSITIONS | {"not", "$ref", "$dynamicRef"}
"""What may have an opinion on null, whatever the type beside it says."""

_NUMERIC: Final = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf format".split()
)
KEYWORDS_OF: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset(
        "minLength maxLength pattern format contentEncoding contentMediaType contentSchema".split()
    ),
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "array": frozenset(
        (
            "items prefixItems additionalItems unevaluatedItems contains minContains maxContains "
            "minItems maxItems uniqueItems"
        ).split()
    ),
    "object": frozenset(
        (
            "properties patternProperties additionalProperties unevaluatedProperties propertyNames "
            "required minProperties maxProperties dependentRequired dependentSchemas dependencies"
        ).split()
    ),
    "boolean": frozenset(),
    "null": frozenset(),
}
"""The keywords that say something of values of one type, and nothing of any other."""

_ONE: Final = frozenset(
    (
        "items additionalItems unevaluatedItems contains additionalProperties propertyNames "
        "unevaluatedProperties not if then else contentSchema"
    ).split()
)
_LIST: Final = frozenset("anyOf oneOf allOf prefixItems items".split())
_MAP: Final = frozenset(
    "properties patternProperties $defs definitions dependentSchemas dependencies".split()
)

SubSchema: TypeAlias = tuple[str, str | int | None, dict[str, JSON]]
"""The keyword, the name or place under it (None if it holds just one), and the schema."""


def sub_schemas(schema: dict[str, JSON]) -> Iterator[SubSchema]:
    """Yield the schemas directly below *schema*; those that are ``true`` or ``false`` are not.

    *schema* may be given other schemas in their places meanwhile, but no other keys.
    """
    for keyword, value in schema.items():
        if isinstance(value, dict):
            if keyword in _ONE:
                yield keyword, None, value
            elif keyword in _MAP:
                for name, each in value.items():
                    if isinstance(each, dict):
                        yield keyword, name, each
        elif isinstance(value, list) and keyword in _LIST:
            for place, each in enumerate(value):
                if isinstance(each, dict):
                    yield keyword, place, each


def plain_values(keyword: str, value: JSON) -> Iterator[JSON]:
    """Yield what is below *keyword* and is neither a schema nor a container of schemas."""
    if isinstance(value, dict) and keyword in _MAP:
        yield from (each for each in value.values() if not isinstance(each, dict))
    elif isinstance(value, list) and keyword in _LIST:
        yield from (each for each in value if not isinstance(each, dict))
    elif not (isinstance(value, dict) and keyword in _ONE):
        yield value
