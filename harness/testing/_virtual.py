"""One run in virtual time that cannot hang and cannot leave anything behind.

Under a mock clock that jumps, a deadlock does not wait: trio finds nothing to do, asks the clock
to jump to the next deadline, there is none, and round it goes at full speed for ever. The watch
below counts such empty rounds. A round is empty if no task stepped, none is runnable, no deadline
is due, no socket is waited for and no thread works, be it one that trio waits for or another. One
empty round proves nothing, since trio uses one to learn that all tasks are blocked, and a thread
may just be handing in its result. A hundred in a row do.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import trio
import trio.testing
from trio.abc import Clock, Instrument
from trio.testing import MockClock

from harness.testing._errors import DeadlockError, LeftoverError
from harness.testing._frames import all_tasks, describe
from harness.testing._leftovers import Leftovers, busy_threads, recorded_warnings
from harness.testing._schedule import Schedule, lift_shields, schedule

__all__ = ["run_virtual", "run_watched"]

T = TypeVar("T")

_EMPTY_ROUNDS: Final = 100
_WAKE_UP_READER: Final = 1
"""trio itself waits for one socket: the one that wakes it up."""


def run_virtual(
    async_fn: Callable[..., Awaitable[T]],
    *args: object,
    seed: Schedule = 0,
    instruments: Sequence[Instrument] = (),
) -> T:
    """Return what *async_fn* returns, run by trio in virtual time and in one fixed order.

    Sleeping costs nothing: the clock jumps to the next deadline when every task waits. It is
    `trio.run` for a test that pytest-trio cannot serve, such as one under Hypothesis's `given`.
    Threads and sockets have no place in it, since the clock does not wait for them.

    Raises:
        DeadlockError: every task waited, and nothing could wake one.
        LeftoverError: a task, an async generator or an unclosed resource was left behind.
    """
    found: list[str] = []
    with schedule(seed), recorded_warnings(found):
        clock = MockClock(autojump_threshold=0)
        result = run_watched(async_fn, *args, clock=clock, instruments=instruments)
    if found:
        raise LeftoverError(found)
    return result


def run_watched(
    async_fn: Callable[..., Awaitable[T]],
    *args: object,
    clock: Clock | None = None,
    instruments: Sequence[Instrument] = (),
) -> T:
    """Do what `trio.run` does, and fail if something was left behind.

    Under a mock clock a deadlock fails too, instead of spinning. Raises as `run_virtual`, but
    leaves warnings to whoever filters them.
    """
    __tracebackhide__ = True
    leftovers = Leftovers()
    watch = _DeadlockWatch(busy_threads())
    watches = [watch] if isinstance(clock, MockClock) else []

    async def main() -> T:
        __tracebackhide__ = True
        with watch.scope, leftovers.watching():
            return await async_fn(*args)
        raise DeadlockError(watch.waiting)

    try:
        result = trio.run(main, clock=clock, instruments=[*instruments, *watches])
    except BaseException as error:
        if watch.waiting and not isinstance(error, DeadlockError):
            raise DeadlockError(watch.waiting) from error  # noqa: ASYNC104  # the run is over
        raise
    if watch.waiting:
        raise DeadlockError(watch.waiting)
    if leftovers.found:
        raise LeftoverError(leftovers.found)
    return result


class _DeadlockWatch(Instrument):
    """Ends a run that can never go on.

    First by a cancellation; if every task waits behind a shield, by a second one that lifts
    the shields.
    """

    def __init__(self, known: Sequence[threading.Thread]) -> None:
        self.scope = trio.CancelScope()
        self.waiting: list[str] = []
        self._known = known
        self._rounds = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._rounds = 0

    def before_io_wait(self, timeout: float) -> None:
        self._rounds = self._rounds + 1 if self._stuck() else 0
        if self._rounds >= _EMPTY_ROUNDS and not busy_threads(self._known):
            trio.lowlevel.current_trio_token().run_sync_soon(self._end)

    def _stuck(self) -> bool:
        now = trio.lowlevel.current_statistics()
        sockets = now.io_statistics
        return (
            now.tasks_runnable == 0
            and trio.testing.active_thread_count() == 0
            and now.run_sync_soon_queue_size == 0
            and now.seconds_to_next_deadline == math.inf
            and getattr(sockets, "tasks_waiting_read", 0) <= _WAKE_UP_READER
            and getattr(sockets, "tasks_waiting_write", 0) == 0
        )

    def _end(self) -> None:
        tasks = list(all_tasks())
        if not self.waiting:
            self.waiting = [describe(task) for task in tasks]
            self.scope.cancel("deadlock")
        else:
            for task in tasks:
                lift_shields(task)
