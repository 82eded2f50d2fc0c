"""What a run tells: one closed union of small frozen records.

Consumers `match` on the class and end with `typing.assert_never`. A run stamps each event with
its id, leg, turn and time as it sends it, so whoever makes one leaves these fields alone. An
event holds only scalars, texts, tuples of such and other frozen records: nothing in it can be
changed through it, and every one goes through JSON and back. ``type`` is the tag on the wire.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from harness._errors import ErrorCategory, HarnessError, ProviderError, error_text
from harness._messages import FailureKind, OutcomeKind
from harness._usage import Usage

__all__ = [
    "AssistantMessage",
    "AttemptFinished",
    "AttemptOutcome",
    "AttemptStarted",
    "CallRejected",
    "ChildEvent",
    "CompactionFinished",
    "CompactionStarted",
    "Event",
    "Failure",
    "FlushDue",
    "FlushFailed",
    "Posted",
    "Progress",
    "ReasoningDelta",
    "ReceiptAmbiguous",
    "RunFinished",
    "RunStarted",
    "Settled",
    "StopReason",
    "SuspendWithdrawn",
    "TextDelta",
    "TextReset",
    "ToolCallDelta",
    "ToolFinished",
    "ToolStarted",
    "Tried",
    "TurnFinished",
    "TurnStarted",
    "decode_event",
    "encode_event",
]

StopReason: TypeAlias = Literal[
    "done",
    "waiting_for_reply",
    "resuming_later",
    "turn_limit",
    "budget",
    "checkpointed",
    "halted",
    "aborted",
    "deadline",
    "cancelled",
    "failed",
]
"""Why a leg ended. ``cancelled`` and ``failed`` are told, never returned."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An error as plain values."""

    kind: str
    """The class's name."""
    code: str
    """Stable; ``error`` for an exception that is not ours."""
    message: str
    category: ErrorCategory | None = None
    """Of a provider's failure."""
    status_code: int | None = None
    """Of a provider's failure that came with one."""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe *error*."""
        remote = error if isinstance(error, ProviderError) else None
        return cls(
            kind=type(error).__name__,
            code=error.code if isinstance(error, HarnessError) else "error",
            message=error_text(error),
            category=None if remote is None else remote.category,
            status_code=None if remote is None else remote.status_code,
        )


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    run_id: str = ""
    leg: int = 0
    """Counts over the run's whole life, so order holds over processes."""
    turn: int = 0
    at: float = 0.0
    """`trio.current_time()` when it was sent."""


class RunStarted(_Event, frozen=True, kw_only=True):
    """A leg began. *resumed*: it goes on with a run that had paused."""

    resumed: bool = False


class RunFinished(_Event, frozen=True, kw_only=True):
    """A leg ended; the last event on every exit. Figures are the leg's share."""

    stop_reason: StopReason
    reason: str | None = None
    """What `Run.abort` was given, if the leg was aborted."""
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    failure: Failure | None = None


class TurnStarted(_Event, frozen=True, kw_only=True):
    """A turn began, or a leg came back to one that had paused (*resumed*)."""

    turn_id: str
    resumed: bool = False


class TurnFinished(_Event, frozen=True, kw_only=True):
    """A turn is over: no further text of *turn_id* will come.

    *counted* is false if its completion was cut or failed.
    """

    turn_id: str
    counted: bool
    usage: Usage = Usage()
    finish_reason: str | None = None
    model_time: float = 0.0


AttemptOutcome: TypeAlias = Literal["served", "failed", "superseded", "cancelled"]
"""How a try at an endpoint ended. ``superseded``: another one answered first."""


