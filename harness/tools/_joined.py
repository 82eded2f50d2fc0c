"""Several toolsets as one: a host's own tools beside those of remote servers, or of a registry.

A call belongs to the toolset that defines its name. Names are compared when the toolsets are
joined, and two that clash are refused there, where somebody can still choose. Later a toolset
may show other tools; if it then takes a name that another one has, the first of them keeps it.
A call of a name that nobody defines goes to the first toolset, which answers it as it sees fit.

Each toolset judges its own calls of a batch and has a memo of its own. If one of them asks first,
nothing of the batch starts, so all of them are asked again, each with what it noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from harness._errors import ToolDefinitionError
from harness._json import JSON
from harness._toolset import (
    Admission,
    Batch,
    CallContext,
    ForwardingToolset,
    Outcome,
    Suspend,
    ToolCall,
    Toolset,
)
from harness.tools._definition import Tool
from harness.tools._toolset import as_toolset
from harness.tools._wire import definition_name

__all__ = ["JoinedToolset", "join_toolsets"]


class JoinedToolset(ForwardingToolset):
    """Some toolsets, asked as one. Made by `join_toolsets`."""

    def __init__(self, toolsets: Sequence[Toolset]) -> None:
        super().__init__(toolsets[0])
        self._toolsets = tuple(toolsets)
        self._seen: tuple[Sequence[dict[str, JSON]], ...] = ()
        self._definitions: tuple[dict[str, JSON], ...] = ()
        self._owners: dict[str, Toolset] = {}
        self._loaders: dict[str, Toolset] = {}
        """What a call has asked to have loaded, and whose call it was."""
        clash = self._read()
        if clash is not None:
            raise ToolDefinitionError(clash, "two toolsets define this name, expected one")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {list(self._toolsets)}>"

    def definitions(self) -> tuple[dict[str, JSON], ...]:
        """Return the definitions of every toolset, one after the other."""
        self._read()
        return self._definitions

    async def admit(self, batch: Batch) -> Admission:
        """Let each toolset judge its own calls of *batch*, in the order of the toolsets."""
        shares: list[list[ToolCall]] = [[] for _ in self._toolsets]
        places = {id(toolset): place for place, toolset in enumerate(self._toolsets)}
        for call in batch.calls:
            shares[places[id(self._owner(call))]].append(call)
        memos = batch.memo if isinstance(batch.memo, list) else [None] * len(shares)
        decisions: dict[str, Outcome | Suspend] = {}
        noted: list[JSON] = []
        for toolset, calls, memo in zip(self._toolsets, shares, memos, strict=True):
            if not calls:
                noted.append(None)
                continue
            ids = {call.id for call in calls}
            replies = {key: value for key, value in batch.replies.items() if key in ids}
            share = attrs.evolve(batch, calls=tuple(calls), memo=memo, replies=replies)
            admission = await toolset.admit(share)
            decisions.update(admission.decisions)
            noted.append(admission.memo)
        memo = None if all(each is None for each in noted) else noted
        return Admission(decisions=decisions, memo=memo)

    async def execute(self, call: ToolCall, context: CallContext[object]) -> Outcome:
        """Let the call's toolset run it."""
        owner = self._owner(call)
        outcome = await owner.execute(call, context)
        for name in (*outcome.activate_plugins, *outcome.activate_skills):
            self._loaders[name] = owner
        return outcome

    async def activate(self, outcome: Outcome) -> None:
        """Let each toolset load what calls of its own have asked for.

        What no call has asked for goes to the first toolset.

        Raises:
            MissingPortError: a toolset has nothing to load.
        """
        for toolset in self._toolsets:
            share = attrs.evolve(
                outcome,
                activate_plugins=self._share(outcome.activate_plugins, toolset),
                activate_skills=self._share(outcome.activate_skills, toolset),
            )
            if share.activate_plugins or share.activate_skills:
                await toolset.activate(share)

    def _share(self, names: tuple[str, ...], toolset: Toolset) -> tuple[str, ...]:
        first = self._toolsets[0]
        return tuple(each for each in names if self._loaders.get(each, first) is toolset)

    def fatal(self, error: BaseException) -> bool:
        """Whether *error* ends the run for any of the toolsets."""
        return any(toolset.fatal(error) for toolset in self._toolsets)

    def _owner(self, call: ToolCall) -> Toolset:
        self._read()
        return self._owners.get(call.name, self._toolsets[0])

    def _read(self) -> str | None:
        """Read the definitions again, if any are others than before; return a name that clashes."""
        seen = tuple(toolset.definitions() for toolset in self._toolsets)
        if len(seen) == len(self._seen) and all(map(_is, seen, self._seen)):
            return None
        clash = None
        definitions: list[dict[str, JSON]] = []
        owners: dict[str, Toolset] = {}
        for toolset, defined in zip(self._toolsets, seen, strict=True):
            for definition in defined:
                name = definition_name(definition) or ""
                if owners.setdefault(name, toolset) is not toolset:
                    clash = clash or name
                    continue
                definitions.append(definition)
        self._definitions, self._owners = tuple(definitions), owners
        # A list may be changed in place, and would still be the same list.
        self._seen = seen if all(isinstance(each, tuple) for each in seen) else ()
        return clash


def _is(one: object, other: object) -> bool:
    return one is other


def join_toolsets(*toolsets: Toolset | Iterable[Tool]) -> Toolset:
    """Return one toolset of several, lists of tools among them; of one, that one itself.

    Raises:
        ToolDefinitionError: two of them define one name, or something in a list is no tool.
    """
    joined = [as_toolset(each) for each in toolsets]
    return joined[0] if len(joined) == 1 else JoinedToolset(joined or [as_toolset(())])
