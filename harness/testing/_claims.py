"""Claims that hold for every run, as assertions on plain values.

Each is for the end of any test, and the ready invariants are made of them. A claim that does not
hold says which item is wrong, not only that something is. They raise by themselves: an ``assert``
in a library is gone when Python is told to optimise, and the claim would pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import trio

from harness._events import (
    CompactionFinished,
    CompactionStarted,
    Event,
    RunFinished,
    RunStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from harness._json import JSON, decode
from harness._messages import Message, user_message
from harness.kernel import Limiters
from harness.testing._errors import FindingError
from harness.transcript import Refusal, check_anthropic, check_openai, check_settled

__all__ = [
    "assert_answers_truthful",
    "assert_calls_answered_once",
    "assert_channels_ended",
    "assert_events_balance",
    "assert_no_permit_held",
    "assert_provider_valid",
    "assert_transcript_settled",
]

_Mark: TypeAlias = tuple[str, str]


def assert_transcript_settled(messages: Sequence[Message], open_calls: Sequence[str] = ()) -> None:
    """Fail unless each call has its one result, directly after it and in call order.

    *open_calls* are the ids of calls that wait for an answer from outside.
    """
    _no_refusals("settled", check_settled(messages, open_calls))


def assert_provider_valid(messages: Sequence[Message]) -> None:
    """Fail unless strict providers of both families would take *messages* and a further input."""
    continued = [*messages, user_message("Go on.")]
    _no_refusals("valid for chat completions", check_openai(continued))
    _no_refusals("valid for the messages interface", check_anthropic(continued))


def _no_refusals(what: str, refusals: Sequence[Refusal]) -> None:
    lines = [f"{each.code}: {each.text}" for each in refusals]
    if lines:
        raise FindingError(f"the transcript is not {what}: {'; '.join(lines)}")


def assert_calls_answered_once(
    messages: Iterable[Message], open_calls: Collection[str] = ()
) -> None:
    """Fail unless every call has exactly one result, and every result a call; open calls none."""
    asked: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for message in messages:
        asked.update(call["id"] for call in message.get("tool_calls", []))
        if message["role"] == "tool":
            answered[message["tool_call_id"]] += 1
    asked -= Counter(open_calls)
    wrong = sorted(call for call in asked | answered if asked[call] != answered[call])
    lines = [f"{call!r} asked {asked[call]} times, answered {answered[call]}" for call in wrong]
    if lines:
        raise FindingError(f"expected one answer to each call: {'; '.join(lines)}")


def assert_answers_truthful(messages: Iterable[Message], ran: Collection[str]) -> None:
    """Fail if a call in *ran* is said not to have run, or one that is not to be interrupted."""
    for message in messages:
        if message["role"] != "tool":
            continue
        call, kind = message["tool_call_id"], _failure_kind(message)
        if kind == "not_run" and call in ran:
            raise FindingError(f"call {call!r} was answered not_run, and it had been started")
        if kind == "interrupted" and call not in ran:
            raise FindingError(f"call {call!r} was answered interrupted, and it never started")


def _failure_kind(message: Message) -> JSON:
    content = message.get("content")
    if isinstance(content, list):
        content = next((str(part["text"]) for part in content if part.get("type") == "text"), "")
    envelope = decode(content or "null")
    return envelope.get("kind") if isinstance(envelope, dict) else None


def assert_no_permit_held(*limiters: Limiters | trio.CapacityLimiter) -> None:
    """Fail if a permit of any of *limiters* is taken."""
    for each in limiters:
        held = each.borrowed if isinstance(each, Limiters) else each.borrowed_tokens
        if held:
            raise FindingError(f"{each!r} has {held} permits taken, expected none")


def assert_channels_ended(*channels: trio.MemoryReceiveChannel[object]) -> None:
    """Fail if one of *channels* could still get something: a send side of it is open."""
    for each in channels:
        senders = each.statistics().open_send_channels
        if senders:
            raise FindingError(
                f"a channel has {senders} open send sides, expected it to have ended"
            )


def assert_events_balance(events: Iterable[Event]) -> None:
    """Fail unless whatever was started was finished, once and later.

    A leg's first event is its `RunStarted`, and its last its `RunFinished`. Takes all events of
    any number of runs.
    """
    opened: dict[str, list[_Mark]] = {}
    for event in events:
        leg = opened.setdefault(event.run_id, [])
        if not leg and not isinstance(event, RunStarted):
            raise FindingError(f"{event!r} was told outside of a leg, expected it inside one")
        _balance(event, leg)
    left = [mark for leg in opened.values() for mark in leg]
    if left:
        raise FindingError(f"{left} were never finished")


def _balance(event: Event, leg: list[_Mark]) -> None:
    """Enter *event* into what is open in its *leg*."""
    mark = _mark(event)
    if mark is None:
        return
    if isinstance(event, RunStarted | TurnStarted | ToolStarted | CompactionStarted):
        if mark in leg:
            raise FindingError(f"{mark} was started twice, expected it to finish before")
        leg.append(mark)
        return
    if mark not in leg:
        raise FindingError(f"{mark} was finished, expected it to have been started")
    leg.remove(mark)
    if isinstance(event, RunFinished) and leg:
        raise FindingError(f"{leg} were open at the end of the leg, expected all to be finished")


def _mark(event: Event) -> _Mark | None:
    """Return what the event starts or finishes: its kind, and which one of that kind."""
    match event:
        case RunStarted() | RunFinished():
            return "leg", str(event.leg)
        case TurnStarted() | TurnFinished():
            return "turn", event.turn_id
        case ToolStarted() | ToolFinished():
            return "call", event.call_id
        case CompactionStarted() | CompactionFinished():
            return "compaction", str(event.turn)
        case _:
            return None
