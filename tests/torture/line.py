"""The line between a worker and its store: it takes its time, and what was sent is on its way.

A worker may be stopped, and overtaken, while a write of its is on the line; the write arrives all
the same. So every request is shielded, with a wait before the store has it and another before the
worker has the answer. That is where fences are needed: a worker that looks at its lease first, and
then writes, has looked too early.

What the store answered is written to the worker's trail before anything else is done with it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import attrs
import trio

from harness._durable import ReceiptClaim, ReceiptKey, RunKey, RunLease
from harness._errors import LeaseLostError
from harness._json import JSON
from harness._toolset import Effect
from harness.checkpoints import Checkpoint, CheckpointStatus, CheckpointStore, Commit, StoredRun
from harness.receipts import (
    Claimed,
    Receipt,
    ReceiptStatus,
    ReceiptStore,
    Settlement,
    receipt_key_string,
)
from tests.torture.trail import Doubted, Refused, Took, Trail, Verb, Wrote

__all__ = ["BothStores", "Line"]

T = TypeVar("T")

_SLOW = 0.5
"""How many requests, and answers, are slow."""


class BothStores(CheckpointStore, ReceiptStore, Protocol):
    """Keeps runs and receipts."""


@attrs.frozen(eq=False)
class Line:
    """A store of both kinds, at the end of a line, whose answers leave a trail."""

    _store: BothStores
    _trail: Trail
    _rng: random.Random
    _seconds: float
    """How long a slow request or answer is on its way, at most."""

    async def _send(self, ask: Callable[[], Awaitable[T]], note: Callable[[T, int], None]) -> T:
        """Ask the store, and note its answer together with the time at which it was asked."""
        with trio.CancelScope(shield=True):
            await trio.sleep(self._delay())
            asked = time.monotonic_ns()
            answer = await ask()
            note(answer, asked)
            await trio.sleep(self._delay())
        return answer

    def _delay(self) -> float:
        return self._rng.random() * self._seconds if self._rng.random() < _SLOW else 0.0

    async def _write_run(
        self,
        verb: Verb,
        lease: RunLease,
        ask: Callable[[], Awaitable[T]],
        note: Callable[[T, int], None],
    ) -> T:
        try:
            return await self._send(ask, note)
        except LeaseLostError:
            self._refused(verb, lease.key.run_id, lease.fence)
            raise

    def _refused(self, verb: Verb, name: str, number: int) -> None:
        self._trail.write(Refused(worker=self._trail.worker, verb=verb, name=name, number=number))

    def _wrote(
        self,
        verb: Verb,
        name: str,
        number: int,
        asked: int,
        *,
        revision: int | None = None,
        settlement: str | None = None,
    ) -> None:
        self._trail.write(
            Wrote(
                worker=self._trail.worker,
                verb=verb,
                name=name,
                number=number,
                asked=asked,
                revision=revision,
                settlement=settlement,
            )
        )

    # -- runs -----------------------------------------------------------------------------------

    async def create_run(self, key: RunKey, checkpoint: Checkpoint) -> None:
        await self._send(lambda: self._store.create_run(key, checkpoint), _nothing)

    async def load_run(self, key: RunKey, *, revision: int | None = None) -> Checkpoint:
        return await self._send(lambda: self._store.load_run(key, revision=revision), _nothing)

    async def list_runs(
        self, tenant: str, *, status: CheckpointStatus | None = None
    ) -> Sequence[StoredRun]:
        return await self._send(lambda: self._store.list_runs(tenant, status=status), _nothing)

    async def acquire_run(self, key: RunKey, *, owner: str, seconds: float) -> RunLease:
        def note(lease: RunLease, _: int) -> None:
            worker, run_id = self._trail.worker, key.run_id
            self._trail.write(Took(worker=worker, name=run_id, number=lease.fence, receipt=False))

        return await self._send(
            lambda: self._store.acquire_run(key, owner=owner, seconds=seconds), note
        )

    async def renew_run(self, lease: RunLease) -> bool:
        def note(held: bool, asked: int) -> None:
            if held:
                self._wrote("renew_run", lease.key.run_id, lease.fence, asked)
            else:
                self._refused("renew_run", lease.key.run_id, lease.fence)

        return await self._send(lambda: self._store.renew_run(lease), note)

    async def release_run(self, lease: RunLease) -> None:
        await self._send(lambda: self._store.release_run(lease), _nothing)

    async def commit_run(self, lease: RunLease, commit: Commit) -> None:
        def note(_: None, asked: int) -> None:
            run_id, revision = lease.key.run_id, commit.head.revision
            self._wrote("commit", run_id, lease.fence, asked, revision=revision)

        await self._write_run("commit", lease, lambda: self._store.commit_run(lease, commit), note)

    # -- receipts -------------------------------------------------------------------------------

    async def claim_receipt(
        self,
        key: ReceiptKey,
        *,
        effect: Effect,
        owner: str,
        seconds: float,
        run: RunLease | None = None,
    ) -> Claimed:
        name, worker = receipt_key_string(key), self._trail.worker

        def note(claimed: Claimed, asked: int) -> None:
            if claimed.action == "ambiguous":
                self._trail.write(Doubted(worker=worker, receipt=name))
            if claimed.claim is not None:
                number = claimed.claim.attempt
                self._trail.write(Took(worker=worker, name=name, number=number, receipt=True))
                if run is not None:
                    self._wrote("claim", run.key.run_id, run.fence, asked)

        def claim() -> Awaitable[Claimed]:
            return self._store.claim_receipt(
                key, effect=effect, owner=owner, seconds=seconds, run=run
            )

        if run is None:
            return await self._send(claim, note)
        return await self._write_run("claim", run, claim, note)

    async def renew_receipt(self, claim: ReceiptClaim) -> bool:
        name = receipt_key_string(claim.key)

        def note(held: bool, asked: int) -> None:
            if held:
                self._wrote("renew_receipt", name, claim.attempt, asked)
            else:
                self._refused("renew_receipt", name, claim.attempt)

        return await self._send(lambda: self._store.renew_receipt(claim), note)

    async def settle_receipt(
        self, claim: ReceiptClaim, settlement: Settlement, result: JSON
    ) -> bool:
        name = receipt_key_string(claim.key)

        def note(held: bool, asked: int) -> None:
            if held:
                self._wrote("settle", name, claim.attempt, asked, settlement=settlement)
            else:
                self._refused("settle", name, claim.attempt)

        return await self._send(lambda: self._store.settle_receipt(claim, settlement, result), note)

    async def list_receipts(
        self, tenant: str, *, run_id: str | None = None, status: ReceiptStatus | None = None
    ) -> Sequence[Receipt]:
        return await self._send(
            lambda: self._store.list_receipts(tenant, run_id=run_id, status=status), _nothing
        )

    async def settle_receipt_by_hand(
        self, key: ReceiptKey, settlement: Settlement, result: JSON
    ) -> None:
        await self._send(
            lambda: self._store.settle_receipt_by_hand(key, settlement, result), _nothing
        )


def _nothing(_answer: object, _asked: int) -> None:
    """Leave no trail."""
