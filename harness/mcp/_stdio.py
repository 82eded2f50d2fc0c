"""A server as a process of ours: its two streams of lines, and its certain end.

The transport is written here, on trio, although the official client has one, because of what
must hold at the end of the block:

* **The process is gone, and its group with it.** Servers are started through wrappers (``npx``,
  ``uvx``, a shell) and start processes themselves. The server leads a session of its own, and
  whatever is left of its group is killed, also when the leader ended by itself.
* **The end is bounded, and more so when it is hurried.** In good order the input is closed, and
  the server has its grace to end. Then, or at once if the block is being cancelled, the group is
  told to terminate, and after `_HURRY` it is killed, which nothing survives. That last part is
  shielded and cannot take longer than its own deadlines.
* **Nobody waits for a full pipe.** What is sent goes into a buffer that a task writes from, so a
  call that is cancelled while its server is stopped leaves without waiting for the notification
  to get through.

A message that cannot be read is answered in the server's name, see `_lines`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import attrs
import trio

from harness.mcp._client import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    SessionMessage,
    anyio,
    get_default_environment,
    jsonrpc_message_adapter,
)
from harness.mcp._lines import Line, LineBuffer, answered_id
from harness.mcp._servers import StdioServer

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client import Transport
    from mcp.client._transport import TransportStreams

__all__ = ["ProcessEnd", "stdio_transport"]

_HURRY: Final = 0.5
"""Seconds between the signal to terminate and the one that kills."""

_REAP: Final = 2.0
"""Seconds for a killed process to be gone. Only one that is stuck in the kernel takes longer."""

_GROUP_GONE: Final = 0.25
"""Seconds for the rest of its group, which has been killed. A first process that does not bury its
dead, as in many a container, lets them lie there for longer."""

_LAST_WORDS: Final = 1.0
"""Seconds for the rest of its output once a process has ended."""

_UNSENT: Final = 1_000
"""Messages that wait for a server to read them, before sending waits too."""

_TAIL: Final = 4_000
"""Bytes of its standard error that are kept."""


@attrs.define(eq=False)
class ProcessEnd:
    """How a server's process ended, and its last words."""

    status: int | None = None
    """None: it runs, or did not end by itself."""
    _tail: deque[bytes] = attrs.field(factory=deque, init=False)
    _size: int = attrs.field(default=0, init=False)

    def note(self, piece: bytes) -> None:
        """Keep *piece* of its standard error; what is too long ago is forgotten."""
        self._tail.append(piece)
        self._size += len(piece)
        while self._size - len(self._tail[0]) >= _TAIL:
            self._size -= len(self._tail.popleft())

    @property
    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        return b"".join(self._tail)[-_TAIL:].decode(errors="replace").strip()

    @property
    def text(self) -> str:
        """How it ended by itself, for a message; empty if it did not."""
        if self.status is None:
            return ""
        if self.status >= 0:
            return f"its process ended with the status {self.status}"
        with suppress(ValueError):
            return f"its process was ended by {signal.Signals(-self.status).name}"
        return f"its process was ended by the signal {-self.status}"


def stdio_transport(server: StdioServer, end: ProcessEnd) -> Transport:
    """Return a transport that starts *server* when it is entered; *end* is told how it ends."""
    return _open(server, end)


