"""Runs: `open_run`, and `run` on top of it.

Three things may end a leg from outside, and they are never confused: `Run.abort` and the
deadline fire the leg's own work scope, and the leg returns; a cancellation from a scope around
it passes through, and the leg raises. Which of the first two it was, the stop signal knows: it
is the one that asked first. (Trio's own reason names the innermost scope, which may be the
wrong one.)

The leg runs beside the block's body and keeps what it failed with; that is raised when the
block is left, never into the body. What the body raised leaves as the same object.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypedDict, Unpack

import attrs
import trio

from harness._bounds import check_instant, check_seconds
from harness._chain import ChainRef
from harness._errors import RunUseError, leaf_errors
from harness._events import Event, Failure, RunFinished, RunStarted, StopReason
from harness._ids import IdSource, random_id
from harness._messages import Message, user_message
from harness._model import Assembly, ModelLike, TextSurface
from harness._shield import only_cancelled, open_kept_nursery, stop_due
from harness._toolset import Toolset
from harness.kernel._asking import Asking
from harness.kernel._batch import LegTools
from harness.kernel._between import Between, Post
from harness.kernel._books import Books
from harness.kernel._emitter import Emitter, EventSource
from harness.kernel._leg import Leg
from harness.kernel._limiters import Limiters
from harness.kernel._limits import Budget, Limits
from harness.kernel._ports import (
    NO_COMPACTOR,
    NO_JOURNAL,
    NO_SUPERVISOR,
    Boundary,
    Compactor,
    Journal,
    Supervisor,
    go_on,
)
from harness.kernel._start import RunInput, state_from
from harness.kernel._state import RunResult, RunState
from harness.kernel._stats import RunStats
from harness.kernel._stop import StopSignal
from harness.kernel._turn import as_model
from harness.kernel._writer import Writer
from harness.tools import Tool, as_toolset
from harness.transcript import check_anthropic, check_openai

__all__ = ["DEFAULT_DEADLINE", "Run", "RunInput", "RunOptions", "open_run", "run"]

DEFAULT_DEADLINE = 3_600.0
"""Seconds that a leg gets if nobody says otherwise: a run must not be unbounded."""


class RunOptions(TypedDict, total=False):
    """The options of `open_run`, for whoever passes them on."""

    tools: Toolset | Sequence[Tool]
    context: object
    limits: Limits
    deadline: float | None
    budget: Budget | None
    limiters: Limiters | None
    journal: Journal
    supervisor: Supervisor
    boundary: Boundary
    compactor: Compactor
    text: TextSurface
    assembly: Assembly
    settle_timeout: float
    events: Emitter | None
    ids: IdSource
    chain: ChainRef | None


@attrs.define(eq=False)
class Run:
    """A handle on a leg in progress; `open_run` makes it."""

    _leg: Leg
    _stop: StopSignal
    _owns_emitter: bool = attrs.field(kw_only=True)
    _work: trio.CancelScope = attrs.field(init=False)
    _events: trio.MemoryReceiveChannel[Event] | None = attrs.field(default=None, init=False)
    _finished: trio.Event = attrs.field(factory=trio.Event, init=False)
    _result: RunResult | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._work = trio.CancelScope(deadline=self._stop.deadline)
        if self._owns_emitter:
            self._events = self.tee()
        self._leg.books.source.tell(RunStarted(resumed=self.state.pause is not None))

    @property
    def state(self) -> RunState:
        """The run's state, live."""
        return self._leg.books.state

    @property
    def stats(self) -> RunStats:
        """This leg's figures, live."""
        return self._leg.books.stats

    @property
    def events(self) -> trio.MemoryReceiveChannel[Event]:
        """Everything the leg tells, from its start; ends when the leg has ended.

        Raises:
            RunUseError: the caller's own emitter has the events.
        """
        if self._events is None:
            raise RunUseError("this run tells its events to the emitter it was given")
        return self._events

    def tee(self) -> trio.MemoryReceiveChannel[Event]:
        """Return a further reader of the events, from now on. Is no checkpoint."""
        return self._leg.books.source.emitter.open_reader()

    @property
    def result(self) -> RunResult:
        """How the leg ended; set on every exit, in the step that tells `RunFinished`.

        Raises:
            RunUseError: it has not ended.
        """
        if self._result is None:
            raise RunUseError("the run has not ended, so it has no result yet")
        return self._result

    async def wait(self) -> None:
        """Return once the leg has ended, however it did. A checkpoint."""
        await self._finished.wait()

    def abort(self, reason: str | None = None, grace: float | None = None) -> None:
        """Stop now: the leg ends ``aborted``, its transcript settled. Is no checkpoint.

        A model call is cancelled, calls in flight get the grace of their policy, and those
        that have not begun never do. *grace* caps that in seconds, and a second abort can only
        shorten it. After the end it does nothing.
        """
        if grace is not None:
            check_seconds("grace", grace)
        if self._result is not None:
            return
        now = trio.current_time()
        self._stop.abort(reason, grace, now=now)
        self._leg.tools.stopping.set()
        self._work.cancel(reason)
        if self._leg.batch is not None:
            self._leg.batch.runner.stop_flights(now)

    def request_stop(self) -> None:
        """Stop after the turn in progress, as ``aborted``. Is no checkpoint."""
        self._stop.soft = True

    def post(self, message: str | Message, user_id: str | None = None) -> None:
        """Hand the run a user message; it joins at the next settled point. Is no checkpoint.

        What meets no further turn is in `RunResult.undelivered`.

        Raises:
            RunUseError: the leg has ended.
            ValueError: it is no user message.
        """
        if self._result is not None:
            raise RunUseError("the run has ended, so it takes no messages")
        posted = user_message(message) if isinstance(message, str) else message
        if not _is_input(posted):
            raise ValueError(f"the posted message is {posted!r}, expected what a user says")
        self._leg.between.posts.append(Post(posted, user_id))

    def __repr__(self) -> str:
        ended = "running" if self._result is None else self._result.stop_reason
        return f"<Run {self.state.run_id!r} leg {self.state.leg} {ended}>"

    async def _lead(self) -> None:
        """Run the leg to its end, in a task of the run's nursery."""
        reason: StopReason | None = None
        failure: BaseException | None = None
        try:
            with self._work:
                reason = await self._leg.run()
            if self._work.cancelled_caught or reason is None:
                reason = "aborted" if self._stop.aborted else "deadline"
        except BaseException as error:  # noqa: ASYNC103  # kept, and raised by the block
            if only_cancelled(error) and stop_due():
                reason = "cancelled"
                raise
            reason, failure = "failed", _told_failure(error)
            if not isinstance(failure, Exception):
                raise  # an interrupt: the body may not go on either
        finally:
            self._end(reason or "failed", failure)

    def _end(self, reason: StopReason, failure: BaseException | None) -> None:
        leg, stats = self._leg, self.stats
        leg.books.state.end_leg()
        leg.books.budget.end_leg()
        self._result = RunResult(
            run_id=leg.books.state.run_id,
            stop_reason=reason,
            state=leg.books.state,
            stats=stats,
            text=leg.text,
            parsed=leg.parsed,
            reason=self._stop.message if reason == "aborted" else None,
            halt=leg.halt,
            error=failure,
            undelivered=tuple(post.message for post in leg.between.posts),
        )
        leg.books.source.tell(
            RunFinished(
                stop_reason=reason,
                reason=self._stop.message if reason == "aborted" else None,
                turns=stats.turns,
                tool_calls=stats.tool_calls,
                usage=stats.usage,
                failure=None if failure is None else Failure.of(failure),
            )
        )
        leg.books.source.end()
        if self._owns_emitter:
            leg.books.source.emitter.close()
        self._finished.set()

    def _leave(self) -> None:
        """The body is over: so is the leg, unless a cancellation from outside sees to that."""
        if self._result is None and not stop_due():
            self.abort("left")


