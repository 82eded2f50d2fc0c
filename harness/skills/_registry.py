"""The skills that a host ships, its own and those of its plugins.

A skill is registered once, and what it says is fixed then: its body is asked for and hashed, so
that every resolution of it gives the same text, and a run's record can say which text that was.
Nothing that is wrong with a skill stops the others. It is warned about and left out, because
what is registered is often not the host's own.

Names are unique across all of them. A model asks by name, and two skills of one name would make
the answer depend on who registered first in some other process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import Final, get_args

import attrs

from harness.skills._skill import (
    SkillLike,
    SkillOrigin,
    SkillSummary,
    is_skill_name,
    writable,
)

__all__ = [
    "ORIGINS",
    "RegisteredSkill",
    "SkillRegistry",
    "create_skill_registry",
    "hash_body",
    "skill_ref",
]

ORIGINS: Final[tuple[SkillOrigin, ...]] = get_args(SkillOrigin)
"""In the order in which skills are listed."""

_PREFIX: Final = "platform:"


def skill_ref(name: str) -> str:
    """Return the ref of the registered skill *name*; every other ref is external."""
    return _PREFIX + name


def hash_body(body: bytes) -> str:
    """Return the SHA-256 of *body* in lower-case hex."""
    return hashlib.sha256(body).hexdigest()


@attrs.frozen(kw_only=True)
class RegisteredSkill:
    """A skill as it was when it was registered."""

    summary: SkillSummary
    body: str = attrs.field(repr=False)
    sha: str
    """The hash of its body."""
    plugin: str | None = None
    """Whose it is; None for the host's own."""


def create_skill_registry(
    on_warn: Callable[[str], object], *, hash_text: Callable[[bytes], str] = hash_body
) -> SkillRegistry:
    """Return an empty registry.

    Args:
        on_warn: is told of each skill that is left out, and why.
        hash_text: from a body in UTF-8 to its hash.
    """
    return SkillRegistry(on_warn=on_warn, hash_text=hash_text)


@attrs.define(eq=False, kw_only=True)
class SkillRegistry:
    """Registered skills, by ref. Made by `create_skill_registry`."""

    _on_warn: Callable[[str], object] = attrs.field(alias="on_warn", repr=False)
    _hash_text: Callable[[bytes], str] = attrs.field(alias="hash_text", repr=False)
    _skills: dict[str, RegisteredSkill] = attrs.field(factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._skills)} skills>"

    def register_platform(self, skill: SkillLike) -> str | None:
        """Add a skill of the host's own; return its ref, or None if it was left out."""
        return self._register(skill, plugin=None)

    def register_plugin(self, plugin: str, skill: SkillLike) -> str | None:
        """Add a skill of *plugin*; return its ref, or None if it was left out."""
        return self._register(skill, plugin=plugin)

    def get(self, ref: str) -> RegisteredSkill | None:
        """Return the skill that *ref* stands for, if it is registered here."""
        return self._skills.get(ref)

    def summaries(self, available_plugins: Collection[str] = ()) -> tuple[SkillSummary, ...]:
        """Return what a catalog tells of each skill, by origin and name.

        Skills of plugins that are not in *available_plugins* are left out: a recipe for tools
        that cannot be reached is noise.
        """
        found = [
            each.summary
            for each in self._skills.values()
            if each.plugin is None or each.plugin in available_plugins
        ]
        return tuple(sorted(found, key=lambda each: (ORIGINS.index(each.origin), each.name)))

    def _register(self, skill: SkillLike, *, plugin: str | None) -> str | None:
        fault = _fault(skill)
        if fault is None and skill_ref(skill.name) in self._skills:
            fault = f"a second skill is called {skill.name!r}, expected one of each name"
        body = "" if fault is not None else skill.render()
        if fault is None and not (writable(body) and body.strip()):
            fault = f"the body of {skill.name!r} is {body!r:.100}, expected a text"
        if fault is not None:
            self._on_warn(f"a skill was left out: {fault}")
            return None
        ref = skill_ref(skill.name)
        self._skills[ref] = RegisteredSkill(
            summary=SkillSummary(
                ref=ref,
                name=skill.name,
                description=skill.description,
                when_to_use=skill.when_to_use,
                origin="platform" if plugin is None else "plugin",
            ),
            body=body,
            sha=self._hash_text(body.encode()),
            plugin=plugin,
        )
        return ref


def _fault(skill: SkillLike) -> str | None:
    """Say what is wrong with the fields of *skill*, whose class need not be ours."""
    if not is_skill_name(skill.name):
        return (
            f"its name is {skill.name!r:.100}, expected at most 64 lower-case letters, digits "
            "and single hyphens between them"
        )
    for field, needed in (("description", True), ("when_to_use", False)):
        value: object = getattr(skill, field)
        if not writable(value) or (needed and not str(value).strip()):
            return f"the {field} of {skill.name!r} is {value!r:.100}, expected a text"
    return None
