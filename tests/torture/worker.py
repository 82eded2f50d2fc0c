"""A worker: takes runs that are ready, goes on with them, and never looks back.

It knows nothing of what is done to it. An error of the store, and a run that another one has taken,
are a worker's daily bread: it drops the run and takes the next. Any other error is written down as
a breach.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import attrs
import trio

from harness._durable import RunLease
from harness._errors import LeaseLostError, RunBusyError, StoreError, leaf_errors
from harness._ids import random_id
from harness._messages import Message, user_message
from harness._model import ModelRequest, ModelTurn, TurnStream
from harness._toolset import Toolset
from harness.checkpoints import Checkpoint, Restored, StoredRun, run_stored
from harness.kernel import Compaction, Compactor, RunState
from harness.receipts import with_receipts
from harness.testing import final_answer, tool_call, tool_call_turn
from harness.tools import as_toolset
from tests.torture.job import AT_ONCE, RECEIPT_SECONDS, RUN_SECONDS, TENANT, Job, open_line
from tests.torture.line import BothStores, Line
from tests.torture.mistakes import ClaimingLate, remove_fences
from tests.torture.plan import planned_turn
from tests.torture.tools import Leaving, Work
from tests.torture.trail import Failed, Trail

__all__ = ["work"]

_EXPECTED: Final = (LeaseLostError, RunBusyError, StoreError)
_POLL: Final = 0.1
_AGAIN: Final = 0.3
"""Seconds until a store that cannot be used is opened again."""
_PATIENCE: Final = 3
"""How many errors of the store in a row a worker takes before it opens it again."""
_LONGEST: Final = 6
"""How many messages a transcript has before it is compacted."""


class _StoreUnusableError(Exception):
    """The store is to be opened again."""

    code = "store.reopened"


@attrs.define(eq=False)
class _Worker:
    _job: Job
    _trail: Trail
    _rng: random.Random
    _ending: trio.Event = attrs.field(factory=trio.Event, init=False)
    _at_work: set[str] = attrs.field(factory=set, init=False)
    _errors: int = attrs.field(default=0, init=False)
    """Errors of the store since it last did anything."""

    async def run(self, ending: int) -> None:
        """Work until *ending*, a pipe, is at its end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wait_for_end, ending)
            while not self._ending.is_set():
                try:
                    async with open_line(self._job, self._trail, self._rng) as store:
                        await self._serve(store)
                except* (StoreError, _StoreUnusableError) as errors:
                    for error in leaf_errors(errors):
                        self._failed("", error)
                    self._errors = 0
                    await trio.sleep(_AGAIN)

    async def _wait_for_end(self, ending: int) -> None:
        await trio.lowlevel.wait_readable(ending)
        self._ending.set()

    async def _serve(self, store: Line) -> None:
        async with trio.open_nursery() as nursery:
            while not self._ending.is_set():
                ready = await store.list_runs(TENANT, status="ready")
                free = [run for run in ready if self._is_free(run)]
                room = AT_ONCE - len(self._at_work)
                for run in self._rng.sample(free, min(room, len(free))):
                    self._at_work.add(run.key.run_id)
                    nursery.start_soon(self._go_on, store, run)
                if self._errors >= _PATIENCE:
                    raise _StoreUnusableError(f"{self._errors} errors in a row")
                await trio.sleep(_POLL)
            nursery.cancel_scope.cancel("told to end")

    def _is_free(self, run: StoredRun) -> bool:
        return run.owner is None and run.key.run_id not in self._at_work

    async def _go_on(self, store: Line, run: StoredRun) -> None:
        """Take one run as far as it goes."""
        run_id = run.key.run_id
        try:
            await run_stored(
                store,
                run.key,
                partial(self._restore, store),
                owner=self._trail.worker,
                seconds=RUN_SECONDS,
            )
            self._errors = 0
        except Exception as error:  # noqa: BLE001  # written down; the judge reads it
            self._errors += isinstance(error, StoreError)
            for each in leaf_errors(error):
                self._failed(run_id, each)
        finally:
            self._at_work.discard(run_id)

    def _failed(self, run_id: str, error: BaseException) -> None:
        name = type(error).__name__
        self._trail.write(
            Failed(
                worker=self._trail.worker,
                run_id=run_id,
                code=getattr(error, "code", name),
                error=f"{name}: {error}",
                expected=isinstance(error, (*_EXPECTED, _StoreUnusableError)),
            )
        )

    @asynccontextmanager
    async def _restore(
        self, store: Line, checkpoint: Checkpoint, lease: RunLease
    ) -> AsyncIterator[Restored]:
        tools = self._toolset(store, lease)
        yield Restored(
            model=self._complete,
            capture_bindings=lambda: {"worker": self._trail.worker},
            options={"tools": tools, "compactor": _Shortener()},
        )

    def _toolset(self, store: BothStores, lease: RunLease) -> Toolset:
        work = Work(self._job.trails, self._trail, self._rng, lease.key.run_id)
        inner = Leaving(as_toolset(work.tools()), self._trail)
        if self._job.variant == "claim_late":
            return ClaimingLate(inner, store, lease=lease, seconds=RECEIPT_SECONDS)
        return with_receipts(inner, store, tenant=TENANT, lease=lease, seconds=RECEIPT_SECONDS)

    async def _complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn:
        """Call what the plan says, in an order that is new each time, under new ids."""
        await trio.sleep(self._rng.random() * 0.05)
        asks = list(planned_turn(request.run_id, request.turn))
        if not asks:
            return final_answer("That was all.")
        self._rng.shuffle(asks)
        return tool_call_turn(
            [tool_call(ask.tool, {"item": ask.item}, id=random_id("call")) for ask in asks]
        )


class _Shortener(Compactor):
    """Drops all but the last batch of a transcript that has grown too long."""

    def needed(self, state: RunState) -> bool:
        return len(state.messages) > _LONGEST

    async def compact(self, messages: Sequence[Message]) -> Compaction:
        last = max(n for n, each in enumerate(messages) if each["role"] == "assistant")
        return Compaction(messages=[user_message("Go on."), *messages[last:]])


def work(job: Job, name: str, ending: int) -> None:
    """Be a worker until the pipe *ending* is at its end."""
    if job.variant == "no_fence":
        remove_fences()
    trail = Trail(job.trails, name)
    rng = random.Random(f"{job.seed}/{name}")
    trio.run(_Worker(job, trail, rng).run, ending)
