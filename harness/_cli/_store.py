"""Where the command line keeps runs: a file, or a PostgreSQL database."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from harness._durable import RunKey
from harness.checkpoints import CheckpointStore
from harness.receipts import ReceiptStore
from harness.stores import open_sqlite_store

__all__ = ["Store", "add_store_arguments", "key_of", "open_store", "owner_name"]


class Store(CheckpointStore, ReceiptStore, Protocol):
    """Keeps runs, and the receipts of their calls."""


def add_store_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add what says where runs are kept."""
    parser.add_argument(
        "--store",
        required=required,
        metavar="FILE",
        help="where runs are kept: an SQLite file, or postgresql://...",
    )
    parser.add_argument(
        "--tenant", default="default", help="whose runs these are, in a store that several share"
    )


@asynccontextmanager
async def open_store(place: str, *, create: bool) -> AsyncIterator[Store]:
    """Open the store at *place* for a block; a file is only made if *create* says so.

    Raises:
        StoreError: it cannot be used.
        MissingExtraError: it is a database, and its driver is not installed.
    """
    if place.startswith(("postgresql://", "postgres://")):
        from harness.stores import open_postgres_store  # noqa: PLC0415  # an extra

        async with open_postgres_store(place) as database:
            yield database
    else:
        async with open_sqlite_store(place, create=create) as file:
            yield file


def key_of(options: argparse.Namespace, run_id: str) -> RunKey:
    """Return the key of a run that the command line names."""
    return RunKey(tenant=options.tenant, run_id=run_id)


def owner_name() -> str:
    """Return what this process is called in a lease."""
    return f"harness {os.uname().nodename} {os.getpid()}"
