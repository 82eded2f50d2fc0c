"""Executing a plan: the tries at its endpoints, one after the other or, hedged, side by side.

An execution is one nursery. A *conductor*, its body, says when a try begins; each try is a task in
a cancel scope of its own; and `Walk` says which endpoint it asks. There is no other path for a
plan without a hedge: there the conductor just never has a reason to begin a second try beside the
first.

**A try decides for itself what it asks.** The conductor starts a task, and time passes before that
task takes its first step: another try may have answered by then. So what the conductor saw is
looked at again in that first step, and from there the place is chosen, its circuit asked, and the
attempt function entered, without a checkpoint between. A hedge that is no longer wanted is never
begun, and no slot is taken for a call that is not made.

**To answer is to win, in one step.** `Try.answered` is synchronous: in it every other try is
cancelled, its slot is released and its line of the trace is written. What a loser returns or raises
while it unwinds can change none of these. Its cancellation is no failure of the endpoint, which was
slower and not wrong.

**Each try has a slot of its own**, retries too. A slot is one call with one outcome, and in the
meantime others who share the circuit may have opened it; then the retry is refused as any other
call would be.

What the attempt function raises, instead of returning it, is no failure of an endpoint but a bug
or an interrupt: the other tries are cancelled, the slots freed, and the same object leaves.

Rejected: sleeping out what a provider asks for before the next try. The time to wait belongs to the
circuit, where all calls to the endpoint see it, and the next endpoint need not wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Literal, TypeAlias, TypeVar

import attrs
import trio

from harness._errors import AttemptSuperseded, RouteFailure, leaf_errors, shown
from harness._shield import only_cancelled, open_kept_nursery
from harness.routing._breaker import CircuitBreaker, Slot
from harness.routing._candidate import RouteCandidate
from harness.routing._failures import (
    AttemptCursor,
    AttemptError,
    AttemptTarget,
    failure_disposition,
)
from harness.routing._outcomes import (
    AttemptFailure,
    AttemptRecord,
    AttemptSuccess,
    Hedge,
    RouteFailed,
    RouteServed,
    TryOutcome,
)
from harness.routing._plan import RoutePlan
from harness.routing._walk import Place, Walk

__all__ = ["MAX_DEFECT_RETRIES", "AttemptFunction", "Try", "execute_route_plan"]

T = TypeVar("T")

MAX_DEFECT_RETRIES: Final = 2
"""How often an endpoint is asked again after a defect, if nothing else is said."""


@attrs.define(eq=False, kw_only=True, repr=False)
class Try:
    """One try at an endpoint, for the attempt function."""

    candidate: RouteCandidate
    """The endpoint to ask."""
    cursor: AttemptCursor
    hedge: bool
    """Whether another try was at work when this one began."""
    _place: Place
    _slot: Slot
    _began: float
    _answer: Callable[[Try], bool]
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _stage: Literal["silent", "won", "superseded", "cancelled"] = attrs.field(
        default="silent", init=False
    )

    def __repr__(self) -> str:
        return f"<Try {self.cursor.ordinal} at {self.candidate.provider_id}, {self._stage}>"

    def answered(self) -> bool:
        """Say that this try has begun to answer; returns whether it has won.

        The first one wins, and every other try at work is cancelled before this returns. So it is
        to be called before anything of the answer is let out, and if it returns False nothing may
        be. To call it again changes nothing. Is no checkpoint.
        """
        return self._answer(self)

    @property
    def superseded(self) -> bool:
        """Whether the try was given up because another one answered first."""
        return self._stage == "superseded"

    @property
    def _given_up(self) -> bool:
        return self._stage in ("superseded", "cancelled")

    def target(self) -> AttemptTarget:
        """Return what an `AttemptError` of this try says about its endpoint, as of now."""
        duration = trio.current_time() - self._began
        return AttemptTarget.of(self.candidate, cursor=self.cursor, duration=duration)


AttemptFunction: TypeAlias = Callable[[Try], Awaitable["AttemptSuccess[T] | AttemptFailure"]]


async def execute_route_plan(
    plan: RoutePlan,
    breaker: CircuitBreaker,
    attempt: AttemptFunction[T],
    *,
    max_defect_retries: int = MAX_DEFECT_RETRIES,
    hedge: Hedge | None = None,
) -> RouteServed[T] | RouteFailed:
    """Return the value of the first endpoint of *plan* that serves, or why none did.

    *attempt* makes one call and reports what came of it; it never chooses what comes next. With
    *hedge*, further endpoints are tried beside one that stays silent. It never sleeps between two
    tries. A checkpoint, unless the plan is empty. A cancellation ends the tries at work, frees
    their slots, records nothing, and passes.

    Args:
        plan: the endpoints, in order.
        breaker: whose circuits are asked before each call and told its outcome.
        attempt: what it raises leaves as the same object once all slots are free; what several
            tries raise leaves in a group.
        max_defect_retries: how often an endpoint is asked again after a defect.
        hedge: when to try a further endpoint beside the first; None is never.

    Raises:
        TypeError: an argument is of another type, or *attempt* returned what it may not.
        ValueError: *max_defect_retries* is negative.
    """
    _check("plan", plan, RoutePlan)
    _check("breaker", breaker, CircuitBreaker)
    if hedge is not None:
        _check("hedge", hedge, Hedge)
    walk = Walk(plan, max_defect_retries=max_defect_retries, hedge=hedge)
    return await _Execution(walk, breaker, attempt).run()


def _check(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}, expected a {kind.__name__}")


@attrs.define(eq=False)
class _Execution(Generic[T]):
    """One walk over a plan, being carried out."""

    _walk: Walk
    _breaker: CircuitBreaker
    _ask: AttemptFunction[T]
    _at_work: dict[Place, Try] = attrs.field(factory=dict, init=False)
    """Without those that are superseded and unwinding."""
    _starting: bool = attrs.field(default=False, init=False)
    """Whether a task has been started that has not begun its try."""
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)
    _trace: list[AttemptRecord] = attrs.field(factory=list, init=False)
    _retry_times: list[float | None] = attrs.field(factory=list, init=False)
    _error: AttemptError | None = attrs.field(default=None, init=False)
    _served: RouteServed[T] | None = attrs.field(default=None, init=False)
    _raised: list[BaseException] = attrs.field(factory=list, init=False)

    async def run(self) -> RouteServed[T] | RouteFailed:
        try:
            async with open_kept_nursery() as nursery:
                await self._conduct(nursery)
        except BaseException as error:  # noqa: ASYNC103  # what a try raised is raised below
            if not self._raised:
                raise
            if not only_cancelled(error):  # an interrupt from the keyboard
                self._raised.append(error)
        if len(self._raised) > 1:
            raise BaseExceptionGroup("several tries of a route raised", self._raised)
        if self._raised:
            raise self._raised[0]
        return self._served or self._failed()

    async def _conduct(self, nursery: trio.Nursery) -> None:
        """Begin each try when it is due, until nothing is at work and nothing left."""
        try:
            while self._starting or not self._walk.over:
                self._news = trio.Event()
                if not self._starting and self._walk.due(trio.current_time()):
                    self._starting = True
                    nursery.start_soon(self._begin_try)
                # Whether this fires is not asked: what is due is looked at again in any case.
                with trio.move_on_at(math.inf if self._starting else self._walk.due_at()):
                    await self._news.wait()
        finally:
            self._give_up(self._walk.close(), "cancelled")

    async def _begin_try(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        attempt = self._admitted()
        self._starting = False
        self._news.set()
        if attempt is not None:
            with attempt._slot:
                await self._carry_out(attempt)
            self._news.set()

    def _admitted(self) -> Try | None:
        """Return the try that is due now, in a slot; endpoints that refuse are passed over."""
        now = trio.current_time()
        while (place := self._walk.due(now)) is not None:
            slot = self._breaker.admit(place.candidate, now=now)
            cursor = self._walk.cursor(place)
            if slot.admitted:
                attempt = Try(
                    candidate=place.candidate,
                    cursor=cursor,
                    hedge=bool(self._at_work),
                    place=place,
                    slot=slot,
                    began=now,
                    answer=self._answer,
                )
                self._walk.begin(place, now=now)
                self._at_work[place] = attempt
                return attempt
            self._walk.use_up(place)
            self._retry_times.append(slot.retry_at)
            self._record("refused", cursor, place.candidate)
        return None

    async def _carry_out(self, attempt: Try) -> None:
        """Call the attempt function, and hear what came of it."""
        try:
            with attempt._scope:
                result: object = await self._ask(attempt)
                if not attempt._given_up:
                    self._settle(attempt, result)
                elif isinstance(result, AttemptFailure) and result.produced_output:
                    # It let something out before it had won. That cannot be taken back either.
                    self._walk.seal()
        except BaseException as error:  # noqa: ASYNC103  # kept, and raised when all have ended
            if only_cancelled(error):
                raise
            if not attempt._given_up or not _was_told_so(error):
                self._raised.append(error)
                self._withdraw(attempt)
                self._give_up(self._walk.close(), "cancelled")

    def _answer(self, attempt: Try) -> bool:
        if attempt._stage == "silent" and self._at_work.get(attempt._place) is attempt:
            attempt._stage = "won"
            self._give_up(self._walk.answer(attempt._place), "superseded")
        return attempt._stage == "won"

    def _settle(self, attempt: Try, result: object) -> None:
        """Hear what a try has ended with, and let its circuit know."""
        now = trio.current_time()
        place, slot = attempt._place, attempt._slot
        if isinstance(result, AttemptSuccess):
            self._answer(attempt)
            self._withdraw(attempt)
            slot.success(now=now)
            self._record_try("served", attempt)
            self._walk.seal()
            self._served = RouteServed(
                value=result.value,
                candidate=attempt.candidate,
                fallback=place.fallback,
                trace=tuple(self._trace),
            )
        elif isinstance(result, AttemptFailure):
            error = result.error
            others = [each for each in self._at_work.values() if each is not attempt]
            if others and isinstance(error.cause, AttemptSuperseded):
                self._give_way(place, others)
                return
            self._error = error
            self._withdraw(attempt)
            slot.failure(error, now=now)
            self._record_try("failed", attempt, error)
            given_up = self._walk.fail(
                place,
                failure_disposition(error),
                probe=slot.probe,
                produced_output=result.produced_output,
            )
            self._give_up(given_up, "cancelled")
        else:
            raise TypeError(
                f"the attempt function returned {shown(result)}, "
                "expected an AttemptSuccess or an AttemptFailure"
            )

    def _withdraw(self, attempt: Try) -> None:
        """Take a try that has ended out of those at work, unless it had been superseded."""
        if self._at_work.get(attempt._place) is attempt:
            del self._at_work[attempt._place]
            self._walk.use_up(attempt._place)

    def _give_way(self, place: Place, others: list[Try]) -> None:
        """Give up a try whose attempt another one has superseded that has not said so yet."""
        if len(others) == 1:
            self._answer(others[0])
        else:
            self._give_up(self._walk.give_up(place), "superseded")

    def _give_up(
        self, places: tuple[Place, ...], outcome: Literal["superseded", "cancelled"]
    ) -> None:
        """Give up the tries at *places*, in this very step."""
        for place in places:
            attempt = self._at_work.pop(place)
            attempt._stage = outcome
            attempt._slot.release()
            attempt._scope.cancel("another try at the route answered first, or ended it")
            self._record_try(outcome, attempt)

    def _record_try(
        self, outcome: TryOutcome, attempt: Try, error: AttemptError | None = None
    ) -> None:
        duration = trio.current_time() - attempt._began
        self._record(outcome, attempt.cursor, attempt.candidate, duration, error)

    def _record(
        self,
        outcome: TryOutcome,
        cursor: AttemptCursor,
        candidate: RouteCandidate,
        duration: float = 0.0,
        error: AttemptError | None = None,
    ) -> None:
        self._trace.append(
            AttemptRecord(
                cursor=cursor,
                provider_id=candidate.provider_id,
                outcome=outcome,
                category=None if error is None else error.category,
                duration=duration,
            )
        )

    def _failed(self) -> RouteFailed:
        reason: RouteFailure = "empty_plan"
        retry_after: float | None = None
        if self._error is not None:
            reason = "failed"
        elif self._retry_times:
            reason = "circuits_open"
            ends = [each for each in self._retry_times if each is not None]
            if ends:
                retry_after = max(0.0, min(ends) - trio.current_time())
        return RouteFailed(
            reason=reason, error=self._error, retry_after=retry_after, trace=tuple(self._trace)
        )


def _was_told_so(error: BaseException) -> bool:
    """Whether *error* is how a try leaves that was told that another one answered first."""
    return all(isinstance(each, AttemptSuperseded | trio.Cancelled) for each in leaf_errors(error))
