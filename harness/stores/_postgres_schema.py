"""The tables of a store in PostgreSQL, and whether a schema has them.

All of a store is in one schema, which is its alone. One that is new is made in one transaction,
under a lock that has the schema's name: of several processes that open a store at once, one makes
it and the others find it made. Nothing is written into a schema that is not known to be ours or
empty, and one that is up to date is only read, so that a user who may make no tables can use it.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import sql

from harness._errors import StoreError
from harness.stores._rules import check_version

__all__ = ["SCHEMA_VERSION", "open_schema"]

_APPLICATION: Final = "trio-harness store"
"""Says in the table ``store`` that a schema is ours."""

_COLUMNS: Final = {
    "store": {"application": "text", "version": "integer"},
    "runs": {
        "number": "bigint",
        "tenant": "text",
        "run_id": "text",
        "revision": "bigint",
        "status": "text",
        "messages": "bigint",
        "changed_at": "double precision",
        "fence": "bigint",
        "owner": "text",
        "lease_until": "double precision",
    },
    "heads": {
        "tenant": "text",
        "run_id": "text",
        "revision": "bigint",
        "messages": "bigint",
        "body": "bytea",
    },
    "messages": {
        "tenant": "text",
        "run_id": "text",
        "position": "bigint",
        "from_revision": "bigint",
        "body": "bytea",
    },
    "receipts": {
        "number": "bigint",
        "tenant": "text",
        "run_id": "text",
        "tool": "text",
        "args_hash": "text",
        "occurrence": "bigint",
        "status": "text",
        "attempt": "bigint",
        "owner": "text",
        "effect": "text",
        "lease_until": "double precision",
        "changed_at": "double precision",
        "result": "bytea",
    },
    "requests": {"token": "uuid", "done": "boolean", "at": "timestamp with time zone"},
}
"""Every table, every column, and its type as PostgreSQL calls it. None may be null."""

_KEYS: Final = {
    "store": "application",
    "runs": "tenant, run_id",
    "heads": "tenant, run_id, revision",
    "messages": "tenant, run_id, position, from_revision",
    "receipts": "tenant, run_id, tool, args_hash, occurrence",
    "requests": "token",
}
_MORE: Final = {
    "number": " GENERATED ALWAYS AS IDENTITY",
    "at": " DEFAULT clock_timestamp()",
}
"""What a column of this name has besides its type."""


def _to_version_1(connection: psycopg.Connection[Any], schema: str) -> None:
    for table, columns in _COLUMNS.items():
        kept = "".join(
            f"{name} {kind} NOT NULL{_MORE.get(name, '')}, " for name, kind in columns.items()
        )
        # Texts are compared byte by byte, whatever the database's own order is.
        kept = kept.replace(" text ", ' text COLLATE "C" ')
        text = f"CREATE TABLE {{}} ({kept}PRIMARY KEY ({_KEYS[table]}))"
        connection.execute(sql.SQL(text).format(sql.Identifier(schema, table)))
    index = sql.SQL("CREATE INDEX requests_at ON {} (at)")
    connection.execute(index.format(sql.Identifier(schema, "requests")))


_STEPS: Final = (_to_version_1,)
"""What makes a schema one version newer; the first step starts with an empty one."""
SCHEMA_VERSION: Final = len(_STEPS)


def open_schema(connection: psycopg.Connection[Any], schema: str, where: str) -> None:
    """Make *schema* ours if it is empty or not there, and else see that it is.

    To be called in a transaction, at the level READ COMMITTED.

    Raises:
        StoreError: it is not ours, of a later version, or has other tables than ours.
        psycopg.Error: the database cannot be used.
    """
    if _version(connection, schema, where) < SCHEMA_VERSION:
        _bring_up_to_date(connection, schema, where)
    missing = _expected() - _found(connection, schema)
    if missing:
        reason = f"{where} has other tables than ours: it lacks {min(missing)}"
        raise StoreError("store.corrupt", reason)


def _bring_up_to_date(connection: psycopg.Connection[Any], schema: str, where: str) -> None:
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{_APPLICATION} {schema}"]
    )
    version = _version(connection, schema, where)  # another may have been first
    if version == 0:
        name = sql.Identifier(schema)
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
    for step in _STEPS[version:]:
        step(connection, schema)
    table = sql.Identifier(schema, "store")
    connection.execute(sql.SQL("DELETE FROM {}").format(table))
    row = sql.SQL("INSERT INTO {} VALUES ({}, {})")
    connection.execute(row.format(table, _APPLICATION, SCHEMA_VERSION))


def _version(connection: psycopg.Connection[Any], schema: str, where: str) -> int:
    """Return the version of a schema that is ours; 0 for one that is empty or not there."""
    found = _found(connection, schema)
    if not found:
        return 0
    if not {each for each in _expected() if each[0] == "store"} <= found:
        tables = sorted({table for table, _, _ in found})
        reason = f"{where} has the tables {tables}, expected none or ours"
        raise StoreError("store.foreign", reason)
    query = sql.SQL("SELECT application, version FROM {}").format(sql.Identifier(schema, "store"))
    rows = connection.execute(query).fetchall()
    if len(rows) != 1 or rows[0][0] != _APPLICATION:
        names = [application for application, _ in rows]
        reason = f"{where} says that it belongs to {names}, expected [{_APPLICATION!r}]"
        raise StoreError("store.foreign", reason)
    return check_version(rows[0][1], newest=SCHEMA_VERSION, where=where)


def _expected() -> set[tuple[str, str, str]]:
    return {
        (table, name, kind) for table, columns in _COLUMNS.items() for name, kind in columns.items()
    }


def _found(connection: psycopg.Connection[Any], schema: str) -> set[tuple[str, str, str]]:
    """Return the columns of all tables and the like in a schema: of which, its name, its type."""
    query = """
        SELECT c.relname, coalesce(a.attname, ''),
            coalesce(format_type(a.atttypid, a.atttypmod), '')
        FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    """
    rows = connection.execute(query, [schema]).fetchall()
    return {(table, name, kind) for table, name, kind in rows}
