"""A small real model behind a real HTTP server, for as long as a block lasts.

The server is llama.cpp's own, from a prebuilt wheel (extra ``local``), in a child process on
loopback. It takes any free port and tells us which: picking one here and handing it over would
leave a moment in which somebody else can take it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from harness._cli._child import Child, LocalModelError, open_child
from harness._errors import MissingExtraError

try:
    import httpx2
except ModuleNotFoundError as error:
    raise MissingExtraError("local", error.name or "httpx2") from error

__all__ = ["MODEL_NAME", "LocalServer", "open_local_server"]

MODEL_NAME = "smollm2-135m"
"""What the server calls its model."""
_LOOK_EVERY = 0.02
"""Seconds between two questions to the server."""


@attrs.define(eq=False)
class LocalServer:
    """A server that is up; made by `open_local_server`."""

    base_url: str
    """Where its chat-completions interface is: ``http://127.0.0.1:PORT/v1``."""
    pid: int
    """Its process."""
    _client: httpx2.AsyncClient

    async def slots(self) -> tuple[bool, ...]:
        """Whether each slot is working on a request, as the server says now; a checkpoint.

        Raises:
            LocalModelError: the server did not answer, or with something else.
        """
        try:
            answer = await self._client.get("/slots")
            answer.raise_for_status()
            return tuple(bool(slot["is_processing"]) for slot in answer.json())
        except (httpx2.HTTPError, LookupError, TypeError, ValueError) as error:
            raise LocalModelError(f"the model server has no slots to show: {error}") from error

    async def wait_idle(self) -> None:
        """Return once no slot is working on anything; the caller's scope bounds the wait."""
        while True:
            if not any(await self.slots()):
                return
            await trio.sleep(_LOOK_EVERY)


@asynccontextmanager
async def open_local_server(
    model_path: Path, *, command: Sequence[str] | None = None
) -> AsyncIterator[LocalServer]:
    """A healthy server for the model at *model_path*, gone when the block is left.

    Entering waits until the server is healthy, for as long as the caller's scope allows.
    Leaving stops the process as `open_child` says: on every way out, in bounded time.

    Args:
        model_path: a GGUF file.
        command: what to start instead of our server; *model_path* is appended. It must print
            its address and then answer ``/health`` and ``/slots``.

    Raises:
        MissingExtraError: the extra ``local`` is not installed.
        LocalModelError: the server ended before it was healthy; its last lines are in it.
    """
    if command is None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtraError("local", "xllamacpp")
        # -P: the directory of the script is no place to import from.
        command = [sys.executable, "-P", str(Path(__file__).with_name("_serve.py"))]
    async with open_child([*command, os.fspath(model_path)], reads_stdout=True) as child:
        address = await _address(child)
        # The user's proxy settings are not for loopback. No connection is kept: the server ends an
        # idle one when it likes, which may be just when the next question is on its way.
        limits = httpx2.Limits(max_keepalive_connections=0)
        async with httpx2.AsyncClient(base_url=address, limits=limits, trust_env=False) as client:
            await _healthy(child, client)
            yield LocalServer(f"{address}/v1", child.process.pid, client)


async def _address(child: Child) -> str:
    assert child.process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        piece = await child.process.stdout.receive_some()
        if not piece:
            raise await _ended(child)
        line += piece
    return line.decode().strip()


async def _healthy(child: Child, client: httpx2.AsyncClient) -> None:
    while True:
        try:
            if (await client.get("/health")).status_code == 200:
                return
        except httpx2.TransportError:
            # Either it is on its way down, which the next line sees, or it is not up yet.
            pass
        if child.process.returncode is not None:
            raise await _ended(child)
        await trio.sleep(_LOOK_EVERY)


async def _ended(child: Child) -> LocalModelError:
    status = await child.process.wait()
    return LocalModelError(
        f"the model server ended with status {status}, expected it to become healthy",
        lines=child.last_lines(),
    )
