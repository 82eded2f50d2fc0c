"""The store in a file: what a program that runs alone needs, and several on one machine can share.

Writes go through one task with one connection, reads through a few connections of their own; all
of them in threads, since SQLite waits for the disk. See `_sqlite_writer` for what a cancellation
does, `_sqlite_file` for what is looked at when a file is opened, `_sqlite_rows` for the tables.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from harness._bounds import check_seconds
from harness._durable import ReceiptClaim, ReceiptKey, RunKey, RunLease
from harness._errors import RunExistsError, RunNotFoundError
from harness._json import JSON, encode
from harness._shield import open_kept_nursery
from harness._toolset import Effect
from harness.checkpoints import (
    Checkpoint,
    CheckpointHead,
    CheckpointStatus,
    Commit,
    StoredRun,
    dump_head,
    load_head,
)
from harness.receipts import Claimed, Receipt, ReceiptStatus, Settlement
from harness.stores import _rules
from harness.stores import _sqlite_rows as rows
from harness.stores._bodies import dump_messages, load_messages
from harness.stores._rules import RunRecord
from harness.stores._sqlite_file import SQLiteFile
from harness.stores._sqlite_readers import InThread, Readers
from harness.stores._sqlite_transaction import Answer, Work, write_together
from harness.stores._sqlite_writer import Writer

__all__ = ["SQLiteStore", "open_sqlite_store"]

T = TypeVar("T")


@asynccontextmanager
async def open_sqlite_store(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    verify: bool = True,
    patience: float = 5.0,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[SQLiteStore]:
    """Open the store in the file at *path* for as long as the block lasts.

    Several processes may have the same file open. When the block is left, writes that have begun
    are finished, and all that wait are refused. Entering is a checkpoint; a file that is being
    opened is opened, and a cancellation is raised by what comes next.

    Args:
        path: the file.
        create: make it if there is none, or it is empty.
        verify: look at all of the file first, in a time that grows with its size. Without it
            damage is found in the rows that are read, and in an index perhaps never.
        patience: seconds to wait for a lock that another process holds.
        clock: instead of the database's, seconds since the epoch; it is called in threads.

    Raises:
        StoreError: it is no store of ours, of a later version, damaged, or cannot be used.
        ValueError: *path* is none, or *patience* no number of seconds.
    """
    if "\x00" in os.fspath(path):
        raise ValueError(f"open_sqlite_store path is {path!r}, expected one without a NUL")
    file = SQLiteFile(
        path=Path(path),
        patience=check_seconds("open_sqlite_store patience", patience),
        clock=clock,
    )
    async with open_file(file, create=create, verify=verify, in_thread=_in_thread) as store:
        yield store


async def _in_thread(function: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    return await trio.to_thread.run_sync(function, abandon_on_cancel=False, limiter=limiter)


@asynccontextmanager
async def open_file(
    file: SQLiteFile, *, create: bool, verify: bool, in_thread: InThread
) -> AsyncIterator[SQLiteStore]:
    """Open a store whose blocking calls are made by *in_thread*."""
    limiter = trio.CapacityLimiter(1)
    connection = await in_thread(partial(file.open, create=create, verify=verify), limiter)
    # From here to the block there is no checkpoint, so the connection is not lost.
    readers = Readers(file, in_thread)

    async def write(works: Sequence[Work[object]]) -> Sequence[Answer]:
        return await in_thread(partial(write_together, connection, file, works), limiter)

    writer = Writer(write)

    @trio.lowlevel.enable_ki_protection
    async def serve() -> None:
        with trio.CancelScope(shield=True):  # until the block is left; to close takes no time
            await writer.run()
            await in_thread(readers.close, limiter)
            await in_thread(connection.close, limiter)

    async with open_kept_nursery() as nursery:
        nursery.start_soon(serve)  # noqa: ASYNC113  # what is asked before it runs waits for it
        try:
            yield SQLiteStore(writer, readers)
        finally:
            writer.close()


@attrs.define(eq=False, repr=False)
class SQLiteStore:
    """Keeps checkpoints and receipts in a file: a `CheckpointStore` and a `ReceiptStore`.

    A method that is cancelled while its request waits has written nothing. Once the request is
    part of a transaction the method returns when that has ended, and the cancellation is raised
    at the next checkpoint.
    """

    _writer: Writer[Work[object]]
    _readers: Readers

    async def _write(self, work: Work[T]) -> T:
        answer: T = await self._writer.ask(work)
        return answer

    # -- checkpoints ---------------------------------------------------------------------------

    async def create_run(self, key: RunKey, checkpoint: Checkpoint) -> None:
        """Store a new run; see `CheckpointStore.create_run`."""
        _rules.check_head(key, checkpoint.head)
        new = Commit(head=checkpoint.head, keep=0, tail=checkpoint.messages)
        store = _storing(key, new)

        def work(connection: sqlite3.Connection, now: float) -> None:
            if rows.find_run(connection, key) is not None:
                raise RunExistsError(key.run_id)
            store(connection, None, now)

        await self._write(work)

    async def load_run(self, key: RunKey, *, revision: int | None = None) -> Checkpoint:
        """Return a revision of a run; see `CheckpointStore.load_run`."""

        def work(connection: sqlite3.Connection, _: float) -> Checkpoint:
            record = _known(rows.find_run(connection, key), key)
            wanted = record.revision if revision is None else revision
            known = 0 <= wanted <= record.revision
            head = rows.find_head(connection, key, wanted) if known else None
            if head is None and wanted == record.revision:
                raise rows.missing_head(key)
            if head is None:
                raise RunNotFoundError(key.run_id, revision=revision)
            messages = rows.find_messages(connection, key, wanted, count=head.messages)
            return Checkpoint(head=load_head(head.body), messages=load_messages(messages))

        return await self._readers.read(work)

    async def acquire_run(self, key: RunKey, *, owner: str, seconds: float) -> RunLease:
        """Take a run; see `CheckpointStore.acquire_run`."""
        asked = RunLease(key=key, owner=owner, fence=1, seconds=seconds)

        def work(connection: sqlite3.Connection, now: float) -> RunLease:
            record = _known(rows.find_run(connection, key), key)
            taken = _rules.acquired(record, asked, now=now)
            rows.put_run(connection, key, taken)
            return attrs.evolve(asked, fence=taken.fence)

        return await self._write(work)

    async def renew_run(self, lease: RunLease) -> bool:
        """Make a lease last; see `CheckpointStore.renew_run`."""

        def work(connection: sqlite3.Connection, now: float) -> bool:
            record = rows.find_run(connection, lease.key)
            if record is None or not _rules.is_held(record, lease):
                return False
            rows.put_run(connection, lease.key, _rules.renewed(record, lease, now=now))
            return True

        return await self._write(work)

    async def release_run(self, lease: RunLease) -> None:
        """Give a run back; see `CheckpointStore.release_run`."""

        def work(connection: sqlite3.Connection, _: float) -> None:
            record = rows.find_run(connection, lease.key)
            if record is not None and _rules.is_held(record, lease):
                rows.put_run(connection, lease.key, _rules.released(record))

        await self._write(work)

    async def commit_run(self, lease: RunLease, commit: Commit) -> None:
        """Store the next revision; see `CheckpointStore.commit_run`."""
        _rules.check_head(lease.key, commit.head)
        store = _storing(lease.key, commit)

        def work(connection: sqlite3.Connection, now: float) -> None:
            record = _rules.held(rows.find_run(connection, lease.key), lease)
            _rules.check_commit(record, commit)
            store(connection, record, now)

        await self._write(work)

    async def list_runs(
        self, tenant: str, *, status: CheckpointStatus | None = None
    ) -> Sequence[StoredRun]:
        """Return the runs of a tenant; see `CheckpointStore.list_runs`."""

        def work(connection: sqlite3.Connection, now: float) -> list[StoredRun]:
            return [
                _rules.listed_run(key, record, _last_head(connection, key, record), now=now)
                for key, record in rows.list_runs(connection, tenant, status=status)
            ]

        return await self._readers.read(work)

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

        def work(connection: sqlite3.Connection, now: float) -> Claimed:
            if run is not None:
                _rules.held(rows.find_run(connection, run.key), run)
            record = rows.find_receipt(connection, key)
            answer, written = _rules.claimed(record, asked, effect=effect, now=now, at=now)
            if written is not None:
                rows.put_receipt(connection, key, written)
            return answer

        return await self._write(work)

    async def renew_receipt(self, claim: ReceiptClaim) -> bool:
        """Make a claim last; see `ReceiptStore.renew_receipt`."""

        def work(connection: sqlite3.Connection, now: float) -> bool:
            record = rows.find_receipt(connection, claim.key)
            written = _rules.renewed_claim(record, claim, now=now)
            if written is not None:
                rows.put_receipt(connection, claim.key, written)
            return written is not None

        return await self._write(work)

    async def settle_receipt(
        self, claim: ReceiptClaim, settlement: Settlement, result: JSON
    ) -> bool:
        """Store how an attempt ended; see `ReceiptStore.settle_receipt`."""
        _rules.check_settlement(settlement)
        text = encode(result)

        def work(connection: sqlite3.Connection, now: float) -> bool:
            record = rows.find_receipt(connection, claim.key)
            answer, written = _rules.settled(record, claim, settlement, text, at=now)
            if written is not None:
                rows.put_receipt(connection, claim.key, written)
            return answer

        return await self._write(work)

    async def list_receipts(
        self, tenant: str, *, run_id: str | None = None, status: ReceiptStatus | None = None
    ) -> Sequence[Receipt]:
        """Return the receipts of a tenant; see `ReceiptStore.list_receipts`."""

        def work(connection: sqlite3.Connection, now: float) -> list[Receipt]:
            found = rows.list_receipts(connection, tenant, run_id=run_id, status=status)
            return [_rules.listed_receipt(key, record, now=now) for key, record in found]

        return await self._readers.read(work)

    async def settle_receipt_by_hand(
        self, key: ReceiptKey, settlement: Settlement, result: JSON
    ) -> None:
        """Store what a person found out; see `ReceiptStore.settle_receipt_by_hand`."""
        _rules.check_settlement(settlement)
        text = encode(result)

        def work(connection: sqlite3.Connection, now: float) -> None:
            record = rows.find_receipt(connection, key)
            written = _rules.settled_by_hand(record, key, settlement, text, now=now, at=now)
            rows.put_receipt(connection, key, written)

        await self._write(work)


def _known(record: RunRecord | None, key: RunKey) -> RunRecord:
    if record is None:
        raise RunNotFoundError(key.run_id)
    return record


def _last_head(connection: sqlite3.Connection, key: RunKey, record: RunRecord) -> CheckpointHead:
    head = rows.find_head(connection, key, record.revision)
    if head is None:
        raise rows.missing_head(key)
    return load_head(head.body)


def _storing(
    key: RunKey, commit: Commit
) -> Callable[[sqlite3.Connection, RunRecord | None, float], None]:
    """Return what stores a revision; it is taken down now, and no change reaches it later."""
    head, keep = commit.head, commit.keep
    body = dump_head(head)
    bodies = dump_messages(commit.tail)

    def store(connection: sqlite3.Connection, record: RunRecord | None, now: float) -> None:
        count = keep + len(bodies)
        rows.add_messages(connection, key, head.revision, keep=keep, bodies=bodies)
        rows.add_head(connection, key, head.revision, rows.HeadRow(messages=count, body=body))
        written = _rules.with_revision(record, head, messages=count, at=now)
        rows.put_run(connection, key, written)

    return store
