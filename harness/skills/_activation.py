"""Loading skills in the course of a run.

The set of loaded skills and the hashes of what they said belong to the host. It makes both
before a run, stores them after it, and finds them true at every moment in between: they change
together, at once, after everything that could fail has not. A run that fails later keeps what it
had loaded, since its transcript speaks of it.

Every loading resolves the whole set, not just the new skill: the texts are put into the system
prompt by the host, and only all of them together make one.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    MutableMapping,
    MutableSequence,
)
from typing import TypeAlias

import attrs

from harness.skills._resolution import DroppedSkill, SkillInstructions, SkillStore

__all__ = ["ApplyInstructions", "SkillActivation", "SkillsActivated", "create_skill_activation"]

ApplyInstructions: TypeAlias = Callable[[tuple[SkillInstructions, ...]], Awaitable[object]]
"""Is given the texts of all loaded skills, to render the system prompt with."""


@attrs.frozen(kw_only=True)
class SkillsActivated:
    """What a loading did."""

    loaded: tuple[str, ...] = ()
    """Refs that were not loaded before."""
    dropped: tuple[DroppedSkill, ...] = ()
    """Refs that brought no text, loaded before or not."""


def create_skill_activation(
    *,
    available_skills: Collection[str],
    active_skills: MutableSequence[str],
    loaded_skill_shas: MutableMapping[str, str],
    store: SkillStore,
    apply_instructions: ApplyInstructions,
) -> SkillActivation:
    """Return what loads skills for a run.

    Args:
        available_skills: refs that may be loaded.
        active_skills: refs that are loaded, in the order of loading. Changed in place.
        loaded_skill_shas: the hash of each text, by ref; what is in it beforehand pins that ref.
            Changed in place.
        store: where the texts come from.
        apply_instructions: is awaited with all texts whenever a skill was loaded.
    """
    return SkillActivation(
        available_skills=available_skills,
        active_skills=active_skills,
        loaded_skill_shas=loaded_skill_shas,
        store=store,
        apply_instructions=apply_instructions,
    )


@attrs.define(kw_only=True, eq=False)
class SkillActivation:
    """Loads skills. Made by `create_skill_activation`."""

    _available: Collection[str] = attrs.field(alias="available_skills", repr=False)
    _active: MutableSequence[str] = attrs.field(alias="active_skills")
    _shas: MutableMapping[str, str] = attrs.field(alias="loaded_skill_shas", repr=False)
    _store: SkillStore = attrs.field(alias="store", repr=False)
    _apply: ApplyInstructions = attrs.field(alias="apply_instructions", repr=False)

    async def activate_skills(self, refs: Iterable[str]) -> SkillsActivated:
        """Load the skills *refs*, all that can be, or none if anything raises.

        Refs that are loaded already change nothing, and if there are no others, nothing is
        resolved. A checkpoint if the store or *apply_instructions* is one. If it is cancelled,
        nothing was loaded.

        Raises:
            Exception: whatever the source of external skills or *apply_instructions* raises.
        """
        new = [ref for ref in dict.fromkeys(refs) if ref not in self._active]
        if not new:
            return SkillsActivated()
        resolution = await self._store.resolve([*self._active, *new], self._available, self._shas)
        shas = resolution.shas
        loaded = tuple(ref for ref in new if ref in shas)
        if loaded:
            await self._apply(resolution.instructions)
            self._active.extend(loaded)
            self._shas.update(shas)
        return SkillsActivated(loaded=loaded, dropped=resolution.dropped)
