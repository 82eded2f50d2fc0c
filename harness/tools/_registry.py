"""All plugins that a host has, and the names that they ever had.

A registry is shared by every session of a service: it only grows, and nothing in it says what is
loaded. A plugin's definitions are read once, when it is registered, and are the same objects ever
after. Read anew for every turn, the list of a plugin that makes it afresh could change in the
middle of a session, and the provider's cache of all that follows would be lost.

Aliases are for ever. Sessions store names, and a renamed plugin without its old name would be a
capability that a stored session loses without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

import attrs

from harness._bounds import check_count
from harness._errors import shown
from harness._json import JSON
from harness.tools._disclosure import PluginSummary
from harness.tools._plugin import Plugin, PluginError, definitions_by_name
from harness.tools._search import SearchResult, ToolIndex, ToolMatch

__all__ = ["ToolRegistry"]

PluginT = TypeVar("PluginT", bound=Plugin)


@attrs.frozen(eq=False)
class _Entry(Generic[PluginT]):
    """A registered plugin."""

    plugin: PluginT
    definitions: dict[str, dict[str, JSON]]
    summary: PluginSummary


class ToolRegistry(Generic[PluginT]):
    """Plugins by name, in the order in which they were registered.

    Args:
        core_plugins: The names that every session starts with; they may be registered later.
        aliases: Old names to new ones, which may be aliases too.
        on_register: Told each plugin, once it is registered.

    Raises:
        PluginError: an alias leads back to itself.
    """

    def __init__(
        self,
        core_plugins: Iterable[str] = (),
        *,
        aliases: Mapping[str, str] = MappingProxyType({}),
        on_register: Callable[[PluginT], object] | None = None,
    ) -> None:
        if isinstance(core_plugins, str):
            raise TypeError(f"core_plugins is {core_plugins!r}, expected several names")
        self._core = tuple(core_plugins)
        self._aliases = _ends(aliases)
        self._on_register = on_register
        self._entries: dict[str, _Entry[PluginT]] = {}
        self._owners: dict[str, list[str]] = {}
        self._index = ToolIndex()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._entries)} plugins>"

    def register(self, plugin: PluginT) -> None:
        """Store *plugin*, read its tools, and tell the hook. If anything raises, it is not stored.

        Raises:
            PluginError: its name is taken or an alias, or its tools are not well defined.
            Exception: what the hook raised.
        """
        name: object = plugin.name
        if not isinstance(name, str) or not name:
            raise PluginError(str(name), f"has the name {shown(name)}, expected a text")
        if name in self._aliases:
            to = self._aliases[name]
            raise PluginError(name, f"has a name that is an alias of {to!r}, expected a new one")
        if name in self._entries:
            raise PluginError(name, "has the name of another, expected a new one")
        about: object = plugin.description
        if not isinstance(about, str):
            raise PluginError(name, f"has the description {shown(about)}, expected a text")
        definitions = definitions_by_name(plugin)
        summary = PluginSummary(name=name, description=about, tools=tuple(definitions))
        self._entries[name] = _Entry(plugin, definitions, summary)
        if self._on_register is not None:
            try:
                self._on_register(plugin)
            except BaseException:
                del self._entries[name]
                raise
        for tool, definition in definitions.items():
            self._owners.setdefault(tool, []).append(name)
            told = _description(definition)
            self._index.add(ToolMatch(tool=tool, plugin=name, description=told), about)

    def get(self, name: str) -> PluginT | None:
        """Return the plugin of this name, or of this alias; None if there is none."""
        entry = self._entries.get(self.canonicalize_name(name))
        return None if entry is None else entry.plugin

    def summaries(self) -> tuple[PluginSummary, ...]:
        """Return what can be told of each plugin."""
        return tuple(entry.summary for entry in self._entries.values())

    def summary(self, name: str) -> PluginSummary | None:
        """Return what can be told of one, by its name or an alias; None if there is none."""
        entry = self._entries.get(self.canonicalize_name(name))
        return None if entry is None else entry.summary

    def core_plugins(self) -> tuple[str, ...]:
        """Return the names that every session starts with, as they were given."""
        return self._core

    def canonicalize_name(self, name: str) -> str:
        """Return what *name* leads to as an alias, or *name* itself."""
        return self._aliases.get(name, name)

    def tool_definitions(self, active: Iterable[str]) -> tuple[dict[str, JSON], ...]:
        """Return the tools of the plugins that *active* names, in its order and then in theirs.

        So a name at its end only appends. Each plugin comes once, and names that are not
        registered are passed over.

        Raises:
            PluginError: two plugins have a tool of the same name.
        """
        owners: dict[str, str] = {}
        told: list[dict[str, JSON]] = []
        for name in dict.fromkeys(map(self.canonicalize_name, active)):
            entry = self._entries.get(name)
            if entry is None:
                continue
            for tool, definition in entry.definitions.items():
                if tool in owners:
                    reason = f"and {owners[tool]!r} both have a tool called {tool!r}, expected one"
                    raise PluginError(name, reason)
                owners[tool] = name
                told.append(definition)
        return tuple(told)

    def owners(self, tool: str) -> tuple[str, ...]:
        """Return the names of the plugins that have a tool of this name."""
        return tuple(self._owners.get(tool, ()))

    def search(self, query: str, *, limit: int = 10) -> SearchResult:
        """Return the tools that have words of *query* in their names or descriptions, best first.

        Whole words count more than beginnings, names more than descriptions, and equals stay in
        the order of their registration. A query without a word finds every tool.

        Raises:
            TypeError, ValueError: *limit* is no positive count.
        """
        return self._index.search(query, check_count("limit", limit, least=1))


def _ends(aliases: Mapping[str, str]) -> dict[str, str]:
    """Return where each alias ends. Every name is walked over once, however long the chains."""
    ends: dict[str, str] = {}
    for alias in aliases:
        chain: dict[str, None] = {}
        name = alias
        while name in aliases and name not in ends:
            if name in chain:
                walked = " -> ".join([*map(repr, chain), repr(name)][:10])
                raise PluginError(name, f"is an alias that leads back to itself: {walked}")
            chain[name] = None
            name = aliases[name]
        end = ends.get(name, name)
        ends.update(dict.fromkeys(chain, end))
    return ends


def _description(definition: Mapping[str, JSON]) -> str:
    function = definition["function"]
    description = function.get("description") if isinstance(function, dict) else None
    return description if isinstance(description, str) else ""
