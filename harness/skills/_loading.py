"""The two tools of skills: one that loads a skill, one that reads a file that a skill names.

Loading touches no disk: everything was read beforehand, and the call is over without a
checkpoint. Reading a resource does, and so runs in a thread. A stop leaves that thread behind:
a read has no effect that anybody could miss, and a network disk that hangs would hold the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence
from typing import Final

import attrs

from harness._json import JSON
from harness._toolset import CallContext, Outcome
from harness.skills._admission import admit_skill_load, estimate_skill_body_tokens
from harness.skills._folder import FoundSkill, FoundSkills, ResourceRefused
from harness.skills._limits import SkillLimits
from harness.skills._resolution import DROP_TEXTS, SkillStore
from harness.tools import Tool, define_tool

__all__ = ["LOAD_SKILL", "READ_RESOURCE", "SkillLoader", "resource_tool"]

LOAD_SKILL: Final = "load_skill"
READ_RESOURCE: Final = "read_skill_resource"

_LISTED: Final = 20
_LOAD_TEXT: Final = (
    "Load a skill: written instructions for a kind of task, with files that they refer to. Load "
    "the one that fits before you begin such a task."
)
_READ_TEXT: Final = (
    "Read a text file that belongs to a skill. The path starts in the skill's folder, as the "
    "skill's instructions write it."
)


@attrs.define(kw_only=True, eq=False)
class SkillLoader:
    """What the tool ``load_skill`` does."""

    _found: Mapping[str, FoundSkill] = attrs.field(alias="found", repr=False)
    """By name."""
    _store: SkillStore = attrs.field(alias="store", repr=False)
    _active: MutableSequence[str] = attrs.field(alias="active")
    _shas: MutableMapping[str, str] = attrs.field(alias="shas", repr=False)
    _limits: SkillLimits = attrs.field(alias="limits")
    _tells: bool = attrs.field(alias="tells")
    """Whether the text is the call's result."""

    def tool(self, catalog: str) -> Tool:
        """Return the tool; *catalog* describes its one parameter.

        It is not the tool's own description: providers refuse one of more than 1,024 characters.
        """
        return define_tool(
            LOAD_SKILL,
            _LOAD_TEXT,
            schema={
                "type": "object",
                "properties": {
                    "name": {"type": "string", "enum": [*self._found], "description": catalog}
                },
                "required": ["name"],
                "additionalProperties": False,
            },
            execute=self.load,
            serial=True,
            effect="none",
        )

    async def load(self, arguments: dict[str, JSON], _: CallContext[object]) -> Outcome:
        """Return the outcome of loading the skill that *arguments* name. No checkpoint.

        One that is loaded already is told again, since a compaction may have taken its text.
        """
        name = arguments["name"]
        found = self._found.get(name) if isinstance(name, str) else None
        if found is None:
            return Outcome.failed(
                f"no skill is called {name!r:.100}{_expected(self._found)}", "not_found"
            )
        is_new = found.ref not in self._active
        known = self._refs()  # of what was stored as loaded, some may be gone
        loaded = sum(ref in known for ref in self._active)
        verdict = admit_skill_load(loaded if is_new else None, most_active=self._limits.active)
        if not verdict.admitted:
            return Outcome.failed(verdict.reason, "conflict")
        refs = [*self._active, found.ref]
        resolution = await self._store.resolve(refs, known, self._shas)
        for dropped in resolution.dropped:
            if dropped.ref == found.ref:
                reason = DROP_TEXTS[dropped.reason]
                return Outcome.failed(f"the skill {name!r} was not loaded: {reason}", "conflict")
        if is_new:
            tokens = estimate_skill_body_tokens(resolution.instructions)
            verdict = admit_skill_load(None, tokens, most_tokens=self._limits.body_tokens)
            if not verdict.admitted:
                return Outcome.failed(verdict.reason, "conflict")
        return Outcome.completed(self._told(found), activate_skills=[found.ref] if is_new else [])

    def _refs(self) -> set[str]:
        return {each.ref for each in self._found.values()}

    def _told(self, found: FoundSkill) -> dict[str, JSON]:
        told: dict[str, JSON] = {"skill": found.skill.name}
        if self._tells:
            told["instructions"] = found.skill.body
        else:
            told["loaded"] = True
        if found.resources:
            told["resources"] = [*found.resources]
        if found.more_resources:
            told["more_resources"] = True
        return told


def _expected(names: Iterable[str]) -> str:
    first = [*itertools.islice(names, _LISTED + 1)]
    more = " and others" if len(first) > _LISTED else ""
    return f", expected one of {', '.join(first[:_LISTED])}{more}"


def resource_tool(skills: FoundSkills, most: int) -> Tool:
    """Return the tool that reads files of up to *most* bytes of *skills* that have any."""

    def read(arguments: dict[str, JSON], _: CallContext[object]) -> Outcome:
        name, path = arguments["skill"], arguments["path"]
        found = by_name.get(name) if isinstance(name, str) else None
        if found is None:
            return Outcome.failed(
                f"no skill with files is called {name!r:.100}{_expected(by_name)}", "not_found"
            )
        if not isinstance(path, str):
            return Outcome.failed(f"the path is {path!r:.100}, expected a text", "validation")
        content = skills.read_resource(found.ref, path, most=most)
        if isinstance(content, ResourceRefused):
            return Outcome.failed(content.reason, content.kind)
        try:
            return Outcome.completed(content.decode())
        except UnicodeDecodeError:
            size = len(content)
            text = f"{path!r} is no text but {size} bytes of something else, expected a text file"
            return Outcome.failed(text, "validation")

    by_name = {each.skill.name: each for each in skills.skills if each.resources}
    return define_tool(
        READ_RESOURCE,
        _READ_TEXT,
        schema={
            "type": "object",
            "properties": {
                "skill": {"type": "string", "enum": [*by_name]},
                "path": {"type": "string"},
            },
            "required": ["skill", "path"],
            "additionalProperties": False,
        },
        execute=read,
        abandon=True,
        effect="none",
    )
