"""The host of the runs: it makes them, answers what they ask, and knows when all is done.

Nothing is done to it, but its store has the same faults as everybody's, so whatever it could not do
it does at its next round.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Final

import attrs
import trio

from harness._durable import RunKey
from harness._errors import LeaseLostError, RunBusyError, RunExistsError, StoreError
from harness.checkpoints import (
    ReplyInput,
    StoredRun,
    WakeInput,
    apply_stored_input,
    create_checkpoint,
)
from tests.torture.job import TENANT, Job, open_line
from tests.torture.line import BothStores
from tests.torture.plan import gets_replies
from tests.torture.trail import Created, Trail

__all__ = ["Host"]

_ROUND: Final = 0.15
_READY: Final = 14
"""How many runs are to be ready, or worked on, at any time."""


@attrs.define(eq=False)
class Host:
    """Keeps runs coming."""

    _job: Job
    _trail: Trail
    _rng: random.Random
    create: bool = attrs.field(default=True, init=False)
    """Whether new runs are made."""
    drained: bool = attrs.field(default=False, init=False)
    """Whether no run is made any more, and none is left that anybody could go on with."""
    _made: int = attrs.field(default=0, init=False)

    async def serve(self) -> None:
        """Do one round after the other."""
        while True:
            try:
                async with open_line(self._job, self._trail, self._rng) as store:
                    while True:
                        await self._round(store)
                        await trio.sleep(_ROUND)
            except* StoreError:
                await trio.sleep(_ROUND)

    async def _round(self, store: BothStores) -> None:
        creating = self.create
        ready = await store.list_runs(TENANT, status="ready")
        asking = await store.list_runs(TENANT, status="waiting_for_reply")
        napping = await store.list_runs(TENANT, status="waiting_for_wake")
        asking = [run for run in asking if gets_replies(run.key.run_id)]
        for run in (*asking, *napping):
            await self._answer(store, run)
        if creating:
            for _ in range(_READY - len(ready)):
                await self._make(store)
        # Listed in this order, so that none is missed: what waits is made ready by nobody else.
        self.drained = not (creating or ready or asking or napping)

    async def _make(self, store: BothStores) -> None:
        run_id = f"run-{self._job.seed}-{self._made}"
        checkpoint = create_checkpoint(run_id, "Do it.")
        with suppress(RunExistsError):  # it was made, and the answer that said so was lost
            await store.create_run(RunKey(tenant=TENANT, run_id=run_id), checkpoint)
        self._made += 1
        self._trail.write(Created(worker=self._trail.worker, run_id=run_id))

    async def _answer(self, store: BothStores, run: StoredRun) -> None:
        checkpoint = await store.load_run(run.key)
        pause = checkpoint.head.pause
        if pause is None or checkpoint.status in ("ready", "finished"):
            return  # somebody else was there first
        asking = [
            call_id
            for call_id, each in pause.suspends.items()
            if each.kind == "answer" and call_id not in pause.replies
        ]
        given = ReplyInput(call_id=asking[0], value="this one") if asking else WakeInput()
        with suppress(RunBusyError, LeaseLostError):
            await apply_stored_input(store, run.key, given, owner="host")
