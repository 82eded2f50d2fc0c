"""Tools that a model loads as it needs them.

What is shown is a list that only grows: first the tools of the toolset itself, then those of the
core plugins, then of each plugin in the order in which it was loaded. Nothing is ever taken out,
so after a load the old list is the beginning of the new one, byte for byte, and a provider's
prompt cache of it holds. A name that two plugins have is a conflict, and the later one is not
loaded: to rename a tool, or to put another in its place, would change what has been shown.

Loading is an ordinary call that runs alone, before the others of its batch. Its outcome names
what it has found; the kernel then asks `RegistryToolset.activate`, and only from there on is it
live, for the calls behind it too. A load that is cut in between is answered as cut, and has
loaded nothing; a wrapper that replays stored outcomes replays what they load.

What a model gets wrong is answered: a name that nobody has, one of a server that is down, one
whose tool has a taken name. What a host gets wrong is raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, TypeAlias, cast

import attrs
import msgspec

from harness._errors import MissingPortError, ToolDefinitionError, loses_track
from harness._json import JSON
from harness._messages import Message
from harness._toolset import (
    Admission,
    Batch,
    CallContext,
    CallPolicy,
    Outcome,
    ToolCall,
    normalized,
)
from harness.tools._definition import Tool
from harness.tools._disclosure import (
    PluginCatalog,
    initial_active_plugins,
    partition_plugin_catalog,
)
from harness.tools._faults import listed
from harness.tools._function import tool
from harness.tools._plugin import Plugin, PluginError, ToolPlugin, plugin_from_tools
from harness.tools._registry import PluginT, ToolRegistry
from harness.tools._rehydration import Rehydration, Resolve, rehydrate_activation
from harness.tools._results import render_outcome, unsupported_type
from harness.tools._search import ToolMatch
from harness.tools._toolset import ToolList

__all__ = ["RegistryToolset", "disclosed"]

_Names: TypeAlias = Annotated[
    list[str],
    msgspec.Meta(min_length=1, max_length=20, description="Names of plugins, or of tools."),
]
_Words: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=1_000, description="Words of names and descriptions.")
]
_Limit: TypeAlias = Annotated[
    int, msgspec.Meta(ge=1, le=50, description="How many tools to return at most.")
]

_NAME: Final = 100
"""How much of a name that a model made up is repeated to it."""
_DESCRIPTION: Final = 300
"""How much of a description is shown by a search; the whole is in the definition."""
_TOOLS: Final = 50
"""How many tools of a plugin are named when it is loaded; the definitions follow anyway."""


class RegistryToolset:
    """The plugins of a registry that one session has loaded. A registry may have many of these.

    Args:
        registry: Where the plugins are.
        active: Names to start with: by default the registry's core plugins. Stored names go
            through `restore` instead, which drops what is gone.
        loadable: Show the model ``search_tools`` and ``load_tools``, so that it can load more.
        resolve: Asked whether a plugin can be live, before it is; it may register it. It is asked
            for names that a model made up too. Without it, every registered plugin can.

    Raises:
        PluginError: a name of *active* is not registered, or two of them have a tool in common.
    """

    def __init__(
        self,
        registry: ToolRegistry[PluginT],
        *,
        active: Iterable[str] | None = None,
        loadable: bool = False,
        resolve: Resolve | None = None,
    ) -> None:
        # Plugins are only taken out of it here, so one of more special ones will do.
        self._registry = cast("ToolRegistry[Plugin]", registry)
        self._resolve = resolve
        self._loadable = loadable
        search = tool(name="search_tools", effect="none")(self._search_tools)
        load = tool(name="load_tools", effect="none", serial=True)(self._load_tools)
        self._own = ToolList([search, load] if loadable else [])
        self._live: dict[str, Plugin | None] = dict.fromkeys(each.name for each in self._own.tools)
        """Whose each tool is that is shown; None stands for our own."""
        self._shown: tuple[dict[str, JSON], ...] = self._own.definitions()
        self._active: dict[str, None] = {}
        self._load(initial_active_plugins(registry.core_plugins() if active is None else active))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._live)} tools in {list(self._active)[:20]}>"

    @property
    def active(self) -> tuple[str, ...]:
        """The names of what is loaded, in order: what a session stores."""
        return tuple(self._active)

    @property
    def catalog(self) -> PluginCatalog:
        """What is loaded, and what else could be."""
        return partition_plugin_catalog(self._active, self._registry.summaries())

    def definitions(self) -> tuple[dict[str, JSON], ...]:
        """Return what is shown: what it was before, and after it what has been loaded since.

        The same object until something is loaded.
        """
        return self._shown

    def policy(self, call: ToolCall) -> CallPolicy:
        """Return what the plugin says; for a tool that is not shown, an undeclared call's."""
        if call.type != "function" or call.name not in self._live:
            return CallPolicy.default(call)
        owner = self._live[call.name]
        return self._own.policy(call) if owner is None else owner.policy(call)

    async def admit(self, batch: Batch) -> Admission:
        """Let every call run. No checkpoint."""
        return Admission()

    async def execute(self, call: ToolCall, context: CallContext[object]) -> Outcome:
        """Run the tool that *call* names, or fail with ``not_found`` and say how to load it.

        A call that asked a question and now has its reply completes with the reply's value; its
        plugin is not asked again, unless it is made of tools, which say so themselves.
        """
        if context.reply is not None and not isinstance(self._live.get(call.name), ToolPlugin):
            return Outcome.completed(context.reply.value)
        if call.type != "function":
            return unsupported_type(call.type)
        if call.name not in self._live:
            return Outcome.failed(self._why_not(call.name), "not_found")
        owner = self._live[call.name]
        if owner is None:
            return await self._own.execute(call, context)
        if call is not context.call:
            context = attrs.evolve(context, call=call)  # it was normalized on the way here
        return await owner.dispatch(call.name, call.arguments, context)

    def normalize(self, call: ToolCall) -> ToolCall | Outcome:
        """Return *call* with its arguments as its plugin normalizes them, or why they cannot be.

        As `ToolList.normalize`: for whoever needs to see the arguments before `execute` gets them.
        """
        owner: object = self._live.get(call.name) if call.type == "function" else None
        return normalized(owner, call)

    async def activate(self, outcome: Outcome) -> None:
        """Load the plugins that *outcome* asks for: all of them, or none.

        A checkpoint if the resolver is one. A plugin that is loaded already stays where it is.

        Raises:
            PluginError: one cannot be loaded; nothing was.
            MissingPortError: it asks for skills, which are not here; the plugins were loaded.
        """
        found = await self._rehydrate(outcome.activate_plugins)
        for each in found.dropped:
            raise PluginError(each.name, f"cannot be loaded: {each.reason}, expected one that can")
        self._load(found.active)
        if outcome.activate_skills:
            raise MissingPortError("activate_skills")

    async def restore(self, names: Iterable[object]) -> Rehydration:
        """Load what a session has stored, as far as that is possible, and say what was dropped.

        See `rehydrate_activation`. A plugin with a tool whose name is taken is dropped with the
        reason ``conflict``.
        """
        found = await self._rehydrate(names)
        self._load(found.active)
        return found

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        """Return the envelope as a tool message."""
        return render_outcome(call, outcome)

    def fatal(self, error: BaseException) -> bool:
        """Whether *error* is one of a store: what was done is then not known, and a model that is
        told of a failure would do it again. No other error of a tool ends the run.
        """
        return loses_track(error)

    def _load(self, names: Iterable[str]) -> None:
        """Show the tools of *names* after all others, or raise and show none of them."""
        canonical = dict.fromkeys(map(self._registry.canonicalize_name, names))
        added = [name for name in canonical if name not in self._active]
        fresh: dict[str, Plugin] = {}
        for name in added:
            plugin, summary = self._registry.get(name), self._registry.summary(name)
            if plugin is None or summary is None:
                raise PluginError(name, "is not registered, expected one that is")
            for each in summary.tools:
                if each in self._live or each in fresh:
                    reason = f"has a tool called {each!r}, which is the name of one already shown"
                    raise PluginError(name, reason)
                fresh[each] = plugin
        self._shown = (*self._shown, *self._registry.tool_definitions(added))
        self._live.update(fresh)
        self._active.update(dict.fromkeys(added))

    async def _rehydrate(self, names: Iterable[object]) -> Rehydration:
        claimed: dict[str, None] = {}

        async def resolve(name: str) -> bool | str:
            if name in self._active:
                return True
            answer = True if self._resolve is None else await self._resolve(name)
            if answer is not True:
                return answer
            summary = self._registry.summary(name)
            if summary is None:
                return "unknown"
            if any(each in self._live or each in claimed for each in summary.tools):
                return "conflict"
            claimed.update(dict.fromkeys(summary.tools))
            return True

        return await rehydrate_activation(
            names, canonicalize_name=self._registry.canonicalize_name, resolve=resolve
        )

    def _why_not(self, name: str) -> str:
        """Say why there is no tool of this *name*, and what would help."""
        owners = self._registry.owners(name)
        if owners and self._loadable:
            return f"{name!r} is not loaded, expected load_tools before it, with {listed(owners)}"
        what = f"{name!r} is not loaded" if owners else f"no tool is called {_cut(name, _NAME)!r}"
        search = "; search_tools finds others" if self._loadable else ""
        return f"{what}, expected {listed(tuple(self._live))}{search}"

    async def _search_tools(self, query: _Words, limit: _Limit = 10) -> dict[str, JSON]:
        """Find tools that can be loaded, by words of their names and descriptions.

        Load what fits with load_tools before you call it. An empty query lists all there is.
        """
        found = self._registry.search(query, limit=limit)
        return {"tools": [self._told(each) for each in found.matches], "total": found.total}

    def _told(self, match: ToolMatch) -> JSON:
        return {
            "name": match.tool,
            "plugin": match.plugin,
            "description": _cut(match.description, _DESCRIPTION),
            "loaded": match.plugin in self._active,
        }

    async def _load_tools(self, names: _Names) -> Outcome:
        """Load tools, so that they can be called, even by the next call of the same reply.

        Takes the names of plugins, or of tools, whose whole plugin is then loaded.
        """
        wanted: dict[str, str] = {}
        dropped: list[JSON] = []
        for name in names:
            plugin = self._plugin_for(name)
            if isinstance(plugin, str):
                wanted.setdefault(plugin, name)
            else:
                reason = f"ambiguous, expected {listed(plugin)}"
                dropped.append({"name": _cut(name, _NAME), "reason": reason})
        found = await self._rehydrate(wanted)
        dropped += [
            {"name": _cut(wanted[each.name], _NAME), "reason": each.reason}
            for each in found.dropped
        ]
        loaded = [name for name in found.active if name not in self._active]
        data: dict[str, JSON] = {
            "loaded": [self._loaded(name) for name in loaded],
            "already_loaded": [name for name in found.active if name in self._active],
            "dropped": dropped,
        }
        return Outcome.completed(data, activate_plugins=loaded)

    def _plugin_for(self, name: str) -> str | tuple[str, ...]:
        """Return which plugin *name* means, or those of which it could mean any."""
        if self._registry.get(name) is not None:
            return name
        shown = self._live.get(name)
        if shown is not None:
            return shown.name
        owners = self._registry.owners(name)
        return owners if len(owners) > 1 else owners[0] if owners else name

    def _loaded(self, name: str) -> JSON:
        summary = self._registry.summary(name)
        tools = () if summary is None else summary.tools
        return {"plugin": name, "tools": list(tools[:_TOOLS]), "more": len(tools[_TOOLS:])}


def disclosed(
    *,
    core: Iterable[Tool | Plugin] = (),
    plugins: Iterable[Tool | Plugin] = (),
    resolve: Resolve | None = None,
) -> RegistryToolset:
    """Return a toolset that shows *core*, and lets the model find and load the others.

    A tool among them is a plugin of its own. Make one for each session. A service makes one
    `ToolRegistry`, which indexes its tools once, and a `RegistryToolset` of it for each session.

    Raises:
        PluginError: two plugins, or two shown tools, have the same name.
        ToolDefinitionError: something is neither a tool nor a plugin.
    """
    shown = [_as_plugin(each) for each in core]
    registry: ToolRegistry[Plugin] = ToolRegistry([each.name for each in shown])
    for each in shown:
        registry.register(each)
    for other in plugins:
        registry.register(_as_plugin(other))
    return RegistryToolset(registry, loadable=True, resolve=resolve)


def _as_plugin(each: Tool | Plugin) -> Plugin:
    if isinstance(each, Tool):
        return plugin_from_tools(each.name, each.description, [each])
    if callable(getattr(each, "dispatch", None)):
        return each
    name = getattr(each, "__name__", repr(each))
    raise ToolDefinitionError(name, f"it is {each!r}, expected a Tool or a plugin")


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
