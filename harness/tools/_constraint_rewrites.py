"""The rewrites of everything but types: the root, depth, values, names, and conditions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final

from harness._json import JSON
from harness.tools._keywords import plain_values
from harness.tools._schema_node import Node

__all__ = [
    "FURTHER",
    "LEVELS",
    "TOO_DEEP",
    "clean_required",
    "cut_depth",
    "drop",
    "list_values",
    "make_root",
    "open_objects",
    "open_one_of",
]

LEVELS: Final = 100
"""So deep may objects and arrays of a schema be nested."""

TOO_DEEP: Final = "What is nested too deeply is left out."
FURTHER: Final = "Further conditions apply."


def make_root(node: Node) -> None:
    keywords = node.keywords
    if node.place != "root":
        return
    named = keywords.get("type", "object")
    if named != "object" and not (isinstance(named, list) and "object" in named):
        keywords.clear()
    keywords.setdefault("type", "object")
    if not isinstance(keywords.get("properties"), dict):
        keywords["properties"] = {}


def cut_depth(node: Node) -> None:
    if node.level > LEVELS:
        if node.keywords:
            node.keywords.clear()
            node.lose(TOO_DEEP)
        return
    room = LEVELS + 1 - node.level
    deep = [
        keyword
        for keyword, value in node.keywords.items()
        if isinstance(value, dict | list)
        and any(_is_deeper(each, room) for each in plain_values(keyword, value))
    ]
    for keyword in deep:
        del node.keywords[keyword]
        node.lose(TOO_DEEP)


def list_values(node: Node) -> None:
    values = node.keywords.get("enum", ...)
    if values is ... or (
        isinstance(values, list)
        and values
        and node.keywords.get("type") == "string"
        and all(isinstance(each, str) for each in values)
    ):
        return
    del node.keywords["enum"]
    listed = values if isinstance(values, list) else [values]
    node.lose(f"Allowed values: {', '.join(map(_text, listed)) or 'none'}.")


def clean_required(node: Node) -> None:
    required = node.keywords.get("required", ...)
    if required is ...:
        return
    names = required if isinstance(required, list) else []
    unique = list(dict.fromkeys(each for each in names if isinstance(each, str)))
    known: list[JSON] = [each for each in unique if node.is_property(each)]
    if known:
        node.keywords["required"] = known
    else:
        del node.keywords["required"]
    ghosts = [_text(each) for each in unique if not node.is_property(each)]
    if ghosts:
        node.lose(f"Also required: {', '.join(ghosts)}.")


def open_objects(node: Node) -> None:
    others = node.keywords.get("additionalProperties")
    if node.place == "root" or not isinstance(others, bool):
        return
    del node.keywords["additionalProperties"]
    if others:
        node.unseen = True
    else:
        node.lose("No other properties.")


def open_one_of(node: Node) -> None:
    branches = node.keywords.get("oneOf")
    if not isinstance(branches, list) or len(branches) < 2:
        return
    if "anyOf" in node.keywords:
        del node.keywords["oneOf"]
        node.note(FURTHER)
    else:
        renamed = {
            "anyOf" if keyword == "oneOf" else keyword: value
            for keyword, value in node.keywords.items()
        }
        node.keywords.clear()
        node.keywords.update(renamed)
        node.note("Exactly one of the alternatives applies.")


def drop(*keywords: str) -> Callable[[Node], None]:
    def apply(node: Node) -> None:
        present = [each for each in keywords if each in node.keywords]
        for each in present:
            del node.keywords[each]
        if present:
            node.note(FURTHER)

    return apply


def _text(value: JSON) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return "…"  # no JSON after all; to say what it is would take no model further


def _is_deeper(value: JSON, levels: int) -> bool:
    """Whether containers are nested in *value* deeper than *levels*, itself counted."""
    layer = _containers([value])
    for _ in range(levels):
        layer = [
            inner
            for each in layer
            for inner in _containers(each.values() if isinstance(each, dict) else each)
        ]
        if not layer:
            return False
    return bool(layer)


def _containers(values: Iterable[JSON]) -> list[dict[str, JSON] | list[JSON]]:
    return [each for each in values if isinstance(each, dict | list)]
