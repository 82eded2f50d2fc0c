"""What an error of SQLite means to whoever uses a store: a table.

SQLite says what went wrong by a number, whose lower byte is the kind. The rest of it matters in
one case: a disk that is full also shows when the index of the log cannot be made longer. A kind
that has no row is one that a sound file of ours does not raise (a table is missing, a text is no
UTF-8, a row is there twice), so what it means is that the file is not sound.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

import attrs

from harness._errors import StoreError

__all__ = ["SQLITE_FAILURES", "SQLiteFailure", "store_error"]


@attrs.frozen
class SQLiteFailure:
    """One row: what SQLite reports, and what it means."""

    name: str
    """What SQLite calls it, a kind or a special case of one."""
    code: str
    """That of the `StoreError` that is raised."""
    what: str
    """The rest of a sentence about the file."""

    @property
    def number(self) -> int:
        """SQLite's number for it."""
        number: int = getattr(sqlite3, self.name)
        return number


SQLITE_FAILURES: Final = (
    SQLiteFailure("SQLITE_NOTADB", "store.foreign", "is no SQLite file"),
    SQLiteFailure("SQLITE_CORRUPT", "store.corrupt", "is damaged"),
    SQLiteFailure("SQLITE_FULL", "store.full", "has no room left"),
    SQLiteFailure("SQLITE_IOERR_SHMSIZE", "store.full", "has no room left"),
    SQLiteFailure("SQLITE_TOOBIG", "store.full", "has no room for a value of this size"),
    SQLiteFailure("SQLITE_READONLY", "store.read_only", "cannot be written"),
    SQLiteFailure("SQLITE_PERM", "store.read_only", "may not be used"),
    SQLiteFailure("SQLITE_AUTH", "store.read_only", "may not be used"),
    SQLiteFailure("SQLITE_BUSY", "store.busy", "is locked by another process"),
    SQLiteFailure("SQLITE_LOCKED", "store.busy", "is locked by another process"),
    SQLiteFailure("SQLITE_PROTOCOL", "store.busy", "is locked by another process"),
    SQLiteFailure("SQLITE_CANTOPEN", "store.unreachable", "cannot be opened"),
    SQLiteFailure("SQLITE_IOERR", "store.unreachable", "cannot be read or written"),
    SQLiteFailure("SQLITE_NOLFS", "store.unreachable", "is too large for its file system"),
)
"""What SQLite's errors mean: a special case has a row, or its kind has, or it is `_OTHER`."""

_OTHER: Final = SQLiteFailure("SQLITE_ERROR", "store.corrupt", "is damaged")
_ROWS: Final = {row.number: row for row in SQLITE_FAILURES}


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Return what an *error* of SQLite means for the store at *path*."""
    number = getattr(error, "sqlite_errorcode", _OTHER.number)  # Python's own have none
    row = _ROWS.get(number) or _ROWS.get(number & 0xFF, _OTHER)
    return StoreError(row.code, f"the store at {str(path)!r} {row.what}: {error}")
