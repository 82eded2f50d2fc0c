from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import msgspec
import pytest
import trio

from harness._errors import ToolDefinitionError
from harness._toolset import CallContext, CallPolicy, Outcome, Suspend
from harness.tools import tool
from tests.tools.contexts import Stop, ask, context_for, run


class Shop:
    """A host's own object."""

    def __init__(self) -> None:
        self.sold: list[str] = []

    async def sell(self, name: str, context: CallContext[Shop]) -> int:
        """Sell something."""
        context.host.sold.append(name)
        return len(self.sold)


@pytest.mark.rule("R-TOOL-01")
async def test_a_function_gets_its_own_defaults_for_what_was_left_out() -> None:
    marker = object()

    @tool
    async def keep(name: str, extra: Any = marker) -> bool:
        return extra is marker

    assert await run(keep, '{"name": "x"}') == Outcome.completed(True)
    assert await run(keep, '{"name": "x", "extra": 1}') == Outcome.completed(False)


def test_a_function_is_told_by_its_name_docstring_and_signature() -> None:
    @tool
    async def search(query: str, limit: Annotated[int, msgspec.Meta(ge=1)] = 3) -> str:
        """Search the files.

        Args:
            query: What to look for.
        """
        return query

    assert search.definition == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the files.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"description": "What to look for.", "type": "string"},
                    "limit": {"default": 3, "type": "integer", "minimum": 1},
                },
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    }


def test_options_go_first() -> None:
    @tool(name="find", description="Find it.", pool=None, serial=True, grace=2, effect="none")
    def search(query: str) -> str:
        """Not this."""
        return query

    assert (search.name, search.description) == ("find", "Find it.")
    assert search.policy == CallPolicy(pool=None, serial=True, grace=2, effect="none")


def test_the_pool_is_the_tools_own_unless_one_is_given() -> None:
    def act() -> None: ...

    assert tool(act).policy == CallPolicy(pool="act")
    assert tool(name="other")(act).policy == CallPolicy(pool="other")
    assert tool(pool="shared")(act).policy == CallPolicy(pool="shared")
    assert tool(pool=None)(act).policy == CallPolicy(pool=None)


def test_a_tool_is_still_the_function() -> None:
    @tool
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    assert double.function(number=4) == 8


async def test_a_bound_method_can_be_a_tool() -> None:
    shop = Shop()
    sell = tool(shop.sell)
    assert sell.description == "Sell something."
    assert await run(sell, '{"name": "x"}', host=shop) == Outcome.completed(1)
    assert shop.sold == ["x"]


@pytest.mark.rule("R-TOOL-10", "R-FENCE-07")
async def test_the_context_carries_the_hosts_own_object() -> None:
    shop = Shop()

    @tool
    async def who(context: CallContext[Shop], name: str) -> bool:
        context.host.sold.append(name)
        return isinstance(context.host, Shop)

    call = ask("who", '{"name": "x"}')
    context = context_for(call, shop)
    assert await who.execute(call.arguments, context) == Outcome.completed(True)
    assert context.host is shop
    assert shop.sold == ["x"]
    assert "context" not in str(who.definition)


@pytest.mark.rule("R-TOOL-11")
async def test_a_tool_may_watch_the_stop_and_wind_down(autojump_clock: object) -> None:
    @tool(grace=5)
    async def read(context: CallContext[None]) -> dict[str, object]:
        lines = 0
        while not context.stopping.is_set():
            await trio.sleep(1)
            lines += 1
        return {"call": context.call.id, "lines": lines}

    stop, outcomes = Stop(), list[Outcome]()
    context = context_for(ask("read"), None, stop=stop)

    async def call() -> None:
        outcomes.append(await read.execute("", context))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.sleep(2.5)
        stop.set()
    assert outcomes == [Outcome.completed({"call": "call_1", "lines": 3})]


@pytest.mark.rule("R-TOOL-18")
async def test_a_function_may_return_a_failure_with_its_kind() -> None:
    @tool
    async def look(name: str) -> Outcome:
        return Outcome.failed(f"there is no {name}", "not_found")

    assert await run(look, {"name": "x"}) == Outcome.failed("there is no x", "not_found")


@pytest.mark.rule("R-TOOL-20")
async def test_a_function_may_return_a_suspend() -> None:
    suspend = Suspend.answer("Really?")

    @tool
    async def ask_first() -> Suspend:
        return suspend

    assert await run(ask_first) == Outcome.completed(suspend=suspend)


async def test_a_synchronous_function_runs_in_a_thread_of_the_tools_name() -> None:
    @tool(name="counting")
    def where() -> tuple[int, str]:
        return threading.get_ident(), threading.current_thread().name

    outcome = await run(where)
    assert isinstance(outcome.data, list)
    ident, name = outcome.data
    assert ident != threading.get_ident()
    assert name == "counting"


def generates() -> Iterator[int]:
    yield 1


async def generates_too() -> AsyncIterator[int]:  # noqa: ASYNC900, ASYNC911 - the point
    yield 1  # noqa: ASYNC911


async def fine() -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (len, "it is .*, expected a function or a bound method"),
        (functools.partial(fine), "it is .*, expected a function or a bound method"),
        (Shop, "it is .*, expected a function or a bound method"),
        (3, "it is 3, expected a function or a bound method"),
        (tool(fine), "it is FunctionTool.*, expected a function or a bound method"),
        (generates, "it is a generator, expected a function that returns"),
        (generates_too, "it is a generator, expected a function that returns"),
        (lambda: None, "its name is '<lambda>', expected letters, digits, .*"),
    ],
)
def test_what_cannot_be_a_tool_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f" cannot be a tool: {reason}$"):
        tool(function)


def test_the_repr_of_a_tool_says_what_it_is_and_not_how() -> None:
    assert repr(tool(fine)) == (
        "FunctionTool(name='fine', description='', "
        "policy=CallPolicy(pool='fine', serial=False, grace=0.0, time_limit=None, "
        "effect='opaque', shielded=True), abandon=False, resumes=False)"
    )
    assert inspect.signature(tool(fine).function) == inspect.signature(fine)
