"""An endpoint of the user's, for the demo.

A remote server does not tell what it works on. What can be seen from here is the client's side
of each exchange, which httpx2 reports as it happens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

import attrs
import trio

from harness._errors import MissingExtraError

try:
    import httpx2
except ModuleNotFoundError as error:
    raise MissingExtraError("http", error.name or "httpx2") from error

from harness._cli._scenes import Endpoint
from harness.providers import ChatModel

__all__ = ["OpenRequests", "open_remote"]

_Trace: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[None]]


@attrs.define(eq=False)
class OpenRequests:
    """Counts the requests that were sent and whose reply has not been closed."""

    _open: int = 0
    _changed: trio.Event = attrs.field(factory=trio.Event)
    at_work = "its connection was open"
    at_rest = "closed"

    async def busy(self) -> bool:
        """Whether one is open; no checkpoint."""
        return self._open > 0

    async def wait_idle(self) -> None:
        """Return once none is; a checkpoint if one is."""
        while self._open:
            await self._changed.wait()

    async def attach(self, request: httpx2.Request) -> None:
        """Count *request*; an event hook of a client."""
        theirs: _Trace | None = request.extensions.get("trace")

        async def trace(event: str, details: Mapping[str, object]) -> None:
            self._note(event)
            if theirs is not None:  # the model's own, which may raise: counted is counted then
                await theirs(event, details)

        request.extensions["trace"] = trace

    def _note(self, event: str) -> None:
        # The protocol's name stands before the dot. A reply that was cut short takes its
        # connection with it; one that was read to its end leaves it for the next request.
        match event.partition(".")[2]:
            case "send_request_headers.started":
                self._count(+1)
            case "response_closed.complete" | "response_closed.failed":
                self._count(-1)

    def _count(self, change: int) -> None:
        self._open += change
        self._changed.set()
        self._changed = trio.Event()


@asynccontextmanager
async def open_remote(name: str, *, base_url: str, api_key: str | None) -> AsyncIterator[Endpoint]:
    """The model *name* at an endpoint of the user's; its connections are closed with the block.

    Raises:
        MissingExtraError: an extra is not installed.
        UsageError: *base_url* or *api_key* cannot be used.
    """
    watch = OpenRequests()
    async with httpx2.AsyncClient(event_hooks={"request": [watch.attach]}) as client:
        model = ChatModel(name, base_url=base_url, api_key=api_key, client=client)
        about = (
            f"{name} at {base_url}; a remote server shows no slots, so its connection is watched"
        )
        yield Endpoint(model=model, watch=watch, about=about)
