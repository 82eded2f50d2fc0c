"""A run's state as JSON, for another process to go on with.

The records below are the stored shape, apart from the live one so that each can change without
the other. Loading is strict: a field that is unknown, missing or of a wrong type is refused with
its path, and nothing is half loaded. Messages are kept as they are, with every key of theirs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec

from harness._errors import NotJSONError, RecordError, TranscriptError
from harness._json import JSON, decode, encode
from harness._messages import Message
from harness._toolset import Reply, Suspend
from harness.kernel._start import state_from
from harness.kernel._state import Pause, RunState, RunUsage
from harness.transcript import calls_of

__all__ = ["STATE_VERSION", "dump_state", "load_state"]

STATE_VERSION = 1

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class _Record(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of what is stored."""


class _Suspend(_Record):
    call_id: str
    kind: Literal["answer", "wake"]
    question: str
    payload: object
    at: datetime | None


class _Reply(_Record):
    call_id: str
    value: object


class _Pause(_Record):
    open: list[str]
    suspends: list[_Suspend]
    replies: list[_Reply]
    memo: object
    admitted: bool


class _Usage(_Record):
    input: int
    cached_input: int
    output: int
    cost_cents: float
    last_prompt: int
    last_output: int
    fresh: bool


class _State(_Record):
    version: int
    run_id: str
    leg: _Count
    messages: list[dict[str, object]]
    turn: _Count
    usage: _Usage
    tool_calls: _Count
    calls_taken: _Count
    pause: _Pause | None


def dump_state(state: RunState) -> bytes:
    """Return *state* as JSON. Take it while no leg runs, or at a boundary.

    Raises:
        NotJSONError: a message holds what JSON cannot carry.
    """
    pause = state.pause
    record = _State(
        version=STATE_VERSION,
        run_id=state.run_id,
        leg=state.leg,
        messages=[dict(each) for each in state.messages],
        turn=state.turn,
        usage=msgspec.convert(state.usage, _Usage, from_attributes=True),
        tool_calls=state.tool_calls,
        calls_taken=state.calls_taken,
        pause=None if pause is None else _stored_pause(pause),
    )
    return encode(msgspec.to_builtins(record))


def load_state(text: bytes | str) -> RunState:
    """Return the state that `dump_state` wrote.

    Raises:
        RecordError: it is no such record, or of another version; the error has the path.
    """
    try:
        record = msgspec.convert(decode(text), _State)
    except NotJSONError as error:
        raise RecordError(error.reason) from None
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        raise RecordError(reason, path=path.strip("`")) from None
    if record.version != STATE_VERSION:
        raise RecordError(f"its version is {record.version}, expected {STATE_VERSION}")
    try:
        state = state_from(_live_state(record))
    except TranscriptError as error:
        raise RecordError(str(error), path="$.messages") from None
    except (TypeError, ValueError) as error:
        raise RecordError(str(error)) from None
    _check_pause(state)
    return state


def _stored_pause(pause: Pause) -> _Pause:
    return _Pause(
        open=list(pause.open),
        suspends=[
            _Suspend(
                call_id=call_id,
                kind=each.kind,
                question=each.question,
                payload=each.payload,
                at=each.at,
            )
            for call_id, each in pause.suspends.items()
        ],
        replies=[_Reply(call_id=key, value=each.value) for key, each in pause.replies.items()],
        memo=pause.memo,
        admitted=pause.admitted,
    )


def _live_state(record: _State) -> RunState:
    return RunState(
        run_id=record.run_id,
        leg=record.leg,
        messages=[_message(each) for each in record.messages],
        turn=record.turn,
        usage=msgspec.convert(record.usage, RunUsage, from_attributes=True),
        tool_calls=record.tool_calls,
        calls_taken=record.calls_taken,
        pause=None if record.pause is None else _live_pause(record.pause),
    )


def _check_pause(state: RunState) -> None:
    """Refuse a pause whose parts do not fit together."""
    pause = state.pause
    if pause is None:
        return
    asking = next((each for each in reversed(state.messages) if each.get("tool_calls")), None)
    known = {call.id for call in calls_of(asking)} if asking is not None else set()
    for call_id in pause.suspends:
        if call_id not in known:
            raise RecordError(f"call {call_id!r} is not of the last batch", path="$.pause.suspends")
    for call_id in pause.replies:
        if pause.admitted and call_id not in pause.suspends:
            raise RecordError(f"call {call_id!r} asked nothing", path="$.pause.replies")


def _live_pause(record: _Pause) -> Pause:
    return Pause(
        open=tuple(record.open),
        suspends={
            each.call_id: Suspend(
                kind=each.kind, question=each.question, payload=_json(each.payload), at=each.at
            )
            for each in record.suspends
        },
        replies={each.call_id: Reply(value=_json(each.value)) for each in record.replies},
        memo=_json(record.memo),
        admitted=record.admitted,
    )


def _message(value: dict[str, object]) -> Message:
    return value  # type: ignore[return-value]  # checked as a transcript by the caller


def _json(value: object) -> JSON:
    return value  # type: ignore[return-value]  # it came out of `decode`
