"""The demo's own model: a server on this machine, whose slots tell what it works on."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from harness._cli._child import LocalModelError
from harness._cli._local import MODEL_NAME, LocalServer, open_local_server
from harness._cli._scenes import Endpoint
from harness.providers import ChatModel

__all__ = ["START_WITHIN", "SlotWatch", "open_embedded"]

START_WITHIN = 60.0
"""Seconds that the server gets to load its model."""
_SETTINGS: Mapping[str, int] = {"max_tokens": 120, "temperature": 0}
"""So small a model does not always find an end by itself."""


@attrs.frozen
class SlotWatch:
    """Watches the slots of our own server."""

    _server: LocalServer
    at_work = "the server's slot was busy"
    at_rest = "idle"

    async def busy(self) -> bool:
        """Whether a slot is working on a request; a checkpoint."""
        return any(await self._server.slots())

    async def wait_idle(self) -> None:
        """Return once no slot is; a checkpoint."""
        await self._server.wait_idle()


@asynccontextmanager
async def open_embedded(
    model_path: Path, *, command: Sequence[str] | None = None
) -> AsyncIterator[Endpoint]:
    """The model at *model_path* on a server of our own; both are gone when the block is left.

    *command* is that of `open_local_server`.

    Raises:
        MissingExtraError: an extra is not installed.
        LocalModelError: the server did not start, or not within `START_WITHIN` seconds.
    """
    begun = trio.current_time()
    with trio.move_on_after(START_WITHIN) as starting:
        async with open_local_server(model_path, command=command) as server:
            starting.deadline = math.inf
            took = trio.current_time() - begun
            name = model_path.name.partition(".")[0]
            about = f"{name} on a server of its own (process {server.pid}), up in {took:.1f} s"
            async with ChatModel(MODEL_NAME, base_url=server.base_url, settings=_SETTINGS) as model:
                yield Endpoint(model=model, watch=SlotWatch(server), about=about)
    if starting.cancelled_caught:
        raise LocalModelError(f"the model server did not start, expected it in {START_WITHIN:g} s")
