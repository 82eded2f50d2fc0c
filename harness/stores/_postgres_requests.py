"""Requests to a PostgreSQL server that may stop at any moment: each is carried out once or not.

A request is one transaction. When the connection breaks before its end was asked for, nothing has
been written, and it is tried again on another one. When it breaks while the end is under way,
nobody can say what came of it, so the database is asked: a request that writes leaves a *token*
in the table ``requests``, in its own transaction and under a unique key. Afterwards the same token
is put in again, marked as void. If there is room, the request has come to nothing and never will
come to more, since whatever of it is still on its way finds its place taken. If the place is
taken by the request itself, it was committed, and what it had answered stands. While its old
transaction is still in the air, the key makes us wait for it. So there is one mechanism for all
methods, none of them has to recognise its own traces, and a request that was committed and then
overtaken is still known.

The alternatives: `pg_xact_status` takes the number of a transaction, and after a crash a number
whose traces had not reached the disk is given out a second time. To recognise a claim by its
owner or a commit by its fence works until somebody else has written over it.

How long all this may take is bounded. The server gives up waiting for a lock, or a statement; the
client gives up connecting, and a peer that is silent; and no try begins when the patience is over.

Connections are kept in a list of our own. A pool that opens them in the background retries a
server that was away after a second at first, and who waits hears nothing of why. Here the thread
that needs one opens it, and its failure is the answer.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from harness._errors import MissingExtraError, StoreError
from harness.stores._database import Work
from harness.stores._threads import closed_error

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import TransactionStatus
except ImportError as error:  # also where the driver is there, and its library is not
    raise MissingExtraError("postgres", error.name or "psycopg") from error

from harness.stores._postgres_failures import store_error
from harness.stores._postgres_rows import PostgresRows, statement
from harness.stores._postgres_schema import open_schema

__all__ = ["PostgresRequests", "PostgresServer"]

T = TypeVar("T")

Connection: TypeAlias = psycopg.Connection[Any]

_KEEP: Final = "1 hour"
"""How long a token is kept: much longer than anybody asks for it."""
_PRUNE: Final = 10_000
"""Requests between two removals of old tokens."""
_PAUSES: Final = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Seconds before each new try; the last is used again."""

_BEGIN: Final = b"""
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT set_config('lock_timeout', '%d', true), set_config('statement_timeout', '%d', true),
    set_config('idle_in_transaction_session_timeout', '%d', true),
    set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'),
        'on'), true)
"""
_DONE: Final = "INSERT INTO {schema}.requests (token, done) VALUES ('%s', true); COMMIT"
_VOID: Final = """
INSERT INTO {schema}.requests (token, done) VALUES (%s, false) ON CONFLICT DO NOTHING
"""
_ASK: Final = "SELECT done FROM {schema}.requests WHERE token = %s"
_FORGET: Final = """
DELETE FROM {schema}.requests WHERE token IN (
    SELECT token FROM {schema}.requests WHERE at < clock_timestamp() - %s::interval
    ORDER BY at LIMIT 20000
)
"""


@attrs.frozen(kw_only=True)
class PostgresServer:
    """Where a store is, and how it is connected to."""

    url: str = attrs.field(repr=False)
    schema: str
    patience: float
    """Seconds to wait for a lock, for a connection, and for a server that has gone."""

    def check(self) -> None:
        """Refuse an address that cannot be read.

        Raises:
            ValueError: it is none of PostgreSQL's. It is not quoted: it may have a password.
        """
        try:
            conninfo_to_dict(self.url)
        except psycopg.ProgrammingError:
            reason = "the address of the store cannot be read, expected 'postgresql://...'"
            raise ValueError(reason) from None

    @property
    def where(self) -> str:
        """The beginning of a sentence about the store; it has no password."""
        parts = conninfo_to_dict(self.url)
        names = [str(parts[name]) for name in ("host", "port", "dbname") if parts.get(name)]
        return f"the store in the schema {self.schema!r} at {'/'.join(names) or 'the default'!r}"

    def error(self, error: psycopg.Error) -> StoreError:
        """Say what an error means for the store."""
        own = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return store_error(error, error.sqlstate if own else error.sqlstate or "", self.where)

    def connect(self) -> Connection:
        """Return a new connection. What the address says itself goes before what is said here."""
        seconds = max(1, round(self.patience))
        settings = {
            "connect_timeout": max(2, seconds),
            "tcp_user_timeout": 2000 * seconds,
            "keepalives_idle": seconds,
            "keepalives_interval": seconds,
            "keepalives_count": 2,
        }
        return psycopg.connect(
            make_conninfo(self.url, **{**settings, **conninfo_to_dict(self.url)}),
            autocommit=True,  # transactions are begun and ended by name
            client_encoding="utf8",
        )

    def begin(self, connection: Connection) -> None:
        """Begin a transaction that waits for nothing without end, and whose commit is durable."""
        wait = max(1, round(1000 * self.patience))
        connection.execute(_BEGIN % (wait, 2 * wait, 2 * wait))


@attrs.define
class _Request:
    """What is known of a request between its tries."""

    number: int
    give_up_at: float
    token: uuid.UUID
    answer: Any = None
    in_doubt: bool = False
    """Whether its end was asked for, and the connection broke before an answer came."""


