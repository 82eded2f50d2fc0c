"""Play a scenario under many schedules, and see whether it depends on one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import unified_diff
from itertools import islice
from pprint import pformat
from typing import Final

import attrs

from harness._bounds import check_count
from harness.testing._errors import ScenarioFailedError, VacuousError
from harness.testing._judge import Errors, Judge
from harness.testing._play import Playing, Step
from harness.testing._scene import Invariant, Scenario, Scene, called
from harness.testing._schedule import Schedule

__all__ = ["ScheduleReport", "explore_schedules"]

_SHOWN: Final = 20
"""How many lines of a difference a message shows."""


@attrs.frozen(kw_only=True)
class ScheduleReport:
    """What `explore_schedules` did."""

    schedules: int
    """How many were played."""
    orders: int
    """How many different courses of events they led to."""


def explore_schedules(
    scenario: Scenario,
    *,
    invariants: Sequence[Invariant] = (),
    seeds: Iterable[Schedule] = range(20),
    same: Callable[[Scene], object] | None = None,
    minimum: int | None = None,
    raises: Errors = (),
) -> ScheduleReport:
    """Play *scenario*, uncut, under each schedule, and check that each end is sound.

    What makes a playing fail is what it is for `cancel_everywhere`. To have Hypothesis look for
    the schedule, and shrink it, give it a tape::

        @given(schedules())
        def test_order_is_kept(tape: tuple[int, ...]) -> None:
            explore_schedules(scenario, seeds=[tape])

    Args:
        scenario: an async function that takes a `Scene`.
        invariants: claims about every end.
        seeds: the schedules.
        same: a view of the scene that must be equal under all schedules.
        minimum: how many different courses of events there must be at least; by default two,
            if there is more than one schedule.
        raises: errors that a playing may end with.

    Raises:
        ScenarioFailedError: under the first failing schedule.
        FindingError: *same* is async, or yields, so there is no view.
        VacuousError: fewer courses than *minimum*: the schedules were all the same to it.
    """
    if minimum is not None:
        check_count("minimum", minimum, least=1)
    judge = Judge(scenario=scenario, invariants=invariants, raises=raises)
    courses: set[tuple[Step, ...]] = set()
    first: list[object] = []
    played = 0
    for seed in seeds:
        playing = judge.play(seed, None)
        played += 1
        courses.add(tuple(playing.trace))
        if same is not None:
            view = called(same, playing.scene)
            first = first or [view]
            if view != first[0]:
                raise _difference(playing, first[0], view)
    least = minimum if minimum is not None else min(played, 2) or 1
    if len(courses) < least:
        raise VacuousError(
            f"{len(courses)} courses under {played} schedules, expected at least {least}"
        )
    return ScheduleReport(schedules=played, orders=len(courses))


def _difference(playing: Playing, first: object, view: object) -> ScenarioFailedError:
    """Say how a view differs from that under the first schedule."""
    lines = unified_diff(
        pformat(first).splitlines(),
        pformat(view).splitlines(),
        "expected",
        "seen",
        n=1,
        lineterm="",
    )
    shown = "\n".join(islice(lines, _SHOWN))
    return ScenarioFailedError(
        f"seed {playing.seed!r} led to another view than the first one:\n{shown}",
        seed=playing.seed,
        cut=None,
        trace=[" ".join(step) for step in playing.trace],
    )
