"""Some pieces of work in one transaction, each for itself: a refusal undoes its own and no other.

Most failures are one piece's own: a lease that is lost, a value that cannot be stored. It is rolled
back to its savepoint and the rest goes on. An error of the database concerns the transaction, so
nothing of it is written; then each piece is tried alone, since what did not fit together may fit
apart. A lock is the exception: who waited for it in vain together would wait one after the other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs

from harness.stores._sqlite_file import SQLiteFile
from harness.stores._sqlite_rows import SQLiteRows

__all__ = ["Answer", "Work", "read", "write_together"]

T = TypeVar("T")

Work: TypeAlias = Callable[[SQLiteRows], T]
"""Reads and writes in a transaction. It may be done again, after one that came to nothing."""


@attrs.frozen
class Answer:
    """What became of a piece of work."""

    value: Any = None
    error: Exception | None = None


def write_together(
    connection: sqlite3.Connection, file: SQLiteFile, works: Sequence[Work[object]]
) -> list[Answer]:
    """Carry out *works* and make them durable; each has its answer."""
    try:
        return _in_one_transaction(connection, file, works)
    except sqlite3.Error as error:
        failure = file.error(error)
        if len(works) == 1 or failure.code == "store.busy":
            return [Answer(error=file.error(error)) for _ in works]
    return [answer for work in works for answer in write_together(connection, file, [work])]


def read(connection: sqlite3.Connection, file: SQLiteFile, work: Work[T]) -> T:
    """Return what *work* reads, all of it as at one moment.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    connection.execute("BEGIN")
    try:
        return work(SQLiteRows(connection, file.now(connection)))
    finally:
        _roll_back(connection)


def _in_one_transaction(
    connection: sqlite3.Connection, file: SQLiteFile, works: Sequence[Work[object]]
) -> list[Answer]:
    try:
        connection.execute("BEGIN IMMEDIATE")
        rows = SQLiteRows(connection, file.now(connection))
        answers = [_in_savepoint(rows, work) for work in works]
        connection.execute("COMMIT")
    finally:
        _roll_back(connection)
    return answers


def _in_savepoint(rows: SQLiteRows, work: Work[object]) -> Answer:
    rows.connection.execute("SAVEPOINT work")
    try:
        answer = Answer(value=work(rows))
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001  # it is raised where the work was asked for
        rows.connection.execute("ROLLBACK TO work")
        answer = Answer(error=error)
    rows.connection.execute("RELEASE work")
    return answer


def _roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction that is still open; some errors have ended it by themselves."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
