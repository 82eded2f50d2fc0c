"""Schemas that every provider accepts, made of schemas that somebody wrote.

`REWRITES` says what is changed; here is the walk that applies it. It goes down the schema once,
without recursion, and from a schema's keywords alone knows what below it is a schema. Then what
was loosened is followed upwards, through what refers to it as well, to the few keywords that do
not bear it. Each schema is visited once on either way, so the time is that of reading.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

from harness._json import JSON
from harness.tools._constraint_rewrites import FURTHER
from harness.tools._keywords import COMPOSITIONS, sub_schemas
from harness.tools._references import find, is_pointer, leads, moved
from harness.tools._rewrites import REWRITES
from harness.tools._schema_node import Node, Place

__all__ = ["sanitize_tool_schema"]

Slot: TypeAlias = "tuple[dict[str, JSON] | list[JSON], str | int]"
"""A container, and the key in it."""

_REFERRING = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_ON_THE_WAY = tuple(row for row in REWRITES if row.under is None)


def sanitize_tool_schema(schema: object) -> dict[str, JSON]:
    """Return the schema of a tool's parameters as every provider accepts it.

    *schema* is JSON and stays as it is; it may share values with the result, such as defaults,
    so change neither. What is no schema of an object becomes one without properties. The result
    passes `check_strict_dialect`, and to sanitize it again changes nothing. Never raises, for
    JSON of any size and depth.
    """
    source = cast("dict[str, JSON]", schema) if isinstance(schema, dict) else {}
    nodes = _walk(source)
    references = _references(source, nodes)
    _mend(nodes, references)
    while _lose_what_is_gone(source, nodes, references):
        _mend(nodes, references)
    _redirect(source, nodes, references)
    return nodes[0].keywords


def _walk(source: dict[str, JSON]) -> list[Node]:
    """Return every schema of *source* rewritten, each after the one that it is in."""
    root = Node(keywords=dict(source), place="root", level=0)
    nodes: list[Node] = []
    waiting: list[tuple[Node, Slot]] = [(root, ({}, ""))]
    for node, (container, key) in waiting:  # which grows meanwhile
        for row in _ON_THE_WAY:
            row.apply(node)
        container[key] = node.keywords  # type: ignore[index]  # a key of its own kind
        nodes.append(node)
        waiting += _below(node)
    return nodes


def _below(node: Node) -> Iterator[tuple[Node, Slot]]:
    """Yield the schemas directly below *node*, copied, and where each has to be put."""
    own: dict[str, dict[str, JSON] | list[JSON]] = {}
    for keyword, key, schema in list(sub_schemas(node.keywords)):
        container: dict[str, JSON] | list[JSON] = node.keywords
        if key is not None:
            if keyword not in own:
                own[keyword] = copy.copy(node.keywords[keyword])  # type: ignore[assignment]  # no plain value
                node.keywords[keyword] = own[keyword]
            container = own[keyword]
        inner = Node(
            keywords=dict(schema),
            place=_place(node, keyword),
            level=node.level + (1 if key is None else 2),
            parent=node,
            under=keyword,
            scope=_scope(node, keyword),
        )
        yield inner, (container, keyword if key is None else key)


def _place(parent: Node, keyword: str) -> Place:
    if parent.place == "root" and keyword in ("anyOf", "oneOf"):
        return "branch of the root"
    return "branch" if keyword in COMPOSITIONS else "elsewhere"


def _scope(parent: Node, keyword: str) -> tuple[Mapping[str, JSON], ...]:
    if keyword not in COMPOSITIONS:
        return ()
    own = parent.keywords.get("properties")
    return (own, *parent.scope) if isinstance(own, dict) else parent.scope


def _references(source: dict[str, JSON], nodes: list[Node]) -> list[tuple[Node, Node]]:
    """Return the schemas that refer to another, with that one.

    A reference that cannot be followed counts as one to the root, which is loosened if anything
    is. One to what is no longer there is left out, with its keyword.
    """
    found: list[tuple[Node, Node]] = []
    united = {id(node.keywords) for node in nodes if node.united}
    by_id = {id(node.keywords): node for node in nodes}
    for node in nodes:
        for keyword in node.keywords.keys() & _REFERRING:
            target = nodes[0]
            reference = node.keywords[keyword]
            if is_pointer(reference) and leads(source, reference):
                if not leads(target.keywords, reference, united):
                    del node.keywords[keyword]
                    node.lose(FURTHER)
                    continue
                target = by_id.get(id(find(target.keywords, reference, united)), target)
            found.append((node, target))
    return found


def _mend(nodes: list[Node], references: list[tuple[Node, Node]]) -> None:
    """Apply the rows that what was loosened calls for, above it and where it is referred to."""
    referring: dict[int, list[Node]] = {}
    for node, target in references:
        referring.setdefault(id(target), []).append(node)
    blind = not any("unevaluatedProperties" in node.keywords for node in nodes)
    waiting = [node for node in nodes if node.loosened or (node.unseen and not blind)]
    for node in waiting:
        node.loosened = True
    for node in waiting:  # which grows meanwhile
        _apply_mending(node, "itself")
        above = [] if node.parent is None else [node.parent]
        for each in above:
            _apply_mending(each, node.under)
        for each in (*above, *referring.get(id(node), ())):
            if not each.loosened:
                each.loosened = True
                waiting.append(each)


def _lose_what_is_gone(
    source: dict[str, JSON], nodes: list[Node], references: list[tuple[Node, Node]]
) -> bool:
    """Take out the references to what was dropped meanwhile; return whether there were any.

    What then stands where they point, if anything does, is another schema.
    """
    united = {id(node.keywords) for node in nodes if node.united}
    by_id = {id(node.keywords): node for node in nodes}
    root, lost = nodes[0].keywords, False
    for node, target in references:
        for keyword in node.keywords.keys() & _REFERRING:
            reference = node.keywords[keyword]
            if not is_pointer(reference) or not leads(source, reference):
                continue
            found = find(root, reference, united) if leads(root, reference, united) else None
            if found is None or by_id.get(id(found), target) is not target:
                del node.keywords[keyword]
                node.lose(FURTHER)
                lost = True
    return lost


def _apply_mending(node: Node, under: str) -> None:
    for row in REWRITES:
        if row.under == under:
            row.apply(node)


def _redirect(
    source: dict[str, JSON], nodes: list[Node], references: list[tuple[Node, Node]]
) -> None:
    """Write the pointers of *references* for what has become of the schema."""
    united = {id(node.keywords) for node in nodes if node.united}
    root = nodes[0].keywords
    for node, _ in references:
        for keyword in node.keywords.keys() & _REFERRING:
            reference = node.keywords[keyword]
            if is_pointer(reference) and leads(source, reference):
                node.keywords[keyword] = moved(root, reference, united)
