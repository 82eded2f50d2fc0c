"""What a row of the refusal table is made of, and what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import attrs

from harness.transcript._lines import CallLine, Line, read_lines
from harness.transcript._pairing import Pairing, pair

__all__ = ["ALL", "PROVIDERS", "Check", "Finding", "Reading", "RefusalRow", "read"]

Check: TypeAlias = Literal["settled", "openai", "anthropic"]
"""Who reads: our own loop, or a provider family."""

PROVIDERS: tuple[Check, ...] = ("openai", "anthropic")
ALL: tuple[Check, ...] = ("settled", *PROVIDERS)


@attrs.frozen(kw_only=True)
class Reading:
    """A transcript, read."""

    messages: Sequence[object]
    """As they came."""
    lines: tuple[Line, ...]
    pairing: Pairing
    open_calls: tuple[str, ...]
    """Calls that wait for an answer from outside."""
    last_assistant: Line | None
    """The one message whose calls may be open."""

    def sound(self, *roles: str) -> Iterator[Line]:
        """Yield the messages that have the shape of one, of *roles* if any are given."""
        for line in self.lines:
            if not line.fault and (not roles or line.role in roles):
                yield line

    def calls(self) -> Iterator[tuple[Line, CallLine]]:
        """Yield every call with the message that asks for it."""
        for asked in self.pairing.asked:
            for call in asked.line.calls:
                yield asked.line, call


@attrs.frozen
class Finding:
    """One place that a row refuses."""

    index: int
    what: str
    """What was seen, with no word of the message in it."""
    call_id: str | None = None


@attrs.frozen(kw_only=True)
class RefusalRow:
    """One reason to refuse a transcript."""

    number: int
    """Stable: the row's rule is ``R-VALID-`` and this number."""
    code: str
    checks: tuple[Check, ...]
    """Who refuses it."""
    description: str
    find: Callable[[Reading], Iterator[Finding]]


def read(messages: Sequence[object], open_calls: Sequence[str] = ()) -> Reading:
    """Return *messages* read; never raises."""
    lines = read_lines(messages)
    return Reading(
        messages=messages,
        lines=lines,
        pairing=pair(lines),
        open_calls=tuple(open_calls),
        last_assistant=next((each for each in reversed(lines) if each.role == "assistant"), None),
    )
