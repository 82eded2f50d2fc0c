"""Running the calls of a batch: a child nursery of the leg.

The shape, and why it is this one:

* Each call runs in a **shielded scope of its own** from its first step. Inside it the only
  cancellation is ours, so what leaves a call is decidable (`_outcomes`), and neither a stale
  cancellation nor a failing cleanup of one tool can touch a sibling. A call that is made of runs
  has the scope without the shield. Behind one its runs would see a stop only after the walk, one
  level after the other, and could start something meanwhile.
* A **stop is one synchronous walk** over the calls in flight: without grace a call's scope is
  cancelled, with grace its deadline moves nearer. The batch's body waits *inside* its nursery,
  unshielded, for the last call, and its ``finally`` is the walk. A parent that waited in the
  nursery's own exit would drop the cancellation, and the shielded calls would sleep through
  the stop.
* Calls are **claimed lazily**, in request order: a queued call is a number in a list and costs
  no task. A pool's line is one task that waits for a permit, starts a call, and waits again, so
  a batch stands in a shared limiter's line once and cannot crowd others out.
* Starts are in request order: ``start_soon``, then one checkpoint. Trio wakes tasks in random
  order, but a task that was started earlier is never woken in a later pass.
* Whether a stop is due is asked again after a permit was got and in the new task before its
  function is entered; from there to the shield there is no checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio

from harness._chain import ChainRef
from harness._errors import AbortedToolCallError, shown
from harness._events import CallRejected, Failure, ToolFinished, ToolStarted
from harness._messages import NOT_RUN_TEXT
from harness._shield import stop_due
from harness._toolset import (
    Batch,
    CallContext,
    CallPolicy,
    Outcome,
    Reply,
    ToolCall,
    Toolset,
)
from harness.kernel._books import Books
from harness.kernel._limiters import Limiters, Permit
from harness.kernel._outcomes import Left, judge_outcome, what_was_raised
from harness.kernel._stop import StopSignal

__all__ = ["BatchRunner", "CallSlot", "LegTools"]

_UNDECIDED = CallPolicy(pool=None)
_NOT_RUN = Outcome.not_run()
_REFUSED = Failure.of(AbortedToolCallError("", NOT_RUN_TEXT))


@attrs.frozen(eq=False)
class LegTools:
    """What the batches of a leg have in common."""

    toolset: Toolset
    limiters: Limiters
    host: object
    books: Books
    stop: StopSignal
    chain: ChainRef | None = None
    stopping: trio.Event = attrs.field(factory=trio.Event, init=False)


@attrs.define(eq=False)
class CallSlot:
    """One call of a batch, and what became of it."""

    call: ToolCall
    policy: CallPolicy = _UNDECIDED
    """The toolset's, once the batch was admitted."""
    reply: Reply | None = None
    outcome: Outcome | None = None
    """None until it ended; a call that never began keeps None and is ``not_run``."""
    fatal: BaseException | None = None
    """What ends the run; raised once everything is settled."""
    activated: bool = False
    """What it asked to be loaded is live, or was refused."""
    answered: bool = False
    """Its result is in the transcript."""


@attrs.define(eq=False)
class _Flight:
    """A call in flight."""

    slot: CallSlot
    permit: Permit
    scope: trio.CancelScope = attrs.field(init=False)
    stopped: bool = False
    kept: bool = False
    """Its permit outlives it: a thread of its still runs."""

    def __attrs_post_init__(self) -> None:
        self.scope = trio.CancelScope(shield=self.slot.policy.shielded)

    def stop(self, now: float, cap: float) -> None:
        """Give the call its grace, or what a later stop leaves of it."""
        self.stopped = True
        grace = min(self.slot.policy.grace, cap)
        if grace > 0:
            self.scope.deadline = min(self.scope.deadline, now + grace)
        else:
            self.scope.cancel("the run was stopped")


