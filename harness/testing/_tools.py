"""Fake tools: real tools that take any arguments and do one thing each.

Every one keeps a list of its visits: which call came, with what, and how it left. That answers
what a test of cancellation asks, in virtual time and without a mock.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, TypedDict, TypeVar, Unpack, overload

import attrs
import trio

from harness._bounds import check_seconds
from harness._json import JSON
from harness._shield import only_cancelled
from harness._toolset import CallContext, CallPolicy
from harness.testing._script import Timed
from harness.tools import PolicyOptions, Schema, Tool, define_tool

__all__ = [
    "BlockingTool",
    "FakeTool",
    "HeldTool",
    "Visit",
    "blocking_tool",
    "counting_tool",
    "failing_tool",
    "held_tool",
    "slow_tool",
    "stubborn_tool",
    "timed",
]

ItemT = TypeVar("ItemT")

_ANYTHING: Final[dict[str, JSON]] = {"type": "object"}
_PATIENCE: Final = 60.0
"""Seconds after which a blocking thread gives up on being released."""


@attrs.define(kw_only=True, eq=False)
class Visit:
    """One entering of a fake tool's function."""

    call_id: str
    arguments: dict[str, JSON]
    end: Literal["running", "returned", "raised", "cancelled"] = "running"


@attrs.frozen(kw_only=True, eq=False)
class FakeTool(Tool):
    """A tool that takes any arguments and notes who called it."""

    visits: list[Visit]
    """In the order in which its function was entered."""

    @property
    def started(self) -> int:
        """How often its function was entered."""
        return len(self.visits)

    @property
    def returned(self) -> int:
        """How often its function returned."""
        return sum(visit.end == "returned" for visit in self.visits)


@attrs.frozen(kw_only=True, eq=False)
class HeldTool(FakeTool):
    """A tool whose calls wait until they are released."""

    _gate: trio.Event = attrs.field(alias="gate")

    def release(self) -> None:
        """Let every call go, those that are still to come too."""
        self._gate.set()


@attrs.frozen(kw_only=True, eq=False)
class BlockingTool(FakeTool):
    """A tool that blocks a real thread until it is released."""

    _gate: threading.Event = attrs.field(alias="gate")
    _entered: threading.Event = attrs.field(alias="entered")

    def release(self) -> None:
        """Let every call go, those that are still to come too. Release it in a ``finally``."""
        self._gate.set()

    async def wait_entered(self) -> None:
        """Return once a thread is inside the function. A checkpoint."""
        await trio.to_thread.run_sync(self._entered.wait, abandon_on_cancel=True)


def counting_tool(name: str = "count", **policy: Unpack[PolicyOptions]) -> FakeTool:
    """Return a tool that answers with how often it has been called so far, after a checkpoint."""

    async def count(visit: Visit) -> object:
        number = fake.started
        await trio.lowlevel.checkpoint()
        return number

    fake = FakeTool(**_async_parts(name, "Counts its calls.", count, policy))
    return fake


def slow_tool(
    seconds: float, name: str = "slow", *, result: object = None, **policy: Unpack[PolicyOptions]
) -> FakeTool:
    """Return a tool that answers *result* after so many seconds."""
    check_seconds("seconds", seconds)

    async def wait(visit: Visit) -> object:
        await trio.sleep(seconds)
        return result

    return FakeTool(**_async_parts(name, "Takes its time.", wait, policy))


def failing_tool(
    error: BaseException, name: str = "fail", **policy: Unpack[PolicyOptions]
) -> FakeTool:
    """Return a tool that raises *error*, after a checkpoint."""

    async def fail(visit: Visit) -> object:
        await trio.lowlevel.checkpoint()
        raise error

    return FakeTool(**_async_parts(name, "Fails.", fail, policy))


def stubborn_tool(
    seconds: float,
    name: str = "stubborn",
    *,
    result: object = None,
    **policy: Unpack[PolicyOptions],
) -> FakeTool:
    """Return a tool that takes so many seconds, cancelled or not, and then answers *result*."""
    check_seconds("seconds", seconds)

    async def ignore(visit: Visit) -> object:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
        return result

    return FakeTool(**_async_parts(name, "Ignores a cancellation.", ignore, policy))


