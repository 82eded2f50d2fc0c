"""The order in which trio runs its tasks, fixed.

trio takes the runnable tasks of each pass in random order, so that nobody comes to depend on
one. A test that wants to try *this* order again, or every order in turn, has to choose it, and
trio has no public way to. This is the one module that reaches into trio's private scheduler;
`tests/testing/test_schedule.py` fails at once if trio renames what is used here.

Two facts make the choice whole. trio sorts each pass by the age of its tasks, and then asks its
random source for a shuffle, but only while its private flag is set; without the flag the order
depends on the addresses of objects, whatever the seed. And the source is consulted for nothing
else that a program can see.

A schedule is a number, which seeds the source, or a *tape*: a tuple of numbers, each of which
picks the next task out of those that could run; when it has run out, the oldest task goes first.
(A tape's first number picks between two tasks of trio's own start.)
Numbers are for trying many orders, tapes for letting Hypothesis find the smallest one that fails.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

import trio

from harness._errors import InternalError, MissingExtraError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
    from trio._core._run import CancelStatus

__all__ = ["Schedule", "check_schedule", "lift_shields", "schedule", "schedules"]

Schedule: TypeAlias = int | tuple[int, ...]
"""A seed, or a tape."""

_FLAG: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
_SOURCE: Final = "_r"


class _Scheduler(Protocol):
    """What is used of the module ``trio._core._run``."""

    _ALLOW_DETERMINISTIC_SCHEDULING: bool
    _r: random.Random | _Tape


def _scheduler() -> _Scheduler:
    module = getattr(trio._core, "_run", None)
    for name in (_FLAG, _SOURCE):
        if not hasattr(module, name):
            raise InternalError(
                f"trio {trio.__version__} has no private {name!r}, expected it for fixed schedules"
            )
    return cast(_Scheduler, module)


@contextmanager
def schedule(order: Schedule) -> Iterator[None]:
    """Fix the order in which every `trio.run` inside the block runs its tasks.

    Blocks may be nested; the inner one counts. Not a checkpoint, and not for use inside a run.

    Raises:
        TypeError, ValueError: *order* is neither a seed nor a tape of numbers from 0.
        InternalError: this version of trio keeps its scheduler elsewhere.
    """
    check_schedule(order)
    scheduler = _scheduler()
    source, flag = scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    state = None
    if isinstance(order, tuple):
        scheduler._r = _Tape(order)
    elif isinstance(source, random.Random):
        # In place: this is the object that Hypothesis seeds anew for each of its examples.
        state = source.getstate()
        source.seed(order)
    else:
        scheduler._r = random.Random(order)
    try:
        yield
    finally:
        scheduler._r = source
        if state is not None and isinstance(source, random.Random):
            source.setstate(state)
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = flag


def check_schedule(order: object) -> None:
    """Return if *order* is a schedule; raises as `schedule`."""
    numbers = order if isinstance(order, tuple) else (order,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"schedule is {order!r}, expected an int or a tuple of ints")
        if number < 0 and isinstance(order, tuple):
            raise ValueError(f"schedule is {order!r}, expected a tape of numbers from 0")


class _Tape:
    """A stand-in for the random source that plays prepared choices."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = iter(numbers)

    def shuffle(self, tasks: MutableSequence[object]) -> None:
        """Arrange *tasks*, oldest first, so that popping them from the end is the order chosen."""
        tasks.reverse()
        for last in range(len(tasks) - 1, 0, -1):
            chosen = last - next(self._numbers, 0) % (last + 1)
            tasks[last], tasks[chosen] = tasks[chosen], tasks[last]

    def uniform(self, low: float, high: float) -> float:
        """The offset of a real clock, which no test reads."""
        return low


def schedules(*, choices: int = 60, tasks: int = 6) -> SearchStrategy[tuple[int, ...]]:
    """Return a Hypothesis strategy of tapes, which shrinks towards "oldest task first".

    *choices* is the length of the longest tape, *tasks* how many that can run at once it tells
    apart. Give the tape to `explore_schedules` as its only schedule.

    Raises:
        MissingExtraError: Hypothesis is not installed.
    """
    try:
        from hypothesis import strategies  # noqa: PLC0415  # an extra
    except ImportError:
        raise MissingExtraError("test", "hypothesis") from None
    return strategies.lists(strategies.integers(0, tasks - 1), max_size=choices).map(tuple)


def lift_shields(task: trio.lowlevel.Task) -> None:
    """Make *task* feel every cancellation around it, shields or not.

    For a run that can never go on: behind a shield nothing else would end it.
    """
    status: CancelStatus | None = task._cancel_status
    while status is not None:
        status._scope.shield = False
        status = status._parent
