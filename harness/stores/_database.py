"""What the methods of a store are in a database: each a piece of work on rows, in one transaction.

A piece of work locks the row that it is about, asks `_rules` what becomes of it, and writes that.
How rows are kept and locked is the database's, behind `Rows`; what a transaction is, and where it
is carried out, is the store's, behind two methods. The time is asked for after a row was locked:
a lease that was counted from before the wait would be shorter than it says.

Locks are taken in one order: the row of a run, then that of a receipt. So no two pieces of work
wait for each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import attrs

from harness._durable import ReceiptClaim, ReceiptKey, RunKey, RunLease
from harness._errors import RunExistsError, RunNotFoundError
from harness._json import JSON, encode
from harness._toolset import Effect
from harness.checkpoints import (
    Checkpoint,
    CheckpointStatus,
    Commit,
    StoredRun,
    dump_head,
    load_head,
)
from harness.receipts import Claimed, Receipt, ReceiptStatus, Settlement
from harness.stores import _rules
from harness.stores._bodies import dump_messages, load_messages
from harness.stores._rules import ReceiptRecord, RunRecord

__all__ = [
    "DatabaseStore",
    "Lock",
    "Revision",
    "Rows",
    "Work",
    "from_row",
    "settle_locked",
    "to_row",
]

T = TypeVar("T")
RecordT = TypeVar("RecordT", RunRecord, ReceiptRecord, ReceiptKey)

Lock: TypeAlias = Literal["none", "share", "write"]
"""Whether a row that is read may be changed by others before the transaction ends; ``share``
keeps them from it, ``write`` also from locking it themselves."""


@attrs.frozen(kw_only=True)
class Revision:
    """A revision as it is written: a head, and the messages that it brings."""

    number: int
    head: bytes
    keep: int
    """How many messages of the revision before still stand."""
    messages: tuple[bytes, ...]
    """What follows them."""

    @property
    def count(self) -> int:
        """How many messages it has."""
        return self.keep + len(self.messages)


class Rows(Protocol):
    """The rows of a database as a transaction sees them."""

    def now(self) -> float:
        """Return the time of the store's clock, not before the last row was read."""
        ...

    def find_run(self, key: RunKey, lock: Lock = "none") -> RunRecord | None:
        """Return what is stored of a run, besides its heads and messages."""
        ...

    def add_run(self, key: RunKey, record: RunRecord) -> bool:
        """Store a new run; False, and nothing is written, if there is one."""
        ...

    def put_run(self, key: RunKey, record: RunRecord) -> None:
        """Store what is known of a run that is locked."""
        ...

    def list_runs(
        self, tenant: str, status: CheckpointStatus | None
    ) -> Iterable[tuple[RunKey, RunRecord, bytes]]:
        """Return the runs of a tenant with their last heads, in the order of their creation."""
        ...

    def add_revision(self, key: RunKey, revision: Revision) -> None:
        """Store a revision of a run that is locked, or new."""
        ...

    def find_revision(self, key: RunKey, number: int) -> tuple[bytes, Sequence[bytes]] | None:
        """Return the head of a revision and its messages."""
        ...

    def missing_head(self, key: RunKey) -> Exception:
        """Return the error of a run that has lost the head of its last revision."""
        ...

    def find_receipt(self, key: ReceiptKey, lock: Lock = "none") -> ReceiptRecord | None:
        """Return what is stored of a call."""
        ...

    def add_receipt(self, key: ReceiptKey, record: ReceiptRecord) -> bool:
        """Store a new receipt; False, and nothing is written, if there is one."""
        ...

    def put_receipt(self, key: ReceiptKey, record: ReceiptRecord) -> None:
        """Store what is known of a receipt that is locked."""
        ...

    def list_receipts(
        self, tenant: str, run_id: str | None, status: ReceiptStatus | None
    ) -> Iterable[tuple[ReceiptKey, ReceiptRecord]]:
        """Return the receipts of a tenant, oldest first."""
        ...


def to_row(record: RunRecord | ReceiptRecord | ReceiptKey) -> tuple[Any, ...]:
    """Return the fields of *record*: every table has them as columns in this order."""
    return attrs.astuple(record, recurse=False)