@asynccontextmanager
async def _open(server: StdioServer, end: ProcessEnd) -> AsyncIterator[TransportStreams]:
    process = await trio.lowlevel.open_process(
        [server.command, *server.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if server.stderr is None else server.stderr,
        env={**get_default_environment(), **(server.env or {})},
        cwd=server.cwd,
        start_new_session=True,
    )
    # From here to the try there is no checkpoint: a cancellation would lose the process.
    incoming, received = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    sending, outgoing = anyio.create_memory_object_stream[SessionMessage](_UNSENT)
    child = _Child(process, end)
    try:
        async with trio.open_nursery() as pumps:
            pumps.start_soon(child.read, incoming)
            pumps.start_soon(child.write, outgoing)
            pumps.start_soon(child.watch, incoming)
            pumps.start_soon(child.listen)
            try:
                yield received, sending
            finally:
                received.close()
                sending.close()
                await child.end_in_order(server.grace)  # noqa: ASYNC102  # or at once, below
                pumps.cancel_scope.cancel("the server has ended")
    finally:
        await child.end_now()  # noqa: ASYNC102  # it shields itself
        for each in (incoming, received, sending, outgoing):
            each.close()


@attrs.define(eq=False)
class _Child:
    """The process of a server, and the tasks at its streams."""

    _process: trio.Process
    _end: ProcessEnd
    _all_read: trio.Event = attrs.field(factory=trio.Event, init=False)
    _gone: bool = attrs.field(default=False, init=False)
    """Its group has no process any more."""

    async def read(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Deliver messages until the output ends; once nobody takes them, let it flow."""
        stdout = self._process.stdout
        assert stdout is not None
        lines, wanted = LineBuffer(), True
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for piece in stdout:
                for line in lines.feed(bytes(piece)):
                    message = _message(line) if wanted else None
                    try:
                        if message is not None:
                            await incoming.send(message)
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        wanted = False  # a server that cannot write does not come to its end
        self._all_read.set()
        incoming.close()

    async def write(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write what is sent; close the input once nothing more can come.

        A server that has closed its input and lives on answers nothing: it is told to end, so that
        whoever waits for it hears so.
        """
        stdin = self._process.stdin
        assert stdin is not None
        try:
            async for each in outgoing:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.send_all(text.encode() + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._signal(kill=False)
        outgoing.close()
        await stdin.aclose()

    async def listen(self) -> None:
        """Read its standard error, so that it can go on writing there, and keep the end."""
        if self._process.stderr is not None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for piece in self._process.stderr:
                    self._end.note(bytes(piece))

    async def watch(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Tell of the process's end, also if others hold its output open."""
        self._end.status = await self._process.wait()
        self._signal(kill=True)  # they hold the output open
        with trio.move_on_after(_LAST_WORDS):  # one that has left the group may hold it too
            await self._all_read.wait()
        incoming.close()

    async def end_in_order(self, grace: float) -> None:
        """Wait for the process to end by itself; a cancellation is delivered."""
        with trio.move_on_after(grace):
            await self._process.wait()

    async def end_now(self) -> None:
        """Leave nothing of the process and its group. Shielded, for seconds at the most."""
        process = self._process
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _HURRY + _REAP):
            self._end.status = process.poll()
            if process.returncode is None:
                self._signal(kill=False)
                with trio.move_on_after(_HURRY):
                    await process.wait()
            self._signal(kill=True)
            await process.wait()
        give_up_at = trio.current_time() + _GROUP_GONE
        with trio.CancelScope(shield=True, deadline=give_up_at):  # noqa: ASYNC912  # often none
            while self._signal(kill=True):  # noqa: ASYNC110  nobody tells of its end
                await trio.sleep(_GROUP_GONE / 50)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + _REAP):
                    await stream.aclose()

    def _signal(self, *, kill: bool) -> bool:
        """Signal every process of the group that the server leads, also if itself is gone.

        Returns whether there may have been one. A group keeps its number while it has a member;
        after that the number may be another's, so once there was none there is none.
        """
        if self._gone:
            return False
        try:
            if sys.platform != "win32":
                os.killpg(self._process.pid, signal.SIGKILL if kill else signal.SIGTERM)
            elif self._process.poll() is not None:
                self._gone = True
            elif kill:
                self._process.kill()
            else:
                self._process.terminate()
        except (ProcessLookupError, PermissionError):
            self._gone = True
        return not self._gone


def _message(line: Line) -> SessionMessage | Exception | None:
    """Return the message in *line*, an error in its place, or None for what is no message."""
    if line.whole:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line.text, by_name=False))
        except ValueError:
            pass  # a stray line, or an answer: the id tells
    asked = answered_id(line.text)
    if asked is None:
        return None
    error = ErrorData(code=PARSE_ERROR, message="it is no message of the protocol")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=asked, error=error))
