"""Records as rows of SQLite tables, each under a seal.

They are used inside a transaction that somebody else has begun and will end. One that writes has
locked the file, so there is no row to be locked for itself. A row that does not match its seal
raises as SQLite does for a file that is damaged, since that is what it is.

Heads and messages are only ever added. A message has the revision that brought it; a later one at
the same position has a greater revision. So a commit writes a head and its tail whatever the
length of the transcript, and any revision is found again: its head says how many messages it has,
and each is the last at its position that is not younger than the head.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from harness._durable import ReceiptKey, RunKey
from harness.checkpoints import CheckpointStatus
from harness.receipts import ReceiptStatus
from harness.stores._database import Lock, Revision, from_row, to_row
from harness.stores._rules import ReceiptRecord, RunRecord

__all__ = ["SQLiteRows", "check_every_row"]

_COLUMNS: Final = {
    "runs": (
        "tenant, run_id, revision, status, messages, changed_at, fence, owner, lease_until, x''"
    ),
    "heads": "tenant, run_id, revision, messages, body",
    "messages": "tenant, run_id, position, from_revision, body",
    "receipts": (
        "tenant, run_id, tool, args_hash, occurrence, status, attempt, owner, effect,"
        " lease_until, changed_at, result"
    ),
}
"""What of each table is under the seal; what comes last is long, or empty."""
_KEY: Final = 5
"""How many columns are the key of a receipt."""
_SELECT: Final = {
    table: f"SELECT {columns}, seal FROM {table} WHERE " for table, columns in _COLUMNS.items()
}

_OF_RUN: Final = "tenant = ? AND run_id = ?"
_OF_CALL: Final = f"{_OF_RUN} AND tool = ? AND args_hash = ? AND occurrence = ?"

_PUT_RUN: Final = """
INSERT INTO runs (
    tenant, run_id, revision, status, messages, changed_at, fence, owner, lease_until, seal
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, run_id) DO UPDATE SET
    revision = excluded.revision, status = excluded.status, messages = excluded.messages,
    changed_at = excluded.changed_at, fence = excluded.fence, owner = excluded.owner,
    lease_until = excluded.lease_until, seal = excluded.seal
"""
_PUT_RECEIPT: Final = """
INSERT INTO receipts (
    tenant, run_id, tool, args_hash, occurrence, status, attempt, owner, effect, lease_until,
    changed_at, result, seal
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, run_id, tool, args_hash, occurrence) DO UPDATE SET
    status = excluded.status, attempt = excluded.attempt, owner = excluded.owner,
    effect = excluded.effect, lease_until = excluded.lease_until,
    changed_at = excluded.changed_at, result = excluded.result, seal = excluded.seal
"""
_ADD_HEAD: Final = """
INSERT INTO heads (tenant, run_id, revision, messages, body, seal) VALUES (?, ?, ?, ?, ?, ?)
"""
_ADD_MESSAGE: Final = """
INSERT INTO messages (tenant, run_id, position, from_revision, body, seal)
VALUES (?, ?, ?, ?, ?, ?)
"""


def _seal(table: str, values: tuple[Any, ...], body: bytes) -> int:
    """Return a checksum over a row. It finds what broke by itself, not what somebody forged."""
    return zlib.crc32(body, zlib.crc32(repr((table, values)).encode()))


def _unsealed(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of a row that matches its seal."""
    body, seal = row[-2:]
    if not isinstance(body, bytes) or seal != _seal(table, row[:-2], body):
        raise sqlite3.DatabaseError(f"a row of {table} does not match its seal")
    return row[:-1]


