"""Every fault of a value, not just the first.

msgspec converts a value and reports the first fault it meets: a model that made five would need
five turns. It drops names that it does not know, except for Structs that forbid them: a
misspelt optional argument would be ignored without a word. And it asks for the tag of a Struct
only in a union, while the schema that the model reads always requires it.

So names are compared first, on every call, wherever a record is. A value that does not convert
is looked into, from part to part, down to the smallest parts that are at fault. msgspec stays
the only judge of a value; when no part is at fault alone, it is the whole, in its words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, assert_never

import msgspec

from harness._json import JSON
from harness.tools._shape import Entries, Items, Leaf, OneOf, Positions, Record, Shape

__all__ = ["MISSING", "Fault", "find_faults", "has_misfits", "listed", "unknown_name"]

Fault: TypeAlias = tuple[tuple[str | int, ...], str]
"""Where, and what is wrong there."""

MISSING = "required, but missing"
"""The fault of a name that is not there."""

_LISTED = 20
"""How many right values a fault lists."""


def has_misfits(shape: Shape, value: JSON) -> bool:
    """Whether *value* has a name, at any depth, that its record has not, or lacks one."""
    if not _has_records(shape):
        return False
    shape = _meant(shape, value)
    if isinstance(shape, Record) and any(True for _ in _misfits(shape, value)):
        return True
    return any(has_misfits(part, inner) for _, part, inner in _parts(shape, value))


def find_faults(shape: Shape, value: JSON, path: tuple[str | int, ...] = ()) -> Iterator[Fault]:
    """Yield every fault of *value*, each of the smallest part that is at fault."""
    shape = _meant(shape, value)
    found = False
    if isinstance(shape, Record):
        for name, what in _misfits(shape, value):
            found = True
            yield (*path, name), what
    for key, part, inner in _parts(shape, value):
        for fault in find_faults(part, inner, (*path, key)):
            found = True
            yield fault
    if not found:
        whole = _judge(shape, value)
        if whole is not None:
            yield path, whole


def _parts(shape: Shape, value: JSON) -> Iterator[tuple[str | int, Shape, JSON]]:
    """Yield the parts of *value* that have a shape of their own, each with its key."""
    match shape, value:
        case Items(item=item), list():
            for index, inner in enumerate(value):
                yield index, item, inner
        case Positions(positions=positions), list() if len(value) == len(positions):
            yield from zip(range(len(value)), positions, value, strict=True)
        case Entries(value=each), dict():
            for key, inner in value.items():
                yield key, each, inner
        case Record(fields=fields), dict():
            for name, field in fields.items():
                if name in value:
                    yield name, field, value[name]


def _misfits(record: Record, value: JSON) -> Iterator[tuple[str, str]]:
    """Yield the names that are missing from *value* or strange in it, and what is wrong."""
    if not isinstance(value, dict):
        return
    for name in record.required:
        if name not in value:
            yield name, MISSING
    names = record.names
    for name in value:
        if name not in names:
            yield name, unknown_name(names)


def _has_records(shape: Shape) -> bool:
    match shape:
        case Record():
            return True
        case Items(item=inner) | Entries(value=inner):
            return _has_records(inner)
        case Positions(positions=several) | OneOf(members=several):
            return any(map(_has_records, several))
        case Leaf():
            return False
        case _:
            assert_never(shape)


def _meant(shape: Shape, value: JSON) -> Shape:
    """Return the member of a union that *value* is meant for, or the shape itself.

    A union has at most one member for lists, and one for objects unless they are told apart by
    a tag; msgspec refuses others.
    """
    if not isinstance(shape, OneOf):
        return shape
    meant: list[Shape] = []
    if isinstance(value, list):
        meant = [each for each in shape.members if isinstance(each, Items | Positions)]
    elif isinstance(value, dict):
        meant = [each for each in shape.members if isinstance(each, Entries | Record)]
        if len(meant) > 1:
            meant = [each for each in meant if _has_tag(each, value)]
    return meant[0] if len(meant) == 1 else shape


def _has_tag(shape: Shape, value: dict[str, JSON]) -> bool:
    return (
        isinstance(shape, Record)
        and shape.tag is not None
        and value.get(shape.tag[0]) == shape.tag[1]
    )


def _judge(shape: Shape, value: JSON) -> str | None:
    try:
        msgspec.convert(value, shape.annotation, str_keys=True)
    except msgspec.ValidationError as error:
        text = str(error).replace("`", "")
        return text[:1].lower() + text[1:] + _right_values(shape)
    return None


def _right_values(shape: Shape) -> str:
    """Name the values that a `Literal` or an enum has; msgspec tells only the wrong one."""
    members = shape.members if isinstance(shape, OneOf) else (shape,)
    choices = [repr(each) for member in members for each in getattr(member, "choices", ())]
    return f", expected {listed(choices)}" if choices else ""


def unknown_name(names: Sequence[str]) -> str:
    """Return the fault of a name that is none of *names*."""
    return f"unknown name, expected {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """Return *names* as what a fault expected, the first twenty of them."""
    if not names:
        return "none"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"one of {', '.join(names[:_LISTED])}{more}"
