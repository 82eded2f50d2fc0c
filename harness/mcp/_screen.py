"""What stands between a transport and the official client: it reads listings first.

The client is given streams, and nothing else of ours. It validates a listing as a whole, so the
listing has to be taken apart before it arrives (`_listing`). Here also is where the end of a
connection is first seen.
"""

from __future__ import annotations

import contextvars
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import attrs
import trio

from harness.mcp._client import JSONRPCRequest, JSONRPCResponse, SessionMessage, anyio
from harness.mcp._listing import ListedTool, SkippedTool, read_page

if TYPE_CHECKING:
    from mcp.client import Transport
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream

__all__ = ["Screen", "screened"]


@attrs.define(eq=False)
class Screen:
    """What was seen on the way between one client and its server."""

    server: str
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Nothing more will come, or nothing more is wanted."""
    _asked: set[int | str] = attrs.field(factory=set, init=False)
    _tools: list[ListedTool] = attrs.field(factory=list, init=False)
    _skipped: list[SkippedTool] = attrs.field(factory=list, init=False)

    def forget(self) -> None:
        """Start over: an answer that still comes to an earlier question is not taken for ours."""
        self._asked.clear()
        self.take()

    def take(self) -> tuple[list[ListedTool], list[SkippedTool]]:
        """Return what has been listed since this was last asked."""
        taken = self._tools, self._skipped
        self._tools, self._skipped = [], []
        return taken

    def note_sent(self, message: SessionMessage) -> None:
        """Remember a question for tools."""
        sent = message.message
        if isinstance(sent, JSONRPCRequest) and sent.method == "tools/list":
            self._asked.add(sent.id)

    def look(self, message: SessionMessage | Exception) -> None:
        """Take the answer to such a question apart, and leave the client what it needs."""
        answer = message.message if isinstance(message, SessionMessage) else None
        if not isinstance(answer, JSONRPCResponse) or answer.id not in self._asked:
            return
        self._asked.discard(answer.id)
        entries = answer.result.get("tools")
        if isinstance(entries, list):
            tools, skipped, rest = read_page(self.server, entries)
            self._tools += tools
            self._skipped += skipped
            answer.result = {**answer.result, "tools": rest}


@asynccontextmanager
async def screened(transport: Transport, screen: Screen) -> AsyncIterator[TransportStreams]:
    """Open *transport* with *screen* between it and whoever uses it."""
    async with transport as (read, write):
        yield _Received(read, screen), _Sent(write, screen)


class _Closing(ABC):
    """A stream that its block closes."""

    __slots__ = ()

    @abstractmethod
    async def aclose(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


@attrs.define(eq=False)
class _Received(_Closing):
    _stream: ReadStream[SessionMessage | Exception]
    _screen: Screen

    @property
    def last_context(self) -> contextvars.Context | None:
        context: contextvars.Context | None = getattr(self._stream, "last_context", None)
        return context

    async def receive(self) -> SessionMessage | Exception:
        try:
            message = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._screen.ended.set()
            raise
        self._screen.look(message)
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


@attrs.define(eq=False)
class _Sent(_Closing):
    _stream: WriteStream[SessionMessage]
    _screen: Screen

    async def send(self, item: SessionMessage, /) -> None:
        self._screen.note_sent(item)
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()
