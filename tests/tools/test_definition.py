from __future__ import annotations

import functools
import math
import threading
from collections.abc import Awaitable
from typing import Any

import attrs
import msgspec
import pytest
import trio

from harness._errors import ToolDefinitionError
from harness._json import JSON
from harness._toolset import CallContext, Outcome
from harness.tools import ArgIssue, ArgsInvalid, ToolList, define_tool, tool
from tests.tools.contexts import ask, context_for, run
from tests.tools.threads import Blocking, threads_over


class Item(msgspec.Struct):
    name: str


@attrs.frozen
class Order:
    items: list[Item]
    limit: int = 5


async def returns_order(order: Order, context: CallContext[None]) -> Order:
    return order


@pytest.mark.rule("R-TOOL-01")
async def test_a_defined_tool_gets_typed_and_defaulted_arguments_and_the_hosts_context() -> None:
    got: list[tuple[Order, dict[str, str]]] = []

    async def execute(order: Order, context: CallContext[dict[str, str]]) -> str:
        got.append((order, context.host))
        return order.items[0].name

    shop = {"x": "sold out"}
    order = define_tool("order", "Order things.", schema=Order, execute=execute)
    assert await run(order, '{"items": [{"name": "x"}]}', host=shop) == Outcome.completed("x")
    assert got == [(Order(items=[Item("x")], limit=5), shop)]


class Handmade:
    """A schema by two methods and nothing of ours."""

    def json_schema(self) -> dict[str, JSON]:
        return {"type": "object", "title": "handmade"}

    def parse(self, raw: dict[str, JSON]) -> int:
        if "number" not in raw:
            raise ArgsInvalid([ArgIssue(path=("number",), message="where is it?")])
        return int(str(raw["number"]))


@pytest.mark.rule("R-TOOL-03")
async def test_any_object_with_the_two_methods_is_a_schema() -> None:
    handmade = Handmade()
    more = define_tool("more", "", schema=handmade, execute=lambda number, context: number + 1)
    assert more.schema is handmade
    assert more.definition == {
        "type": "function",
        "function": {
            "name": "more",
            "description": "",
            "parameters": {"type": "object", "title": "handmade", "properties": {}},
        },
    }
    assert await run(more, {"number": "4"}) == Outcome.completed(5)
    assert await run(more) == Outcome.failed("number: where is it?", "validation")


async def test_a_json_schema_is_a_schema_and_the_function_gets_the_dictionary() -> None:
    remote: dict[str, JSON] = {"type": "object", "required": ["query"]}
    search = define_tool("s", "", schema=remote, execute=lambda arguments, context: arguments)
    assert await run(search, '{"query": 1}') == Outcome.completed({"query": 1})
    assert await run(search) == Outcome.failed("query: required, but missing", "validation")


@pytest.mark.parametrize("source", [None, "schema", 3, ["x"], object()])
def test_what_is_no_schema_is_refused(source: Any) -> None:
    with pytest.raises(
        ToolDefinitionError,
        match=r"^'tool' .* its schema is .*, expected a class, a JSON Schema or a Schema$",
    ):
        define_tool("tool", "", schema=source, execute=returns_order)


def test_a_schema_of_the_hosts_own_must_be_of_an_object() -> None:
    class Odd:
        def json_schema(self) -> dict[str, JSON]:
            return {"type": "string"}

        def parse(self, raw: dict[str, JSON]) -> dict[str, JSON]:
            return raw

    with pytest.raises(ToolDefinitionError, match=r"its schema has the type 'string'"):
        define_tool("odd", "", schema=Odd(), execute=lambda arguments, context: None)


@pytest.mark.rule("R-TOOL-04")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ('{"items": [{"name": "x"}, {"name": 1}]}', "items.1.name: expected str, got int"),
        ({"items": [], "limit": "x"}, "limit: expected int, got str"),
        ("", "items: required, but missing"),
        ("[]", "the arguments are an array, expected one JSON object"),
        ('{"items": ', "the arguments are not JSON: .* line 1 column 11, expected one JSON object"),
        (7, "the arguments are a number, expected one JSON object"),
    ],
)
async def test_bad_arguments_come_back_as_a_failure_of_kind_validation(
    arguments: object, error: str
) -> None:
    order = define_tool("order", "", schema=Order, execute=returns_order)
    outcome = await run(order, arguments)
    assert (outcome.kind, outcome.failure_kind) == ("failed", "validation")
    assert pytest.RaisesExc(ValueError, match=f"^{error}$").matches(ValueError(outcome.error))


