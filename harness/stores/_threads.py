"""Blocking calls of a database, made in threads that are waited for whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

from harness._errors import StoreError

__all__ = ["InThread", "closed_error", "in_thread"]

T = TypeVar("T")


class InThread(Protocol):
    """Calls a function in a thread, and waits for its end whatever happens meanwhile."""

    async def __call__(self, function: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
        """Return what *function* returns."""
        ...


async def in_thread(function: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    """Return what *function* returns; cancelled before it began, it never does."""
    return await trio.to_thread.run_sync(function, abandon_on_cancel=False, limiter=limiter)


def closed_error() -> StoreError:
    """Return the error of a store whose block has been left."""
    return StoreError("store.closed", "the store is closed, expected to be used within its block")
