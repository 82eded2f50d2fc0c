"""The tool surface: what a run asks of tools, and the records that pass between the two.

A `Toolset` is one port with seven questions. A plain list of tools is one too (`harness.tools`
makes it); a wrapper passes each question on. Nothing here names a trio type: a policy names a
*pool*, and the kernel knows which limiter that is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, get_args, runtime_checkable

import attrs

from harness._bounds import check_seconds
from harness._chain import ChainRef
from harness._durable import ReceiptClaim
from harness._events import Event
from harness._json import JSON, ROOM, check_json
from harness._messages import (
    FAILURE_KINDS,
    INTERRUPTED_TEXT,
    NOT_RUN_TEXT,
    FailureKind,
    Message,
    OutcomeKind,
)

__all__ = [
    "Admission",
    "Batch",
    "CallContext",
    "CallPolicy",
    "Effect",
    "ForwardingToolset",
    "NormalizedCall",
    "Normalizes",
    "Outcome",
    "Reply",
    "Stopping",
    "Suspend",
    "ToolCall",
    "Toolset",
    "normalized",
]

HostT_co = TypeVar("HostT_co", covariant=True)

Effect: TypeAlias = Literal["none", "resumable", "opaque"]
"""What a call leaves behind: nothing, a trail of finished parts, or one act without a trail."""


@attrs.frozen(kw_only=True)
class ToolCall:
    """One call that a model asked for."""

    id: str
    name: str
    type: str = "function"
    arguments: str = ""
    """Raw text, as the model wrote it."""
    index: int = 0
    """Place in its batch, from 0."""


@attrs.frozen(kw_only=True)
class NormalizedCall(ToolCall):
    """A call whose arguments are in their normal form: nobody normalizes it again."""


@attrs.frozen(kw_only=True)
class CallPolicy:
    """How a call is run."""

    pool: str | None = attrs.field()
    """Whose permits it takes; None takes none at all (a call that waits for other calls)."""
    serial: bool = False
    """Runs alone, before the others of its batch, in request order."""
    grace: float = attrs.field(default=0.0)
    """Seconds it may go on after a stop."""
    time_limit: float | None = attrs.field(default=None)
    """Seconds from entering the function; None is no limit.

    A thread cannot be cut: one that may not be abandoned is waited for, and then it has completed.
    """
    effect: Effect = attrs.field(default="opaque")
    shielded: bool = attrs.field(default=True)
    """False for a call that is made of runs: a stop reaches all of them in one instant, instead of
    one level after the other. It has no grace of its own; the calls below have theirs."""

    @pool.validator
    def _check_pool(self, _: object, value: object) -> None:
        if not isinstance(value, str | None):
            raise TypeError(f"CallPolicy.pool is {value!r}, expected a name or None")

    @effect.validator
    def _check_effect(self, _: object, value: object) -> None:
        if value not in get_args(Effect):
            raise ValueError(f"CallPolicy.effect is {value!r}, expected one of {get_args(Effect)}")

    @grace.validator
    def _check_grace(self, _: object, value: object) -> None:
        check_seconds("CallPolicy.grace", value)

    @time_limit.validator
    def _check_time_limit(self, _: object, value: object) -> None:
        if value is not None:
            check_seconds("CallPolicy.time_limit", value, zero=False)

    @shielded.validator
    def _check_shielded(self, _: object, value: object) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"CallPolicy.shielded is {value!r}, expected a bool")
        if not value and self.grace:
            raise ValueError(f"CallPolicy.grace is {self.grace!r}, expected 0 without a shield")

    @classmethod
    def default(cls, call: ToolCall) -> CallPolicy:
        """The policy of a call that nobody declared anything about.

        Function calls share a pool per tool name, calls of another type one per type.
        """
        return cls(pool=call.name if call.type == "function" else f"type:{call.type}")


@attrs.frozen(kw_only=True)
class Suspend:
    """A pause that a call asks for; made by `answer` or `wake`."""

    kind: Literal["answer", "wake"]
    question: str = ""
    payload: JSON = attrs.field(default=None)
    """Opaque, JSON: it is stored with the run."""
    at: datetime | None = attrs.field(default=None)
    """For a wake: when; an aware datetime, since it outlives trio's clock."""

    @payload.validator
    def _check_payload(self, _: object, value: object) -> None:
        check_json(value, room=ROOM)

    @at.validator
    def _check_at(self, _: object, value: datetime | None) -> None:
        if (value is not None) != (self.kind == "wake"):
            raise ValueError(f"Suspend.at is {value!r}, expected a time just for a wake")
        if value is not None and value.utcoffset() is None:
            raise ValueError(f"Suspend.at is {value!r}, expected a datetime with a time zone")

    @classmethod
    def answer(cls, question: str, payload: JSON = None) -> Suspend:
        """Ask somebody; the call's result is withheld until the reply is in."""
        return cls(kind="answer", question=question, payload=payload)

    @classmethod
    def wake(cls, at: datetime, payload: JSON = None) -> Suspend:
        """Go on later; the call has its result, and the run pauses until it is resumed."""
        return cls(kind="wake", at=at, payload=payload)