@attrs.define(eq=False)
class PostgresRequests:
    """Carries out requests, in the threads that call it. Made by `open`."""

    _server: PostgresServer
    _clock: Callable[[], float] | None
    _idle: list[Connection] = attrs.field(factory=list, init=False)
    _begun: int = attrs.field(default=0, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _change: threading.Condition = attrs.field(factory=threading.Condition, init=False)
    _origin: bytes = attrs.field(factory=lambda: os.urandom(8), init=False)
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)

    @classmethod
    def open(
        cls, server: PostgresServer, clock: Callable[[], float] | None = None
    ) -> PostgresRequests:
        """Connect, and see that the schema is ours; made so if it is new.

        Raises:
            ValueError: the server's address cannot be read.
            StoreError: it is not ours, or the server cannot be used; which is told at once.
        """
        server.check()
        opened = cls(server, clock)
        try:
            with opened._connection() as connection:
                server.begin(connection)
                open_schema(connection, server.schema, server.where)
                connection.execute("COMMIT")
                opened._forget(connection)
        except psycopg.Error as error:
            opened.close()
            raise server.error(error) from error
        except BaseException:
            opened.close()
            raise
        return opened

    def rows_within(self, connection: Connection) -> PostgresRows:
        """Return the store's rows as the transaction of somebody else's connection sees them.

        Raises:
            ValueError: what is executed on it is committed at once.
        """
        began = connection.info.transaction_status == TransactionStatus.INTRANS
        if connection.autocommit and not began:
            raise ValueError("the connection is in no transaction, expected one that has begun")
        return PostgresRows(connection, self._server.schema, self._clock)

    def close(self) -> None:
        """Refuse all that comes, and return when what has begun is finished."""
        with self._change:
            self._closed = True
            self._change.wait_for(lambda: self._begun == 0)
        self._close_idle()

    def carry_out(self, work: Work[T]) -> T:
        """Return what *work* returns once what it wrote is durable.

        Raises:
            StoreError: the database cannot be used; or it went away, and did not come back in time
                to say whether the request was committed.
        """
        with self._counted():
            request = self._request(time.monotonic() + self._server.patience)
            for pause in itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1])):
                try:
                    self._try(request, work)
                    break
                except psycopg.Error as error:
                    if not self._try_again(error, request, pause):
                        raise self._told(error, request) from error
                time.sleep(pause)
        answer: T = request.answer
        return answer

    def _try(self, request: _Request, work: Work[Any]) -> None:
        """Carry out a request, unless it turns out to have been.

        One that will never be committed gets another token. It stays the same request, so that
        what is in doubt of this try is known to the next one.
        """
        with self._connection() as connection:
            if request.in_doubt:
                if self._was_committed(connection, request):
                    return
                request.number, request.token = self._next()
            if request.number % _PRUNE == 0:
                try:
                    self._forget(connection)
                except psycopg.Error:
                    # A request does not fail for it: what is left now is removed another time.
                    connection.execute("ROLLBACK")
            self._once(connection, request, work)

    def _once(self, connection: Connection, request: _Request, work: Work[Any]) -> None:
        self._server.begin(connection)
        rows = PostgresRows(connection, self._server.schema, self._clock)
        request.answer = work(rows)
        if not rows.wrote:
            return
        request.in_doubt = True
        try:
            connection.execute(statement(_DONE, self._server.schema) % str(request.token).encode())
        except psycopg.Error as error:
            request.in_doubt = not _is_refusal(error)
            raise
        request.in_doubt = False

    def _was_committed(self, connection: Connection, request: _Request) -> bool:
        """Ask about a request that is in doubt; if it was not committed, it never will be."""
        self._server.begin(connection)
        schema, token = self._server.schema, [request.token]
        connection.execute(statement(_VOID, schema), token)
        ((done,),) = connection.execute(statement(_ASK, schema), token).fetchall()
        connection.execute("COMMIT")
        request.in_doubt = False
        return bool(done)

    def _forget(self, connection: Connection) -> None:
        """Remove some of the tokens that nobody will ask for any more."""
        self._server.begin(connection)
        connection.execute(statement(_FORGET, self._server.schema), [_KEEP])
        connection.execute("COMMIT")

    def _request(self, give_up_at: float) -> _Request:
        number, token = self._next()
        return _Request(number, give_up_at, token)

    def _next(self) -> tuple[int, uuid.UUID]:
        """Return a number that no request has had, and the token that is made of it."""
        number = next(self._numbers)
        return number, uuid.UUID(bytes=self._origin + number.to_bytes(8))

    def _try_again(self, error: psycopg.Error, request: _Request, pause: float) -> bool:
        state = error.sqlstate or ""
        passes = state.startswith("40") or self._server.error(error).code == "store.unreachable"
        return passes and time.monotonic() + pause < request.give_up_at

    def _told(self, error: psycopg.Error, request: _Request) -> StoreError:
        told = self._server.error(error)
        if not request.in_doubt:
            return told
        return StoreError(told.code, f"{told}; it is not known whether it has been written")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._change:
            if self._closed:
                raise closed_error()
            self._begun += 1
        try:
            yield
        finally:
            with self._change:
                self._begun -= 1
                self._change.notify_all()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Lend a connection for a block. What is left of a transaction is rolled back."""
        with self._change:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._server.connect()
        try:
            yield connection
        except psycopg.Error as error:
            if not _is_refusal(error):
                connection.close()
                self._close_idle()  # they were open when it broke, and are most likely no better
            raise
        finally:
            if _is_usable(connection):
                with self._change:
                    self._idle.append(connection)
            else:
                connection.close()

    def _close_idle(self) -> None:
        with self._change:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _is_refusal(error: psycopg.Error) -> bool:
    """Whether a server that goes on has said no; else the session has ended, and who knows how."""
    return error.diag.severity_nonlocalized == "ERROR"


def _is_usable(connection: Connection) -> bool:
    """Whether a connection can be used again; what is left of its transaction is rolled back."""
    if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
