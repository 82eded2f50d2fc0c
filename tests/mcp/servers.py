"""Real servers, made with the official package: as a process, over HTTP, and in this process.

``python -m tests.mcp.servers`` is one that speaks over its standard streams.
"""

from __future__ import annotations

import argparse
import base64
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import trio
import uvicorn
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import Image, MCPServer
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from harness.mcp import StdioServer, TransportServer

__all__ = ["PIXEL", "alive", "here", "make_server", "notes_of", "over_http", "process"]

ROOT: Final = Path(__file__).resolve().parents[2]
PIXEL: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def make_server(notes: list[str] | Path | None = None) -> MCPServer:
    """Return a server with tools of every temper; *notes* gets what happens to its calls."""
    server = MCPServer("tempers")

    def note(text: str) -> None:
        if isinstance(notes, Path):
            with notes.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")
        elif notes is not None:
            notes.append(text)

    @server.tool()
    async def echo(text: str) -> str:
        """Say it again."""
        note(f"echo {text}")
        return text

    @server.tool()
    async def slow(seconds: float) -> str:
        """Take a while."""
        note("slow began")
        try:
            await anyio.sleep(seconds)
        except anyio.get_cancelled_exc_class():
            note("slow cancelled")
            raise
        return "done"

    @server.tool()
    async def pid() -> int:
        """Tell the process."""
        return os.getpid()

    @server.tool()
    async def die(status: int) -> str:
        """End the process in the middle of a call."""
        print("last words", file=sys.stderr, flush=True)
        os._exit(status)

    @server.tool()
    async def bear() -> int:
        """Start a process that outlives its parent."""
        child = subprocess.Popen(  # noqa: ASYNC220  # it is to be left alone
            [sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL
        )
        return child.pid

    @server.tool()
    async def fail(text: str) -> str:
        """Fail."""
        raise ValueError(text)

    @server.tool()
    async def picture() -> Image:
        """Draw."""
        return Image(data=PIXEL, format="png")

    @server.tool()
    async def everything() -> CallToolResult:
        """Return content of every kind."""
        content: list[ContentBlock] = [
            TextContent(text="some text"),
            AudioContent(data="AAAA", mime_type="audio/mpeg"),
            ResourceLink(name="a page", uri="https://example.org/page"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="in it")),
            EmbeddedResource(
                resource=BlobResourceContents(
                    uri="file:///b/c.pdf", blob="BBBB", mime_type="application/pdf"
                )
            ),
        ]
        return CallToolResult(content=content, structured_content={"count": 5})

    return server


def process(*arguments: str, name: str = "tempers", **options: object) -> StdioServer:
    """Return the server of this file as a process."""
    return StdioServer(
        name=name,
        command=sys.executable,
        args=["-m", "tests.mcp.servers", *arguments],
        cwd=ROOT,
        **options,  # type: ignore[arg-type]  # the caller's own
    )


def here(server: MCPServer, *, name: str = "tempers", **options: object) -> TransportServer:
    """Return a server that runs in this process."""
    return TransportServer(
        name=name,
        transport=lambda: InMemoryTransport(server),
        **options,  # type: ignore[arg-type]  # the caller's own
    )


def notes_of(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def alive(pid: int) -> bool:
    """Whether *pid* is a process that could still do something."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@asynccontextmanager
async def over_http(*arguments: str) -> AsyncIterator[tuple[str, trio.Process]]:
    """Run the server of this file as a process that is reached over HTTP."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    port = listener.getsockname()[1]
    command = [sys.executable, "-m", "tests.mcp.servers", f"--fd={listener.fileno()}", *arguments]
    process = await trio.lowlevel.open_process(command, cwd=ROOT, pass_fds=[listener.fileno()])
    listener.close()
    try:
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            await process.wait()


def serve_http(server: MCPServer, fd: int) -> None:
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int)
    parser.add_argument("notes", nargs="?", type=Path)
    options = parser.parse_args(arguments)
    server = make_server(options.notes)
    if options.fd is None:
        anyio.run(server.run_stdio_async)
    else:
        serve_http(server, options.fd)


if __name__ == "__main__":
    main(sys.argv[1:])