def held_tool(
    name: str = "held", *, result: object = None, **policy: Unpack[PolicyOptions]
) -> HeldTool:
    """Return a tool that answers *result* once it has been released."""
    gate = trio.Event()

    async def hold(visit: Visit) -> object:
        await gate.wait()
        return result

    return HeldTool(**_async_parts(name, "Waits to be released.", hold, policy), gate=gate)


def blocking_tool(
    name: str = "block",
    *,
    result: object = None,
    abandon: bool = False,
    **policy: Unpack[PolicyOptions],
) -> BlockingTool:
    """Return a tool that blocks a real thread until it is released, then answers *result*.

    Not for virtual time: a clock that jumps does not wait for threads. *abandon* is as for
    `harness.tools.tool`. A thread that nobody releases gives up after a minute.
    """
    gate, entered = threading.Event(), threading.Event()

    def block(visit: Visit) -> object:
        entered.set()
        if not gate.wait(_PATIENCE):
            raise TimeoutError(f"{name!r} was not released, expected release() within a minute")
        return result

    visits: list[Visit] = []

    def execute(arguments: dict[str, JSON], context: CallContext[object]) -> object:
        with _visiting(visits, arguments, context) as visit:
            return block(visit)

    plain = define_tool(
        name, "Blocks a thread.", schema=_ANYTHING, execute=execute, abandon=abandon, **policy
    )
    parts = _parts(plain, execute, visits, threaded=True)
    return BlockingTool(**parts, gate=gate, entered=entered)


class _Parts(TypedDict):
    name: str
    description: str
    schema: Schema[object]
    policy: CallPolicy
    abandon: bool
    called: Callable[..., object]
    threaded: bool
    visits: list[Visit]


def _parts(
    plain: Tool, execute: Callable[..., object], visits: list[Visit], *, threaded: bool
) -> _Parts:
    """Return what a fake is made of: what *plain* is, and the list."""
    return {
        "name": plain.name,
        "description": plain.description,
        "schema": plain.schema,
        "policy": plain.policy,
        "abandon": plain.abandon,
        "called": execute,
        "threaded": threaded,
        "visits": visits,
    }


def _async_parts(
    name: str,
    description: str,
    body: Callable[[Visit], Awaitable[object]],
    policy: PolicyOptions,
) -> _Parts:
    visits: list[Visit] = []

    async def execute(arguments: dict[str, JSON], context: CallContext[object]) -> object:
        with _visiting(visits, arguments, context) as visit:
            return await body(visit)

    plain = define_tool(name, description, schema=_ANYTHING, execute=execute, **policy)
    return _parts(plain, execute, visits, threaded=False)


@contextmanager
def _visiting(
    visits: list[Visit], arguments: dict[str, JSON], context: CallContext[object]
) -> Iterator[Visit]:
    visit = Visit(call_id=context.call.id, arguments=arguments)
    visits.append(visit)
    try:
        yield visit
    except BaseException as error:
        visit.end = "cancelled" if only_cancelled(error) else "raised"
        raise
    visit.end = "returned"


@overload
def timed(seconds: float, item: Tool) -> Tool: ...  # type: ignore[overload-overlap]  # first match
@overload
def timed(seconds: float, item: ItemT) -> Timed[ItemT]: ...
def timed(seconds: float, item: Tool | ItemT) -> Tool | Timed[ItemT]:
    """Return *item*, a tool, a turn of a script or a chunk of one, so that it takes *seconds*.

    A tool waits before its arguments are looked at, and can be cancelled then; it keeps its name,
    its definition and its policy.
    """
    if not isinstance(item, Tool):
        return Timed(seconds, item)
    check_seconds("seconds", seconds)
    tool = item

    async def wait_and_execute(raw: dict[str, JSON], context: CallContext[object]) -> object:
        await trio.sleep(seconds)
        return await tool.execute(raw, context)

    return define_tool(
        tool.name,
        tool.description,
        schema=_Unread(tool.schema),
        execute=wait_and_execute,
        normalize=tool.normalize,
        pool=tool.policy.pool,
        serial=tool.policy.serial,
        grace=tool.policy.grace,
        time_limit=tool.policy.time_limit,
        effect=tool.policy.effect,
    )


@attrs.frozen
class _Unread:
    """A schema that is told as it is, and leaves reading to whoever it is of."""

    _schema: Schema[object]

    def json_schema(self) -> dict[str, JSON]:
        return self._schema.json_schema()

    def parse(self, raw: dict[str, JSON]) -> dict[str, JSON]:
        return raw
