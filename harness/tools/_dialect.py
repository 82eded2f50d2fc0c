"""What a strict provider refuses in the schema of a tool's parameters.

A second reading, on its own: it shares with the sanitizer where the schemas are, and nothing of
how they are rewritten, so that each can hold the other to account.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from harness._json import JSON
from harness.tools._keywords import COMPOSITIONS, sub_schemas

__all__ = ["check_strict_dialect"]

_Names: TypeAlias = tuple[Mapping[str, JSON], ...]

_SHOWN: Final = 8
"""So many steps of a path are shown."""


def check_strict_dialect(schema: object) -> tuple[str, ...]:
    """Return every place where *schema* would have a request refused; none is a good one.

    Refused are a root that is no object schema, an array of types, an ``enum`` of anything but
    texts, a required name that is no property, and ``additionalProperties: false`` below the
    root. Each is one sentence with its path. Never raises, for JSON of any size and depth.
    """
    if not isinstance(schema, dict):
        return (f"the schema is {reprlib.repr(schema)}, expected an object",)
    found: list[str] = []
    waiting: list[tuple[dict[str, JSON], tuple[str, ...], _Names]] = [(schema, (), ())]
    for node, path, around in waiting:  # which grows meanwhile
        own = node.get("properties")
        names = (own, *around) if isinstance(own, dict) else around
        where = ".".join(path) or "the schema"
        faults = _root_faults(node) if node is schema else _nested_faults(node)
        found += (f"{where} has {fault}" for fault in (*faults, *_faults(node, names)))
        for keyword, key, below in sub_schemas(node):
            inner = path if len(path) > _SHOWN else _extended(path, keyword, key)
            waiting.append((below, inner, names if keyword in COMPOSITIONS else ()))
    return tuple(found)


def _extended(path: tuple[str, ...], keyword: str, key: str | int | None) -> tuple[str, ...]:
    if len(path) >= _SHOWN:
        return (*path, "…")
    return (*path, keyword) if key is None else (*path, keyword, str(key))


def _root_faults(node: dict[str, JSON]) -> Iterator[str]:
    if node.get("type") != "object":
        yield f"the type {reprlib.repr(node.get('type'))}, expected 'object'"
    if not isinstance(node.get("properties"), dict):
        yield f"the properties {reprlib.repr(node.get('properties'))}, expected an object"


def _nested_faults(node: dict[str, JSON]) -> Iterator[str]:
    if isinstance(node.get("type"), list):
        yield f"the type {reprlib.repr(node['type'])}, expected one type"
    if node.get("additionalProperties") is False:
        yield "additionalProperties False, expected it at the root alone"


def _faults(node: dict[str, JSON], names: _Names) -> Iterator[str]:
    if "enum" in node:
        values = node["enum"]
        texts = isinstance(values, list) and all(isinstance(each, str) for each in values)
        if not texts or node.get("type") != "string":
            yield f"the enum {reprlib.repr(values)}, expected texts and the type 'string'"
    required = node.get("required", [])
    if not isinstance(required, list):
        yield f"the required names {reprlib.repr(required)}, expected a list"
        return
    for each in required:
        if not isinstance(each, str) or not any(each in properties for properties in names):
            yield f"the required name {reprlib.repr(each)}, expected one of its properties"
