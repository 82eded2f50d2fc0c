"""The store in a file: what a program that runs alone needs, and several on one machine can share.

Writes go through one task with one connection, reads through a few connections of their own; all
of them in threads, since SQLite waits for the disk. See `_sqlite_writer` for what a cancellation
does, `_sqlite_file` for what is looked at when a file is opened, `_sqlite_rows` for the tables.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from harness._bounds import check_seconds
from harness._shield import open_kept_nursery
from harness.stores._database import DatabaseStore
from harness.stores._sqlite_file import SQLiteFile
from harness.stores._sqlite_readers import Readers
from harness.stores._sqlite_transaction import Answer, Work, write_together
from harness.stores._sqlite_writer import Writer
from harness.stores._threads import InThread, in_thread

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
    async with open_file(file, create=create, verify=verify, in_thread=in_thread) as store:
        yield store


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
        # Until the block is left. To close writes what is in the log into the file, which takes as
        # long as the disk does: a thread cannot be cut.
        with trio.CancelScope(shield=True):
            try:
                await writer.run()
                await in_thread(readers.close, limiter)
            finally:
                await in_thread(connection.close, limiter)  # noqa: ASYNC102  # in the shield

    async with open_kept_nursery() as nursery:
        nursery.start_soon(serve)  # noqa: ASYNC113  # what is asked before it runs waits for it
        try:
            yield SQLiteStore(writer, readers)
        finally:
            writer.close()


@attrs.define(eq=False, repr=False)
class SQLiteStore(DatabaseStore):
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

    async def _read(self, work: Work[T]) -> T:
        return await self._readers.read(work)
