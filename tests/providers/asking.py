"""A chat model that asks a server of ours, and what the turn told."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from harness._events import Event, TextDelta
from harness._messages import user_message
from harness._model import (
    Assembly,
    ModelRequest,
    ModelTurn,
    StreamBudgets,
    TextSurface,
    TurnStream,
)
from harness._usage import Usage
from harness.completion import open_turn_stream
from harness.providers import ChatModel
from tests.providers.server import Exchange, Script, Server, head, open_server, payload, stream_of

__all__ = [
    "KEY",
    "PARIS",
    "REQUEST",
    "WHOLE",
    "Surface",
    "ask",
    "asking",
    "cut",
    "plain",
    "resetting",
    "stalling",
]

KEY = "sk-0123456789abcdef"
REQUEST = ModelRequest(run_id="r", turn_id="t", turn=0, messages=[user_message("Where?")])
PARIS = stream_of(payload(content="Par"), payload("stop", content="is"))


@attrs.define
class Surface:
    """What one turn told and spent."""

    events: list[Event] = attrs.field(factory=list)
    spent: list[Usage] = attrs.field(factory=list)
    budgets: StreamBudgets = StreamBudgets()

    def stream(self) -> TurnStream:
        return open_turn_stream(
            "t",
            tell=self.events.append,
            spend=self.spent.append,
            surface=TextSurface(),
            assembly=Assembly(),
            tool_calls=0,
            budgets=self.budgets,
        )

    def text(self) -> str:
        return "".join(each.text for each in self.events if isinstance(each, TextDelta))


async def ask(model: ChatModel, surface: Surface | None = None) -> ModelTurn:
    return await model.complete(REQUEST, (surface or Surface()).stream())


@asynccontextmanager
async def asking(script: Script, **fields: object) -> AsyncIterator[tuple[ChatModel, Server]]:
    """A server with *script*, and an open model that asks it."""
    async with (
        open_server(script) as server,
        ChatModel("m", base_url=server.base_url, **fields) as model,  # type: ignore[arg-type]  # a test's
    ):
        yield model, server
    # trio's hook for a forgotten generator warns when it is collected, and a warning is a failure.
    gc.collect()


def stalling(*data: bytes) -> Script:
    """Send *data*, and then nothing more."""

    async def script(exchange: Exchange) -> None:
        for each in data:
            await exchange.send(each)
        await exchange.gone()

    return script


def resetting(*data: bytes) -> Script:
    async def script(exchange: Exchange) -> None:
        for each in data:
            await exchange.send(each)
        if data:
            await trio.sleep(0.02)  # an RST would overtake what was sent
        await exchange.reset()

    return script


class _CutAt(trio.abc.Instrument):
    """Cancels *scope* at one step of the tasks below *root*."""

    def __init__(self, root: trio.lowlevel.Task, scope: trio.CancelScope, at: int) -> None:
        self.root, self.scope, self.left = root, scope, at

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._count(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._count(task)

    def _count(self, task: trio.lowlevel.Task) -> None:
        parent: trio.lowlevel.Task | None = task
        while parent is not None and parent is not self.root:
            parent = parent.parent_nursery.parent_task if parent.parent_nursery else None
        if parent is self.root:
            if self.left == 0:
                self.scope.cancel()
            self.left -= 1


async def cut(at: int, work: Callable[[], Awaitable[object]]) -> bool:
    """Run *work* and cut it at its step *at*; return whether it ended before that."""
    with trio.CancelScope() as scope:
        instrument = _CutAt(trio.lowlevel.current_task(), scope, at)
        trio.lowlevel.add_instrument(instrument)
        try:
            await work()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return instrument.left >= 0


def plain(
    body: bytes, status: int = 200, *headers: str, content_type: str = "application/json"
) -> bytes:
    return head(status, content_type, *headers, length=len(body)) + body


WHOLE = json.dumps(
    {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Paris"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
).encode()