def _is_input(message: object) -> bool:
    """Whether *message* is a user's, and every provider takes it."""
    role = message.get("role") if isinstance(message, dict) else None
    return role == "user" and not (check_openai((message,)) or check_anthropic((message,)))


@asynccontextmanager
async def open_run(
    model: ModelLike,
    input: RunInput,
    *,
    tools: Toolset | Sequence[Tool] = (),
    context: object = None,
    limits: Limits = Limits(),
    deadline: float | None = None,
    budget: Budget | None = None,
    limiters: Limiters | None = None,
    journal: Journal = NO_JOURNAL,
    supervisor: Supervisor = NO_SUPERVISOR,
    boundary: Boundary = go_on,
    compactor: Compactor = NO_COMPACTOR,
    text: TextSurface = TextSurface(),
    assembly: Assembly = Assembly(),
    settle_timeout: float = 10.0,
    events: Emitter | None = None,
    ids: IdSource = random_id,
    chain: ChainRef | None = None,
) -> AsyncIterator[Run]:
    """Run a leg beside the block; leaving the block ends it.

    Entering is no checkpoint once the leg was started. Leaving early, or by an exception, aborts
    the leg and waits until it is settled; leaving is a checkpoint if the leg has not ended. A
    cancellation from outside goes through the leg at once, settles its transcript, and is raised.

    Args:
        model: a `Model`, or an async function with the signature of `Model.complete`.
        input: text, messages, or a `RunState` whose next leg is started.
        tools: a `Toolset`, or a sequence of tools.
        context: the host's own object; tools find it as `CallContext.host`.
        limits: of the run, over all its legs.
        deadline: trio time at which the leg ends ``deadline``; None is an hour from now.
        budget: the ledger above the run's own.
        limiters: permits for calls; share one to share its limits.
        journal: what commits messages before they enter the transcript.
        supervisor: who may stop the run between turns, or give it input.
        boundary: asked at each settled boundary whether to go on.
        compactor: who shrinks a transcript that has grown too long.
        text: what the reader of the live text is.
        assembly: how chunks become a reply.
        settle_timeout: seconds that a journal has, after a stop, for what is still to be written.
        events: where to tell; by default `Run.events` has a channel of its own.
        ids: where the run's id comes from.
        chain: where the run stands in a tree of runs; its tools find it as `CallContext.chain`.

    Raises:
        TranscriptError: the input's transcript is not settled.
        RunUseError: a leg of the given state is running.
        BaseException: what the run failed with, when the block is left; with an exception of
            the body, both in a group.
    """
    ends_at = DEFAULT_DEADLINE + trio.current_time() if deadline is None else deadline
    stop = StopSignal(check_instant("deadline", ends_at))
    writing = (journal, check_seconds("settle_timeout", settle_timeout))
    asking = Asking(as_model(model), as_toolset(tools), text, assembly)
    permits = Limiters() if limiters is None else limiters
    ledger = Budget(limits, parent=budget)
    state = state_from(input, ids)
    ledger.carry_over(
        turns=state.turn, tool_calls=state.calls_taken, usage=state.usage, below=state.below
    )
    emitter = Emitter() if events is None else events
    if not isinstance(emitter, Emitter):
        raise TypeError(f"events is {events!r}, expected an Emitter or None")
    state.begin_leg()
    ledger.begin_leg(first=state.turn == 0)
    source = EventSource(emitter, state.run_id, state.leg, turn=max(state.turn - 1, 0))
    books = Books(state, RunStats(), ledger, source)
    leg = Leg(
        books,
        asking,
        Between(books, stop, supervisor, boundary, compactor),
        LegTools(asking.toolset, permits, context, books, stop, chain),
        Writer(state.messages, *writing),
    )
    async with _opened(Run(leg, stop, owns_emitter=events is None)) as opened:
        yield opened