class Tried(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a routed model tries: the endpoint, and its place among all tries."""

    turn_id: str
    attempt: int
    """Number of the try in its turn; the deltas of its attempt have it too."""
    provider: str
    model: str
    """The canonical model id, the same at every provider."""
    provider_model: str
    """What this provider calls it."""
    stage: int = 0
    """Place of the model in the plan: 0 is the one that was asked for."""
    candidate: int = 0
    """Place of the endpoint among those of its model."""
    retry: int = 0
    """How often this endpoint was tried before, for the same reply."""
    hedge: bool = False
    """Whether another try was still at work: this one runs beside it."""


class AttemptStarted(_Event, frozen=True, kw_only=True):
    """A routed model tries an endpoint."""

    tried: Tried


class AttemptFinished(_Event, frozen=True, kw_only=True):
    """A try at an endpoint ended; one for each `AttemptStarted`, on every exit."""

    tried: Tried
    outcome: AttemptOutcome
    duration: float
    produced_output: bool
    """Whether something had left the turn that cannot be taken back."""
    usage: Usage = Usage()
    """What the try cost, as far as its provider said so."""
    failure: Failure | None = None
    """Why it ``failed``, in the terms that the route decided on; None for every other outcome."""


class TextDelta(_Event, frozen=True, kw_only=True):
    """A piece of the answer's text, to append."""

    turn_id: str
    epoch: int
    seq: int
    text: str


class TextReset(_Event, frozen=True, kw_only=True):
    """The text of *turn_id* so far is void; text of *epoch* follows."""

    turn_id: str
    epoch: int
    seq: int
    reason: Literal["attempt_failed", "structured_output_retry"]


class ReasoningDelta(_Event, frozen=True, kw_only=True):
    """A piece of the model's thinking: progress, never output."""

    turn_id: str
    attempt: int
    text: str


class ToolCallDelta(_Event, frozen=True, kw_only=True):
    """A growing tool call: progress, never output. *arguments* is the new piece."""

    turn_id: str
    attempt: int
    index: int
    call_id: str
    name: str
    arguments: str


class AssistantMessage(_Event, frozen=True, kw_only=True):
    """A message with text entered the transcript; this text is the final one of its turn."""

    turn_id: str
    text: str


class Progress(_Event, frozen=True, kw_only=True):
    """Counts for a live indicator: output tokens of this turn, calls asked for by the run."""

    output_tokens: int
    tool_calls: int


class Posted(_Event, frozen=True, kw_only=True):
    """A posted message entered the transcript."""

    text: str
    user_id: str | None = None


class ToolStarted(_Event, frozen=True, kw_only=True):
    """A call's function was entered."""

    call_id: str
    name: str


class ToolFinished(_Event, frozen=True, kw_only=True):
    """A started call ended. *abandoned*: its thread still runs and keeps its permit."""

    call_id: str
    name: str
    outcome: OutcomeKind
    duration: float
    failure_kind: FailureKind | None = None
    abandoned: bool = False


class CallRejected(_Event, frozen=True, kw_only=True):
    """A tool raised, a call was refused, or a port was misused (*call_id* may be None)."""

    failure: Failure
    call_id: str | None = None


class SuspendWithdrawn(_Event, frozen=True, kw_only=True):
    """The question that *call_id* asked is void: the run was stopped."""

    call_id: str


class Settled(_Event, frozen=True, kw_only=True):
    """The transcript is settled. *open_calls* wait for an answer from outside."""

    would_end: bool
    open_calls: tuple[str, ...] = ()


class CompactionStarted(_Event, frozen=True, kw_only=True):
    """The compactor was asked to shrink the transcript."""


class CompactionFinished(_Event, frozen=True, kw_only=True):
    """The compactor answered. *applied* is false if it declined, failed or was cut."""

    applied: bool
    usage: Usage = Usage()


class FlushDue(_Event, frozen=True, kw_only=True):
    """A good moment to write progress: a turn is settled and another follows."""


class FlushFailed(_Event, frozen=True, kw_only=True):
    """A heartbeat could not write; the run goes on."""

    failure: Failure


class ReceiptAmbiguous(_Event, frozen=True, kw_only=True):
    """A call may or may not have had its effect, so it was not run again; somebody must look.

    *receipt* is its key, as the store's listing shows it.
    """

    call_id: str
    name: str
    attempt: int
    receipt: str


class ChildEvent(_Event, frozen=True, kw_only=True):
    """What a child run told. *path* names the agents from this run's child down to that run."""

    path: tuple[str, ...]
    call_id: str
    """The call of this run in which it happens."""
    event: Event


Event: TypeAlias = (
    RunStarted
    | RunFinished
    | TurnStarted
    | TurnFinished
    | AttemptStarted
    | AttemptFinished
    | TextDelta
    | TextReset
    | ReasoningDelta
    | ToolCallDelta
    | AssistantMessage
    | Progress
    | Posted
    | ToolStarted
    | ToolFinished
    | CallRejected
    | SuspendWithdrawn
    | Settled
    | CompactionStarted
    | CompactionFinished
    | FlushDue
    | FlushFailed
    | ReceiptAmbiguous
    | ChildEvent
)
"""Everything a run tells."""

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """Return *event* as one JSON object; ``type`` names its class."""
    return _encoder.encode(event)


def decode_event(text: bytes | str) -> Event:
    """Return the event that `encode_event` wrote.

    Raises:
        msgspec.ValidationError: it is no event of ours.
    """
    return _decoder.decode(text)
