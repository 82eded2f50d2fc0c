"""From the refs of loaded skills to the texts that the model is to follow.

The order of the texts depends on the skills alone: by origin, then by name. A session that is
resumed may have stored its refs in any order, and a prompt that was put together in another
order would miss the provider's cache from its first skill on.

A run can be repeated with the texts that it saw. Each resolution says which hash it gave for
which ref, and takes such a map back as pins. A pin is a condition: a text with another hash is
dropped with a reason, never given in its place. Refs come from storage, so one that means
nothing any more is dropped too, and the run goes on without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, Literal, TypeAlias

import attrs

from harness.skills._registry import ORIGINS, SkillRegistry, hash_body
from harness.skills._skill import SkillOrigin

__all__ = [
    "DROP_TEXTS",
    "DropReason",
    "DroppedSkill",
    "ExternalSkill",
    "ExternalSource",
    "SkillInstructions",
    "SkillResolution",
    "SkillStore",
    "resolve_active_skill_instructions",
]

DropReason: TypeAlias = Literal["not_available", "unknown", "pinned_version_unavailable"]

DROP_TEXTS: Final[Mapping[DropReason, str]] = {
    "not_available": "it is not one of the skills that are available here",
    "unknown": "nobody knows it",
    "pinned_version_unavailable": "it has changed since this conversation began to use it",
}
"""What each reason says to a model."""


@attrs.frozen(kw_only=True)
class ExternalSkill:
    """A skill that is not registered, as the source of such skills knows it."""

    body: str = attrs.field(repr=False)
    name: str = ""
    """What it is called; its ref, if empty."""
    sha: str = attrs.field()
    """The hash of its body; SHA-256 in hex unless the source has its own."""

    @sha.default
    def _hash(self) -> str:
        return hash_body(self.body.encode())


ExternalSource: TypeAlias = Callable[
    [tuple[str, ...], Mapping[str, str]], Awaitable[Mapping[str, ExternalSkill]]
]
"""Asked for external refs, all at once, with their pins; leaves out what it does not know."""


@attrs.frozen(kw_only=True)
class SkillInstructions:
    """The text of one loaded skill."""

    ref: str
    name: str
    origin: SkillOrigin
    body: str = attrs.field(repr=False)
    sha: str


@attrs.frozen(kw_only=True)
class DroppedSkill:
    """A ref that brought no text, and why."""

    ref: str
    reason: DropReason


@attrs.frozen(kw_only=True)
class SkillResolution:
    """What refs were resolved to."""

    instructions: tuple[SkillInstructions, ...] = ()
    """By origin, then by name."""
    dropped: tuple[DroppedSkill, ...] = ()
    """By ref."""

    @property
    def shas(self) -> dict[str, str]:
        """The hash of each text, by ref: pins for a run that is to see the same."""
        return {each.ref: each.sha for each in self.instructions}


async def resolve_active_skill_instructions(
    active_refs: Iterable[str],
    available: Collection[str],
    *,
    registry: SkillRegistry,
    external_source: ExternalSource | None = None,
    pinned_shas: Mapping[str, str] | None = None,
) -> SkillResolution:
    """Return the texts that *active_refs* stand for. A checkpoint if *external_source* is one.

    Args:
        active_refs: refs of the loaded skills; order and repetition do not matter.
        available: the refs that may be used here.
        registry: the skills that the host ships.
        external_source: is asked for all refs that are not registered, once, if there are any.
        pinned_shas: the only hash that a ref's text may have, by ref.

    Raises:
        Exception: whatever *external_source* raises.
    """
    pins = {} if pinned_shas is None else pinned_shas
    found: list[SkillInstructions] = []
    dropped: list[DroppedSkill] = []
    external: list[str] = []
    for ref in sorted(set(active_refs)):
        known = registry.get(ref)
        if ref not in available:
            dropped.append(DroppedSkill(ref=ref, reason="not_available"))
        elif known is None:
            external.append(ref)
        else:
            summary = known.summary
            found.append(
                SkillInstructions(
                    ref=ref,
                    name=summary.name,
                    origin=summary.origin,
                    body=known.body,
                    sha=known.sha,
                )
            )
    if external and external_source is not None:
        answers = await external_source(
            tuple(external), {ref: pins[ref] for ref in external if ref in pins}
        )
        found += [_external(ref, answers[ref]) for ref in external if ref in answers]
    missing = set(external) - {each.ref for each in found}
    dropped += [DroppedSkill(ref=ref, reason="unknown") for ref in missing]
    kept = [each for each in found if pins.get(each.ref, each.sha) == each.sha]
    dropped += [
        DroppedSkill(ref=each.ref, reason="pinned_version_unavailable")
        for each in found
        if pins.get(each.ref, each.sha) != each.sha
    ]
    return SkillResolution(
        instructions=tuple(sorted(kept, key=_place)),
        dropped=tuple(sorted(dropped, key=lambda each: each.ref)),
    )


def _external(ref: str, skill: ExternalSkill) -> SkillInstructions:
    return SkillInstructions(
        ref=ref, name=skill.name or ref, origin="external", body=skill.body, sha=skill.sha
    )


def _place(skill: SkillInstructions) -> tuple[int, str, str]:
    return ORIGINS.index(skill.origin), skill.name, skill.ref


@attrs.frozen(kw_only=True, eq=False)
class SkillStore:
    """Where the texts of skills come from."""

    registry: SkillRegistry
    external_source: ExternalSource | None = None

    async def resolve(
        self, refs: Iterable[str], available: Collection[str], pinned_shas: Mapping[str, str]
    ) -> SkillResolution:
        """Return what *refs* stand for: see `resolve_active_skill_instructions`."""
        return await resolve_active_skill_instructions(
            refs,
            available,
            registry=self.registry,
            external_source=self.external_source,
            pinned_shas=pinned_shas,
        )