@asynccontextmanager
async def _opened(run: Run) -> AsyncIterator[Run]:
    """Run the leg beside the block; raise what either of them ended with."""
    try:
        async with open_kept_nursery() as nursery:
            nursery.start_soon(run._lead, name=repr(run))
            try:
                yield run
            finally:
                run._leave()
    except BaseException as left:  # noqa: ASYNC103  # the run's own error comes in its place
        failure = run.result.error
        if failure is None or failure is left:
            raise
        if not _adds_nothing(left, failure):
            both = BaseExceptionGroup("a run and its block failed", [left, failure])
            raise both from None  # noqa: ASYNC104  # it holds what was caught
    if run.result.error is not None:
        raise run.result.error


def _told_failure(error: BaseException) -> BaseException:
    """Return what a run failed with; a cancellation that nobody asked for is somebody's mistake."""
    if not only_cancelled(error):
        return error
    failure = RunUseError("a port raised a cancellation, and nothing had been cancelled")
    failure.__cause__ = error
    return failure


def _adds_nothing(left: BaseException, failure: BaseException) -> bool:
    """Whether *left* is only *failure* on its way out, or a cancellation because of it."""
    own = {id(each) for each in leaf_errors(failure)}
    return all(id(each) in own or only_cancelled(each) for each in leaf_errors(left))


async def run(model: ModelLike, input: RunInput, **options: Unpack[RunOptions]) -> RunResult:
    """Run a leg to its end and return its result: `open_run` without the block.

    Takes the options of `open_run`. Nobody reads events, so none are kept, unless *events* says
    where to tell them. A checkpoint; a cancellation settles the transcript and is raised.

    Raises:
        BaseException: what the run failed with. So ``failed`` and ``cancelled`` are never
            returned.
    """
    options.setdefault("events", Emitter())
    async with open_run(model, input, **options) as opened:
        await opened.wait()
    return opened.result
