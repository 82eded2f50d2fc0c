"""Where a task is: its name, and the line of the reader's own code that it stands on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import trio

__all__ = ["RUN_SYNC_SOON", "all_tasks", "describe", "place", "task_name", "tasks_below"]

RUN_SYNC_SOON: Final = "<TrioToken.run_sync_soon task>"
"""The task in which trio calls what other threads hand it."""

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_HERE: Final = str(Path(__file__).parent)
_PACKAGE: Final = str(Path(__file__).parent.parent)
_MACHINERY: Final = (str(Path(trio.__file__).parent), _HERE, "<")
_CONTEXTLIB: Final = "contextlib.py"


def task_name(task: trio.lowlevel.Task) -> str:
    """Return the task's name, without addresses, which no two runs share."""
    return _ADDRESS.sub("", task.name)


def tasks_below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    """Yield *task* and every task that it started, and so on, oldest generation first."""
    yield task
    for nursery in task.child_nurseries:
        for child in sorted(nursery.child_tasks, key=task_name):
            yield from tasks_below(child)


def all_tasks() -> Iterator[trio.lowlevel.Task]:
    """Yield every task of the run in progress, but for trio's own two."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    own = (root.name, RUN_SYNC_SOON)
    yield from (task for task in tasks_below(root) if task.name not in own)


def describe(task: trio.lowlevel.Task) -> str:
    """Return the name of *task* and where it stands."""
    return f"{task_name(task)}, {place(task)}"


def place(task: trio.lowlevel.Task) -> str:
    """Return the lines that *task* stands on: the test's, then the package's.

    The lines of trio and of this package's testing code say nothing and are left out.
    """
    own = inner = ""
    ended = True
    for frame, line in task.iter_await_frames():
        ended = False
        file = frame.f_code.co_filename
        if file.startswith(_MACHINERY) or file.endswith(_CONTEXTLIB):
            continue
        here = f"{_short(file)}:{line} in {frame.f_code.co_name}"
        if file.startswith(_PACKAGE):
            inner = here
        else:
            own, inner = here, ""
    return ", ".join(filter(None, (own, inner))) or ("ended" if ended else "in trio")


def _short(file: str) -> str:
    path = Path(file)
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return path.name