@attrs.define(eq=False)
class BatchRunner:
    """Runs the calls of one batch, phase by phase, and can be stopped from outside."""

    _leg: LegTools
    _batch: Batch
    _flights: dict[int, _Flight] = attrs.field(factory=dict, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _idle: trio.Event = attrs.field(factory=trio.Event, init=False)
    _busy: int = attrs.field(default=0, init=False)
    """Calls in flight, and lines that still have calls to start."""
    fatal: bool = attrs.field(default=False, init=False)
    """Whether a call ended with what ends the run."""

    async def run(self, slots: Sequence[CallSlot]) -> None:
        """Run *slots* side by side and wait for the last. A checkpoint, unless empty.

        A stop ends the calls in flight within their grace and is then raised. A fatal error
        ends them the same way; it is noted in its slot, and nothing is raised.
        """
        if not slots:
            return
        started = trio.current_time()
        self._idle, self._busy = trio.Event(), 1
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    await self._start(slots)
                    self._less_busy()
                    await self._idle.wait()
                    # A call may have seen a deadline that trio had not: it is cancelled by now.
                    await trio.lowlevel.checkpoint_if_cancelled()
                finally:
                    self.stop_flights(trio.current_time())
        finally:
            self._nursery = None
            self._leg.books.stats.tool_time += trio.current_time() - started

    def stop_flights(self, now: float) -> None:
        """Walk over the calls in flight and let each end within its grace. Is no checkpoint."""
        if not self._flights:
            return
        self._leg.stopping.set()
        for flight in self._flights.values():
            flight.stop(now, self._leg.stop.grace_cap)

    async def _start(self, slots: Sequence[CallSlot]) -> None:
        lines: dict[str, list[CallSlot]] = {}
        for slot in slots:
            pool = slot.policy.pool
            if pool is not None and pool in lines:
                lines[pool].append(slot)
                continue
            permit = self._leg.limiters.permit(pool)
            if permit.take_nowait():
                await self._launch(slot, permit)
            elif pool is not None:
                lines[pool] = [slot]
        for line in lines.values():
            self._busy += 1
            self._open_nursery.start_soon(self._work_off, line)

    async def _work_off(self, line: Sequence[CallSlot]) -> None:
        """Start the calls of one pool's line, each when a permit is there."""
        try:
            for slot in line:
                permit = self._leg.limiters.permit(slot.policy.pool)
                await permit.take()
                if stop_due():
                    permit.release()
                    return
                await self._launch(slot, permit)
        finally:
            self._less_busy()

    async def _launch(self, slot: CallSlot, permit: Permit) -> None:
        self._busy += 1
        self._open_nursery.start_soon(self._fly, _Flight(slot, permit))
        await trio.lowlevel.checkpoint()

    async def _fly(self, flight: _Flight) -> None:
        try:
            if not stop_due():
                self._flights[flight.slot.call.index] = flight
                await self._carry_out(flight)
        finally:
            self._flights.pop(flight.slot.call.index, None)
            if not flight.kept:
                flight.permit.release()
            self._less_busy()

    async def _carry_out(self, flight: _Flight) -> None:
        """Enter the tool and turn whatever leaves it into the slot's outcome."""
        slot, toolset, books = flight.slot, self._leg.toolset, self._leg.books
        call, started = slot.call, trio.current_time()
        if slot.policy.time_limit is not None:
            flight.scope.deadline = started + slot.policy.time_limit
        books.stats.tool_calls += 1
        books.tell(ToolStarted(call_id=call.id, name=call.name))
        returned: object = None
        error: BaseException | None = None
        try:
            with flight.scope:
                returned = await toolset.execute(call, self._context(flight))
        except BaseException as raised:  # noqa: ASYNC103, BLE001  # it is the outcome
            error = raised
        outcome = slot.outcome = self._judge(flight, returned, error)
        duration = trio.current_time() - started
        books.stats.fold_call(call.name, failed=outcome.kind != "completed", duration=duration)
        books.stats.abandoned += outcome.abandoned
        books.tell(
            ToolFinished(
                call_id=call.id,
                name=call.name,
                outcome=outcome.kind,
                duration=duration,
                failure_kind=outcome.failure_kind,
                abandoned=outcome.abandoned,
            )
        )
        if slot.fatal is not None:
            self._end()

    def _judge(self, flight: _Flight, returned: object, error: BaseException | None) -> Outcome:
        slot = flight.slot
        if error is None and not flight.scope.cancelled_caught:
            if isinstance(returned, Outcome):
                return returned
            text = f"the toolset returned {shown(returned)}, expected an Outcome"
            error = TypeError(text)
        left: Left = "cut" if error is None else what_was_raised(error)
        if left == "exception" and error is not None:
            self._leg.books.tell(CallRejected(call_id=slot.call.id, failure=Failure.of(error)))
            left = "fatal" if self.is_fatal(slot, error) else "exception"
        outcome, row = judge_outcome(
            left,
            # Without a shield a stop is there before the walk is.
            stopped=flight.stopped or stop_due(),
            error=error,
            time_limit=slot.policy.time_limit,
            abandoned=flight.kept,
        )
        if row.ends_run:
            slot.fatal = error if slot.fatal is None else slot.fatal
            self.fatal = True
        return outcome

    def is_fatal(self, slot: CallSlot, error: BaseException) -> bool:
        """Ask the toolset whether *error* ends the run, and note what does."""
        try:
            if self._leg.toolset.fatal(error):
                slot.fatal = error
        except Exception as failure:  # noqa: BLE001  # a port's own error ends the run
            slot.fatal = failure
        self.fatal = self.fatal or slot.fatal is not None
        return slot.fatal is not None

    def refuse(self, slot: CallSlot, *, ask: bool) -> None:
        """Answer a call that never began; with *ask* the toolset may call that fatal."""
        slot.outcome = _NOT_RUN
        self._leg.books.tell(CallRejected(call_id=slot.call.id, failure=_REFUSED))
        if ask:
            self.is_fatal(slot, AbortedToolCallError(slot.call.id, NOT_RUN_TEXT))

    def _context(self, flight: _Flight) -> CallContext[object]:
        def keep_permit() -> Callable[[], None]:
            flight.kept = True
            return flight.permit.release

        leg = self._leg
        return CallContext(
            call=flight.slot.call,
            batch=self._batch,
            stopping=leg.stopping,
            host=leg.host,
            reply=flight.slot.reply,
            budget=leg.books.budget,
            chain=leg.chain,
            tell=leg.books.tell,
            keep_permit=keep_permit,
        )

    def _end(self) -> None:
        """End the batch from inside: start nothing more, and stop what is in flight."""
        self._open_nursery.cancel_scope.cancel("a fatal error")
        self.stop_flights(trio.current_time())

    def _less_busy(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._idle.set()

    @property
    def _open_nursery(self) -> trio.Nursery:
        assert self._nursery is not None
        return self._nursery
