"""Which result answers which call.

A call is answered by a tool message with its id. Ids are not unique: an assistant message may
hold two calls with one id, and providers that count from nought use the same ids in every turn.
So a result goes to the *nearest* assistant message before it that still waits for its id, and in
that message to the first call that waits. It stands where it belongs if nothing but tool messages
stands between.

One pass, and each result is looked up once, whatever the transcript is like: the calls that wait
are kept by id, the nearest on top.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import attrs

from harness.transcript._lines import Line

__all__ = ["Asked", "Pairing", "Place", "Result", "pair"]

Place: TypeAlias = Literal["in place", "misplaced", "repeated", "unmatched", "nameless"]


@attrs.define(eq=False)
class Asked:
    """An assistant message with calls, and what answers them."""

    line: Line
    answered: list[bool]
    """By position of the call: whether it has a result, in place or not."""
    results: list[Line] = attrs.field(factory=list)
    """Those that stand in place, as they stand."""

    def unanswered(self) -> tuple[str, ...]:
        """Return the ids of the calls without a result, in call order."""
        pairs = zip(self.line.calls, self.answered, strict=True)
        return tuple(call.id for call, answered in pairs if not answered)


@attrs.frozen(kw_only=True)
class Result:
    """A tool message, and where it stands."""

    line: Line
    place: Place
    asked: Asked | None = None
    """The message whose call it answers; None if it answers none."""
    position: int = 0
    """Of that call in its message."""


@attrs.frozen(kw_only=True)
class Pairing:
    """All calls and all results of a transcript, in order."""

    asked: tuple[Asked, ...]
    results: tuple[Result, ...]


def pair(lines: Iterable[Line]) -> Pairing:
    """Return which results answer which calls."""
    asked: list[Asked] = []
    results: list[Result] = []
    waiting: dict[str, list[tuple[Asked, int]]] = {}
    current: Asked | None = None  # takes the results that come next
    for line in lines:
        if line.calls:
            current = Asked(line, [False] * len(line.calls))
            asked.append(current)
            for position in reversed(range(len(line.calls))):
                waiting.setdefault(line.calls[position].id, []).append((current, position))
        elif line.role != "tool":
            current = None
        else:
            results.append(_place(line, waiting, current))
    return Pairing(asked=tuple(asked), results=tuple(results))


def _place(
    line: Line, waiting: dict[str, list[tuple[Asked, int]]], current: Asked | None
) -> Result:
    """Give the result *line* to the call that it answers, and say how it stands to it."""
    if not line.result_for:
        return Result(line=line, place="nameless")
    calls = waiting.get(line.result_for)
    if calls is None:
        return Result(line=line, place="unmatched")
    if not calls:
        return Result(line=line, place="repeated")
    owner, position = calls.pop()
    owner.answered[position] = True
    if owner is current:
        owner.results.append(line)
    place: Place = "in place" if owner is current else "misplaced"
    return Result(line=line, place=place, asked=owner, position=position)
