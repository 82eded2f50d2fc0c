"""Ctrl-C: the first one aborts the run, the second one ends the process.

After the first the end is settled and shown; the second takes effect at once, whatever a tool
may be doing in a thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType

import trio

from harness._cli._exit import INTERRUPTED
from harness.kernel import Run

__all__ = ["interruptible"]


@asynccontextmanager
async def interruptible(run: Run) -> AsyncIterator[None]:
    """Abort *run* on the first SIGINT or SIGTERM that comes while the block is open."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_abort_on_signal, run)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel("the run is over")


async def _abort_on_signal(run: Run) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, _leave_at_once)
            run.abort(f"signal {signal.Signals(number).name}")
            await run.wait()
            return


def _leave_at_once(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # a full output, or a write that is under way
        sys.stdout.flush()
    os._exit(INTERRUPTED)
