"""Cancel a scenario everywhere, and see whether it keeps its promises.

A task can be cancelled only while it waits, so it is tempting to try every wait once. That
misses half. When a task parks, a cancellation that comes next ends the wait it has just entered;
when a wake-up has been decided but the task has not run yet, a cancellation that comes then finds
the wait succeeded, and the *next* one raises. What was received in between is what gets lost. So
a cut point is each moment before and each moment after a step of a task, and the one before the
scenario starts. Between two of them nothing of the scenario runs, so for one schedule the list is
complete.

Rejected: patching `checkpoint` (misses every wait that blocks), cancelling at virtual times (does
not part what happens in one instant), wrapping the coroutine (sees one task).

The scenario is played uncut to count, once more to see whether it takes the same course, and then
once per cut, under a mock clock that jumps and in a fixed order. Each playing must take that course
up to its cut, or the cuts would be about something else each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from harness._bounds import check_count
from harness.testing._errors import VacuousError
from harness.testing._judge import Errors, Judge
from harness.testing._play import BEFORE_START
from harness.testing._scene import Invariant, Scenario, SceneOutcome
from harness.testing._schedule import Schedule

__all__ = ["CutReport", "cancel_everywhere"]


@attrs.frozen(kw_only=True)
class CutReport:
    """What `cancel_everywhere` did."""

    cuts: tuple[int, ...]
    """How many cut points were played, for each schedule."""
    cancelled: int
    """Playings that ended with the cut's cancellation."""
    completed: int
    """Playings that returned although they were cut."""
    raised: int
    """Playings that ended with an error that was expected."""

    def __str__(self) -> str:
        return (
            f"{sum(self.cuts)} cuts under {len(self.cuts)} schedules: {self.cancelled} cancelled, "
            f"{self.completed} completed, {self.raised} raised"
        )


def cancel_everywhere(
    scenario: Scenario,
    *,
    invariants: Sequence[Invariant] = (),
    seeds: Iterable[Schedule] = (0,),
    minimum: int = 1,
    raises: Errors = (),
    only: int | None = None,
) -> CutReport:
    """Play *scenario* once per cut point, stopped there, and check that each end is sound.

    The cut cancels a scope around the scenario, or does what it chose with `Scene.on_cut`. After
    each playing the scenario's own checks and the *invariants* are called. A playing fails if
    one of them raises, if the scenario raises anything but *raises*, deadlocks, or leaves a task,
    an async generator or an unclosed resource behind. The playing without a cut is judged too.

    Call it from a synchronous test. A scenario uses no thread, no socket and no clock but
    trio's, and makes everything it works on itself, each time anew.

    Args:
        scenario: an async function that takes a `Scene`.
        invariants: claims about every end.
        seeds: the schedules to do all this under.
        minimum: how many cut points there must be at least, under each schedule. Set it close
            to what the report says: a scenario that has come to test less then fails.
        raises: errors that a playing may end with, alone or as the only leaves of a group.
        only: play just this cut, to look at one that failed.

    Raises:
        ScenarioFailedError: at the smallest failing cut of the first failing schedule.
        UnrepeatableError: the same schedule led to another course of events.
        VacuousError: fewer cut points than *minimum*, or no cut had any effect.
    """
    check_count("minimum", minimum, least=1)
    judge = Judge(scenario=scenario, invariants=invariants, raises=raises)
    ends: dict[SceneOutcome, int] = {"cancelled": 0, "completed": 0, "raised": 0}
    counts: list[int] = []
    effects = 0
    for seed in seeds:
        course = judge.play(seed, None).trace
        judge.play(seed, None, course)
        cuts = _cuts(len(course), minimum, only)
        counts.append(len(cuts))
        for at in cuts:
            playing = judge.play(seed, at, course)
            ends[playing.scene.outcome] += 1
            effects += playing.scene.act is not None or playing.scene.outcome != "completed"
    if not counts or (only is None and not effects):
        raise VacuousError(f"none of {sum(counts)} cuts had an effect, expected one that has")
    return CutReport(cuts=tuple(counts), **ends)


def _cuts(steps: int, minimum: int, only: int | None) -> Sequence[int]:
    """Return the cut points of a scenario of so many steps."""
    cuts = range(BEFORE_START, steps)
    if only is not None:
        if only not in cuts:
            raise VacuousError(f"only is {only!r}, expected a cut from {cuts[0]} to {cuts[-1]}")
        return [only]
    if len(cuts) < minimum:
        raise VacuousError(f"{len(cuts)} cut points, expected at least {minimum}")
    return cuts
