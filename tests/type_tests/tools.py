"""What a type checker must understand of tools; it is checked, and never run.

An ignore here is a claim too: one that hides no error is an error.
"""

from collections.abc import Coroutine
from typing import Any, TypedDict, assert_type

import attrs

from harness._json import JSON
from harness._toolset import CallContext, Outcome, Toolset
from harness.tools import FunctionTool, Schema, Tool, ToolList, as_toolset, define_tool, tool


@attrs.frozen
class App:
    """A host's own type."""

    database: dict[str, str]


@attrs.frozen
class Query:
    text: str
    limit: int = 5


class Row(TypedDict):
    key: str


class Numbers:
    def json_schema(self) -> dict[str, JSON]:
        raise NotImplementedError

    def parse(self, raw: dict[str, JSON]) -> int:
        raise NotImplementedError


@tool
async def search(text: str, limit: int = 3) -> list[str]:
    return [text] * limit


@tool(serial=True, grace=2.0, pool=None)
def count(context: CallContext[App], key: str) -> int:
    assert_type(context.host, App)
    context.host.elsewhere  # type: ignore[attr-defined]  # noqa: B018 - the host's type is known
    return len(context.host.database[key])


class Shop:
    async def sell(self, name: str) -> bool:
        return bool(name)


async def a_decorated_function_keeps_its_types(context: CallContext[App]) -> None:
    asked = assert_type(search("x", limit=1), Coroutine[Any, Any, list[str]])
    assert_type(await asked, list[str])
    assert_type(count(context, "x"), int)
    assert_type(count.function(context, key="x"), int)
    search(1)  # type: ignore[arg-type, unused-coroutine]
    count("x")  # type: ignore[call-arg, arg-type]
    assert_type(await tool(Shop().sell)("x"), bool)
    assert_type(await tool(name="other")(Shop().sell)("x"), bool)


def options_are_checked() -> None:
    tool(serail=True)  # type: ignore[call-overload]
    tool(grace="2")  # type: ignore[call-overload]
    tool(effect="some")  # type: ignore[call-overload]


async def on_query(query: Query, context: CallContext[App]) -> str:
    return context.host.database[query.text]


def on_row(row: Row, context: CallContext[App]) -> str:
    return row["key"]


def on_number(number: int, context: CallContext[App]) -> int:
    return number


def on_json(arguments: dict[str, JSON], context: CallContext[App]) -> JSON:
    return arguments["x"]


def a_defined_tool_gets_what_its_schema_makes() -> None:
    remote: dict[str, JSON] = {"type": "object"}
    numbers: Schema[int] = Numbers()
    assert_type(define_tool("q", "", schema=Query, execute=on_query), Tool)
    define_tool("r", "", schema=Row, execute=on_row)
    define_tool("n", "", schema=numbers, execute=on_number, time_limit=3)
    define_tool("n", "", schema=Numbers(), execute=on_number)
    define_tool("j", "", schema=remote, execute=on_json, abandon=True)
    define_tool("q", "", schema=Query, execute=on_number)  # type: ignore[arg-type]
    define_tool("j", "", schema=remote, execute=on_query)  # type: ignore[arg-type]


async def tools_are_a_toolset(context: CallContext[App]) -> None:
    tools: list[Tool] = [search, count]
    toolset: Toolset = ToolList(tools)
    assert_type(as_toolset(tools), Toolset)
    assert_type(as_toolset([search]), Toolset)
    assert_type(as_toolset(toolset), Toolset)
    assert_type(await count.execute({"key": "x"}, context), Outcome)
    as_toolset([search.function])  # type: ignore[list-item]


def a_function_tool_is_a_tool(one: FunctionTool[[int], str]) -> Tool:
    assert_type(one(1), str)
    return one
