"""The two places where a cancellation meets work that must not be torn.

`run_shielded` lets one awaited step finish although a stop has arrived, for a time that is
counted from the stop. `open_kept_nursery` is a nursery for a public block: what the body raised
leaves as the same object, not in a group.

Why not ``CancelScope(shield=True)`` alone: inside it a stop is invisible, so the shield would
have no end. Somebody outside must see the stop and then set the shield's deadline. That is the
parent task, which waits *inside* its nursery and unshielded; a parent that waited in the
nursery's own exit would not be woken.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from harness._errors import leaf_errors

__all__ = ["only_cancelled", "open_kept_nursery", "run_shielded", "stop_due"]


def stop_due() -> bool:
    """Whether a cancellation is pending here, or a deadline has come that trio has not yet seen.

    It sees neither through a shield. Not a checkpoint.
    """
    return trio.current_effective_deadline() <= trio.current_time()


def only_cancelled(error: BaseException) -> bool:
    """Whether *error* is a cancellation and nothing else, alone or as all leaves of a group."""
    return all(isinstance(each, trio.Cancelled) for each in leaf_errors(error))


async def run_shielded(
    work: Callable[[], Awaitable[None]], *, give_up_at: Callable[[], float]
) -> None:
    """Run *work* to its end, even if a stop arrives meanwhile.

    *give_up_at* is asked once a stop has arrived; *work* is cancelled at that trio time. What
    *work* raised is raised. A checkpoint; a stop that arrived is raised after *work* has ended,
    so what *work* itself noted down is to be read in a ``finally``.
    """
    failure: BaseException | None = None
    ended = trio.Event()
    shield = trio.CancelScope(shield=True)

    async def guarded() -> None:
        nonlocal failure
        try:
            with shield:
                await work()
        except BaseException as error:  # noqa: ASYNC103, BLE001  # raised below, as itself
            failure = error
        finally:
            ended.set()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(guarded)
            try:
                await ended.wait()
            finally:
                if not ended.is_set():
                    shield.deadline = give_up_at()
    except BaseException as error:  # noqa: ASYNC103  # the failure is raised below
        if failure is None:
            raise
        if not only_cancelled(error):  # an interrupt from the keyboard, which must not be lost
            raise BaseExceptionGroup(  # noqa: ASYNC104  # it holds what was caught
                "the work and the wait for it failed", [failure, error]
            ) from None
    if failure is not None:
        raise failure


@asynccontextmanager
async def open_kept_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose body's exception leaves as the same object.

    For children that keep their failures to themselves: only a cancellation may leave them.
    If one raises all the same, both are raised in a group; a body that merely was cancelled by
    that failure adds nothing to it.
    """
    kept: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as error:  # noqa: ASYNC103, BLE001  # raised below
                kept = error
    except BaseException as error:  # noqa: ASYNC103  # what the body raised is raised below
        # Only a child can have raised this, or have been cancelled together with the body.
        if kept is None:
            raise
        if not only_cancelled(error):
            if only_cancelled(kept):
                raise
            both = BaseExceptionGroup("the body and a child of it failed", [kept, error])
            raise both from None  # noqa: ASYNC104  # it holds what was caught
    if kept is not None:
        raise kept
