"""Opening a file: whose it is, of which version, and whether it is sound.

Nothing is written to a file before it is known to be ours or empty. A file that is ours says so
by its application id, its version, and tables that are word for word those below. Then all of it
is looked at once, since a damaged file can answer for months before anybody notices: SQLite checks
its trees and indexes, and each row has a *seal*, a checksum over everything else in it, because a
bit that flips inside a text is none of SQLite's business.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from harness._errors import StoreError
from harness.stores._rules import check_version
from harness.stores._sqlite_failures import store_error
from harness.stores._sqlite_rows import check_every_row

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "SQLiteFile"]

APPLICATION_ID: Final = 0x68726E73
"""Says in the file's header that it is a store of ours."""

_LEAST: Final = 512
"""Bytes of the smallest page that there is."""

_DATABASE_CLOCK: Final = "SELECT (julianday('now') - 2440587.5) * 86400.0"
"""Seconds since the epoch, in words that older versions of SQLite know too."""

_RETRY: Final = 0.01
"""Seconds between attempts at switching a file to a log, for which SQLite does not wait itself."""

_TABLES: Final = (
    """\
CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    status TEXT NOT NULL,
    messages INTEGER NOT NULL,
    changed_at REAL NOT NULL,
    fence INTEGER NOT NULL,
    owner TEXT NOT NULL,
    lease_until REAL NOT NULL,
    seal INTEGER NOT NULL,
    UNIQUE (tenant, run_id)
)""",
    """\
CREATE TABLE heads (
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    body BLOB NOT NULL,
    seal INTEGER NOT NULL,
    PRIMARY KEY (tenant, run_id, revision)
) WITHOUT ROWID""",
    """\
CREATE TABLE messages (
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    from_revision INTEGER NOT NULL,
    body BLOB NOT NULL,
    seal INTEGER NOT NULL,
    PRIMARY KEY (tenant, run_id, position, from_revision)
) WITHOUT ROWID""",
    """\
CREATE TABLE receipts (
    number INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    args_hash TEXT NOT NULL,
    occurrence INTEGER NOT NULL,
    status TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    owner TEXT NOT NULL,
    effect TEXT NOT NULL,
    lease_until REAL NOT NULL,
    changed_at REAL NOT NULL,
    result BLOB NOT NULL,
    seal INTEGER NOT NULL,
    UNIQUE (tenant, run_id, tool, args_hash, occurrence)
)""",
)


def _to_version_1(connection: sqlite3.Connection) -> None:
    for table in _TABLES:
        connection.execute(table)


_STEPS: Final = (_to_version_1,)
"""What makes a file one version newer; the first step starts with an empty one."""
SCHEMA_VERSION: Final = len(_STEPS)


