"""What a model is asked, what it streams, and what it answers.

`Model.complete` gets the whole request and a `TurnStream`. A model that streams opens one
attempt per try and sends it each provider-neutral `Chunk`; a model that does not stream ignores it
and returns a `ModelTurn`. There is no second path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

import attrs
import msgspec

from harness._bounds import check_seconds
from harness._events import Event
from harness._json import JSON
from harness._messages import Message
from harness._usage import Usage

__all__ = [
    "Assembly",
    "Attempt",
    "CallPiece",
    "Chunk",
    "Halt",
    "Model",
    "ModelLike",
    "ModelRequest",
    "ModelTurn",
    "ResetReason",
    "StreamBudgets",
    "TextSurface",
    "TurnStream",
    "Usage",
]

ResetReason: TypeAlias = Literal["attempt_failed", "structured_output_retry"]


@attrs.frozen(kw_only=True)
class ModelRequest:
    """One completion to make. A model that wraps another may `attrs.evolve` it."""

    run_id: str
    turn_id: str
    """Unique per run and turn; stands on every text event of the turn."""
    turn: int
    """Number of the turn in its run, from 0."""
    messages: Sequence[Message]
    """The transcript, read-only; do not change the messages either."""
    tools: Sequence[dict[str, JSON]] = ()
    """Tool definitions in the chat-completions shape."""
    tool_choice: JSON = None
    response_format: dict[str, JSON] | None = None
    settings: dict[str, JSON] = attrs.field(factory=dict)
    """Further keys for the provider's request body."""


@attrs.frozen(kw_only=True)
class ModelTurn:
    """One finished completion."""

    message: Message
    usage: Usage = Usage()
    finish_reason: str | None = None
    reasoning: str | None = None
    parsed: object = None
    """The value of a structured output, if one was asked for."""
    accept: bool = True
    """False keeps the message out of the transcript; its spend counts all the same."""


@attrs.frozen(kw_only=True)
class Halt:
    """The model port's own end of the run: stop reason ``halted``."""

    code: str
    message: str
    turn: ModelTurn | None = None
    """A turn to keep all the same; its calls are answered ``not_run``."""


class CallPiece(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of a growing tool call, just as the provider sent it."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    name: str | None = None
    arguments: str | None = None


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """One provider-neutral piece of a streaming reply; any mix of fields may be set."""

    text: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    calls: tuple[CallPiece, ...] = ()
    usage: Usage | None = None
    """Totals so far; the last one of a stream counts."""
    finish_reason: str | None = None
    end: bool = False
    """True on the protocol's own clean end (``[DONE]``, a stop event), not on a closed body."""


@attrs.frozen(kw_only=True)
class Assembly:
    """How chunks become a reply."""

    ids: Literal["strict", "keep"] = "strict"
    """``strict``: a call id used twice in a turn is a defect. ``keep``: the host sees both."""
    empty: Literal["refuse", "accept"] = "refuse"
    """``refuse``: a reply with no text, call or refusal is a defect."""
    require_finish_reason: bool = False
    """True: a stream that ends without a finish reason is a defect even if it has no calls."""


@attrs.frozen(kw_only=True)
class TextSurface:
    """What the reader of the live text is."""

    retractable: bool = True
    """Whether text that was shown can be taken back."""
    max_resets: int | None = attrs.field(default=None)
    """How often in one turn; None is no cap."""

    @max_resets.validator
    def _check_max_resets(self, _: object, value: object) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TypeError(
                f"max_resets is {value!r}, expected None or a count that is not negative"
            )


def _positive_seconds(_: object, attribute: attrs.Attribute[float], value: object) -> None:
    check_seconds(attribute.name, value, zero=False)


@attrs.frozen(kw_only=True)
class StreamBudgets:
    """How long one attempt may wait for its provider, in seconds.

    Raises:
        TypeError, ValueError: a budget is no positive, finite number of seconds.
    """

    first_answer: float = attrs.field(default=120.0, validator=_positive_seconds)
    """For the answer to begin, and again from each piece of reasoning on."""
    gap: float = attrs.field(default=30.0, validator=_positive_seconds)
    """Between two pieces of the answer."""
    absolute: float = attrs.field(default=900.0, validator=_positive_seconds)
    """For the whole of the attempt, whatever comes."""


class Attempt(Protocol):
    """One try of a completion at one endpoint."""

    @property
    def number(self) -> int:
        """Number of the attempt in its turn, from 0."""
        ...

    @property
    def given_up(self) -> bool:
        """Whether it was stopped, by a stall or by another attempt: chunks are dropped then."""
        ...

    def send_nowait(self, chunk: Chunk) -> None:
        """Take one chunk of the reply. Never waits, is no checkpoint."""
        ...

    def turn(self) -> ModelTurn:
        """Return the finished reply.

        Raises:
            CompletionDefectError: the reply is truncated or otherwise unusable.
        """
        ...

    def mark_produced_output(self) -> None:
        """Say that this attempt had an effect outside the stream: it cannot be replayed."""
        ...


class TurnStream(Protocol):
    """The live side of one turn, made by the kernel and handed to `Model.complete`."""

    def number_attempt(self) -> int:
        """Return the number of the next attempt, for one that is told of before it is opened."""
        ...

    def attempt(
        self,
        reason: ResetReason | None = None,
        budgets: StreamBudgets | None = None,
        number: int | None = None,
    ) -> AbstractAsyncContextManager[Attempt]:
        """Open an attempt; *reason* says why text of an earlier one is taken back.

        Its number is the next one, unless it has one already, from `number_attempt`. Leaving the
        block raises `StreamStalled` if the provider kept it waiting for longer than *budgets*
        (without them the stream's own) allow, and `AttemptSuperseded` if another open attempt
        answered first.
        """
        ...

    def progress(self, output_tokens: int) -> None:
        """Report how many tokens came so far. Without it, assembled chunks are counted."""
        ...

    def tell(self, event: Event) -> None:
        """Send an event, stamped as the run's own. Never waits."""
        ...

    def spend(self, usage: Usage) -> None:
        """Count spend that belongs to no turn: a lost attempt, a retry."""
        ...

    def drop(self, turn: ModelTurn, reason: ResetReason) -> None:
        """Say that a reply is not used: count what it cost, and take back what it showed.

        It is taken back when the next one writes, or when the turn ends well without any text.
        """
        ...

    @property
    def produced_output(self) -> bool:
        """Whether something left this turn that cannot be taken back."""
        ...

    @property
    def assembly(self) -> Assembly:
        """How the replies of this turn are put together and judged."""
        ...

    @property
    def budgets(self) -> StreamBudgets:
        """How long an attempt that brings no budgets of its own may wait."""
        ...


class Model(Protocol):
    """The one port that every run needs."""

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        """Return one completion. Cancelled at once on a stop."""
        ...


ModelLike: TypeAlias = Model | Callable[[ModelRequest, TurnStream], Awaitable["ModelTurn | Halt"]]
"""A `Model`, or a plain async function with the signature of `Model.complete`."""