@pytest.mark.rule("R-TOOL-05")
@pytest.mark.parametrize("arguments", ["", "[", '{"items": 1}', '{"items": [], "x": 1}'])
async def test_a_tool_and_a_list_with_it_refuse_alike(arguments: str) -> None:
    order = define_tool("order", "", schema=Order, execute=returns_order)
    call = ask("order", arguments)
    context = context_for(call, None)
    direct = await order.execute(arguments, context)
    assert direct == await ToolList([order]).execute(call, context_for(call, None))
    assert direct.failure_kind == "validation"


async def test_a_call_that_is_no_function_call_is_refused() -> None:
    order = define_tool("order", "", schema=Order, execute=returns_order)
    context = context_for(ask("order", call_type="custom"), None)
    assert await order.execute('{"items": []}', context) == Outcome.failed(
        "the call has the type 'custom', expected 'function'", "validation"
    )


@pytest.mark.rule("R-TOOL-08")
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_what_a_function_raises_passes_out_as_it_is(asynchronous: bool) -> None:
    error = KeyError("x")

    async def fail() -> None:
        raise error

    def fail_in_thread() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        await run(tool(fail) if asynchronous else tool(fail_in_thread))
    assert caught.value is error


@pytest.mark.rule("R-TOOL-22")
async def test_a_synchronous_function_needs_a_thread_and_an_async_one_none() -> None:
    def where(order: Order, context: CallContext[None]) -> int:
        return threading.get_ident()

    async def where_too(order: Order, context: CallContext[None]) -> int:
        return threading.get_ident()

    threaded = define_tool("threaded", "", schema=Order, execute=where)
    here = define_tool("here", "", schema=Order, execute=where_too)
    assert (await run(threaded, {"items": []})).data != threading.get_ident()

    occupant = Blocking()
    trio.to_thread.current_default_thread_limiter().total_tokens = 1
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, occupant)
            await occupant.until_entered()
            assert (await run(here, {"items": []})).data == threading.get_ident()
            assert await run(tool(fine)) == Outcome.completed()
            with trio.move_on_after(0.02) as scope:
                await run(threaded, {"items": []})
            occupant.end.set()
    assert scope.cancelled_caught


@pytest.mark.rule("R-TOOL-22")
@pytest.mark.parametrize("abandon", [False, True])
async def test_an_awaitable_is_awaited_in_the_task_whoever_returned_it(abandon: bool) -> None:
    async def later() -> int:
        await trio.lowlevel.checkpoint()
        return threading.get_ident()

    @tool(abandon=abandon)
    def indirect() -> Awaitable[int]:
        assert trio.lowlevel.in_trio_run() is False
        return later()

    assert await run(indirect) == Outcome.completed(threading.get_ident())


@pytest.mark.rule("R-TOOL-23")
async def test_an_abandonable_tool_keeps_the_permit_of_its_call() -> None:
    blocking, kept = Blocking(), list[str]()

    @tool(abandon=True)
    def block() -> None:
        blocking()

    def keep_permit() -> Any:
        kept.append("kept")
        return functools.partial(kept.append, "released")

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            context = context_for(ask("block"), None, keep_permit=keep_permit)
            nursery.start_soon(block.execute, "", context)
            await blocking.until_entered()
            nursery.cancel_scope.cancel()
        assert kept == ["kept"]
        blocking.end.set()
        await threads_over()
    assert kept == ["kept", "released"]


async def fine() -> None: ...


def test_only_a_thread_can_be_abandoned() -> None:
    with pytest.raises(
        ToolDefinitionError,
        match=r"^'fine' .*: abandon is True for an async function, expected a synchronous one$",
    ):
        tool(abandon=True)(fine)


@pytest.mark.parametrize("name", ["", "  ", "my tool!", "a.b", "ü", "x" * 65])
def test_a_tool_has_a_name_that_every_provider_takes(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match=r"its name is .*, expected letters, digits, "):
        tool(name=name)(fine)


@pytest.mark.rule("R-GEN-06")
@pytest.mark.parametrize("option", ["grace", "time_limit"])
@pytest.mark.parametrize("value", [True, math.nan, math.inf, -1, "5"])
def test_every_bound_of_a_policy_is_checked_where_it_is_given(option: str, value: object) -> None:
    options: Any = {option: value}
    refused = rf"^CallPolicy\.{option} is {value!r}, expected "
    with pytest.raises((TypeError, ValueError), match=refused):
        tool(**options)(fine)
    with pytest.raises((TypeError, ValueError), match=refused):
        define_tool("order", "", schema=Order, execute=returns_order, **options)


def test_an_unknown_option_is_refused() -> None:
    options: Any = {"gracious": 1}
    with pytest.raises(TypeError, match="gracious"):
        tool(**options)(fine)
