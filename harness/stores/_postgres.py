"""The store in PostgreSQL: what workers on several machines share.

Each method is one transaction, carried out in a thread with a connection of its own; see
`_database` for what it does, `_postgres_requests` for what happens when the server goes away in
the middle, `_postgres_rows` and `_postgres_schema` for the tables. A method waits for one of the
connections, and may be cancelled while it does. Once it has one it is waited for, which is why
everything it does there is bounded by its patience.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import trio

from harness._bounds import check_count, check_seconds
from harness._durable import ReceiptClaim
from harness._errors import LeaseLostError
from harness._json import JSON, check_json, encode
from harness._toolset import Outcome
from harness.receipts import result_of_outcome
from harness.stores._database import DatabaseStore, Work, settle_locked
from harness.stores._threads import InThread, in_thread

if TYPE_CHECKING:
    import psycopg

    from harness.stores._postgres_requests import PostgresRequests, PostgresServer

__all__ = ["PostgresStore", "open_postgres_store"]

T = TypeVar("T")

_LONGEST_NAME: Final = 63
"""Bytes of a name that PostgreSQL does not cut off."""


@asynccontextmanager
async def open_postgres_store(
    url: str,
    *,
    schema: str = "harness",
    connections: int = 4,
    patience: float = 5.0,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[PostgresStore]:
    """Open the store at *url* for as long as the block lasts; it is made if there is none.

    The server is PostgreSQL 12 or later, and any number of processes may have the store open. When
    the block is left, what has begun is finished, and all that waits is refused. Cancelled while
    it opens, it opens nothing.

    Args:
        url: ``postgresql://user@host/database``, or what else PostgreSQL's own clients take.
        schema: where the tables are. Nothing else may be in there.
        connections: how many there are at most, and so how many methods are at work at a time.
        patience: seconds to wait for a lock, for a connection, and for a server that has gone. A
            server that is not there when the store is opened is not waited for.
        clock: instead of the database's, seconds since the epoch; it is called in threads. All
            workers must have the same one, so it is for tests.

    Raises:
        MissingExtraError: psycopg is not installed.
        TypeError, ValueError: a number is out of bounds, *schema* is no name, or *url* no address.
        StoreError: the schema is not ours or of a later version, or the server cannot be used.
    """
    from harness.stores._postgres_requests import PostgresServer  # noqa: PLC0415  # an extra

    if not schema or "\x00" in schema or len(schema.encode()) > _LONGEST_NAME:
        raise ValueError(f"the schema is {schema!r}, expected 1 to {_LONGEST_NAME} bytes")
    server = PostgresServer(
        url=url,
        schema=schema,
        patience=check_seconds("open_postgres_store patience", patience, zero=False),
    )
    count = check_count("open_postgres_store connections", connections, least=1)
    async with open_server(server, connections=count, clock=clock, in_thread=in_thread) as store:
        yield store


@asynccontextmanager
async def open_server(
    server: PostgresServer,
    *,
    connections: int,
    clock: Callable[[], float] | None,
    in_thread: InThread,
) -> AsyncIterator[PostgresStore]:
    """Open a store whose blocking calls are made by *in_thread*."""
    from harness.stores._postgres_requests import PostgresRequests  # noqa: PLC0415  # an extra

    limiter = trio.CapacityLimiter(connections)
    requests = await in_thread(partial(PostgresRequests.open, server, clock), limiter)
    try:
        yield PostgresStore(requests, limiter, in_thread)
    finally:
        with trio.CancelScope(shield=True):  # what has begun is bounded by its patience
            await in_thread(requests.close, trio.CapacityLimiter(1))


@attrs.define(eq=False, repr=False)
class PostgresStore(DatabaseStore):
    """Keeps checkpoints and receipts in PostgreSQL: a `CheckpointStore` and a `ReceiptStore`.

    A method that is cancelled while it waits for a connection has written nothing. After that it
    returns, and the cancellation is raised at the next checkpoint.
    """

    _requests: PostgresRequests
    _limiter: trio.CapacityLimiter
    _in_thread: InThread

    async def _write(self, work: Work[T]) -> T:
        return await self._in_thread(partial(self._requests.carry_out, work), self._limiter)

    async def _read(self, work: Work[T]) -> T:
        return await self._write(work)

    def settle_receipt_within(
        self,
        connection: psycopg.Connection[Any],
        claim: ReceiptClaim | None,
        result: JSON | Outcome,
    ) -> None:
        """Settle a call as completed in the transaction in which a tool does what it does.

        For a tool whose whole effect is in this database: effect and receipt are then committed
        together, or neither is. The tool calls it last, commits, and returns *result*::

            with psycopg.connect(url) as connection:
                connection.execute("UPDATE accounts SET ...")
                store.settle_receipt_within(connection, context.receipt, {"paid": 3})
            return {"paid": 3}

        The receipt is locked until the transaction ends, so end it soon. Not a checkpoint: it
        waits for the database, in the thread that calls it. Errors of the driver are raised as
        they are, since it is the tool who must roll back.

        Args:
            connection: in a transaction, or not in autocommit mode. It may have any settings, and
                must be to the database of the store.
            claim: what the call holds, `CallContext.receipt`.
            result: what the tool will return: the data of a success, or an outcome.

        Raises:
            LeaseLostError: somebody else has taken over. Nothing may be committed.
            ValueError: the connection is in no transaction, or *result* is no success.
            TypeError: the call has no receipt.
            NotJSONError: *result* is no JSON.
        """
        if claim is None:
            raise TypeError("the claim is None, expected a call that is run with_receipts")
        outcome = result if isinstance(result, Outcome) else Outcome.completed(result)
        if outcome.kind != "completed" or outcome.suspend is not None:
            raise ValueError(f"the result is {result!r}, expected that of a call that completed")
        check_json(outcome.data)
        text = encode(result_of_outcome(outcome))
        rows = self._requests.rows_within(connection)
        if not settle_locked(rows, claim, "completed", text):
            raise LeaseLostError(claim.key.run_id, owner=claim.owner)
