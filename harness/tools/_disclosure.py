"""Which plugins a model is shown, and which it could still load.

Both are values. What a prompt makes of them is the host's wording; that it makes the same text
of equal values is what keeps a provider's prompt cache useful, so their order is fixed: that in
which the plugins were registered, whatever the order in which they were loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

__all__ = ["PluginCatalog", "PluginSummary", "initial_active_plugins", "partition_plugin_catalog"]


@attrs.frozen(kw_only=True)
class PluginSummary:
    """What can be told of a plugin that is not loaded."""

    name: str
    description: str
    tools: tuple[str, ...] = ()
    """The names of its tools, in their order."""


@attrs.frozen(kw_only=True)
class PluginCatalog:
    """Every plugin, in one of two parts; each in the order of the summaries."""

    active: tuple[PluginSummary, ...]
    """Those whose tools the model is shown."""
    loadable: tuple[PluginSummary, ...]
    """All others."""


def initial_active_plugins(core: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a session starts with: those of *core*, each once, in order."""
    return tuple(dict.fromkeys(core))


def partition_plugin_catalog(
    active: Iterable[str],
    summaries: Iterable[PluginSummary],
    *,
    canonicalize_name: Callable[[str], str] = str,
) -> PluginCatalog:
    """Return *summaries* in two parts, by whether *active* names them.

    Names that no summary has are passed over. *canonicalize_name* is a registry's, where stored
    names may be aliases.
    """
    shown = {canonicalize_name(name) for name in active}
    parts: tuple[list[PluginSummary], list[PluginSummary]] = ([], [])
    for each in summaries:
        parts[each.name not in shown].append(each)
    return PluginCatalog(active=tuple(parts[0]), loadable=tuple(parts[1]))
