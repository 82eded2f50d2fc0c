"""The rewrites of types: several become one, and null becomes a branch of a union.

What a schema lists as its values, with ``enum`` or ``const``, counts as much as its types do. A
type that none of them has was never right, so a schema that seems to need a union may need none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from harness._json import JSON
from harness.tools._keywords import ANNOTATIONS, BESIDE, KEYWORDS_OF
from harness.tools._schema_node import Node

__all__ = ["clean_types", "collapse_types", "fold_nullable", "narrow_types", "unite_null"]

_OF_SOME_TYPE: Final = frozenset().union(*KEYWORDS_OF.values())


def fold_nullable(node: Node) -> None:
    keywords = node.keywords
    kinds = keywords.get("type")
    if keywords.get("nullable") is not True:
        return
    if isinstance(kinds, str | list):
        del keywords["nullable"]
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if "null" not in kinds:
            keywords["type"] = [*kinds, "null"]
            node.loosened = True
    elif "enum" in keywords:
        del keywords["nullable"]  # what is listed says it


def clean_types(node: Node) -> None:
    kinds = node.keywords.get("type")
    if not isinstance(kinds, list):
        return
    unique = list(dict.fromkeys(each for each in kinds if isinstance(each, str)))
    if unique:
        node.keywords["type"] = unique[0] if len(unique) == 1 else list(unique)
    else:
        del node.keywords["type"]


def narrow_types(node: Node) -> None:
    keywords = node.keywords
    kinds = keywords.get("type")
    listed = "enum" in keywords
    values = keywords["enum"] if listed else [keywords.get("const")]
    if not isinstance(values, list) or not (listed or "const" in keywords):
        return
    if node.place == "root":
        return  # an object, whatever is listed
    if kinds is None and listed:
        found = list(dict.fromkeys(_types_of(each)[0] for each in values))
        if "number" in found and "integer" in found:
            found.remove("integer")
        if len({*found} - {"null"}) > 1:
            return
    elif isinstance(kinds, str | list):
        given = dict.fromkeys(kinds if isinstance(kinds, list) else [kinds])
        values = [each for each in values if not given.keys().isdisjoint(_types_of(each))]
        right = {kind for each in values for kind in _types_of(each)}
        found = [str(kind) for kind in given if kind in right]
    else:
        return
    if not found:
        return  # nothing is right; leave the type, and what was listed
    keywords["type"] = found[0] if len(found) == 1 else list[JSON](found)
    if listed:
        keywords["enum"] = values
    if found == ["null"]:
        keywords.pop("enum", None)
        keywords.pop("const", None)


def collapse_types(node: Node) -> None:
    kinds = node.keywords.get("type")
    if not isinstance(kinds, list):
        return
    given = [str(each) for each in kinds]
    absorbed = {"null", "integer"} if "number" in given else {"null"}
    several = [each for each in given if each not in absorbed]
    if len(several) > 1:
        chosen = "string" if "string" in several else several[0]
        chosen = "object" if node.place == "root" else chosen
        others = _OF_SOME_TYPE - KEYWORDS_OF.get(chosen, frozenset())
        for keyword in others & node.keywords.keys():
            del node.keywords[keyword]
        node.lose(_accepts(given))
        several = [chosen]
    kept: list[JSON] = [*several, *(["null"] if "null" in given else [])]
    node.keywords["type"] = kept[0] if len(kept) == 1 else kept


def unite_null(node: Node) -> None:
    kinds = node.keywords.get("type")
    if not isinstance(kinds, list):
        return
    (kind,) = (each for each in kinds if each != "null")
    values = node.keywords.get("enum")
    if isinstance(values, list):
        node.keywords["enum"] = [each for each in values if each is not None]
    node.keywords["type"] = kind
    if node.place in ("root", "branch of the root") or node.leans_on_parent():
        node.note(_accepts([str(each) for each in kinds]))
        return
    node.loosened |= not BESIDE.isdisjoint(node.keywords)
    typed: dict[str, JSON] = {}
    united: dict[str, JSON] = {}
    for keyword, value in node.keywords.items():
        if keyword in ANNOTATIONS:
            united[keyword] = value
        else:
            united.setdefault("anyOf", [typed, {"type": "null"}])
            typed[keyword] = value
    node.keywords, node.united = united, True


def _accepts(kinds: Iterable[str]) -> str:
    *first, last = kinds
    return f"Accepts {', '.join(first)} or {last}."


def _types_of(value: JSON) -> tuple[str, ...]:
    """Return the types that *value* has; a number without a fraction has two."""
    match value:
        case None:
            return ("null",)
        case bool():
            return ("boolean",)
        case str():
            return ("string",)
        case int():
            return ("integer", "number")
        case float():
            return ("integer", "number") if value.is_integer() else ("number",)
        case list():
            return ("array",)
        case _:
            return ("object",)
