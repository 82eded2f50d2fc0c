"""A child process that never outlives the block that started it.

The demo starts two programs that are not ours: pip, for the model file, and the model server.
Both follow one rule: whatever ends the block ends the process. That takes two arrangements,
because one cannot cover everything:

* the block's exit terminates, waits, kills and reaps, behind a shield with a finite deadline. It
  does so when the block is left normally, by an error, by cancellation, by Ctrl-C, and when it
  is left while already cancelled;
* the child's standard input is a pipe that is never written to. Should this process be killed
  outright no exit runs, but the pipe ends, and a child that reads it sees that. It works on every
  platform, where a parent-death signal would be Linux alone.

What the child writes to standard error goes to an unnamed file, not into a pipe: a pipe would
need a task that empties it, and a child blocks once nobody does.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import BinaryIO

import attrs
import trio

from harness._errors import HarnessError

__all__ = ["KILL_GRACE", "STOP_GRACE", "Child", "LocalModelError", "open_child"]

STOP_GRACE = 2.0
"""Seconds a child gets between the request to end and the kill."""
KILL_GRACE = 5.0
"""Seconds the system gets to take a killed child away before we say that it did not."""
_TAIL_BYTES = 4096


class LocalModelError(HarnessError):
    """The local model could not be fetched or started; `lines` is what the program said last."""

    code = "local.model"

    def __init__(self, reason: str, *, lines: Sequence[str] = ()) -> None:
        self.reason = reason
        self.lines = tuple(lines)
        super().__init__("\n".join([reason, *(f"  {line}" for line in self.lines)]))


@attrs.define(eq=False)
class Child:
    """A running child process; made by `open_child`."""

    process: trio.Process
    _log: BinaryIO

    def last_lines(self, count: int = 6) -> list[str]:
        """The last *count* lines the child wrote to its log, oldest first."""
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - _TAIL_BYTES))
        text = self._log.read().decode(errors="replace")
        return [line for line in text.splitlines() if line.strip()][-count:]


@asynccontextmanager
async def open_child(
    command: Sequence[str], *, reads_stdout: bool = False, env: Mapping[str, str] | None = None
) -> AsyncIterator[Child]:
    """A child process running *command*, gone when the block is left, however it is left.

    Standard error is kept for `Child.last_lines`; so is standard output, unless *reads_stdout*
    makes it a pipe for the caller. Leaving takes at most `STOP_GRACE` + `KILL_GRACE` seconds,
    which cancellation does not shorten.

    Raises:
        OSError: the program cannot be started.
        LocalModelError: the process was still there `KILL_GRACE` seconds after it was killed.
    """
    # Append mode: both sides share one file position, and reading moves it.
    with tempfile.TemporaryFile("a+b") as log:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if reads_stdout else log,
            stderr=log,
            env=env,
        )
        try:
            yield Child(process, log)
        finally:
            with trio.move_on_after(STOP_GRACE + KILL_GRACE, shield=True) as stopping:
                await _stop(process)
            if stopping.cancelled_caught:
                raise LocalModelError(
                    f"process {process.pid} is still there {KILL_GRACE:g} s after its kill,"
                    " expected it gone"
                )


async def _stop(process: trio.Process) -> None:
    process.terminate()
    try:
        with trio.move_on_after(STOP_GRACE):
            await process.wait()
    finally:
        # Does nothing to a process that has ended. In a ``finally`` because of a second Ctrl-C,
        # which reaches this wait through any shield.
        process.kill()
    await process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            await pipe.aclose()
