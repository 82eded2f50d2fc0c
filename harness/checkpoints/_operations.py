"""Checkpoints made of checkpoints: input applied, a run forked, a state taken down and put back.

Nothing here runs anything. A checkpoint is a value: what is made of it is another one, and the one
before stays as it was.

Which input a checkpoint takes is one table over its status. Input of another kind is refused with
what it needs, rather than kept until it fits: a reply that nobody asked for would answer whatever
is asked next.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, get_args

import attrs

from harness._errors import CheckpointInputError, ReplyError
from harness._events import StopReason
from harness._json import JSON, ROOM, check_json
from harness._messages import Message
from harness.checkpoints._codec import check_checkpoint, status_of_pause
from harness.checkpoints._record import (
    Checkpoint,
    CheckpointHead,
    CheckpointRef,
    CheckpointStatus,
    Position,
)
from harness.kernel import Limits, RunState, RunStats, RunUsage, state_from
from harness.transcript import joining_fault

__all__ = [
    "INPUT_ROWS",
    "CheckpointInput",
    "InputKind",
    "InputRow",
    "MessageInput",
    "ReplyInput",
    "WakeInput",
    "apply_checkpoint_input",
    "checkpoint_of",
    "create_checkpoint",
    "fork_checkpoint",
    "position_of",
    "state_of",
]


@attrs.frozen(kw_only=True)
class ReplyInput:
    """The answer to an open question."""

    call_id: str
    value: JSON


@attrs.frozen(kw_only=True)
class WakeInput:
    """The time that a run waited for has come; it may be told something with it."""

    message: Message | None = None


@attrs.frozen(kw_only=True)
class MessageInput:
    """Something more from the user."""

    message: Message


CheckpointInput: TypeAlias = ReplyInput | WakeInput | MessageInput

InputKind: TypeAlias = Literal["reply", "wake", "message"]


@attrs.frozen
class InputRow:
    """One row: a status, and the input that it takes."""

    status: CheckpointStatus
    takes: InputKind
    needs: str
    """What to say to whoever brings something else."""


INPUT_ROWS: tuple[InputRow, ...] = (
    InputRow("ready", "message", "a message, or a run"),
    InputRow("waiting_for_reply", "reply", "a reply to an open question"),
    InputRow("waiting_for_wake", "wake", "a wake"),
    InputRow("finished", "message", "a message"),
)
"""What a checkpoint takes in each status."""

_ROWS: Final = {row.status: row for row in INPUT_ROWS}
_KINDS: Final[dict[type, InputKind]] = {
    ReplyInput: "reply",
    WakeInput: "wake",
    MessageInput: "message",
}

assert set(_ROWS) == set(get_args(CheckpointStatus))


def create_checkpoint(
    run_id: str,
    messages: str | Sequence[Message],
    *,
    limits: Limits = Limits(),
    bindings: JSON = None,
) -> Checkpoint:
    """Return the first checkpoint of a new run, which is ready to begin.

    *messages* is text or a settled transcript, copied. Nothing is asked of a model.

    Raises:
        TranscriptError: the messages are none, or not settled.
        NotJSONError: a message, or *bindings*, holds what JSON cannot carry.
        TypeError, ValueError: *messages* is neither text nor messages, or blank; the id, or the
            limits, are none.
    """
    _check_id(run_id)
    return checkpoint_of(state_from(messages, lambda _: run_id), limits=limits, bindings=bindings)


def checkpoint_of(
    state: RunState,
    *,
    limits: Limits = Limits(),
    stats: RunStats | None = None,
    bindings: JSON = None,
    stop_reason: StopReason | None = None,
) -> Checkpoint:
    """Return *state* as a checkpoint of revision 0: what a leg left, or what one is to start on.

    Its status is what its pause says; without a pause it is finished if *stop_reason* says why, and
    ready otherwise. It shares nothing with the state.

    Raises:
        NotJSONError: a message, or *bindings*, holds what JSON cannot carry.
        RecordError: the state is in the middle of something.
        TypeError: *limits* are none.
    """
    _check_limits(limits)
    check_json(bindings, room=ROOM)
    check_json(list(state.messages))
    waits = status_of_pause(state.pause)
    ended: CheckpointStatus = "ready" if stop_reason is None else "finished"
    checkpoint = Checkpoint(
        head=CheckpointHead(
            run_id=state.run_id,
            revision=0,
            parent=None,
            status=ended if waits is None else waits,
            stop_reason=stop_reason if waits is None else None,
            limits=limits,
            position=position_of(state),
            stats=RunStats() if stats is None else copy.deepcopy(stats),
            pause=copy.deepcopy(state.pause),
            bindings=copy.deepcopy(bindings),
        ),
        messages=tuple(copy.deepcopy(state.messages)),
    )
    check_checkpoint(checkpoint)
    return checkpoint


def position_of(state: RunState) -> Position:
    """Return how far a run has come."""
    return Position(
        leg=state.leg,
        turn=state.turn,
        tool_calls=state.tool_calls,
        calls_taken=state.calls_taken,
        usage=state.usage,
        below=copy.copy(state.below),
        compactions=state.compactions,
        forgotten=dict(state.forgotten),
    )


def state_of(checkpoint: Checkpoint) -> RunState:
    """Return a state for the next leg to start on, which shares nothing with *checkpoint*."""
    at = checkpoint.head.position
    return RunState(
        run_id=checkpoint.run_id,
        messages=list(copy.deepcopy(checkpoint.messages)),
        leg=at.leg,
        turn=at.turn,
        usage=at.usage,
        below=copy.copy(at.below),
        tool_calls=at.tool_calls,
        calls_taken=at.calls_taken,
        pause=copy.deepcopy(checkpoint.head.pause),
        compactions=at.compactions,
        forgotten=dict(at.forgotten),
    )


def apply_checkpoint_input(checkpoint: Checkpoint, given: CheckpointInput) -> Checkpoint:
    """Return the next revision of *checkpoint*, with *given* taken in.

    A reply makes it ready once no question is left open; a wake and a message make it ready.

    Raises:
        CheckpointInputError: it does not take such input in its status, no open question has this
            id, or the message is none that can join; the error says what it needs.
        NotJSONError: the reply is none.
    """
    row, kind = _ROWS[checkpoint.status], _KINDS.get(type(given))
    if kind is None:
        raise TypeError(f"the input is {given!r}, expected a reply, a wake or a message")
    if kind != row.takes:
        raise CheckpointInputError(
            f"a {kind} was given to run {checkpoint.run_id!r}, which is {row.status}, "
            f"expected {row.needs}"
        )
    state = state_of(checkpoint)
    if isinstance(given, ReplyInput):
        try:
            check_json(given.value, room=ROOM)
            state.reply(given.call_id, copy.deepcopy(given.value))
        except ReplyError as error:
            raise CheckpointInputError(str(error)) from None
    else:
        if given.message is not None:
            state.messages.append(_joining(given.message))
        if kind == "wake":
            state.pause = None
    head = checkpoint.head
    after = checkpoint_of(state, limits=head.limits, stats=head.stats, bindings=head.bindings)
    later = attrs.evolve(after.head, revision=head.revision + 1, parent=head.parent)
    return attrs.evolve(after, head=later)


def fork_checkpoint(
    source: Checkpoint, run_id: str, *, limits: Limits, bindings: JSON
) -> Checkpoint:
    """Return a run of its own that stands where *source* does: a budget, and nothing spent.

    It waits as *source* waits, and is finished if that is. The environment that *bindings* describe
    is the host's to make; receipts are kept by run, so the fork has none.

    Raises:
        ValueError: *run_id* is that of *source*, or none.
        NotJSONError: *bindings* hold what JSON cannot carry.
        TypeError: *limits* are none.
    """
    _check_id(run_id)
    _check_limits(limits)
    if run_id == source.run_id:
        raise ValueError(f"the fork's run_id is {run_id!r}, expected one of its own")
    check_json(bindings, room=ROOM)
    usage = source.head.position.usage
    unspent = RunUsage(
        last_prompt=usage.last_prompt, last_output=usage.last_output, fresh=usage.fresh
    )
    head = attrs.evolve(
        source.head,
        run_id=run_id,
        revision=0,
        parent=CheckpointRef(run_id=source.run_id, revision=source.revision),
        limits=limits,
        position=Position(
            usage=unspent,
            compactions=source.head.position.compactions,
            forgotten=dict(source.head.position.forgotten),
        ),
        stats=RunStats(),
        pause=copy.deepcopy(source.head.pause),
        bindings=copy.deepcopy(bindings),
    )
    return Checkpoint(head=head, messages=copy.deepcopy(source.messages))


def _check_id(run_id: object) -> None:
    if not isinstance(run_id, str) or not run_id:
        raise ValueError(f"run_id is {run_id!r}, expected a text that is not empty")


def _check_limits(limits: object) -> None:
    if not isinstance(limits, Limits):
        raise TypeError(f"limits is {limits!r}, expected Limits")


def _joining(message: Message) -> Message:
    fault = joining_fault(message) or ("" if message.get("role") == "user" else "it is no user's")
    if fault:
        raise CheckpointInputError(f"the message cannot join: {fault}")
    return copy.deepcopy(message)