@attrs.frozen
class SQLiteRows:
    """The rows of a file as a transaction sees them; see `Rows`."""

    connection: sqlite3.Connection
    time: float
    """By the store's clock, when the transaction had got its lock."""

    def now(self) -> float:
        """Return the time of the transaction."""
        return self.time

    # -- runs ----------------------------------------------------------------------------------

    def find_run(self, key: RunKey, lock: Lock = "none") -> RunRecord | None:
        """Return what is stored of a run, besides its heads and messages."""
        row = self._find("runs", _OF_RUN, key.tenant, key.run_id)
        return None if row is None else _run(row)[1]

    def add_run(self, key: RunKey, record: RunRecord) -> bool:
        """Store a new run; False, and nothing is written, if there is one."""
        if self.find_run(key) is not None:
            return False
        self.put_run(key, record)
        return True

    def put_run(self, key: RunKey, record: RunRecord) -> None:
        """Store what is known of a run, in the place of what was stored before."""
        values = (key.tenant, key.run_id, *to_row(record))
        self.connection.execute(_PUT_RUN, (*values, _seal("runs", values, b"")))

    def list_runs(
        self, tenant: str, status: CheckpointStatus | None
    ) -> Iterator[tuple[RunKey, RunRecord, bytes]]:
        """Yield the runs of a tenant with their last heads, in the order of their creation."""
        for row in self._list("runs", tenant=tenant, status=status):
            key, record = _run(row)
            head = self._find_head(key, record.revision)
            if head is None:
                raise self.missing_head(key)
            yield key, record, head[1]

    def add_revision(self, key: RunKey, revision: Revision) -> None:
        """Store a revision: its head and the messages that it brings."""
        values = (key.tenant, key.run_id, revision.number, revision.count)
        seal = _seal("heads", values, revision.head)
        self.connection.execute(_ADD_HEAD, (*values, revision.head, seal))
        for position, body in enumerate(revision.messages, revision.keep):
            values = (key.tenant, key.run_id, position, revision.number)
            seal = _seal("messages", values, body)
            self.connection.execute(_ADD_MESSAGE, (*values, body, seal))

    def find_revision(self, key: RunKey, number: int) -> tuple[bytes, Sequence[bytes]] | None:
        """Return the head of a revision and its messages."""
        found = self._find_head(key, number) if number >= 0 else None
        if found is None:
            return None
        count, head = found
        query = (
            f"{_SELECT['messages']} {_OF_RUN} AND position < ? AND from_revision <= ?"
            " ORDER BY position, from_revision"
        )
        bodies: dict[int, bytes] = {}
        for row in self.connection.execute(query, (key.tenant, key.run_id, count, number)):
            _, _, position, _, body = _unsealed("messages", row)
            bodies[position] = body  # the last one stands
        if len(bodies) != count:
            lost = count - len(bodies)
            raise sqlite3.DatabaseError(f"{lost} of {count} messages of a run are missing")
        return head, list(bodies.values())

    def missing_head(self, key: RunKey) -> sqlite3.DatabaseError:
        """Return the error of a run that has lost the head of its last revision."""
        return sqlite3.DatabaseError(f"the head of run {key.run_id!r} is missing")

    # -- receipts ------------------------------------------------------------------------------

    def find_receipt(self, key: ReceiptKey, lock: Lock = "none") -> ReceiptRecord | None:
        """Return what is stored of a call."""
        row = self._find("receipts", _OF_CALL, *to_row(key))
        return None if row is None else _receipt(row)[1]

    def add_receipt(self, key: ReceiptKey, record: ReceiptRecord) -> bool:
        """Store a new receipt; False, and nothing is written, if there is one."""
        if self.find_receipt(key) is not None:
            return False
        self.put_receipt(key, record)
        return True

    def put_receipt(self, key: ReceiptKey, record: ReceiptRecord) -> None:
        """Store what is known of a call, in the place of what was stored before."""
        *values, result = (*to_row(key), *to_row(record))
        seal = _seal("receipts", tuple(values), result)
        self.connection.execute(_PUT_RECEIPT, (*values, result, seal))

    def list_receipts(
        self, tenant: str, run_id: str | None, status: ReceiptStatus | None
    ) -> Iterator[tuple[ReceiptKey, ReceiptRecord]]:
        """Yield the receipts of a tenant, oldest first."""
        return map(_receipt, self._list("receipts", tenant=tenant, run_id=run_id, status=status))

    # -- both ----------------------------------------------------------------------------------

    def _find_head(self, key: RunKey, revision: int) -> tuple[int, bytes] | None:
        """Return how many messages a revision has, and its head."""
        row = self._find("heads", f"{_OF_RUN} AND revision = ?", key.tenant, key.run_id, revision)
        if row is None:
            return None
        *_, messages, head = _unsealed("heads", row)
        return messages, head

    def _find(self, table: str, where: str, *values: str | int) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self.connection.execute(
            _SELECT[table] + where, values
        ).fetchone()
        return row

    def _list(self, table: str, **wanted: str | None) -> sqlite3.Cursor:
        """Select what has the values that are *wanted*, in the order in which it came to be."""
        asked = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in asked)
        query = f"{_SELECT[table]} {where} ORDER BY number"
        return self.connection.execute(query, tuple(asked.values()))


def check_every_row(connection: sqlite3.Connection) -> None:
    """Raise if any row does not match its seal."""
    for table, query in _SELECT.items():
        for row in connection.execute(f"{query} true"):
            _unsealed(table, row)


def _run(row: tuple[Any, ...]) -> tuple[RunKey, RunRecord]:
    tenant, run_id, *values, _ = _unsealed("runs", row)
    return RunKey(tenant=tenant, run_id=run_id), from_row(RunRecord, values)


def _receipt(row: tuple[Any, ...]) -> tuple[ReceiptKey, ReceiptRecord]:
    values = _unsealed("receipts", row)
    return from_row(ReceiptKey, values[:_KEY]), from_row(ReceiptRecord, values[_KEY:])
