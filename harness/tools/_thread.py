"""Synchronous functions, each in a thread of its own, and what a stop does to them.

A thread cannot be stopped. So a stop waits for it, which is the default, or leaves it behind,
which its author must have declared: what it does then happens after its call was answered.

A thread that is left behind still counts. It keeps its call's permit until it ends, or a limit
of five would bound five calls and any number of threads. And one that has not begun must not
begin: trio hands a job to a thread and runs it even if the call was cancelled in between. So
entering, ending and withdrawing are settled under one lock:

* withdrawn first: the thread never enters the function, and nothing is kept;
* entered first: the permit is kept, and the thread gives it back when it ends;
* ended first: nothing is kept. The result is lost all the same, since trio has cancelled the
  wait for it, and a cancellation is not to be turned back into a value.

Giving the permit back belongs to trio's own thread, so the thread posts it. If the whole trio
run is over by then, so are its limiters, and there is nothing left to give back.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs
import trio

__all__ = ["run_abandonable", "run_in_thread"]

T = TypeVar("T")


async def run_in_thread(function: Callable[[], T], *, name: str) -> T:
    """Return what *function* returns, called in a thread named *name*.

    A checkpoint. A cancellation is delivered while no thread is free; once *function* has been
    handed to one, its end is awaited and its result returned. Context variables are those of the
    caller, and `trio.from_thread` works inside, so *function* may itself look for a cancellation
    with `trio.from_thread.check_cancelled`.
    """
    (value,) = await trio.to_thread.run_sync(lambda: (function(),), thread_name=name)
    return value


async def run_abandonable(
    function: Callable[[], T], *, name: str, keep_permit: Callable[[], Callable[[], None]]
) -> T:
    """Return what *function* returns, but do not wait for it once cancelled.

    As `run_in_thread` up to a cancellation, which is delivered at once. If the thread is inside
    *function* then, *keep_permit* is called, here, and what that returned is called in trio's
    thread when *function* has ended; its result or error is dropped. If the thread has not yet
    entered *function*, it never will.
    """
    visit = _Visit(function, trio.lowlevel.current_trio_token())
    try:
        (value,) = await trio.to_thread.run_sync(
            visit.enter, thread_name=name, abandon_on_cancel=True
        )
        return value
    finally:
        visit.withdraw(keep_permit)


@attrs.define(eq=False)
class _Visit(Generic[T]):
    """One thread's stay in a function, and which came first: its steps or its withdrawal."""

    _function: Callable[[], T]
    _token: trio.lowlevel.TrioToken
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    _entered: bool = False
    _ended: bool = False
    _withdrawn: bool = False
    _release: Callable[[], None] | None = None

    def enter(self) -> tuple[T, ...]:
        """Call the function, unless withdrawn; in the thread.

        The value is boxed: trio refuses a coroutine as a thread's result, and here it is one like
        any other, for the caller to await.
        """
        with self._lock:
            if self._withdrawn:
                return ()
            self._entered = True
        try:
            value = self._function()
        finally:
            with self._lock:
                self._ended = True
                release = self._release
            if release is not None:
                with contextlib.suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(release)
        if release is not None and inspect.iscoroutine(value):
            value.close()  # nobody is left to await it
        return (value,)

    def withdraw(self, keep_permit: Callable[[], Callable[[], None]]) -> None:
        """Settle what becomes of the thread, now that nobody waits for it; in the task."""
        with self._lock:
            self._withdrawn = True
            if self._entered and not self._ended:
                self._release = keep_permit()
