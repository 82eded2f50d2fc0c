"""Plugins: tools that come and go together, under one name.

A plugin is the unit in which tools are loaded: what a session stores is names of plugins. It says
what its tools are, how their calls are run, and runs one by its name. Whether it holds a list of
tools or one connection that all its tools share is its own affair, which is why it dispatches by
name instead of handing out functions.

A name that it does not have is answered, not raised: a transcript may tell of tools that have
been retired.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Protocol

import attrs

from harness._errors import NotJSONError, ToolDefinitionError, UsageError, shown
from harness._json import JSON, check_json, encode_text
from harness._toolset import CallContext, CallPolicy, Outcome, ToolCall
from harness.tools._definition import Tool, check_name
from harness.tools._toolset import ToolList
from harness.tools._wire import definition_name

__all__ = [
    "Plugin",
    "PluginError",
    "ToolPlugin",
    "definitions_by_name",
    "plugin_from_tools",
]


class PluginError(UsageError, ValueError):
    """Something that cannot be a plugin, an alias of one, or live; `plugin` is its name."""

    code = "plugin"

    def __init__(self, plugin: str, reason: str) -> None:
        self.plugin = plugin
        self.reason = reason
        super().__init__(f"plugin {plugin!r} {reason}")


class Plugin(Protocol):
    """A named bundle of tools. A host's own kind has further fields, and maybe shared setup."""

    @property
    def name(self) -> str:
        """What a session stores and a model loads it by."""
        ...

    @property
    def description(self) -> str:
        """What a model is told of it before it is loaded."""
        ...

    def tools(self) -> Sequence[dict[str, JSON]]:
        """Return the definitions of its tools, in order; a registry reads them once."""
        ...

    def policy(self, call: ToolCall) -> CallPolicy:
        """Return how *call*, of one of its tools, is run."""
        ...

    def dispatch(
        self, tool_name: str, raw_args: str | dict[str, JSON], context: CallContext[object]
    ) -> Awaitable[Outcome]:
        """Run the tool *tool_name* with arguments as they came.

        Like `Toolset.execute`, it is called inside a shield and may raise whatever its tool does.
        """
        ...


@attrs.frozen(kw_only=True, eq=False)
class ToolPlugin:
    """A plugin made of tools, by `plugin_from_tools`. A subclass adds fields of a host's own."""

    name: str
    description: str
    _tools: ToolList = attrs.field(alias="tools", converter=ToolList, repr=False)

    def tools(self) -> tuple[dict[str, JSON], ...]:
        """Return each tool's definition; the same objects every time."""
        return self._tools.definitions()

    def policy(self, call: ToolCall) -> CallPolicy:
        """Return the tool's policy; for a name that is not here, that of an undeclared call."""
        return self._tools.policy(call)

    async def dispatch(
        self, tool_name: str, raw_args: str | dict[str, JSON], context: CallContext[object]
    ) -> Outcome:
        """Run the tool *tool_name*, or fail with ``not_found``; see `ToolList.execute`."""
        try:
            text = raw_args if isinstance(raw_args, str) else encode_text(raw_args)
        except NotJSONError as refusal:
            return Outcome.failed(str(refusal), "validation")
        # The call keeps its class: one that has been normalized is not normalized again.
        call = attrs.evolve(context.call, name=tool_name, arguments=text)
        return await self._tools.execute(call, attrs.evolve(context, call=call))

    def normalize(self, call: ToolCall) -> ToolCall | Outcome:
        """Return *call* with its arguments in normal form; see `ToolList.normalize`."""
        return self._tools.normalize(call)


def plugin_from_tools(name: str, description: str, tools: Iterable[Tool]) -> ToolPlugin:
    """Return the plugin of some tools that share nothing but its name.

    Raises:
        ToolDefinitionError: something in *tools* is no tool, or two have one name.
    """
    return ToolPlugin(name=name, description=description, tools=tools)


def definitions_by_name(plugin: Plugin) -> dict[str, dict[str, JSON]]:
    """Return the definitions of *plugin*'s tools by their names, in order.

    Raises:
        PluginError: one is no definition in the chat-completions shape, or two have one name.
    """
    found: dict[str, dict[str, JSON]] = {}
    for each in plugin.tools():
        name = _named(plugin, each)
        if name in found:
            raise PluginError(plugin.name, f"has two tools called {name!r}, expected one")
        found[name] = each
    return found


def _named(plugin: Plugin, definition: object) -> str:
    name = definition_name(definition)
    if name is None:
        reason = f"defines a tool as {shown(definition)}, expected a function with a name"
        raise PluginError(plugin.name, reason)
    try:
        check_name(name, name)
        check_json(definition)
    except (ToolDefinitionError, NotJSONError) as refusal:
        raise PluginError(plugin.name, f"defines a tool badly: {refusal}") from None
    return name
