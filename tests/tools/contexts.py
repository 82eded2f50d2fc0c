"""Contexts for calls that no run is behind."""

from collections.abc import Callable
from typing import TypeVar

import trio

from harness._events import Event
from harness._toolset import Batch, CallContext, Outcome, Reply, ToolCall
from harness.tools import Tool

HostT = TypeVar("HostT")


class Stop:
    """A stop that a test sets."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()


def ask(name: str = "tool", arguments: str = "", *, call_type: str = "function") -> ToolCall:
    return ToolCall(id="call_1", name=name, arguments=arguments, type=call_type)


def context_for(
    call: ToolCall,
    host: HostT,
    *,
    reply: Reply | None = None,
    stop: Stop | None = None,
    keep_permit: Callable[[], Callable[[], None]] | None = None,
    tell: Callable[[Event], None] = lambda event: None,
) -> CallContext[HostT]:
    def refuse() -> Callable[[], None]:
        raise AssertionError("nobody was to keep a permit")

    return CallContext(
        call=call,
        batch=Batch(run_id="run_1", turn_id="turn_1", turn=1, calls=(call,), messages=()),
        stopping=stop or Stop(),
        host=host,
        reply=reply,
        tell=tell,
        keep_permit=keep_permit or refuse,
    )


async def run(of: Tool, arguments: object = "", *, host: object = None) -> Outcome:
    """Call a tool with no run around it."""
    return await of.execute(arguments, context_for(ask(of.name), host))
