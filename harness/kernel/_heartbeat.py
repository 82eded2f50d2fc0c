"""A heartbeat: a run's progress, written to the host's store every now and then.

A host that shows progress elsewhere, or wants to find a run again after a crash, writes its state
while the run goes on. Writing at every settled point would cost more than it tells, so beats are
coalesced: at most one write in so many seconds, counted from the start of the last, since what the
store holds is as old as that.

Rejected: a timer that writes the last value later. It would be a task that somebody has to own
and end, and a beat at the end does the same. Rejected, too: a queue of writes. Each one takes what
there is when it starts, so of those that wait one is enough.

A store that fails never ends a run: the failure is told, counted and kept, and the next beat tries
again. A cancellation is no failure; it leaves at once, and the interval is as if nothing had begun.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import attrs
import trio

from harness._bounds import check_seconds
from harness._errors import leaf_errors
from harness._events import Event, Failure, FlushDue, FlushFailed, RunFinished

__all__ = ["Flush", "Heartbeat"]

FunctionT = TypeVar("FunctionT")

Flush: TypeAlias = Callable[[], Awaitable[object]]
"""Writes what there is now to the host's store."""


def _seconds(_: object, attribute: attrs.Attribute[float], value: object) -> None:
    check_seconds(attribute.name, value)


def _function(_: object, attribute: attrs.Attribute[FunctionT], value: FunctionT) -> None:
    if not callable(value):
        raise TypeError(f"{attribute.alias} is {value!r}, expected a function")


@attrs.define(eq=False)
class Heartbeat:
    """Calls *flush* at most once in so many seconds, and one call at a time.

    Args:
        flush: an async function that writes the progress. What it raises is told and counted.
        coalesce: seconds from the start of a write in which a beat writes nothing.
        tell: where a failure is told, as a `FlushFailed`: ``emitter.send_nowait``, or the ``tell``
            of a turn's stream or of a call's context.

    Raises:
        TypeError, ValueError: *coalesce* is no finite number of seconds, or negative; *flush* or
            *tell* cannot be called.
    """

    _flush: Flush = attrs.field(validator=_function)
    coalesce: float = attrs.field(default=10.0, kw_only=True, validator=_seconds)
    _tell: Callable[[Event], object] | None = attrs.field(
        default=None, kw_only=True, validator=attrs.validators.optional(_function)
    )
    errors: int = attrs.field(default=0, init=False)
    """How many writes have failed."""
    failure: Failure | None = attrs.field(default=None, init=False)
    """What the last write failed with; None if it went well."""
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _written_at: float = attrs.field(default=-math.inf, init=False)
    """When the last write that went well was begun."""
    _begun: int = attrs.field(default=0, init=False)
    """How many writes were begun; the number of the last one."""
    _over: int = attrs.field(default=0, init=False)
    """Number of the last write that came to an end, good or bad."""

    async def beat(self, force: bool = False) -> None:
        """Write, if it is time to. A checkpoint.

        A plain beat during a write does nothing. A forced one always returns after a write that
        was begun after it came; those that wait together share one. A cancellation is delivered
        at once, and whoever shared the write that it cut makes another.

        Raises:
            TypeError: *flush* is no async function.
        """
        await trio.lowlevel.checkpoint()
        if force:
            seen = self._begun
            async with self._lock:
                if self._over <= seen:
                    await self._write()
        elif not self._lock.locked() and trio.current_time() >= self._written_at + self.coalesce:
            async with self._lock:
                await self._write()

    async def follow(self, events: trio.abc.ReceiveChannel[Event]) -> None:
        """Beat whenever *events* says that it is a good moment, until it ends; then close it.

        A beat is forced when a leg finishes, and at the end if that was not the last event: what
        is final is always written. A slow write holds up nobody but this reader. A checkpoint.

        Run it in a nursery of the host's, on a reader of its own: ``run.tee()``. A cancellation
        leaves without a last write.
        """
        final = False
        async with events:
            async for event in events:
                final = isinstance(event, RunFinished)
                if final or isinstance(event, FlushDue):
                    await self.beat(force=final)
            if not final:
                await self.beat(force=True)

    async def _write(self) -> None:
        """Write once; the caller holds the lock."""
        self._begun += 1
        number, now = self._begun, trio.current_time()
        failed = False
        written: object = None
        try:
            written = self._flush()
            if isinstance(written, Awaitable):
                await written
        except* Exception as errors:  # noqa: BLE001  # told, counted and kept; a store's own
            failed = True
            leaves = list(leaf_errors(errors))
            self._note(Failure.of(leaves[0] if len(leaves) == 1 else errors))
        self._over = number
        if failed:
            return
        if not isinstance(written, Awaitable):
            raise TypeError(f"flush returned {written!r}, expected an async function")
        self.failure, self._written_at = None, now

    def _note(self, failure: Failure) -> None:
        self.errors += 1
        self.failure = failure
        if self._tell is not None:
            self._tell(FlushFailed(failure=failure))
