"""What a strict reader refuses in a transcript: one numbered table.

Three readers are known. Our own loop needs a transcript that is *settled*: each call has its
result, directly after it, in call order. The two provider families need what their servers check
before a model sees anything, and a transcript that breaks one of those checks is refused again in
every later turn: the conversation is lost. So the tests of everything that writes a transcript
run it through these checks.

``openai`` is the chat-completions interface at its strictest: the rules of the servers that it
comes from, and those of the many that speak it too, some of which also refuse an empty assistant
message and parse the arguments of old calls. ``anthropic`` is the messages interface behind a
faithful translation: system messages at the start become its system text, a run of tool messages
becomes one message of result blocks, neighbours of one role are merged, and an assistant message
with calls loses a blank text. It takes no other liberty; what is refused then is refused here.

The providers' rules are known from their public error messages only, and they are checked as
families, not as versions: newer models of the second family take system messages in the middle,
older ones an assistant message at the end.

Not in the table: a call id that is used in two turns. It is matched by nearness, here and when
a transcript is repaired, and nothing is ever renamed. The second family refuses it, so whoever
translates for that family gives such calls fresh ids.

Each row is a code, who refuses it, and a function that finds it. A function reads a whole
transcript rather than a message: half of the rows are about neighbours. All of them together
take linear time.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Final

import attrs

from harness.transcript._call_rows import CALL_ROWS
from harness.transcript._message_rows import MESSAGE_ROWS
from harness.transcript._rows import Check, Finding, Reading, RefusalRow, read

__all__ = [
    "REFUSALS",
    "Refusal",
    "check_anthropic",
    "check_openai",
    "check_settled",
    "is_settled",
    "unanswered_call_ids",
]

REFUSALS: tuple[RefusalRow, ...] = MESSAGE_ROWS + CALL_ROWS
"""In order of their numbers; a number is never used again for something else."""


@attrs.frozen(kw_only=True)
class Refusal:
    """Why a transcript is refused. Holds no word of a message but a call id."""

    number: int
    """The row in `REFUSALS`."""
    code: str
    index: int
    """Of the message; the number of messages if one is missing at the end."""
    call_id: str | None
    text: str
    """A line for people."""


def check_settled(
    messages: Sequence[object], open_calls: Sequence[str] = ()
) -> tuple[Refusal, ...]:
    """Return why *messages* are not settled; never raises.

    *open_calls* are ids of calls of the last assistant message that wait for an answer from
    outside, each as often as a call of that id waits.
    """
    return _refuse(read(messages, open_calls), "settled")


def is_settled(messages: Sequence[object], open_calls: Sequence[str] = ()) -> bool:
    """Whether `check_settled` finds nothing."""
    return not check_settled(messages, open_calls)


def check_openai(messages: Sequence[object]) -> tuple[Refusal, ...]:
    """Return why a server of the chat-completions kind would refuse *messages*; never raises."""
    return _refuse(read(messages), "openai")


def check_anthropic(messages: Sequence[object]) -> tuple[Refusal, ...]:
    """Return why a server of the messages kind would refuse *messages*; never raises.

    They are checked as the body of a request. A run that is done ends with an answer, so append
    the next user message to ask whether its transcript can go on.
    """
    return _refuse(read(messages), "anthropic")


def joining_fault(message: object) -> str:
    """Return why *message* cannot join a transcript on its own, or an empty text; never raises.

    For messages that somebody hands in, which stand at a place where any role may: whether their
    role, their content and their shape would be taken.
    """
    reading = read((message,))
    found = (finding for row in _JOINING for finding in row.find(reading))
    return next((each.what for each in found), "")


def unanswered_call_ids(messages: Sequence[object]) -> tuple[str, ...]:
    """Return the ids of the calls that no message answers, in order; never raises.

    A result that does not stand directly after its call answers it all the same.
    """
    return tuple(id for asked in read(messages).pairing.asked for id in asked.unanswered())


def _refuse(reading: Reading, check: Check) -> tuple[Refusal, ...]:
    found = [
        _refusal(row, finding)
        for row in REFUSALS
        if check in row.checks
        for finding in row.find(reading)
    ]
    return tuple(sorted(found, key=lambda each: each.index))


def _refusal(row: RefusalRow, finding: Finding) -> Refusal:
    call = "" if finding.call_id is None else f" (call {reprlib.repr(finding.call_id)})"
    return Refusal(
        number=row.number,
        code=row.code,
        index=finding.index,
        call_id=finding.call_id,
        text=f"message {finding.index}: {finding.what}{call}",
    )


_JOINING: Final = tuple(
    row
    for row in REFUSALS
    if row.code
    in ("malformed_message", "unknown_role", "no_content", "empty_assistant", "blank_text")
)
"""The rows that are about one message by itself."""
