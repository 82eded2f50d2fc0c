"""The one writer of an SQLite file: what waits is written together, and cancelled before or never.

A durable commit costs a wait for the disk, so requests that come while one is under way share the
next. A task hands its request over and sleeps; the writer takes all that wait, has them carried
out in one transaction in a thread, and wakes each with its answer.

Where a cancellation falls is decided by one fact, whether the request has been taken. trio asks
the sleeper's abort function, in the same step in which the cancellation arrives. If the request
still waits, it is withdrawn and nothing of it is written. If it has been taken, the function
refuses, the task sleeps on until its answer is there, and trio delivers the cancellation at its
next checkpoint. Two events and a shield around the second would do nearly the same, and fail in
one place: a task that has been cancelled while it waits and has not run yet, and whose request is
taken just then.

The writer does not hear of cancellations: a task in the block may have shielded the very write
that settles what it did. It lives as long as the block of its store, and a transaction is bounded
by the patience with which it waits for a lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs
import trio

from harness._errors import InternalError, StoreError
from harness.stores._sqlite_transaction import Answer
from harness.stores._threads import closed_error

__all__ = ["WriteTogether", "Writer"]

W = TypeVar("W")

_MOST: Final = 256
"""Requests in one transaction, so that none waits for a crowd that comes after it."""


WriteTogether: TypeAlias = Callable[[Sequence[W]], Awaitable[Sequence[Answer]]]
"""Carries out some pieces of work in one transaction, and returns an answer for each."""


@attrs.define(eq=False)
class _Request(Generic[W]):
    work: W
    task: trio.lowlevel.Task
    answer: Answer | None = None


@attrs.define(eq=False)
class Writer(Generic[W]):
    """Takes requests from any task, and carries them out in its own."""

    _write_together: WriteTogether[W]
    _closed: bool = attrs.field(default=False, init=False)
    _waiting: dict[_Request[W], None] = attrs.field(factory=dict, init=False)
    _called: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def ask(self, work: W) -> Any:
        """Return what *work* returned, or raise what it raised, after its transaction has ended.

        A checkpoint; cancelled before *work* was taken it is never done, and else it returns.

        Raises:
            StoreError: the writer is closed, or the transaction failed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            await trio.lowlevel.cancel_shielded_checkpoint()
            raise closed_error()
        request = _Request(work, trio.lowlevel.current_task())
        self._waiting[request] = None
        self._called.set()

        def withdraw(_: Callable[[], None]) -> trio.lowlevel.Abort:
            if request not in self._waiting:
                return trio.lowlevel.Abort.FAILED
            del self._waiting[request]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(withdraw)
        if request.answer is None:
            raise InternalError("a request was woken without its answer")
        if request.answer.error is not None:
            raise request.answer.error
        return request.answer.value

    async def run(self) -> None:
        """Carry out what is asked, until `close`; what has been taken by then is finished.

        It is called in a shield: whoever has been taken must be answered.
        """
        while not self._closed:
            taken = list(islice(self._waiting, _MOST))
            if not taken:
                self._called = trio.Event()
                await self._called.wait()
                continue
            for request in taken:
                del self._waiting[request]
            for request, answer in zip(taken, await self._answers(taken), strict=True):
                _wake(request, answer)

    def close(self) -> None:
        """Refuse what waits and all that comes later. Not a checkpoint."""
        self._closed = True
        for request in self._waiting:
            _wake(request, Answer(error=closed_error()))
        self._waiting.clear()
        self._called.set()

    async def _answers(self, taken: Sequence[_Request[W]]) -> Sequence[Answer]:
        try:
            return await self._write_together([request.work for request in taken])
        except Exception as error:  # noqa: BLE001  # whoever asked must hear of it, or waits for ever
            # What can be written raises in its answer. This is a thread that does not start.
            reason = f"the store's writer failed: {error!r}"
            return [Answer(error=StoreError("store.unreachable", reason)) for _ in taken]


def _wake(request: _Request[W], answer: Answer) -> None:
    request.answer = answer
    trio.lowlevel.reschedule(request.task)
