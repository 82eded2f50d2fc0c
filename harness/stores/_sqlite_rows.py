"""Records as rows of SQLite tables, each under a seal.

The functions run inside a transaction that somebody else has begun and will end. A row that does
not match its seal raises as SQLite does for a file that is damaged, since that is what it is.

Heads and messages are only ever added. A message has the revision that brought it; a later one at
the same position has a greater revision. So a commit writes a head and its tail whatever the
length of the transcript, and any revision is found again: its head says how many messages it has,
and each is the last at its position that is not younger than the head.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from typing import Any, Final

import attrs

from harness._durable import ReceiptKey, RunKey
from harness.checkpoints import CheckpointStatus
from harness.receipts import ReceiptStatus
from harness.stores._rules import ReceiptRecord, RunRecord

__all__ = [
    "HeadRow",
    "add_head",
    "add_messages",
    "check_every_row",
    "find_head",
    "find_messages",
    "find_receipt",
    "find_run",
    "list_receipts",
    "list_runs",
    "missing_head",
    "put_receipt",
    "put_run",
]

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


@attrs.frozen(kw_only=True)
class HeadRow:
    """What is stored of one revision, besides its messages."""

    messages: int
    """How many it has."""
    body: bytes
    """Its head."""


def _seal(table: str, values: tuple[Any, ...], body: bytes) -> int:
    """Return a checksum over a row. It finds what broke by itself, not what somebody forged."""
    return zlib.crc32(body, zlib.crc32(repr((table, values)).encode()))


def _unsealed(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of a row that matches its seal."""
    body, seal = row[-2:]
    if not isinstance(body, bytes) or seal != _seal(table, row[:-2], body):
        raise sqlite3.DatabaseError(f"a row of {table} does not match its seal")
    return row[:-1]


# -- runs --------------------------------------------------------------------------------------


def find_run(connection: sqlite3.Connection, key: RunKey) -> RunRecord | None:
    """Return what is stored of a run, besides its heads and messages."""
    row = connection.execute(_SELECT["runs"] + _OF_RUN, (key.tenant, key.run_id)).fetchone()
    return None if row is None else _run(row)[1]


def put_run(connection: sqlite3.Connection, key: RunKey, record: RunRecord) -> None:
    """Store what is known of a run, in the place of what was stored before."""
    values = (
        key.tenant,
        key.run_id,
        record.revision,
        record.status,
        record.messages,
        record.changed_at,
        record.fence,
        record.owner,
        record.lease_until,
    )
    connection.execute(_PUT_RUN, (*values, _seal("runs", values, b"")))


def list_runs(
    connection: sqlite3.Connection, tenant: str, *, status: CheckpointStatus | None
) -> Iterator[tuple[RunKey, RunRecord]]:
    """Yield the runs of a tenant, in the order of their creation."""
    return map(_run, _listed(connection, "runs", tenant=tenant, status=status))


def _run(row: tuple[Any, ...]) -> tuple[RunKey, RunRecord]:
    tenant, run_id, revision, status, messages, at, fence, owner, until, _ = _unsealed("runs", row)
    record = RunRecord(
        revision=revision,
        status=status,
        messages=messages,
        changed_at=at,
        fence=fence,
        owner=owner,
        lease_until=until,
    )
    return RunKey(tenant=tenant, run_id=run_id), record


def add_head(connection: sqlite3.Connection, key: RunKey, revision: int, head: HeadRow) -> None:
    """Store the head of a revision."""
    values = (key.tenant, key.run_id, revision, head.messages)
    connection.execute(_ADD_HEAD, (*values, head.body, _seal("heads", values, head.body)))


def find_head(connection: sqlite3.Connection, key: RunKey, revision: int) -> HeadRow | None:
    """Return the head of a revision."""
    query = f"{_SELECT['heads']} {_OF_RUN} AND revision = ?"
    row = connection.execute(query, (key.tenant, key.run_id, revision)).fetchone()
    if row is None:
        return None
    *_, messages, body = _unsealed("heads", row)
    return HeadRow(messages=messages, body=body)


