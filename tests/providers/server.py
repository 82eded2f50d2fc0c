"""An HTTP server of raw bytes on trio sockets, which can misbehave as no library would let it.

A *script* says what one exchange does: it gets the parsed request and sends whatever bytes it
likes, or nothing, or a reset. The server counts connections, and notes when a peer went away.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeAlias

import attrs
import trio

__all__ = [
    "DONE",
    "Exchange",
    "Script",
    "Server",
    "chunked",
    "head",
    "in_turn",
    "open_server",
    "payload",
    "replying",
    "sse",
    "stream_of",
]

DONE = b"data: [DONE]\n\n"


@attrs.define(eq=False)
class Exchange:
    """One request, and the connection to answer it on."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    server: Server
    _stream: trio.SocketStream
    number: int = 0
    """How many came before it on this connection."""

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def close(self) -> None:
        """End the connection in good order."""
        await self._stream.aclose()

    async def reset(self) -> None:
        """End the connection with an RST."""
        self._stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self._stream.aclose()

    async def asked_again(self) -> None:
        """Return when the first bytes of the next request have come; they are not read."""
        await trio.lowlevel.wait_readable(self._stream.socket)

    async def gone(self) -> None:
        """Return when the peer has closed; an answer that never comes."""
        while await self._stream.receive_some(4096):
            pass
        raise trio.BrokenResourceError("the peer went away")


Script: TypeAlias = Callable[[Exchange], Awaitable[None]]


@attrs.define(eq=False)
class Server:
    port: int
    script: Script
    accepted: int = 0
    open: int = 0
    requests: list[Exchange] = attrs.field(factory=list)
    gone_at: float = -1.0
    """When the last connection was found closed."""
    _changed: trio.Event = attrs.field(factory=trio.Event)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def idle(self, *, within: float = 1.0, but: int = 0) -> None:
        """Return once no connection is open, *but* so many."""
        with trio.fail_after(within):
            await trio.lowlevel.checkpoint()
            while self.open > but:
                await self._changed.wait()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.accepted += 1
        self.open += 1
        self._note_change()
        try:
            while (exchange := await self._read_request(stream)) is not None:
                exchange.number = sum(each._stream is stream for each in self.requests)
                self.requests.append(exchange)
                self._note_change()
                await self.script(exchange)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer went away, or the script ended the connection
        finally:
            self.open -= 1
            self.gone_at = trio.current_time()
            self._note_change()
            stream.socket.close()

    async def _read_request(self, stream: trio.SocketStream) -> Exchange | None:
        got = b""
        while True:
            start, ended, body = got.partition(b"\r\n\r\n")
            first, *lines = start.decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
            if ended and len(body) >= int(headers.get("content-length", "0")):
                method, target, _ = first.split(" ")
                return Exchange(method, target, headers, body, self, stream)
            piece = await stream.receive_some(65536)
            if not piece:
                return None
            got += piece


@asynccontextmanager
async def open_server(script: Script) -> AsyncIterator[Server]:
    """Run a server for the block; at its end no connection may be open."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = Server(listeners[0].socket.getsockname()[1], script)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, server.serve, listeners)
        yield server
        await server.idle()
        nursery.cancel_scope.cancel()


def head(
    status: int = 200,
    content_type: str = "text/event-stream",
    *headers: str,
    length: int | None = None,
) -> bytes:
    """A reply's head; without *length* the body is chunked."""
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {content_type}", size, *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    """The pieces in chunked encoding, one chunk each."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece)
    return body + (b"0\r\n\r\n" if end else b"")


def sse(*values: object) -> bytes:
    """One event for each value, as JSON."""
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


def payload(finish_reason: str | None = None, /, **delta: object) -> dict[str, object]:
    """A chunk of a stream whose choice has *delta*."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def stream_of(*values: object, done: bool = True) -> bytes:
    """A whole stream: the values, and the end event."""
    return sse(*values) + (DONE if done else b"")


def replying(*data: bytes, close: bool = False) -> Script:
    """A script that sends *data*, one piece after another, whatever was asked."""

    async def script(exchange: Exchange) -> None:
        for each in data:
            await exchange.send(each)
        if close:
            await exchange.close()

    return script


def in_turn(scripts: Iterable[Script]) -> Script:
    """A script that does what the next of *scripts* does."""
    left = iter(scripts)

    async def script(exchange: Exchange) -> None:
        await next(left)(exchange)

    return script
