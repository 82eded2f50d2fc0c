"""What a run must not leave behind, and who notices.

A nursery cannot be left with a task in it, so the tasks that can outlive a function are those
that were started outside of every nursery of it: trio's system tasks, and tasks of a nursery
that was entered by hand and never left. An async generator that is left suspended holds whatever
it had opened until the garbage collector comes by. Both are looked for when the function returns.

Threads cannot be ended from outside. `busy_threads` names those that work; a worker that trio
keeps for the next call is idle and is none.
"""

from __future__ import annotations

import gc
import re
import sys
import threading
import warnings
import weakref
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import contextmanager
from types import AsyncGeneratorType
from typing import Final

import trio

from harness.testing._errors import FindingError
from harness.testing._frames import RUN_SYNC_SOON, describe, tasks_below

__all__ = ["Leftovers", "assert_no_tasks_left", "busy_threads", "recorded_warnings"]

_IDLE_WORKER: Final = re.compile(r"Trio thread \d+")
_NEVER_AWAITED: Final = r"coroutine .* was never awaited"


def assert_no_tasks_left() -> None:
    """Fail if a task that the current one started still runs, or a system task does.

    For the end of a test, or the line after a call that promises to leave nothing. Tasks of
    the test's own open nurseries count too. Not a checkpoint.

    Raises:
        FindingError: it names each task and where it waits.
    """
    left = [describe(task) for task in _tasks_of(trio.lowlevel.current_task())]
    left += [describe(task) for task in _system_tasks()]
    if left:
        raise FindingError(f"tasks still run, expected none: {'; '.join(left)}")


def _tasks_of(parent: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    return [task for task in tasks_below(parent) if task is not parent]


def _system_tasks() -> list[trio.lowlevel.Task]:
    """Return the tasks beside the main one, but for trio's own."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    # The main task has the innermost of the nurseries to itself.
    return [
        task
        for nursery in root.child_nurseries[:-1]
        for task in nursery.child_tasks
        if task.name != RUN_SYNC_SOON
    ]


class Leftovers:
    """Watches one async function and lists what it left behind."""

    def __init__(self) -> None:
        self._generators: list[weakref.ref[AsyncGenerator[object, object]]] = []
        self.found: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the block, inside a run; look for leftovers if it ends without an error."""
        before = {*_system_tasks(), *_tasks_of(trio.lowlevel.current_task())}
        first, last = sys.get_asyncgen_hooks()

        def note(generator: AsyncGenerator[object, object]) -> None:
            self._generators.append(weakref.ref(generator))
            assert first is not None, "trio watches generators too"
            first(generator)

        sys.set_asyncgen_hooks(note, last)
        try:
            yield
            tasks = [*_tasks_of(trio.lowlevel.current_task()), *_system_tasks()]
            self.found += [f"task {describe(task)}" for task in tasks if task not in before]
            self.found += self._suspended()
        finally:
            sys.set_asyncgen_hooks(first, last)

    def _suspended(self) -> list[str]:
        alive = (each() for each in self._generators)
        return [
            f"async generator {generator.__qualname__}"
            for generator in alive
            if isinstance(generator, AsyncGeneratorType) and generator.ag_frame is not None
        ]


@contextmanager
def recorded_warnings(found: list[str]) -> Iterator[None]:
    """Put what is said of unclosed resources and unawaited coroutines into *found*.

    Whatever the filters say: most tell the terminal once, or nobody. Other warnings go on as
    they would have.
    """
    with warnings.catch_warnings(record=True) as seen:
        warnings.filterwarnings("always", category=ResourceWarning)
        warnings.filterwarnings("always", _NEVER_AWAITED, RuntimeWarning)
        try:
            yield
        finally:
            # The young generations only: a full collection takes longer than most runs.
            gc.collect(1)
    for each in seen:
        text = str(each.message)
        leak = issubclass(each.category, ResourceWarning) or re.match(_NEVER_AWAITED, text)
        if leak:
            found.append(text)
        else:
            warnings.warn_explicit(
                each.message, each.category, each.filename, each.lineno, source=each.source
            )


def busy_threads(known: Collection[threading.Thread] = ()) -> list[threading.Thread]:
    """Return the threads that work, but for this one and those *known* to from before.

    A worker that has just been handed something and has not begun does not count yet.
    """
    return [
        thread
        for thread in threading.enumerate()
        if thread is not threading.current_thread()
        and thread not in known
        and not _IDLE_WORKER.fullmatch(thread.name)
    ]
