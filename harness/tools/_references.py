"""References within a schema, kept right while the schema is rewritten.

A union is one level more, so a pointer into a schema that became one has to go through its first
branch. Generators do write such pointers: where a type occurs a second time, some refer to the
place where it occurred first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, TypeGuard
from urllib.parse import unquote

from harness._json import JSON
from harness.tools._keywords import ANNOTATIONS

__all__ = ["find", "is_pointer", "leads", "moved"]

_PLACE: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def is_pointer(reference: object) -> TypeGuard[str]:
    """Whether *reference* is a path from the root: ``#``, or ``#/`` and names."""
    return isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))


def find(root: dict[str, JSON], pointer: str, united: Collection[int] | None = None) -> JSON:
    """Return what *pointer*, written for the original, points at in *root*.

    Args:
        root: The schema, rewritten or not.
        pointer: One that `is_pointer`.
        united: The identities of the schemas that became unions; None if *root* is the original.

    Raises:
        LookupError: it points nowhere.
    """
    places = [root, *(place for _, place in _steps(root, pointer, united))]
    return places[-1]


def leads(root: dict[str, JSON], pointer: str, united: Collection[int] | None = None) -> bool:
    """Whether *pointer* points at anything, with the arguments of `find`."""
    try:
        find(root, pointer, united)
    except LookupError:
        return False
    return True


def moved(root: dict[str, JSON], pointer: str, united: Collection[int]) -> str:
    """Return *pointer* as it has to be written in *root*, with arguments and errors of `find`."""
    return "/".join(["#", *(step for step, _ in _steps(root, pointer, united))])


def _steps(
    root: dict[str, JSON], pointer: str, united: Collection[int] | None
) -> Iterator[tuple[str, JSON]]:
    """Yield each step of *pointer*, as a pointer writes it, and where it leads."""
    value: JSON = root
    for step in pointer.split("/")[1:]:
        for each in _through(value, step, united):
            value = _below(value, each)
            yield each, value


def _through(value: JSON, step: str, united: Collection[int] | None) -> tuple[str, ...]:
    if united is None:
        return (step,)
    if id(value) in united and step not in ANNOTATIONS:
        return ("anyOf", "0", step)
    if isinstance(value, dict) and step == "oneOf" and step not in value:
        return ("anyOf",)
    return (step,)


def _below(value: JSON, step: str) -> JSON:
    if isinstance(value, list) and _PLACE.fullmatch(step):
        return value[int(step)]
    if isinstance(value, dict):
        return value[unquote(step).replace("~1", "/").replace("~0", "~")]
    raise LookupError(step)
