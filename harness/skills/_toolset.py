"""Skills for a run, in front of any toolset.

`with_skills` adds two tools and passes everything else on. What a model can load stands in the
definition of ``load_skill``: it is there from the first request on, and it never changes, so a
provider's cache of the prompt survives every loading. What a skill says is the result of the
call. It enters the transcript where it was asked for, and nothing before it is touched.

A host that wants the texts in its system prompt passes *apply_instructions*. It is then given all
loaded texts whenever one is added, and the results of the calls only say that it was.

Loading is serial: a batch that loads two skills loads one after the other, so each is judged by
what is left after the first. It is also not the tool's own doing. The tool says what it wants to
have loaded, and the run activates it; if that fails, so has the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, MutableSequence, Sequence
from typing import Final

import attrs

from harness._errors import ToolDefinitionError
from harness._json import JSON
from harness._messages import Message
from harness._toolset import (
    ForwardingToolset,
    Outcome,
    ToolCall,
    Toolset,
)
from harness.skills._activation import ApplyInstructions, SkillActivation, create_skill_activation
from harness.skills._catalog import SkillCatalog, partition_skill_catalog
from harness.skills._folder import FoundSkills
from harness.skills._limits import SkillLimits
from harness.skills._loading import SkillLoader, resource_tool
from harness.skills._registry import create_skill_registry
from harness.skills._resolution import DROP_TEXTS, SkillInstructions, SkillStore
from harness.skills._skill import one_line
from harness.tools import Tool, ToolList, as_toolset, definition_name

__all__ = ["SkilledToolset", "describe_catalog", "with_skills"]

_HEADING: Final = "The skills, in their authors' words:"
_LIMITS: Final = SkillLimits()


def describe_catalog(catalog: SkillCatalog) -> str:
    """Return the text in which ``load_skill`` tells of *catalog*: a line for each skill.

    Each entry is kept on one line, so that none can pass for several.
    """
    lines = [_HEADING]
    for entry in catalog.loadable:
        summary = entry.summary
        about = "" if entry.name_only else one_line(f"{summary.description} {summary.when_to_use}")
        lines.append(f"- {summary.name}: {about}" if about else f"- {summary.name}")
    return "\n".join(lines)


def with_skills(
    tools: Toolset | Iterable[Tool],
    skills: FoundSkills,
    *,
    active: MutableSequence[str] | None = None,
    shas: MutableMapping[str, str] | None = None,
    apply_instructions: ApplyInstructions | None = None,
    describe: Callable[[SkillCatalog], str] = describe_catalog,
    limits: SkillLimits = _LIMITS,
) -> SkilledToolset:
    """Return *tools* with the tools ``load_skill`` and ``read_skill_resource`` before them.

    Make one per conversation: it knows what has been loaded. Without skills nothing is added,
    and without resources no reader of them.

    Args:
        tools: what the run has besides.
        skills: what `read_skills` found; or skills of your own, each a `FoundSkill`.
        active: refs of the loaded skills, as an earlier process left them. Changed in place.
        shas: the hash of each loaded text. A skill that has another one now is not loaded.
            Changed in place.
        apply_instructions: is awaited with the texts of all loaded skills whenever one was
            added, to render the system prompt; the results of calls then leave them out.
        describe: makes the text that stands in the definition of ``load_skill``. Called once.
        limits: how much of everything there may be.

    Raises:
        ToolDefinitionError: *tools* has a tool of one of the two names.
        ValueError: two of *skills* have one name, or one has no body.
    """
    active = [] if active is None else active
    shas = {} if shas is None else shas
    registry = create_skill_registry(_refuse)
    by_name = {each.skill.name: each for each in skills.skills}
    for each in skills.skills:
        registry.register_platform(each.skill)
    store = SkillStore(registry=registry)
    summaries = registry.summaries()
    loader = SkillLoader(
        found={name: by_name[name] for name in sorted(by_name)},
        store=store,
        active=active,
        shas=shas,
        limits=limits,
        tells=apply_instructions is None,
    )
    catalog = partition_skill_catalog((), summaries, budget=limits.catalog_tokens)
    own = [loader.tool(describe(catalog))] if summaries else []
    if any(each.resources for each in skills.skills):
        own.append(resource_tool(skills, limits.resource_bytes))
    return SkilledToolset(
        toolset=as_toolset(tools),
        own=ToolList(own),
        refs=frozenset(each.ref for each in summaries),
        activation=create_skill_activation(
            available_skills=frozenset(each.ref for each in summaries),
            active_skills=active,
            loaded_skill_shas=shas,
            store=store,
            apply_instructions=_keep if apply_instructions is None else apply_instructions,
        ),
    )


def _refuse(reason: str) -> None:
    raise ValueError(reason)


async def _keep(instructions: tuple[SkillInstructions, ...]) -> None:
    """Do nothing: the text of a skill is the result of the call that loaded it."""


@attrs.define(kw_only=True, eq=False)
class SkilledToolset(ForwardingToolset):
    """A toolset with two more tools. Made by `with_skills`."""

    _toolset: Toolset = attrs.field(alias="toolset")
    _own: ToolList = attrs.field(alias="own")
    _refs: frozenset[str] = attrs.field(alias="refs", repr=False)
    _activation: SkillActivation = attrs.field(alias="activation")
    _seen: Sequence[dict[str, JSON]] = attrs.field(default=(), init=False, repr=False)
    """The toolset's definitions, when they were last looked at."""
    _shown: tuple[dict[str, JSON], ...] = attrs.field(default=(), init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        own = {each.name for each in self._own.tools}
        for definition in self._toolset.definitions():
            name = definition_name(definition)
            if name is not None and name in own:
                raise ToolDefinitionError(
                    name, "two tools have this name, expected the tool of skills alone"
                )
        self._shown = self._own.definitions()

    def _owner(self, call: ToolCall) -> Toolset:
        own = any(each.name == call.name for each in self._own.tools)
        return self._own if own and call.type == "function" else self._toolset

    def definitions(self) -> Sequence[dict[str, JSON]]:
        """Return the definitions of both; the tools of skills first, as these never change.

        The same object while the toolset's is the same. If it comes to show a tool of one of our
        names, ours keeps it.
        """
        theirs = self._toolset.definitions()
        if theirs is not self._seen or not isinstance(theirs, tuple):
            own = {each.name for each in self._own.tools}
            rest = (each for each in theirs if definition_name(each) not in own)
            self._seen, self._shown = theirs, (*self._own.definitions(), *rest)
        return self._shown

    async def activate(self, outcome: Outcome) -> None:
        """Load the skills of ours that *outcome* asks for; the toolset gets the rest.

        Raises:
            LookupError: a skill brought no text.
            MissingPortError: the toolset has nothing to activate, and something was left for it.
        """
        ours = [ref for ref in outcome.activate_skills if ref in self._refs]
        others = tuple(ref for ref in outcome.activate_skills if ref not in self._refs)
        activated = await self._activation.activate_skills(ours)
        for dropped in activated.dropped:
            if dropped.ref in ours:
                raise LookupError(f"{dropped.ref!r} was not loaded: {DROP_TEXTS[dropped.reason]}")
        if others or outcome.activate_plugins:
            await self._toolset.activate(attrs.evolve(outcome, activate_skills=others))

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        """Let the toolset write the answer."""
        return self._toolset.render(call, outcome)
