"""Holding a lease while something is done under it.

A lease says until when nobody else will begin. So it is renewed while the work lasts, and work
whose lease is over is cancelled: what it would still write, another may be writing by then.

The worker's own deadline is counted on its own clock, from the *start* of the last renewal that
succeeded. The store wrote its end of the lease later than that, so it lies later, whatever the two
clocks show: ours is over first. It is the deadline of the scope around the work, and no task of
ours has to run for it to pass. So it holds for a worker that cannot reach its store, and for one
that was stopped and wakes up after an hour: its next checkpoint is its last.

A lease that is over is noticed here, and judged by the store. Work that a cancellation cannot cut
may end all the same and have something to settle, and the store takes it, as long as nobody else
has taken over.

The renewal is shielded, and its shield ends with the work: a call that has been stopped may take
its time to end (a thread cannot be cut), and until it has ended nobody else is to begin it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import attrs
import trio

from harness._bounds import check_instant, check_seconds
from harness._errors import StoreError, add_note, error_text, leaf_errors
from harness._shield import only_cancelled, open_kept_nursery

__all__ = ["HeldLease", "hold_lease"]

_EVERY: Final = 3
"""How many renewals begin in the time that a lease lasts: two may fail."""
_AGAIN: Final = 10
"""How many would begin in it if all of them failed."""


@attrs.define(eq=False)
class HeldLease:
    """A lease as its holder sees it. Made by `hold_lease`."""

    _renew: Callable[[], Awaitable[bool]]
    _seconds: float
    _until: float
    """On trio's clock; infinite once the work has ended, since then it can no longer be lost."""
    _refused: bool = False
    _work: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _renewing: trio.CancelScope = attrs.field(init=False)
    _failure: Exception | None = attrs.field(default=None, init=False)
    error: StoreError | None = attrs.field(default=None, init=False)
    """Why it was not renewed the last time, if the store could not be used."""

    def __attrs_post_init__(self) -> None:
        self._renewing = trio.CancelScope(shield=True)
        self._work.deadline = self._until

    @property
    def lost(self) -> bool:
        """Whether the lease was over, or refused, before the work had ended."""
        return self._refused or trio.current_time() >= self._until

    async def _keep(self) -> None:
        try:
            with self._renewing:
                await self._renew_again_and_again()
        except Exception as failure:  # noqa: BLE001  # raised when the block is left
            self._failure = failure
            self._work.cancel("the renewal failed")

    async def _renew_again_and_again(self) -> None:
        due = self._until - self._seconds + self._seconds / _EVERY
        while True:
            await trio.sleep_until(due)
            began = trio.current_time()
            try:
                if not self.lost and not await self._renew():
                    self._refused = True
                    self._work.cancel("somebody else has the lease")
            except StoreError as failure:
                self.error = failure
                due = trio.current_time() + self._seconds / _AGAIN
                continue
            if self.lost:  # also if the store's answer came too late: the work has been cut
                return
            self.error = None
            self._until = self._work.deadline = began + self._seconds
            due = began + self._seconds / _EVERY

    def _end(self) -> None:
        self._refused = self.lost
        self._until = math.inf
        self._renewing.cancel("the work has ended")


@asynccontextmanager
async def hold_lease(
    renew: Callable[[], Awaitable[bool]], *, seconds: float, since: float | None = None
) -> AsyncIterator[HeldLease]:
    """Keep a lease while the block lasts, and cut the block once it is lost.

    *renew* is awaited every third of the lease and answers whether it is still held; if it raises
    `StoreError` it is asked again, until the lease is over. Once that is lost the block is
    cancelled, and ends quietly: ask `HeldLease.lost` afterwards. It may be lost at the start.

    No checkpoint at the start; one at the end, at which no cancellation is raised: what the block
    has come to is never dropped. What it raises leaves as itself.

    Args:
        renew: makes the lease last for *seconds* from now.
        seconds: how long it lasts.
        since: when it was asked for, on trio's clock: the time *before* the store was called. By
            default now, which is too late if the store took its time.

    Raises:
        TypeError, ValueError: a number is none, or not positive.
        Exception: what *renew* raised besides; the block has been cancelled for it.
    """
    check_seconds("seconds", seconds, zero=False)
    start = trio.current_time() if since is None else check_instant("since", since)
    held = HeldLease(renew, seconds, start + seconds)
    try:
        async with open_kept_nursery() as nursery:
            nursery.start_soon(held._keep)
            try:
                with _within(held._work):
                    yield held
            finally:
                held._end()
    except BaseException as error:
        failure = held._failure
        if failure is None:
            raise
        if only_cancelled(error):
            raise failure from None  # noqa: ASYNC104  # a failure outweighs a cancellation
        add_note(error, f"the lease could not be renewed: {error_text(failure)}")
        raise
    if held._failure is not None:
        raise held._failure


@contextmanager
def _within(scope: trio.CancelScope) -> Iterator[None]:
    """Enter *scope*, and keep it from making another group of one in which it finds nothing."""
    kept: BaseException | None = None
    with scope:
        try:
            yield
        except BaseException as error:  # noqa: ASYNC103  # raised below
            if any(isinstance(each, trio.Cancelled) for each in leaf_errors(error)):
                raise
            kept = error
    if kept is not None:
        raise kept
