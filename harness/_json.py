"""Strict JSON: the one place where text becomes values and values become text.

msgspec does the work, and its leniency is not ours. On the way out it writes NaN as ``null``
and accepts sets, bytes, dates and two keys that clash once they are text; so `encode` looks at
the exact types first. On the way in it is strict already, but a lone surrogate, a number out
of range and nesting that is too deep come out as three kinds of exception; `decode` makes them
one. Whatever `decode` returns, `encode` takes.

The canonical text is for digests: two values have the same text if and only if JSON cannot
tell them apart. Keys are sorted by code point, nothing is escaped that need not be, and numbers
are written in the shortest ECMAScript form, so ``1.0`` and ``1`` are one number. Integers that a
double could not hold keep all their digits: rounding them would give two values one digest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

import msgspec

from harness._errors import NotJSONError, RecordError

__all__ = [
    "JSON",
    "ROOM",
    "canonical_text",
    "check_json",
    "converted",
    "decode",
    "digest",
    "encode",
    "encode_text",
]

T = TypeVar("T")

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"
"""What `decode` returns and `encode` accepts: exact types, string keys, finite numbers."""

_DEPTH = 200
"""Nesting beyond this is refused both ways; no provider's message comes near it."""

ROOM = 50
"""Levels that a value needs around it, if it is to be stored in a record of ours."""

_SURELY_SHORT = 2000
"""Integers of so many bits have fewer digits than the least bound an interpreter can be given."""

_encoder = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """Return *value* as compact UTF-8 JSON.

    Raises:
        NotJSONError: something in it is not exactly a JSON type; the error has its path.
    """
    check_json(value)
    return _encoder.encode(value)


def encode_text(value: object) -> str:
    """Return *value* as compact JSON text, not ASCII-escaped; raises as `encode`."""
    return encode(value).decode()


def decode(text: str | bytes) -> JSON:
    """Return the value that *text* stands for; of duplicate keys the last wins.

    Raises:
        NotJSONError: it is not strict JSON, holds a number that overflows, a lone surrogate,
            or is nested too deeply.
    """
    try:
        value: JSON = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise NotJSONError(_reason(str(error)), path=()) from None
    except RecursionError:
        raise NotJSONError("it is nested too deeply", path=()) from None
    if len(text) > 2 * _DEPTH:  # a shorter one has no room for brackets that deep
        check_depth(value)
    return value


def converted(value: object, kind: type[T]) -> T:
    """Return the *kind* that the JSON value *value* stands for.

    Raises:
        RecordError: it stands for none; the error has the path of the field.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        raise RecordError(reason, path=path.strip("`")) from None
    except UnicodeEncodeError:  # it would be quoted in what is wrong with it
        raise RecordError("it is a text that holds a lone surrogate") from None


def check_depth(value: JSON) -> None:
    """Refuse nesting beyond the limit that `encode` has, so what came in can go out again."""
    level = _containers([value])
    for _ in range(_DEPTH):
        if not level:
            return
        level = [
            inner
            for each in level
            for inner in _containers(each.values() if isinstance(each, dict) else each)
        ]
    if level:
        raise NotJSONError("it is nested too deeply", path=())


def _containers(values: Iterable[JSON]) -> list[dict[str, JSON] | list[JSON]]:
    return [each for each in values if isinstance(each, dict | list)]


def check_json(value: object, *, room: int = 0) -> None:
    """Return if *value* consists of exact JSON types only, and may go *room* levels deeper.

    Accepted are ``dict`` with ``str`` keys, ``list``, ``str`` without lone surrogates, ``int``,
    finite ``float``, ``bool`` and ``None``; no subclass, tuple, bytes or enum, and no cycle.

    Raises:
        NotJSONError: with the path of the first offending place.
    """
    _check(value, (), _DEPTH - room)


def _check(value: object, path: tuple[str | int, ...], deepest: int) -> None:
    kind = type(value)
    if kind is str:
        _check_text(value, path)
    elif kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]  # a float, by the line above
            raise NotJSONError(f"{value!r} is no JSON number", path=path)
    elif isinstance(value, dict | list) and kind in (dict, list):
        if len(path) >= deepest:
            raise NotJSONError("it is nested too deeply", path=path[:8])
        _check_container(value, path, deepest)
    elif kind is int:
        _check_digits(value, path)
    elif not (value is None or kind is bool):
        raise NotJSONError(f"{kind.__name__} is no JSON type", path=path)


def _check_container(
    value: dict[object, object] | list[object], path: tuple[str | int, ...], deepest: int
) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if type(key) is not str:
                raise NotJSONError(f"the key {key!r} is not a text", path=path)
            _check_text(key, path)
            _check(inner, (*path, key), deepest)
    else:
        for index, inner in enumerate(value):
            _check(inner, (*path, index), deepest)


def _check_digits(value: object, path: tuple[str | int, ...]) -> None:
    if isinstance(value, int) and value.bit_length() > _SURELY_SHORT:
        try:
            str(value)
        except ValueError:  # the interpreter's own bound, which holds on the way in as well
            raise NotJSONError("an integer has too many digits", path=path) from None


def _check_text(value: object, path: tuple[str | int, ...]) -> None:
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise NotJSONError("a text holds a lone surrogate", path=path) from None


def canonical_text(value: object) -> str:
    """Return the one text of *value*: sorted keys, no spaces, shortest numbers.

    Raises:
        NotJSONError: JSON cannot carry the value without loss.
    """
    check_json(value)
    return _canonical(value)


def digest(value: object, hash_text: Callable[[bytes], str] | None = None) -> str:
    """Return the hash of *value*'s canonical text: SHA-256 in lower-case hex by default.

    Raises:
        NotJSONError: as `canonical_text`.
    """
    text = canonical_text(value).encode()
    return hashlib.sha256(text).hexdigest() if hash_text is None else hash_text(text)


def _canonical(value: object) -> str:
    if isinstance(value, dict):
        pairs = (f"{_canonical(key)}:{_canonical(value[key])}" for key in sorted(value))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, float):
        return _ecmascript(value)
    if type(value) is int:
        return _place("-" if value < 0 else "", str(abs(value)), 0)
    return _encoder.encode(value).decode()


def _ecmascript(number: float) -> str:
    """Write a float as ECMAScript does: its shortest digits, see `_place`."""
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    sign = "-" if number < 0 else ""
    return _place(sign, whole + fraction, int(exponent or "0") - len(fraction))


def _place(sign: str, digits: str, power: int) -> str:
    """Write ``digits * 10**power``: plain from 1e-6 up to 1e21, else with an exponent."""
    shortest = digits.strip("0")
    if not shortest:
        return "0"
    lead = len(digits.lstrip("0")) + power  # digits before the decimal point
    count = len(shortest)
    if count <= lead <= 21:
        return f"{sign}{shortest}{'0' * (lead - count)}"
    if 0 < lead <= 21:
        return f"{sign}{shortest[:lead]}.{shortest[lead:]}"
    if -6 < lead <= 0:
        return f"{sign}0.{'0' * -lead}{shortest}"
    rest = f".{shortest[1:]}" if count > 1 else ""
    return f"{sign}{shortest[0]}{rest}e{lead - 1:+d}"


def _reason(text: str) -> str:
    """Take msgspec's own words, without the prefix that repeats what the error says."""
    return text.removeprefix("JSON is malformed: ")
