"""What an error of PostgreSQL means to whoever uses a store: a table.

PostgreSQL says what went wrong by five characters, of which the first two are the class. A row is
for all codes that begin as it says, and the longest beginning counts. A code that has no row is
one that sound tables of ours do not raise (a column is missing, a row is there twice), so what it
means is that they are not sound. An error without a code is the client's own, and says that there
is no connection.
"""

from __future__ import annotations

from typing import Final

import attrs

from harness._errors import StoreError

__all__ = ["POSTGRES_FAILURES", "PostgresFailure", "find_failure", "store_error"]


@attrs.frozen
class PostgresFailure:
    """One row: what PostgreSQL reports, and what it means."""

    state: str
    """How the SQLSTATE begins."""
    code: str
    """That of the `StoreError` that is raised."""
    what: str
    """The rest of a sentence about the store."""


POSTGRES_FAILURES: Final = (
    PostgresFailure("08", "store.unreachable", "cannot be reached"),
    PostgresFailure("28", "store.unreachable", "does not let this user in"),
    PostgresFailure("3D", "store.unreachable", "is in a database that is not there"),
    PostgresFailure("57P", "store.unreachable", "is at a server that stops or starts"),
    PostgresFailure("25P", "store.unreachable", "has ended a session that took too long"),
    PostgresFailure("58", "store.unreachable", "cannot read or write its files"),
    PostgresFailure("40", "store.busy", "is locked by others in another order"),
    PostgresFailure("53", "store.busy", "has not enough memory or connections"),
    PostgresFailure("55", "store.busy", "is locked by somebody else"),
    PostgresFailure("57", "store.busy", "did not answer in time"),
    PostgresFailure("53100", "store.full", "has no room left"),
    PostgresFailure("54", "store.full", "has no room for a value of this size"),
    PostgresFailure("25006", "store.read_only", "cannot be written"),
    PostgresFailure("42501", "store.read_only", "may not be used by this user"),
    PostgresFailure("58P01", "store.corrupt", "has lost a file"),
    PostgresFailure("XX", "store.corrupt", "is damaged"),
)
"""What PostgreSQL's errors mean: the row with the longest beginning, or `_OTHER`."""

_OTHER: Final = PostgresFailure("", "store.corrupt", "has other tables or rows than ours")
_UNREACHABLE: Final = POSTGRES_FAILURES[0]
_ROWS: Final = {row.state: row for row in POSTGRES_FAILURES}


def find_failure(state: str | None) -> PostgresFailure:
    """Return the row of an SQLSTATE; None is that of an error without one."""
    if state is None:
        return _UNREACHABLE
    beginnings = (state[:length] for length in range(len(state), 0, -1))
    return next((_ROWS[each] for each in beginnings if each in _ROWS), _OTHER)


def store_error(error: Exception, state: str | None, where: str) -> StoreError:
    """Return what an *error* of the driver, with its SQLSTATE, means for the store at *where*."""
    row = find_failure(state)
    return StoreError(row.code, f"{where} {row.what}: {' '.join(str(error).split())}")
