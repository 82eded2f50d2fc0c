"""Where runs and receipts are kept: in memory, in an SQLite file, in PostgreSQL."""

from harness.stores._memory import MemoryStore
from harness.stores._postgres import PostgresStore, open_postgres_store
from harness.stores._postgres_failures import POSTGRES_FAILURES, PostgresFailure
from harness.stores._sqlite import SQLiteStore, open_sqlite_store
from harness.stores._sqlite_failures import SQLITE_FAILURES, SQLiteFailure

__all__ = [
    "POSTGRES_FAILURES",
    "SQLITE_FAILURES",
    "MemoryStore",
    "PostgresFailure",
    "PostgresStore",
    "SQLiteFailure",
    "SQLiteStore",
    "open_postgres_store",
    "open_sqlite_store",
]
