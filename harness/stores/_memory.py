"""The store that forgets: everything in dictionaries, for tests and for runs of one process.

It is what the other stores are compared with, so it is as plain as can be. A method makes one
checkpoint and then does its whole work in one step, which is what makes it a transaction.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence

import attrs
import trio

from harness._durable import ReceiptClaim, ReceiptKey, RunKey, RunLease
from harness._errors import LeaseLostError, RunExistsError, RunNotFoundError
from harness._json import JSON, encode
from harness._messages import Message
from harness._toolset import Effect
from harness.checkpoints import (
    Checkpoint,
    CheckpointHead,
    CheckpointStatus,
    Commit,
    StoredRun,
    dump_head,
)
from harness.receipts import Claimed, Receipt, ReceiptStatus, Settlement
from harness.stores import _rules
from harness.stores._bodies import dump_messages
from harness.stores._rules import ReceiptRecord, RunRecord

__all__ = ["MemoryStore"]


@attrs.define(eq=False, repr=False)
class MemoryStore:
    """Keeps checkpoints and receipts as long as it lives: a `CheckpointStore` and `ReceiptStore`.

    A method that is cancelled has written nothing.
    """

    _clock: Callable[[], float] = trio.current_time
    """What leases are measured by."""
    _wall_clock: Callable[[], float] = time.time
    """Seconds since the epoch, for the times that are shown."""
    _runs: dict[RunKey, _Run] = attrs.field(factory=dict, init=False)
    _receipts: dict[ReceiptKey, ReceiptRecord] = attrs.field(factory=dict, init=False)

    # -- checkpoints ---------------------------------------------------------------------------

    async def create_run(self, key: RunKey, checkpoint: Checkpoint) -> None:
        """Store a new run; see `CheckpointStore.create_run`."""
        _rules.check_head(key, checkpoint.head)
        _check_bodies(checkpoint.head, checkpoint.messages)
        await trio.lowlevel.checkpoint()
        if key in self._runs:
            raise RunExistsError(key.run_id)
        self._runs[key] = _Run(
            record=_rules.with_revision(
                None,
                checkpoint.head,
                messages=len(checkpoint.messages),
                at=self._wall_clock(),
            ),
            revisions={checkpoint.revision: copy.deepcopy(checkpoint)},
        )

    async def load_run(self, key: RunKey, *, revision: int | None = None) -> Checkpoint:
        """Return a revision of a run; see `CheckpointStore.load_run`."""
        await trio.lowlevel.checkpoint()
        run = self._run(key)
        found = run.revisions.get(run.record.revision if revision is None else revision)
        if found is None:
            raise RunNotFoundError(key.run_id, revision=revision)
        return copy.deepcopy(found)

    async def acquire_run(self, key: RunKey, *, owner: str, seconds: float) -> RunLease:
        """Take a run; see `CheckpointStore.acquire_run`."""
        asked = RunLease(key=key, owner=owner, fence=1, seconds=seconds)
        await trio.lowlevel.checkpoint()
        run = self._run(key)
        run.record = _rules.acquired(run.record, asked, now=self._clock())
        return attrs.evolve(asked, fence=run.record.fence)

    async def renew_run(self, lease: RunLease) -> bool:
        """Make a lease last; see `CheckpointStore.renew_run`."""
        await trio.lowlevel.checkpoint()
        run = self._runs.get(lease.key)
        if run is None or not _rules.is_held(run.record, lease):
            return False
        run.record = _rules.renewed(run.record, lease, now=self._clock())
        return True

    async def release_run(self, lease: RunLease) -> None:
        """Give a run back; see `CheckpointStore.release_run`."""
        await trio.lowlevel.checkpoint()
        run = self._runs.get(lease.key)
        if run is not None and _rules.is_held(run.record, lease):
            run.record = _rules.released(run.record)

    async def commit_run(self, lease: RunLease, commit: Commit) -> None:
        """Store the next revision; see `CheckpointStore.commit_run`."""
        _rules.check_head(lease.key, commit.head)
        _check_bodies(commit.head, commit.tail)
        await trio.lowlevel.checkpoint()
        run = self._runs.get(lease.key)
        if run is None:
            raise LeaseLostError(lease.key.run_id, owner=lease.owner)
        record = _rules.held(run.record, lease)
        _rules.check_commit(record, commit)
        later = run.revisions[record.revision].after(copy.deepcopy(commit))
        run.revisions[later.revision] = later
        run.record = _rules.with_revision(
            record, later.head, messages=len(later.messages), at=self._wall_clock()
        )

    async def list_runs(
        self, tenant: str, *, status: CheckpointStatus | None = None
    ) -> Sequence[StoredRun]:
        """Return the runs of a tenant; see `CheckpointStore.list_runs`."""
        _rules.check_tenant(tenant)
        await trio.lowlevel.checkpoint()
        now = self._clock()
        return [
            _rules.listed_run(key, run.record, run.revisions[run.record.revision].head, now=now)
            for key, run in self._runs.items()
            if key.tenant == tenant and status in (None, run.record.status)
        ]

    def _run(self, key: RunKey) -> _Run:
        if key not in self._runs:
            raise RunNotFoundError(key.run_id)
        return self._runs[key]

    # -- receipts ------------------------------------------------------------------------------

    async def claim_receipt(
        self,
        key: ReceiptKey,
        *,
        effect: Effect,
        owner: str,
        seconds: float,
        run: RunLease | None = None,
    ) -> Claimed:
        """Decide about a call, and claim it; see `ReceiptStore.claim_receipt`."""
        asked = ReceiptClaim(key=key, attempt=1, owner=owner, seconds=seconds)
        await trio.lowlevel.checkpoint()
        if run is not None:
            stored = self._runs.get(run.key)
            _rules.held(None if stored is None else stored.record, run)
        answer, written = _rules.claimed(
            self._receipts.get(key),
            asked,
            effect=effect,
            now=self._clock(),
            at=self._wall_clock(),
        )
        if written is not None:
            self._receipts[key] = written
        return answer

    async def renew_receipt(self, claim: ReceiptClaim) -> bool:
        """Make a claim last; see `ReceiptStore.renew_receipt`."""
        await trio.lowlevel.checkpoint()
        written = _rules.renewed_claim(self._receipts.get(claim.key), claim, now=self._clock())
        if written is None:
            return False
        self._receipts[claim.key] = written
        return True

    async def settle_receipt(
        self, claim: ReceiptClaim, settlement: Settlement, result: JSON
    ) -> bool:
        """Store how an attempt ended; see `ReceiptStore.settle_receipt`."""
        _rules.check_settlement(settlement)
        text = encode(result)
        await trio.lowlevel.checkpoint()
        answer, written = _rules.settled(
            self._receipts.get(claim.key), claim, settlement, text, at=self._wall_clock()
        )
        if written is not None:
            self._receipts[claim.key] = written
        return answer

    async def list_receipts(
        self, tenant: str, *, run_id: str | None = None, status: ReceiptStatus | None = None
    ) -> Sequence[Receipt]:
        """Return the receipts of a tenant; see `ReceiptStore.list_receipts`."""
        _rules.check_tenant(tenant)
        await trio.lowlevel.checkpoint()
        now = self._clock()
        return [
            _rules.listed_receipt(key, record, now=now)
            for key, record in self._receipts.items()
            if key.tenant == tenant
            and run_id in (None, key.run_id)
            and status in (None, record.status)
        ]

    async def settle_receipt_by_hand(
        self, key: ReceiptKey, settlement: Settlement, result: JSON
    ) -> None:
        """Store what a person found out; see `ReceiptStore.settle_receipt_by_hand`."""
        _rules.check_settlement(settlement)
        text = encode(result)
        await trio.lowlevel.checkpoint()
        self._receipts[key] = _rules.settled_by_hand(
            self._receipts.get(key),
            key,
            settlement,
            text,
            now=self._clock(),
            at=self._wall_clock(),
        )


@attrs.define(eq=False)
class _Run:
    """One run: what is known of it now, and all its revisions."""

    record: RunRecord
    revisions: dict[int, Checkpoint]


def _check_bodies(head: CheckpointHead, messages: Sequence[Message]) -> None:
    """Refuse what a store that writes could not."""
    dump_head(head)
    dump_messages(messages)