def missing_head(key: RunKey) -> sqlite3.DatabaseError:
    """Return the error of a file in which a run has lost the head of its last revision."""
    return sqlite3.DatabaseError(f"the head of run {key.run_id!r} is missing")


def add_messages(
    connection: sqlite3.Connection,
    key: RunKey,
    revision: int,
    *,
    keep: int,
    bodies: tuple[bytes, ...],
) -> None:
    """Store the messages that a revision brings, after those that it keeps."""
    for position, body in enumerate(bodies, keep):
        values = (key.tenant, key.run_id, position, revision)
        connection.execute(_ADD_MESSAGE, (*values, body, _seal("messages", values, body)))


def find_messages(
    connection: sqlite3.Connection, key: RunKey, revision: int, *, count: int
) -> list[bytes]:
    """Return the messages of a revision that has so many."""
    query = (
        f"{_SELECT['messages']} {_OF_RUN} AND position < ? AND from_revision <= ?"
        " ORDER BY position, from_revision"
    )
    found: dict[int, bytes] = {}
    for row in connection.execute(query, (key.tenant, key.run_id, count, revision)):
        _, _, position, _, body = _unsealed("messages", row)
        found[position] = body  # the last one stands
    if len(found) != count:
        raise sqlite3.DatabaseError(f"{count - len(found)} of {count} messages are missing")
    return list(found.values())


# -- receipts ----------------------------------------------------------------------------------


def find_receipt(connection: sqlite3.Connection, key: ReceiptKey) -> ReceiptRecord | None:
    """Return what is stored of a call."""
    row = connection.execute(_SELECT["receipts"] + _OF_CALL, _call_values(key)).fetchone()
    return None if row is None else _receipt(row)[1]


def put_receipt(connection: sqlite3.Connection, key: ReceiptKey, record: ReceiptRecord) -> None:
    """Store what is known of a call, in the place of what was stored before."""
    values = (
        *_call_values(key),
        record.status,
        record.attempt,
        record.owner,
        record.effect,
        record.lease_until,
        record.changed_at,
    )
    seal = _seal("receipts", values, record.result)
    connection.execute(_PUT_RECEIPT, (*values, record.result, seal))


def list_receipts(
    connection: sqlite3.Connection,
    tenant: str,
    *,
    run_id: str | None,
    status: ReceiptStatus | None,
) -> Iterator[tuple[ReceiptKey, ReceiptRecord]]:
    """Yield the receipts of a tenant, oldest first."""
    rows = _listed(connection, "receipts", tenant=tenant, run_id=run_id, status=status)
    return map(_receipt, rows)


def _call_values(key: ReceiptKey) -> tuple[str, str, str, str, int]:
    return key.tenant, key.run_id, key.tool, key.args_hash, key.occurrence


def _receipt(row: tuple[Any, ...]) -> tuple[ReceiptKey, ReceiptRecord]:
    tenant, run_id, tool, args_hash, occurrence, *values = _unsealed("receipts", row)
    status, attempt, owner, effect, until, at, result = values
    key = ReceiptKey(
        tenant=tenant, run_id=run_id, tool=tool, args_hash=args_hash, occurrence=occurrence
    )
    record = ReceiptRecord(
        status=status,
        attempt=attempt,
        owner=owner,
        effect=effect,
        lease_until=until,
        changed_at=at,
        result=result,
    )
    return key, record


# -- both --------------------------------------------------------------------------------------


def check_every_row(connection: sqlite3.Connection) -> None:
    """Raise if any row does not match its seal."""
    for table, query in _SELECT.items():
        for row in connection.execute(f"{query} true"):
            _unsealed(table, row)


def _listed(connection: sqlite3.Connection, table: str, **wanted: str | None) -> sqlite3.Cursor:
    """Select what has the values that are *wanted*, in the order in which it came to be."""
    asked = {name: value for name, value in wanted.items() if value is not None}
    where = " AND ".join(f"{name} = ?" for name in asked)
    query = f"{_SELECT[table]} {where} ORDER BY number"
    return connection.execute(query, tuple(asked.values()))
