"""One connection to a server, from its opening to its end: a task of its own.

A session ends once: because it is closed, or because its server ends. Nothing is opened again by
itself. A server that died in the middle of a call may have been killed by that call, and one
that comes back may have lost what it knew.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, assert_never

import attrs
import trio

from harness._errors import error_text, leaf_errors
from harness.mcp._client import (
    METHOD_NOT_FOUND,
    Client,
    Implementation,
    MCPError,
    PaginatedRequestParams,
    ToolListChangedNotification,
    httpx2,
    streamable_http_client,
)
from harness.mcp._errors import MCPServerError
from harness.mcp._lines import LONGEST_LINE
from harness.mcp._listing import MOST_PAGES, MOST_TOOLS, ListedTool, SkippedTool
from harness.mcp._screen import Screen, screened
from harness.mcp._servers import HTTPServer, MCPServer, StdioServer, TransportServer
from harness.mcp._stdio import ProcessEnd, stdio_transport

if TYPE_CHECKING:
    from mcp.client import IncomingMessage, Transport

__all__ = ["Listing", "Session", "reason_of"]

_CLIENT: Final = Implementation(name="trio-harness", version="0.1.0")
"""What servers are told of us."""


@attrs.frozen
class Listing:
    """What a server listed."""

    tools: tuple[ListedTool, ...] = ()
    skipped: tuple[SkippedTool, ...] = ()


@attrs.define(eq=False)
class Session:
    """One connection from its opening to its end; runs as one task."""

    server: MCPServer
    screen: Screen = attrs.field(init=False)
    process: ProcessEnd = attrs.field(factory=ProcessEnd, init=False)
    client: Client | None = attrs.field(default=None, init=False)
    """While it can be called."""
    listing: Listing = attrs.field(factory=Listing, init=False)
    changed: bool = attrs.field(default=False, init=False)
    error: str = attrs.field(default="", init=False)
    over: trio.Event = attrs.field(factory=trio.Event, init=False)
    _listing: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held while it lists, since a page does not say whose it is."""
    _closed: bool = attrs.field(default=False, init=False)
    _time: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """How long it may still take: to be ready, and then to end."""

    @screen.default
    def _make_screen(self) -> Screen:
        return Screen(self.server.name)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC114
        """Connect, list, report that it is started, and last until told to close.

        Raises:
            MCPServerError: it could not be started; later failures are kept in `error`.
        """
        self._time.deadline = trio.current_time() + self.server.startup
        ready = False
        failure: Exception | None = None
        try:
            with self._time:
                async with self._open_client() as client:
                    self.listing = await self.list_tools(client)
                    if not self._closed:
                        self._time.deadline = math.inf
                    self.client = client
                    ready = True
                    task_status.started()
                    await self.screen.ended.wait()
                    self.client = None
        except Exception as error:  # noqa: BLE001  # a transport may raise anything at all
            failure = error
        finally:
            self.client = None
            self.over.set()
        late = self._time.cancelled_caught and not ready
        self.error = self.process.text or reason_of(failure)
        if not ready:
            refused = self._refused(failure, late=late)
            raise refused from None if refused is failure else failure

    @property
    def why(self) -> str:
        """Why it ended, if it was not closed."""
        return "" if self._closed else self.error or self.process.text

    def close(self) -> None:
        """Have it end, within its grace. Not a checkpoint."""
        self._closed = True
        self.client = None
        self.screen.ended.set()
        grace = trio.current_time() + self.server.grace
        self._time.deadline = min(self._time.deadline, grace)

    async def list_tools(self, client: Client) -> Listing:
        """Return what the server lists now, page by page.

        Raises:
            MCPServerError: the list does not end.
            MCPError: the server does not answer with a list.
        """
        async with self._listing:
            before, self.changed = self.changed, False
            self.screen.forget()
            try:
                return await self._read_pages(client)
            except BaseException:
                self.changed = self.changed or before
                raise

    async def _read_pages(self, client: Client) -> Listing:
        tools: list[ListedTool] = []
        skipped: list[SkippedTool] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MOST_PAGES):
            try:
                page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
                return Listing()  # a server of other things than tools
            more, left = self.screen.take()
            tools += more
            skipped += left
            if len(tools) + len(skipped) > MOST_TOOLS:
                break
            cursor = page.next_cursor
            if not cursor:
                return Listing(tuple(tools), tuple(skipped))
            if cursor in seen:
                break
            seen.add(cursor)
        raise MCPServerError(self.server.name, "lists tools without an end")

    @asynccontextmanager
    async def _open_client(self) -> AsyncIterator[Client]:
        async with (
            _open_transport(self.server, self.process) as transport,
            Client(
                screened(transport, self.screen),
                client_info=_CLIENT,
                cache=None,
                message_handler=self._note,
            ) as client,
        ):
            yield client

    async def _note(self, message: IncomingMessage) -> None:  # the client awaits it
        if isinstance(message, ToolListChangedNotification):
            self.changed = True

    def _refused(self, failure: Exception | None, *, late: bool) -> MCPServerError:
        first = next(leaf_errors(failure)) if failure is not None else None
        if isinstance(first, MCPServerError):
            return first
        if late:
            reason = f"was not ready within {self.server.startup:g} s"
        else:
            reason = f"cannot be used: {self.process.text or reason_of(failure)}"
        words = self.process.last_words
        return MCPServerError(self.server.name, f"{reason}; it wrote: {words}" if words else reason)


@asynccontextmanager
async def _open_transport(server: MCPServer, end: ProcessEnd) -> AsyncIterator[Transport]:
    """Make the transport to *server*, and what it needs around it."""
    match server:
        case StdioServer():
            yield stdio_transport(server, end)
        case TransportServer():
            yield server.transport()
        case HTTPServer(client=None):
            # What waits is bounded by whoever waits; the environment is none of ours.
            async with httpx2.AsyncClient(
                headers=dict(server.headers), timeout=None, trust_env=False
            ) as client:
                yield _http_transport(server, client)
        case HTTPServer(client=client):
            assert client is not None
            yield _http_transport(server, client)
        case _:
            assert_never(server)


def _http_transport(server: HTTPServer, client: httpx2.AsyncClient) -> Transport:
    return streamable_http_client(server.url, http_client=client, max_sse_event_size=LONGEST_LINE)


def reason_of(failure: Exception | None) -> str:
    if failure is None:
        return "the connection ended"
    first = next(leaf_errors(failure))
    return f"{type(first).__name__}: {error_text(first)}"
