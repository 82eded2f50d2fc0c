"""Checks of the fields of the records here: they come from hosts, and go into logs and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import attrs

from harness._bounds import check_count, check_seconds

__all__ = [
    "check_text",
    "count",
    "instance_of",
    "optional_count",
    "optional_seconds",
    "optional_tokens",
    "plain",
    "seconds",
    "text",
]

T = TypeVar("T")


def plain(value: str) -> str:
    """Return *value* without its own class: a member of an enumeration becomes its text."""
    given: object = value  # whatever it is, it is judged by the check that follows
    return str.__str__(given) if isinstance(given, str) else value


def check_text(name: str, value: object) -> None:
    """Refuse what is no text, is blank, or has a character that would garble a log."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, expected a text")
    if not value.strip() or not value.isprintable():
        raise ValueError(f"{name} is {value!r}, expected a text that can be seen")


def text(record: object, field: attrs.Attribute[str], value: str) -> None:
    """Check a text, as `check_text` does."""
    check_text(_name(record, field), value)


def instance_of(kind: type[T]) -> Callable[[object, attrs.Attribute[T], T], None]:
    """Return a check that refuses all but instances of *kind*."""

    def check(record: object, field: attrs.Attribute[T], value: T) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"{_name(record, field)} is {value!r}, expected {_a(kind.__name__)}")

    return check


def count(record: object, field: attrs.Attribute[int], value: int) -> None:
    """Refuse what is no count."""
    check_count(_name(record, field), value)


def seconds(record: object, field: attrs.Attribute[float], value: float) -> None:
    """Refuse what is no finite number of seconds."""
    check_seconds(_name(record, field), value)


def optional_count(record: object, field: attrs.Attribute[int | None], value: int | None) -> None:
    """Refuse what is neither a count nor None."""
    if value is not None:
        check_count(_name(record, field), value)


def optional_tokens(record: object, field: attrs.Attribute[int | None], value: int | None) -> None:
    """Refuse what is neither a number of tokens, one or more, nor None."""
    if value is not None:
        check_count(_name(record, field), value, least=1)


def optional_seconds(
    record: object, field: attrs.Attribute[float | None], value: float | None
) -> None:
    """Refuse what is neither a finite number of seconds nor None."""
    if value is not None:
        check_seconds(_name(record, field), value)


def _name(record: object, field: attrs.Attribute[T]) -> str:
    return f"{type(record).__name__}.{field.name}"


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOU' else 'a'} {noun}"
