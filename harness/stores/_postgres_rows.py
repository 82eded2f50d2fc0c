"""Records as rows of PostgreSQL's tables.

A row is locked in a query of its own, and the time is read around it: PostgreSQL works out the
columns of a locking query before it waits for the lock. The transactions' level is READ COMMITTED,
so each query sees what was committed until then, and a row that was locked is the latest.

Heads and messages are only ever added. A message has the revision that brought it; a later one at
the same position has a greater revision. So a commit writes a head and its tail whatever the
length of the transcript, and any revision is found again: its head says how many messages it has,
and each is the last at its position that is not younger than the head.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from harness._durable import ReceiptKey, RunKey
from harness._errors import StoreError
from harness.checkpoints import CheckpointStatus
from harness.receipts import ReceiptStatus
from harness.stores._database import Lock, Revision, from_row, to_row
from harness.stores._rules import ReceiptRecord, RunRecord

__all__ = ["PostgresRows", "statement"]

_NOW: Final = "extract(epoch FROM clock_timestamp())::float8"
_RUN: Final = "revision, status, messages, changed_at, fence, owner, lease_until"
_RECEIPT: Final = "status, attempt, owner, effect, lease_until, changed_at, result"
_CALL: Final = "tenant, run_id, tool, args_hash, occurrence"
_KEY: Final = 5
"""How many columns that are."""
_OF_RUN: Final = "tenant = %s AND run_id = %s"
_OF_CALL: Final = f"{_OF_RUN} AND tool = %s AND args_hash = %s AND occurrence = %s"
_LOCKS: Final[dict[Lock, str]] = {"none": "", "share": " FOR SHARE", "write": " FOR UPDATE"}


def _finding(query: str) -> dict[Lock, str]:
    """Return a query for one row or none, and the time after that has been locked; per lock."""
    return {
        lock: (
            f"WITH found AS MATERIALIZED ({query}{words})"
            f" SELECT {_NOW}, found.* FROM (SELECT) AS one LEFT JOIN found ON true"
        )
        for lock, words in _LOCKS.items()
    }


_FIND_RUN: Final = _finding(f"SELECT {_RUN} FROM {{schema}}.runs WHERE {_OF_RUN}")
_ADD_RUN: Final = f"""
INSERT INTO {{schema}}.runs ({_RUN}, tenant, run_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""
_PUT_RUN: Final = f"""
UPDATE {{schema}}.runs SET ({_RUN}) = (%s, %s, %s, %s, %s, %s, %s) WHERE {_OF_RUN}
"""
_LIST_RUNS: Final = f"""
SELECT tenant, run_id, {_RUN.replace("messages", "runs.messages")}, body
FROM {{schema}}.runs LEFT JOIN {{schema}}.heads USING (tenant, run_id, revision)
"""
_ADD_REVISION: Final = """
WITH head AS (
    INSERT INTO {schema}.heads (tenant, run_id, revision, messages, body)
    VALUES (%(tenant)s, %(run_id)s, %(revision)s, %(count)s, %(head)s)
)
INSERT INTO {schema}.messages (tenant, run_id, position, from_revision, body)
SELECT %(tenant)s, %(run_id)s, %(keep)s + number - 1, %(revision)s, body
FROM unnest(%(messages)s::bytea[]) WITH ORDINALITY AS added (body, number)
"""
_FIND_HEAD: Final = f"SELECT messages, body FROM {{schema}}.heads WHERE {_OF_RUN} AND revision = %s"
_FIND_MESSAGES: Final = f"""
SELECT DISTINCT ON (position) body FROM {{schema}}.messages
WHERE {_OF_RUN} AND position < %s AND from_revision <= %s
ORDER BY position, from_revision DESC
"""
_FIND_RECEIPT: Final = _finding(f"SELECT {_RECEIPT} FROM {{schema}}.receipts WHERE {_OF_CALL}")
_ADD_RECEIPT: Final = f"""
INSERT INTO {{schema}}.receipts ({_RECEIPT}, {_CALL})
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""
_PUT_RECEIPT: Final = f"""
UPDATE {{schema}}.receipts SET ({_RECEIPT}) = (%s, %s, %s, %s, %s, %s, %s) WHERE {_OF_CALL}
"""
_LIST_RECEIPTS: Final = f"SELECT {_CALL}, {_RECEIPT} FROM {{schema}}.receipts"


@functools.cache
def statement(text: str, schema: str) -> bytes:
    """Return *text* with the name of the schema in its places, to be executed with values."""
    name = sql.Identifier(schema).as_string().replace("%", "%%")
    return text.replace("{schema}", name).encode()


class PostgresRows:
    """The rows of a store as one transaction sees them, on a connection that has begun it.

    Args:
        connection: whose transaction it is. Its own settings for rows do not matter.
        schema: where the tables are.
        clock: instead of the database's.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        schema: str,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._cursor = connection.cursor(row_factory=tuple_row)
        self._schema = schema
        self._clock = clock
        self._now: float | None = None
        self.wrote = False
        """Whether there is anything to commit."""

    def now(self) -> float:
        """Return the time of the store's clock, not before the last row was read."""
        if self._clock is not None:
            return self._clock()
        if self._now is None:
            ((self._now,),) = self._read(f"SELECT {_NOW}")
        return self._now

    # -- runs ----------------------------------------------------------------------------------

    def find_run(self, key: RunKey, lock: Lock = "none") -> RunRecord | None:
        """Return what is stored of a run, besides its heads and messages."""
        row = self._find(_FIND_RUN[lock], key.tenant, key.run_id)
        return None if row is None else from_row(RunRecord, row)

    def add_run(self, key: RunKey, record: RunRecord) -> bool:
        """Store a new run; False, and nothing is written, if there is one."""
        return self._write(_ADD_RUN, *to_row(record), key.tenant, key.run_id) == 1

    def put_run(self, key: RunKey, record: RunRecord) -> None:
        """Store what is known of a run that is locked."""
        self._write(_PUT_RUN, *to_row(record), key.tenant, key.run_id)

    def list_runs(
        self, tenant: str, status: CheckpointStatus | None
    ) -> Iterator[tuple[RunKey, RunRecord, bytes]]:
        """Yield the runs of a tenant with their last heads, in the order of their creation."""
        for of_tenant, run_id, *values, head in self._list(
            _LIST_RUNS, tenant=tenant, status=status
        ):
            key = RunKey(tenant=of_tenant, run_id=run_id)
            if head is None:
                raise self.missing_head(key)
            yield key, from_row(RunRecord, values), head

    def add_revision(self, key: RunKey, revision: Revision) -> None:
        """Store a revision of a run that is locked, or new."""
        values = {
            "tenant": key.tenant,
            "run_id": key.run_id,
            "revision": revision.number,
            "count": revision.count,
            "head": revision.head,
            "keep": revision.keep,
            "messages": list(revision.messages),
        }
        self._cursor.execute(statement(_ADD_REVISION, self._schema), values)
        self.wrote = True

    def find_revision(self, key: RunKey, number: int) -> tuple[bytes, Sequence[bytes]] | None:
        """Return the head of a revision and its messages.

        Raises:
            StoreError: some of its messages are missing.
        """
        of_run = (key.tenant, key.run_id)
        for count, head in self._read(_FIND_HEAD, *of_run, number):
            found = [body for (body,) in self._read(_FIND_MESSAGES, *of_run, count, number)]
            if len(found) != count:
                lost = f"{count - len(found)} of the {count} messages"
                raise self._damaged(f"{lost} of revision {number} of run {key.run_id!r}")
            return head, found
        return None

    def missing_head(self, key: RunKey) -> StoreError:
        """Return the error of a run that has lost the head of its last revision."""
        return self._damaged(f"the head of run {key.run_id!r}")

    # -- receipts ------------------------------------------------------------------------------

    def find_receipt(self, key: ReceiptKey, lock: Lock = "none") -> ReceiptRecord | None:
        """Return what is stored of a call."""
        row = self._find(_FIND_RECEIPT[lock], *to_row(key))
        return None if row is None else from_row(ReceiptRecord, row)

    def add_receipt(self, key: ReceiptKey, record: ReceiptRecord) -> bool:
        """Store a new receipt; False, and nothing is written, if there is one."""
        return self._write(_ADD_RECEIPT, *to_row(record), *to_row(key)) == 1

    def put_receipt(self, key: ReceiptKey, record: ReceiptRecord) -> None:
        """Store what is known of a receipt that is locked."""
        self._write(_PUT_RECEIPT, *to_row(record), *to_row(key))

    def list_receipts(
        self, tenant: str, run_id: str | None, status: ReceiptStatus | None
    ) -> Iterator[tuple[ReceiptKey, ReceiptRecord]]:
        """Yield the receipts of a tenant, oldest first."""
        rows = self._list(_LIST_RECEIPTS, tenant=tenant, run_id=run_id, status=status)
        for row in rows:
            yield from_row(ReceiptKey, row[:_KEY]), from_row(ReceiptRecord, row[_KEY:])

    # -- both ----------------------------------------------------------------------------------

    def _find(self, text: str, *key: object) -> Sequence[Any] | None:
        """Return a row, and note the time after it was locked."""
        ((self._now, *row),) = self._read(text, *key)
        return None if row[0] is None else row

    def _list(self, text: str, **wanted: str | None) -> list[tuple[Any, ...]]:
        """Read what has the values that are *wanted*, in the order in which it came to be."""
        asked = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = %s" for name in asked)
        self._now = None
        if any("\x00" in value for value in asked.values()):
            return []  # which no text of PostgreSQL can have
        return self._read(f"{text} WHERE {where} ORDER BY number", *asked.values())

    def _read(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement(text, self._schema), values).fetchall()

    def _write(self, text: str, *values: object) -> int:
        """Return how many rows were written."""
        count = self._cursor.execute(statement(text, self._schema), values).rowcount
        self.wrote = self.wrote or count > 0
        return count

    def _damaged(self, what: str) -> StoreError:
        reason = f"the store in schema {self._schema!r} is damaged: it lacks {what}"
        return StoreError("store.corrupt", reason)
