"""A server of raw messages in this process, which can misbehave as no library would let it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import attrs
import trio
from mcp.shared.memory import MessageStream, create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from harness._toolset import Outcome, Toolset
from harness.mcp import TransportServer
from tests.tools.contexts import ask, context_for

__all__ = ["Peer", "call", "entry"]

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "peer", "version": "1"},
}


def entry(name: object, **more: object) -> dict[str, object]:
    """One tool as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object"}, **more}


async def call(toolset: Toolset, name: str, arguments: str = "") -> Outcome:
    """Make one call with no run around it."""
    asked = ask(name, arguments)
    return await toolset.execute(asked, context_for(asked, None))


async def say_hello(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"hello from {name}"}]}


@attrs.define(eq=False)
class Peer:
    """What it lists and answers, and what it was asked."""

    tools: list[object] = attrs.field(factory=lambda: [entry("hello")])
    page: Callable[[str | None], dict[str, Any] | ErrorData] | None = None
    """By cursor; None lists `tools`."""
    answer: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | ErrorData]] = say_hello
    deaf: bool = False
    """Whether it has stopped reading; what is sent to it waits."""
    silent: frozenset[str] = frozenset()
    """Methods that are never answered."""
    refused: frozenset[str] = frozenset({"server/discover"})
    delay: float = 0.0
    """Seconds that a listing takes."""
    closing: float = 0.0
    """Seconds that it takes to go."""
    methods: list[str] = attrs.field(factory=list)
    calls: list[tuple[str, Any]] = attrs.field(factory=list)
    cancelled: list[object] = attrs.field(factory=list)
    """Ids of the calls that it was told to drop."""
    open: int = 0
    """Connections."""
    _streams: MessageStream | None = None
    _another: trio.Event = attrs.field(factory=trio.Event)

    def server(self, name: str = "peer", **options: Any) -> TransportServer:
        return TransportServer(name=name, transport=self.transport, **options)

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Any]:
        async with create_client_server_memory_streams() as (client, server):
            self._streams = server
            self.open += 1
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._serve, nursery)
                    yield client
                    nursery.cancel_scope.cancel()
                await trio.sleep(self.closing)
            finally:
                self.open -= 1

    async def hang_up(self) -> None:
        """Close the connection from this side."""
        assert self._streams is not None
        for each in self._streams:
            await each.aclose()

    async def notify(self, method: str) -> None:
        assert self._streams is not None
        notification = JSONRPCNotification(jsonrpc="2.0", method=method)
        await self._streams[1].send(SessionMessage(notification))

    async def called(self, times: int) -> None:
        """Return once it has been called so often."""
        while len(self.calls) < times:
            await self._another.wait()

    async def _serve(self, nursery: trio.Nursery) -> None:
        assert self._streams is not None
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # it has hung up
            async for each in self._streams[0]:
                if self.deaf:
                    await trio.sleep_forever()
                message = each.message if isinstance(each, SessionMessage) else None
                if isinstance(message, JSONRPCNotification):
                    self.methods.append(message.method)
                    if message.method == "notifications/cancelled":
                        self.cancelled.append((message.params or {})["requestId"])
                elif isinstance(message, JSONRPCRequest):
                    self.methods.append(message.method)
                    nursery.start_soon(self._respond, message)

    async def _respond(self, request: JSONRPCRequest) -> None:
        assert self._streams is not None
        if request.method in self.silent:
            await trio.sleep_forever()
        params = request.params or {}
        result: dict[str, Any] | ErrorData
        if request.method in self.refused:
            result = ErrorData(code=METHOD_NOT_FOUND, message="no such method")
        elif request.method == "initialize":
            result = HELLO
        elif request.method == "tools/list":
            await trio.sleep(self.delay)
            result = self.page(params.get("cursor")) if self.page else {"tools": self.tools}
        else:
            self.calls.append((params["name"], params.get("arguments")))
            self._another.set()
            self._another = trio.Event()
            result = await self.answer(params["name"], params.get("arguments", {}))
        message: JSONRPCError | JSONRPCResponse
        if isinstance(result, ErrorData):
            message = JSONRPCError(jsonrpc="2.0", id=request.id, error=result)
        else:
            message = JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._streams[1].send(SessionMessage(message))  # or nobody waits any more