@attrs.frozen(kw_only=True)
class Outcome:
    """How a call ended, and what it asks of the run. Made by the four constructors."""

    kind: OutcomeKind = attrs.field(validator=attrs.validators.in_(get_args(OutcomeKind)))
    data: object = None
    parts: tuple[dict[str, JSON], ...] = ()
    """Content parts, passed through as they are."""
    failure_kind: FailureKind | None = attrs.field(default=None)
    error: str = attrs.field(default="")
    activate_plugins: tuple[str, ...] = ()
    activate_skills: tuple[str, ...] = ()
    compact: bool = False
    suspend: Suspend | None = attrs.field(default=None)
    abandoned: bool = False
    """Its thread still runs; it keeps its permit until it ends."""

    @error.validator
    def _check_error(self, _: object, value: object) -> None:
        if not isinstance(value, str):
            raise TypeError(f"Outcome.error is a {type(value).__name__}, expected a text")

    @suspend.validator
    def _check_suspend(self, _: object, value: object) -> None:
        if not isinstance(value, Suspend | None):
            raise TypeError(f"Outcome.suspend is {value!r}, expected a Suspend or None")

    @failure_kind.validator
    def _check_failure_kind(self, _: object, value: object) -> None:
        if value is not None and value not in FAILURE_KINDS:
            raise ValueError(f"failure_kind is {value!r}, expected one of {FAILURE_KINDS}")

    @classmethod
    def completed(
        cls,
        data: object = None,
        *,
        parts: Sequence[dict[str, JSON]] = (),
        activate_plugins: Sequence[str] = (),
        activate_skills: Sequence[str] = (),
        compact: bool = False,
        suspend: Suspend | None = None,
    ) -> Outcome:
        """A result."""
        return cls(
            kind="completed",
            data=data,
            parts=tuple(parts),
            activate_plugins=tuple(activate_plugins),
            activate_skills=tuple(activate_skills),
            compact=compact,
            suspend=suspend,
        )

    @classmethod
    def failed(cls, error: str, kind: FailureKind | None = None) -> Outcome:
        """A failure that the model can read."""
        return cls(kind="failed", error=error, failure_kind=kind)

    @classmethod
    def interrupted(cls, error: str = INTERRUPTED_TEXT, *, abandoned: bool = False) -> Outcome:
        """It began and was cut: effect unknown."""
        return cls(kind="interrupted", error=error, failure_kind="interrupted", abandoned=abandoned)

    @classmethod
    def not_run(cls, error: str = NOT_RUN_TEXT) -> Outcome:
        """It never began: no effect."""
        return cls(kind="not_run", error=error, failure_kind="not_run")

    @property
    def activates(self) -> bool:
        """Whether it asks for plugins or skills."""
        return bool(self.activate_plugins or self.activate_skills)


@attrs.frozen(kw_only=True)
class Reply:
    """An answer from outside to a call that asked."""

    value: JSON
    payload: JSON = None
    """What the question carried (`Suspend.payload`), for a call that is run again."""


@attrs.frozen(kw_only=True)
class Batch:
    """The calls of one turn, as `Toolset.admit` and each call see them."""

    run_id: str
    turn_id: str
    turn: int
    calls: tuple[ToolCall, ...]
    messages: Sequence[Message]
    """The transcript up to and with the message that asked, read-only."""
    memo: JSON = None
    """What the last `Admission` of this batch left."""
    replies: Mapping[str, Reply] = attrs.field(factory=dict)
    """Answers so far, by call id."""
    forgotten: Mapping[str, int] = attrs.field(factory=dict)
    """Answered calls that compactions took out of *messages*; see `RunState.forgotten`."""


@attrs.frozen(kw_only=True)
class Admission:
    """The verdict on a batch. A call with no decision is run."""

    decisions: Mapping[str, Outcome | Suspend] = attrs.field(factory=dict)
    """By call id: this is its outcome, or ask first (a `Suspend.answer`)."""
    memo: JSON = attrs.field(default=None)
    """Opaque; stored with a pause and handed back in `Batch.memo`."""

    @memo.validator
    def _check_memo(self, _: object, value: object) -> None:
        check_json(value, room=ROOM)


