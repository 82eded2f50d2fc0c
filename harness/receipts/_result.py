"""What a receipt keeps of a call's outcome, so that a replay tells the model the same.

A success that is plain data is kept as that data. A person who settles a receipt by hand, and a
tool that settles its own, write it the same way. Everything else that an outcome may carry stands
in one object under a key that plain data cannot have by chance, and data that has it all the same
is put into such an object too.

The answer that a model reads is made of the outcome, so what is kept is what the answer would
show: data that is no JSON as the envelope writes it, and no parts that could not stand in a
message. A replay, and the call itself, are then answered with the same bytes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, cast

import attrs
import msgspec

from harness._errors import NotJSONError, RecordError
from harness._json import JSON, check_json, converted, decode
from harness._messages import EXTRA_KEY, FailureKind, OutcomeKind, success_envelope
from harness._toolset import Outcome, Suspend
from harness.receipts._store import Settlement

__all__ = ["outcome_of_result", "result_of_outcome", "settlement_of", "with_plain_data"]


class _Suspend(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    kind: Literal["answer", "wake"]
    question: str = ""
    payload: object = None
    at: datetime | None = None


class _Outcome(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    kind: OutcomeKind
    data: object = None
    parts: list[dict[str, object]] = msgspec.field(default_factory=list)
    failure_kind: FailureKind | None = None
    error: str = ""
    activate_plugins: list[str] = msgspec.field(default_factory=list)
    activate_skills: list[str] = msgspec.field(default_factory=list)
    compact: bool = False
    suspend: _Suspend | None = None


def settlement_of(outcome: Outcome) -> Settlement | None:
    """Return how the attempt that returned *outcome* is settled; None: its effect is not known.

    A failure that a tool *returns* is its word that nothing has happened. So is a question: its
    answer is brought to the next attempt, and a receipt that was completed would have none. (What
    a tool does before it asks is done again if the question is lost with its worker.) A call that
    only wants to be woken later has its result, and is complete.
    """
    match outcome:
        case Outcome(kind="interrupted") | Outcome(failure_kind="interrupted"):
            return None
        case Outcome(kind="completed", suspend=None | Suspend(kind="wake")):
            return "completed"
        case _:
            return "failed"


def with_plain_data(outcome: Outcome) -> Outcome:
    """Return *outcome* with its data as JSON: what the envelope makes of it, if it is not yet."""
    try:
        check_json(outcome.data)
    except (NotJSONError, RecursionError):
        envelope = cast("dict[str, JSON]", decode(success_envelope(outcome.data)))
        return attrs.evolve(outcome, data=envelope["data"])
    return outcome


def result_of_outcome(outcome: Outcome) -> JSON:
    """Return what is stored of *outcome*.

    Raises:
        TypeError: the name of something to activate is no text.
    """
    outcome = with_plain_data(outcome)
    data = cast("JSON", outcome.data)
    marked = isinstance(data, dict) and EXTRA_KEY in data
    if not marked and outcome == Outcome.completed(data):
        return data
    parts = cast("list[dict[str, object]]", list(outcome.parts))
    suspend = outcome.suspend
    record = _Outcome(
        kind=outcome.kind,
        data=data,
        parts=parts if _is_json(parts) else [],
        failure_kind=outcome.failure_kind,
        error=outcome.error.encode(errors="replace").decode(),  # as the envelope has it
        activate_plugins=list(outcome.activate_plugins),
        activate_skills=list(outcome.activate_skills),
        compact=outcome.compact,
        suspend=None
        if suspend is None
        else _Suspend(
            kind=suspend.kind, question=suspend.question, payload=suspend.payload, at=suspend.at
        ),
    )
    return {EXTRA_KEY: msgspec.to_builtins(record)}


def outcome_of_result(result: JSON) -> Outcome:
    """Return the outcome that *result* was stored for; what is no record of ours is its data.

    Raises:
        RecordError: it is marked as a record, and does not load as one.
    """
    if not (isinstance(result, dict) and EXTRA_KEY in result):
        return Outcome.completed(result)
    record = converted(result, dict[str, _Outcome])[EXTRA_KEY]
    try:
        return Outcome(
            kind=record.kind,
            data=record.data,
            parts=tuple(cast("list[dict[str, JSON]]", record.parts)),
            failure_kind=record.failure_kind,
            error=record.error,
            activate_plugins=tuple(record.activate_plugins),
            activate_skills=tuple(record.activate_skills),
            compact=record.compact,
            suspend=None if record.suspend is None else _live_suspend(record.suspend),
        )
    except ValueError as error:
        raise RecordError(str(error), path=f"$.{EXTRA_KEY}") from None


def _live_suspend(record: _Suspend) -> Suspend:
    return Suspend(
        kind=record.kind,
        question=record.question,
        payload=cast("JSON", record.payload),
        at=record.at,
    )


def _is_json(value: object) -> bool:
    try:
        check_json(value)
    except (NotJSONError, RecursionError):
        return False
    return True
