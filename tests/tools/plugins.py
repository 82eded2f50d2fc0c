"""Plugins for tests: flat ones, and one written by hand whose tools share a setup."""

from collections.abc import Iterable, Sequence
from typing import Any

from harness._json import JSON
from harness._toolset import CallContext, CallPolicy, Outcome, ToolCall
from harness.tools import Tool, ToolPlugin, plugin_from_tools, tool


def acting(name: str, description: str = "Act.") -> Tool:
    """Return a tool that answers with its own name."""

    async def act() -> str:
        return name

    return tool(name=name, description=description)(act)


def flat(name: str, *tools: str, description: str = "") -> ToolPlugin:
    """Return a plugin with tools of these names, or with one of its own name."""
    return plugin_from_tools(name, description, [acting(each) for each in tools or (name,)])


def named(definitions: Iterable[dict[str, JSON]]) -> list[Any]:
    """Return the names of the tools that *definitions* define."""
    functions: Any = [each["function"] for each in definitions]
    return [each["name"] for each in functions]


class Shared:
    """A plugin whose tools answer out of one connection, which the first call opens."""

    def __init__(self, name: str, tools: Sequence[str]) -> None:
        self.name = name
        self.description = "Shares a connection."
        self.opened = 0
        self.asked_for_tools = 0
        self._tools = tuple(tools)

    def tools(self) -> list[dict[str, JSON]]:
        """Return the definitions, made anew and turned around each time."""
        self.asked_for_tools += 1
        self._tools = self._tools[::-1]
        return [
            {"type": "function", "function": {"name": each, "description": f"Shared {each}."}}
            for each in self._tools
        ]

    def policy(self, call: ToolCall) -> CallPolicy:
        """Return a policy with one pool for all tools."""
        return CallPolicy(pool=self.name)

    async def dispatch(
        self, tool_name: str, raw_args: str | dict[str, JSON], context: CallContext[object]
    ) -> Outcome:
        """Answer with the tool's name, as the flat ones do."""
        self.opened = 1
        return Outcome.completed(tool_name)