@attrs.frozen(kw_only=True)
class SQLiteFile:
    """Where a store is, and how its file is opened. It waits for the disk: call it in a thread."""

    path: Path
    patience: float
    """Seconds to wait for a lock that another process holds."""
    clock: Callable[[], float] | None = None
    """Instead of the database's, which counts seconds since the epoch."""

    def open(self, *, create: bool, verify: bool) -> sqlite3.Connection:
        """Return a connection to a file that is ours, made so if it is new.

        Raises:
            StoreError: it is not ours, or cannot be used.
        """
        self._check_outside()
        try:
            connection = self._connected(create=create)
            try:
                self._look_first(connection)
                self._keep_a_log(connection)
                self._bring_up_to_date(connection)
                if verify:
                    self._verify(connection)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise self.error(error) from error
        except UnicodeDecodeError as error:  # SQLite quotes what it found instead of a table
            reason = f"the store at {str(self.path)!r} is damaged: its tables are no text"
            raise StoreError("store.corrupt", reason) from error
        return connection

    def connect(self) -> sqlite3.Connection:
        """Return another connection to a file that has been opened."""
        try:
            return self._connected(create=False)
        except sqlite3.Error as error:
            raise self.error(error) from error

    def _connected(self, *, create: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}",
            uri=True,
            timeout=self.patience,
            isolation_level=None,  # transactions are begun and ended by name
            check_same_thread=False,  # one thread after the other
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            if self.clock is not None:
                connection.create_function("harness_clock", 0, self.clock)
        except BaseException:
            connection.close()
            raise
        return connection

    def now(self, connection: sqlite3.Connection) -> float:
        """Return the time of the store's clock."""
        query = _DATABASE_CLOCK if self.clock is None else "SELECT harness_clock()"
        (now,) = connection.execute(query).fetchone()
        return float(now)

    def error(self, error: sqlite3.Error) -> StoreError:
        """Say what an error means for the store."""
        found = store_error(error, self.path)
        if found.code == "store.unreachable" and self._is_folder_read_only():
            # SQLite only says that it could not open a file, one of those beside the store.
            return StoreError("store.read_only", f"{found}, since its folder cannot be written")
        return found

    def _is_folder_read_only(self) -> bool:
        folder = self.path.absolute().parent
        return folder.is_dir() and not os.access(folder, os.W_OK)

    def _check_outside(self) -> None:
        """Refuse what SQLite would open in its own way.

        It opens for reading what it cannot write, and takes a file that is too short for a header
        to be empty.
        """
        where = f"the store at {str(self.path)!r}"
        try:
            if not self.path.exists():
                return
            is_file, length = self.path.is_file(), self.path.stat().st_size
        except OSError as error:
            raise StoreError("store.unreachable", f"{where} cannot be reached: {error}") from error
        if not is_file or 0 < length < _LEAST:
            found = f"{where} has {length} bytes" if is_file else f"{where} is no file"
            raise StoreError("store.foreign", f"{found}, expected none or at least {_LEAST} bytes")
        if not os.access(self.path, os.W_OK):
            raise StoreError("store.read_only", f"{where} cannot be written")

    def _look_first(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that is not ours before anything is written; all as at one moment."""
        connection.execute("BEGIN")
        self._check_owner(connection)
        connection.execute("COMMIT")

    def _check_owner(self, connection: sqlite3.Connection) -> int:
        """Return the version of a file that is ours; 0 for an empty one."""
        application = _number(connection, "PRAGMA application_id")
        version = _number(connection, "PRAGMA user_version")
        if application == version == 0 and not _number(
            connection, "SELECT count(*) FROM sqlite_master"
        ):
            return 0
        where = f"the store at {str(self.path)!r}"
        if application != APPLICATION_ID:
            reason = f"{where} has the application id {application:#x}, expected one of ours"
            raise StoreError("store.foreign", reason)
        return check_version(version, newest=SCHEMA_VERSION, where=where)

    def _keep_a_log(self, connection: sqlite3.Connection) -> None:
        """Switch the file to a write-ahead log: readers and the writer are in nobody's way."""
        give_up_at = time.monotonic() + self.patience
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > give_up_at:
                    raise
                time.sleep(_RETRY)
                continue
            if mode != "wal":
                reason = f"the store at {str(self.path)!r} has the journal {mode!r}, expected 'wal'"
                raise StoreError("store.unreachable", reason)
            return

    def _bring_up_to_date(self, connection: sqlite3.Connection) -> None:
        """Make the tables if there are none; in one transaction, so they are all there or none."""
        connection.execute("BEGIN IMMEDIATE")
        for step in _STEPS[self._check_owner(connection) :]:
            step(connection)
            version = _number(connection, "PRAGMA user_version")
            connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        found = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_stat%'"
        )
        if {sql for (sql,) in found} != set(_TABLES):
            reason = f"the store at {str(self.path)!r} has other tables than ours"
            raise StoreError("store.corrupt", reason)
        connection.execute("COMMIT")

    def _verify(self, connection: sqlite3.Connection) -> None:
        """Look at everything in the file once."""
        connection.execute("BEGIN")
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        check_every_row(connection)
        connection.execute("COMMIT")


def _number(connection: sqlite3.Connection, query: str) -> int:
    (number,) = connection.execute(query).fetchone()
    return int(number)
