"""Reading a file: a few connections, so that reads wait neither for writes nor for each other."""

from __future__ import annotations

import sqlite3
import threading
from functools import partial
from typing import Final, TypeVar

import attrs
import trio

from harness.stores._sqlite_file import SQLiteFile
from harness.stores._sqlite_transaction import Work, read
from harness.stores._threads import InThread, closed_error

__all__ = ["Readers"]

T = TypeVar("T")

_MOST: Final = 4
"""Reads at a time, each with a connection of its own."""


@attrs.define(eq=False)
class Readers:
    """Connections for reading, opened when they are needed and kept until `close`."""

    _file: SQLiteFile
    _in_thread: InThread
    _limiter: trio.CapacityLimiter = attrs.field(
        factory=partial(trio.CapacityLimiter, _MOST), init=False
    )
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _idle: list[sqlite3.Connection] = attrs.field(factory=list, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    async def read(self, work: Work[T]) -> T:
        """Return what *work* reads, all of it as at one moment. A checkpoint.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._in_thread(partial(self._read, work), self._limiter)

    def close(self) -> None:
        """Close what is idle now, and the others when they have become idle."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _read(self, work: Work[T]) -> T:
        connection = self._take()
        try:
            found = read(connection, self._file, work)
        except sqlite3.Error as error:
            connection.close()  # another one may fare better
            raise self._file.error(error) from error
        except BaseException:
            self._give_back(connection)
            raise
        self._give_back(connection)
        return found

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise closed_error()
            if self._idle:
                return self._idle.pop()
        return self._file.connect()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()
