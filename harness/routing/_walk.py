"""Which endpoint of a plan is tried next, and when.

The rule is one line: *an endpoint that owes another try because of a defect, else the first one
that is not used up*. An endpoint is used up when it failed and is not to be asked again, or when
its circuit refused it. So without a hedge the walk is: tries at the same endpoint, then the next
one of the stage, then the next stage.

With a hedge, several tries can be at work. The first to answer wins and the others are superseded:
that is no failure, so their endpoints are not used up, and they are next if the winner then fails
after all. That cannot go on for ever. Every answer either serves, or its try fails, and an
endpoint has only so many failures in it; a try that is superseded costs none of them, but takes an
answer to happen. So a walk makes at most (failures in the plan) × (tries at once) tries.

Nothing further starts while an answer is coming. Silence is counted from the latest start, also
if that try has failed since: a failure beside a silent try is no reason to hurry, or a
provider that is down would have the hedge run through the whole plan at once.

Rejected: one walk for the first try and another one for hedges, as in a race of two routes. They
would have to agree on what is used up, which is this object.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import attrs

from harness._bounds import check_count
from harness.routing._candidate import RouteCandidate
from harness.routing._failures import AttemptCursor, Disposition
from harness.routing._outcomes import Fallback, Hedge
from harness.routing._plan import RoutePlan

__all__ = ["Place", "Walk"]

_PlaceState: TypeAlias = Literal["open", "owed", "at_work", "used_up"]


@attrs.define(eq=False)
class Place:
    """One endpoint of the plan, and how far it is used up."""

    stage: int
    index: int
    candidate: RouteCandidate
    tries: int = 0
    """How often it was tried."""
    defects: int = 0
    """How many of these ended with a defect."""
    state: _PlaceState = "open"

    @property
    def fallback(self) -> Fallback | None:
        """What it stands in for."""
        if self.stage:
            return "model"
        return "provider" if self.index else None


@attrs.define(eq=False)
class Walk:
    """The state of one walk over a plan. Synchronous, and without a clock."""

    _plan: RoutePlan
    _max_defect_retries: int = attrs.field(kw_only=True)
    _hedge: Hedge | None = attrs.field(default=None, kw_only=True)
    _places: tuple[Place, ...] = attrs.field(init=False)
    _started: int = attrs.field(default=0, init=False)
    _latest_start: float = attrs.field(default=-math.inf, init=False)
    _winner: Place | None = attrs.field(default=None, init=False)
    _sealed: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        check_count("max_defect_retries", self._max_defect_retries)
        self._places = tuple(
            Place(stage, index, candidate)
            for stage, each in enumerate(self._plan.stages)
            for index, candidate in enumerate(each.candidates)
        )

    @property
    def at_work(self) -> tuple[Place, ...]:
        """The places whose tries are running and not superseded."""
        return tuple(place for place in self._places if place.state == "at_work")

    @property
    def over(self) -> bool:
        """Whether nothing is at work and nothing is left to try."""
        return not self.at_work and self.next() is None

    def next(self) -> Place | None:
        """Return the place to try next; None if there is none."""
        if self._sealed:
            return None
        for state in ("owed", "open"):
            for place in self._places:
                if place.state == state:
                    return place
        return None

    def due_at(self) -> float:
        """Return the time from which on the next try may begin; infinity is not for now."""
        at_work = len(self.at_work)
        if self.next() is None or self._winner is not None:
            return math.inf
        if not at_work:
            return -math.inf
        if self._hedge is None or at_work >= self._hedge.most:
            return math.inf
        return self._latest_start + self._hedge.after

    def due(self, now: float) -> Place | None:
        """Return the place whose try may begin at *now*; None if none may."""
        return self.next() if self.due_at() <= now else None

    def cursor(self, place: Place) -> AttemptCursor:
        """Return the cursor of the next try, if it is at *place*."""
        return AttemptCursor(
            stage=place.stage, candidate=place.index, retry=place.tries, ordinal=self._started
        )

    def begin(self, place: Place, *, now: float) -> None:
        """Hear that a try at *place* begins."""
        place.state = "at_work"
        place.tries += 1
        self._started += 1
        self._latest_start = now

    def use_up(self, place: Place) -> None:
        """Do not try *place* again: its circuit refused the call, or the execution is over."""
        place.state = "used_up"

    def answer(self, place: Place) -> tuple[Place, ...]:
        """Hear that the try at *place* begins to answer; return the places it supersedes."""
        self._winner = place
        return self._supersede(place)

    def give_up(self, place: Place) -> tuple[Place, ...]:
        """Hear that the try at *place* has to give way to another that has not answered yet."""
        place.state = "open"
        return (place,)

    def fail(
        self, place: Place, disposition: Disposition, *, probe: bool, produced_output: bool
    ) -> tuple[Place, ...]:
        """Hear that the try at *place* failed; return the places that are given up with it."""
        if self._winner is place:
            self._winner = None
        place.state = "used_up"
        if produced_output or not disposition.traverse:
            return self.close()
        if disposition.retry_same:
            place.defects += 1
            # A probe is one call: whoever comes next finds out, and that may be another route.
            if not probe and place.defects <= self._max_defect_retries:
                place.state = "owed"
        return ()

    def seal(self) -> None:
        """Begin nothing further. What is at work goes on."""
        self._sealed = True

    def close(self) -> tuple[Place, ...]:
        """Begin nothing further, and return the places at work, which are given up."""
        self.seal()
        return self._supersede(None)

    def _supersede(self, winner: Place | None) -> tuple[Place, ...]:
        losers = tuple(place for place in self.at_work if place is not winner)
        for place in losers:
            place.state = "open"
        return losers