def from_row(kind: type[RecordT], values: Iterable[Any]) -> RecordT:
    """Return the *kind* whose fields are *values*, as `to_row` has made them."""
    names = (field.name for field in attrs.fields(kind))
    return kind(**dict(zip(names, values, strict=True)))


Work: TypeAlias = Callable[[Rows], T]
"""Reads and writes in a transaction. It may be done again, after one that came to nothing."""


class DatabaseStore(ABC):
    """Keeps checkpoints and receipts in a database: a `CheckpointStore` and a `ReceiptStore`."""

    @abstractmethod
    async def _write(self, work: Work[T]) -> T:
        """Return what *work* returns once what it wrote is durable. A checkpoint."""

    @abstractmethod
    async def _read(self, work: Work[T]) -> T:
        """Return what *work* reads. A checkpoint."""

    # -- checkpoints ---------------------------------------------------------------------------

    async def create_run(self, key: RunKey, checkpoint: Checkpoint) -> None:
        """Store a new run; see `CheckpointStore.create_run`."""
        _rules.check_head(key, checkpoint.head)
        head = checkpoint.head
        revision = _revision(Commit(head=head, keep=0, tail=checkpoint.messages))

        def work(rows: Rows) -> None:
            record = _rules.with_revision(None, head, messages=revision.count, at=rows.now())
            if not rows.add_run(key, record):
                raise RunExistsError(key.run_id)
            rows.add_revision(key, revision)

        await self._write(work)

    async def load_run(self, key: RunKey, *, revision: int | None = None) -> Checkpoint:
        """Return a revision of a run; see `CheckpointStore.load_run`."""

        def work(rows: Rows) -> Checkpoint:
            record = _known(rows.find_run(key), key)
            wanted = record.revision if revision is None else revision
            found = rows.find_revision(key, wanted) if wanted <= record.revision else None
            if found is None and wanted == record.revision:
                raise rows.missing_head(key)
            if found is None:
                raise RunNotFoundError(key.run_id, revision=revision)
            head, messages = found
            return Checkpoint(head=load_head(head), messages=load_messages(messages))

        return await self._read(work)

    async def acquire_run(self, key: RunKey, *, owner: str, seconds: float) -> RunLease:
        """Take a run; see `CheckpointStore.acquire_run`."""
        asked = RunLease(key=key, owner=owner, fence=1, seconds=seconds)

        def work(rows: Rows) -> RunLease:
            record = _known(rows.find_run(key, "write"), key)
            taken = _rules.acquired(record, asked, now=rows.now())
            rows.put_run(key, taken)
            return attrs.evolve(asked, fence=taken.fence)

        return await self._write(work)

    async def renew_run(self, lease: RunLease) -> bool:
        """Make a lease last; see `CheckpointStore.renew_run`."""

        def work(rows: Rows) -> bool:
            record = rows.find_run(lease.key, "write")
            if record is None or not _rules.is_held(record, lease):
                return False
            rows.put_run(lease.key, _rules.renewed(record, lease, now=rows.now()))
            return True

        return await self._write(work)

    async def release_run(self, lease: RunLease) -> None:
        """Give a run back; see `CheckpointStore.release_run`."""

        def work(rows: Rows) -> None:
            record = rows.find_run(lease.key, "write")
            if record is not None and _rules.is_held(record, lease):
                rows.put_run(lease.key, _rules.released(record))

        await self._write(work)

    async def commit_run(self, lease: RunLease, commit: Commit) -> None:
        """Store the next revision; see `CheckpointStore.commit_run`."""
        _rules.check_head(lease.key, commit.head)
        head = commit.head
        revision = _revision(commit)

        def work(rows: Rows) -> None:
            record = _rules.held(rows.find_run(lease.key, "write"), lease)
            _rules.check_commit(record, commit)
            rows.add_revision(lease.key, revision)
            written = _rules.with_revision(record, head, messages=revision.count, at=rows.now())
            rows.put_run(lease.key, written)

        await self._write(work)

    async def list_runs(
        self, tenant: str, *, status: CheckpointStatus | None = None
    ) -> Sequence[StoredRun]:
        """Return the runs of a tenant; see `CheckpointStore.list_runs`."""
        _rules.check_tenant(tenant)

        def work(rows: Rows) -> list[StoredRun]:
            found = rows.list_runs(tenant, status)
            return [
                _rules.listed_run(key, record, load_head(head), now=rows.now())
                for key, record, head in found
            ]

        return await self._read(work)

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

        def decide(
            record: ReceiptRecord | None, rows: Rows
        ) -> tuple[Claimed, ReceiptRecord | None]:
            now = rows.now()
            return _rules.claimed(record, asked, effect=effect, now=now, at=now)

        def work(rows: Rows) -> Claimed:
            record = rows.find_receipt(key)
            answer, written = decide(record, rows)
            if run is not None:
                # Whoever only replays or waits locks nothing. The run is read after the receipt:
                # who holds it then has held it all along.
                lock: Lock = "none" if written is None else "share"
                _rules.held(rows.find_run(run.key, lock), run)
            while written is not None:
                if record is not None:
                    record = rows.find_receipt(key, "write")
                answer, written = decide(record, rows)
                if written is None:
                    break
                if record is not None:
                    rows.put_receipt(key, written)
                    break
                if rows.add_receipt(key, written):  # what is not there cannot be locked
                    break
                record = rows.find_receipt(key)
            return answer

        return await self._write(work)

    async def renew_receipt(self, claim: ReceiptClaim) -> bool:
        """Make a claim last; see `ReceiptStore.renew_receipt`."""

        def work(rows: Rows) -> bool:
            record = rows.find_receipt(claim.key, "write")
            written = _rules.renewed_claim(record, claim, now=rows.now())
            if written is not None:
                rows.put_receipt(claim.key, written)
            return written is not None

        return await self._write(work)

    async def settle_receipt(
        self, claim: ReceiptClaim, settlement: Settlement, result: JSON
    ) -> bool:
        """Store how an attempt ended; see `ReceiptStore.settle_receipt`."""
        _rules.check_settlement(settlement)
        text = encode(result)
        return await self._write(lambda rows: settle_locked(rows, claim, settlement, text))

    async def list_receipts(
        self, tenant: str, *, run_id: str | None = None, status: ReceiptStatus | None = None
    ) -> Sequence[Receipt]:
        """Return the receipts of a tenant; see `ReceiptStore.list_receipts`."""
        _rules.check_tenant(tenant)

        def work(rows: Rows) -> list[Receipt]:
            found = rows.list_receipts(tenant, run_id, status)
            return [_rules.listed_receipt(key, record, now=rows.now()) for key, record in found]

        return await self._read(work)

    async def settle_receipt_by_hand(
        self, key: ReceiptKey, settlement: Settlement, result: JSON
    ) -> None:
        """Store what a person found out; see `ReceiptStore.settle_receipt_by_hand`."""
        _rules.check_settlement(settlement)
        text = encode(result)

        def work(rows: Rows) -> None:
            record = rows.find_receipt(key, "write")
            now = rows.now()
            written = _rules.settled_by_hand(record, key, settlement, text, now=now, at=now)
            rows.put_receipt(key, written)

        await self._write(work)


def settle_locked(rows: Rows, claim: ReceiptClaim, settlement: Settlement, result: bytes) -> bool:
    """Lock a receipt and store how the attempt of *claim* ended; False if it is no longer held."""
    record = rows.find_receipt(claim.key, "write")
    answer, written = _rules.settled(record, claim, settlement, result, at=rows.now())
    if written is not None:
        rows.put_receipt(claim.key, written)
    return answer


def _known(record: RunRecord | None, key: RunKey) -> RunRecord:
    if record is None:
        raise RunNotFoundError(key.run_id)
    return record


def _revision(commit: Commit) -> Revision:
    """Return what is written of *commit*; it is taken down now, and no change reaches it later."""
    return Revision(
        number=commit.head.revision,
        head=dump_head(commit.head),
        keep=commit.keep,
        messages=dump_messages(commit.tail),
    )