class Stopping(Protocol):
    """Whether the run is being stopped; a tool may watch it to wind down in its grace."""

    def is_set(self) -> bool:
        """Not a checkpoint."""
        ...

    async def wait(self) -> None:
        """Return once a stop has arrived."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class CallContext(Generic[HostT_co]):
    """What a call may know and do besides its arguments."""

    call: ToolCall
    batch: Batch
    stopping: Stopping
    host: HostT_co
    """The host's own object, as given to `open_run(context=...)`."""
    reply: Reply | None = None
    """The answer, if this call had suspended and is now run again."""
    budget: object = None
    """The run's ledger; a child run takes it as its own budget's parent."""
    chain: ChainRef | None = None
    """The run's lineage, if `open_run` was told of one."""
    receipt: ReceiptClaim | None = None
    """What this call holds in a receipt store, if it is run under one."""
    _tell: Callable[[Event], None] = attrs.field(alias="tell")
    _keep_permit: Callable[[], Callable[[], None]] = attrs.field(alias="keep_permit")

    def tell(self, event: Event) -> None:
        """Send an event, stamped as the run's own. Never waits, is no checkpoint.

        Out of a thread: ``trio.from_thread.run_sync(context.tell, event)``.
        """
        self._tell(event)

    def keep_permit(self) -> Callable[[], None]:
        """Keep this call's permit after it has been answered; returns the release.

        For work that outlives its call (a thread that cannot be stopped). The call is then
        marked abandoned if it was cut. Release once, from the trio thread.
        """
        return self._keep_permit()


class Toolset(Protocol):
    """The tools of a run. `definitions` is read again for every turn."""

    def definitions(self) -> Sequence[dict[str, JSON]]:
        """Return tool definitions in the chat-completions shape, in a stable order."""
        ...

    def policy(self, call: ToolCall) -> CallPolicy:
        """Return how *call* is run; asked for unknown names too.

        Asked before the batch starts, and again for the calls that are left once its serial
        ones have run, since these may have loaded what the others call.
        """
        ...

    def admit(self, batch: Batch) -> Awaitable[Admission]:
        """Judge a batch before anything of it starts. Cancelled at once on a stop."""
        ...

    def execute(self, call: ToolCall, context: CallContext[object]) -> Awaitable[Outcome]:
        """Run one call. It is called inside a shield: the only cancellation is the call's own."""
        ...

    def activate(self, outcome: Outcome) -> Awaitable[None]:
        """Make the plugins and skills that *outcome* asks for live.

        Raises:
            MissingPortError: this toolset has nothing to activate; reported, the run goes on.
        """
        ...

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        """Write the answer to *call* as a tool message. If it raises, the envelope is used."""
        ...

    def fatal(self, error: BaseException) -> bool:
        """Whether *error*, which left a tool, ends the run."""
        ...


@runtime_checkable
class Normalizes(Protocol):
    """A toolset, or a plugin, that can bring the arguments of a call into their normal form."""

    def normalize(self, call: ToolCall) -> ToolCall | Outcome:
        """Return *call* as it is to be run, or the failure of one that has no normal form."""
        ...


def normalized(toolset: object, call: ToolCall) -> ToolCall | Outcome:
    """Return what *toolset* makes of *call*; the call itself if it normalizes nothing.

    For whoever has to see the arguments before `Toolset.execute` gets them: wrappers pass it on.
    """
    return toolset.normalize(call) if isinstance(toolset, Normalizes) else call


class ForwardingToolset:
    """Passes every question on: the base of a wrapper, which overrides the one that it answers.

    A wrapper of several toolsets overrides `_owner` too.
    """

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._toolset!r}>"

    def _owner(self, call: ToolCall) -> Toolset:
        """Return the toolset that *call* is for."""
        return self._toolset

    def definitions(self) -> Sequence[dict[str, JSON]]:
        """As `Toolset.definitions`."""
        return self._toolset.definitions()

    def policy(self, call: ToolCall) -> CallPolicy:
        """As `Toolset.policy`."""
        return self._owner(call).policy(call)

    async def admit(self, batch: Batch) -> Admission:
        """As `Toolset.admit`."""
        return await self._toolset.admit(batch)

    async def execute(self, call: ToolCall, context: CallContext[object]) -> Outcome:
        """As `Toolset.execute`."""
        return await self._owner(call).execute(call, context)

    def normalize(self, call: ToolCall) -> ToolCall | Outcome:
        """As `normalized`."""
        return normalized(self._owner(call), call)

    async def activate(self, outcome: Outcome) -> None:
        """As `Toolset.activate`."""
        await self._toolset.activate(outcome)

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        """As `Toolset.render`."""
        return self._owner(call).render(call, outcome)

    def fatal(self, error: BaseException) -> bool:
        """As `Toolset.fatal`."""
        return self._toolset.fatal(error)
