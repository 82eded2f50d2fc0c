"""What is left of a value when it has to be strict JSON."""

from __future__ import annotations

import math

from harness._errors import NotJSONError
from harness._json import JSON, check_json

__all__ = ["plain_json"]

_DEPTH = 190
"""Somewhat less than `check_json` allows, so that a repair may still wrap what is left."""


def plain_json(value: object) -> JSON:
    """Return *value* in exact JSON types; what JSON has no form for becomes null.

    Lone surrogates and bytes that are no text are escaped, tuples become lists, subclasses their
    base. A key that is no text, what is nested too deeply and what holds itself are left out.
    """
    return _plain(value, _DEPTH, set())


def _plain(value: object, room: int, above: set[int]) -> JSON:
    match value:
        case None | bool():
            return value
        case str():
            return _text(value)
        case bytes() | bytearray():
            return value.decode(errors="backslashreplace")
        case int():
            return _whole(int.__add__(value, 0))
        case float():
            return float.__mul__(value, 1.0) if math.isfinite(value) else None
        case dict() | list() | tuple() if room and id(value) not in above:
            return _container(value, room - 1, above)
        case _:
            return None


def _container(
    value: dict[object, object] | list[object] | tuple[object, ...], room: int, above: set[int]
) -> JSON:
    above.add(id(value))
    plain: JSON
    if isinstance(value, dict):
        plain = {
            _text(key): _plain(inner, room, above)
            for key, inner in value.items()
            if isinstance(key, str)
        }
    else:
        plain = [_plain(inner, room, above) for inner in value]
    above.discard(id(value))
    return plain


def _text(value: str) -> str:
    return str.encode(value, errors="backslashreplace").decode()


def _whole(number: int) -> JSON:
    try:
        check_json(number)
    except NotJSONError:  # more digits than can be read back
        return None
    return number
