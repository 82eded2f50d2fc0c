"""A store that uses no threads: what it does can be cut anywhere, in virtual time."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import trio

from harness.stores._postgres import PostgresStore, open_server
from harness.stores._sqlite import SQLiteStore, open_file
from harness.stores._sqlite_file import SQLiteFile

T = TypeVar("T")


async def in_line(function: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    """Do what a thread does: once *function* has begun, its end comes whoever is cancelled."""
    await trio.lowlevel.checkpoint_if_cancelled()
    async with limiter:
        try:
            return function()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)


def open_in_line(
    path: Path, clock: Callable[[], float] | None = None
) -> AbstractAsyncContextManager[SQLiteStore]:
    """Open the store at *path*."""
    file = SQLiteFile(path=path, patience=1, clock=clock)
    return open_file(file, create=True, verify=False, in_thread=in_line)


def open_server_in_line(
    url: str, schema: str, clock: Callable[[], float]
) -> AbstractAsyncContextManager[PostgresStore]:
    """Open the store in a schema of the server at *url*."""
    from harness.stores._postgres_requests import PostgresServer  # noqa: PLC0415  # an extra

    server = PostgresServer(url=url, schema=schema, patience=5)
    return open_server(server, connections=2, clock=clock, in_thread=in_line)
