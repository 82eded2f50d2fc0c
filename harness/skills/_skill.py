"""A skill: know-how that somebody wrote down, and the names by which it goes.

A `Skill` is what a SKILL.md says. It holds nothing that could not be written down again: the
checks are made here, once, so that reading what was written gives the same skill. The body is
kept without the blank lines around it and with plain line ends, since files differ in both and
mean the same.

A host's own skills need not be of this class. A registry takes anything with a name, a
description, a remark on when to use it, and a way to its body: see `SkillLike`.
"""

from __future__ import annotations

import re
from typing import Final, Literal, Protocol, TypeAlias

import attrs

from harness._errors import NotJSONError
from harness._json import JSON, check_json

__all__ = [
    "FIELD_KEYS",
    "MOST_VALUES",
    "WHEN_KEYS",
    "Skill",
    "SkillLike",
    "SkillOrigin",
    "SkillSummary",
    "check_metadata",
    "is_skill_name",
    "one_line",
    "slug",
    "tokens_of",
    "writable",
]

SkillOrigin: TypeAlias = Literal["platform", "plugin", "external"]
"""Who answers for a skill, in the order in which skills are listed."""

WHEN_KEYS: Final = ("when_to_use", "when-to-use", "whenToUse")
FIELD_KEYS: Final = ("name", "description", *WHEN_KEYS)
"""Keys of a frontmatter that are fields of a skill; all others are metadata."""

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST: Final = 64
_DEEPEST: Final = 32
MOST_VALUES: Final = 10_000
"""In all metadata of one skill."""
_CHARACTERS_PER_TOKEN: Final = 4


class SkillLike(Protocol):
    """What a registry asks of a skill."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def description(self) -> str:
        """What it is for, in a sentence or two."""
        ...

    @property
    def when_to_use(self) -> str:
        """When to load it; may be empty."""
        ...

    def render(self) -> str:
        """Return its body. Called once, when it is registered."""
        ...


def is_skill_name(name: object) -> bool:
    """Whether *name* is up to 64 lower-case letters, digits and single hyphens between them."""
    return isinstance(name, str) and len(name) <= _LONGEST and _NAME.fullmatch(name) is not None


def slug(text: str) -> str:
    """Return the name that *text* comes closest to; empty if nothing of it can stand in one."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST].rstrip("-")


def writable(text: object) -> bool:
    """Whether *text* is a text that can be written to a file: no lone surrogate."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(text: str) -> str:
    """Return *text* with every run of white space as one space."""
    return " ".join(text.split())


def tokens_of(characters: int) -> int:
    """Return about how many tokens so many characters are: four to one, rounded up."""
    return -(-characters // _CHARACTERS_PER_TOKEN)


def check_metadata(value: object, most: int = MOST_VALUES) -> int:
    """Return how many values are in *value*, if it is plain JSON, not too deep and not too large.

    The size is looked at first, level by level. A few lines of YAML can stand for a value with
    more parts than there are atoms, each of them shared, or for one that contains itself.

    Raises:
        NotJSONError: it is not.
    """
    level, seen = [value], 0
    for _ in range(_DEEPEST):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
            if seen + len(level) + len(inner) > most:
                raise NotJSONError(f"it has more than {most} values", path=())
        seen += len(level)
        if not inner:
            check_json(value)
            return seen
        level = inner
    raise NotJSONError(f"it is nested more than {_DEEPEST} deep", path=())


def _plain_lines(body: object) -> object:
    if not isinstance(body, str):
        return body
    return body.replace("\r\n", "\n").replace("\r", "\n").strip("\n")


@attrs.frozen(kw_only=True)
class Skill:
    """What one SKILL.md says."""

    name: str = attrs.field()
    """Up to 64 lower-case letters, digits and single hyphens between them."""
    description: str = attrs.field()
    when_to_use: str = attrs.field(default="")
    body: str = attrs.field(default="", converter=_plain_lines, repr=False)
    """Markdown, without blank lines around it."""
    metadata: dict[str, JSON] = attrs.field(factory=dict, repr=False)
    """Everything else in the frontmatter, such as ``license`` or ``allowed-tools``."""

    @name.validator
    def _check_name(self, _: object, value: object) -> None:
        if not is_skill_name(value):
            raise ValueError(
                f"Skill.name is {value!r}, expected at most 64 lower-case letters, digits and "
                "single hyphens between them"
            )

    @description.validator
    def _check_description(self, _: object, value: object) -> None:
        if not writable(value) or not str(value).strip():
            raise ValueError(f"Skill.description is {value!r}, expected a text that says something")

    @when_to_use.validator
    @body.validator
    def _check_text(self, attribute: attrs.Attribute[str], value: object) -> None:
        if not writable(value):
            shown = repr(value)[:100]
            raise ValueError(f"Skill.{attribute.name} is {shown}, expected a text in Unicode")

    @metadata.validator
    def _check_metadata(self, _: object, value: object) -> None:
        if not isinstance(value, dict):
            raise TypeError(f"Skill.metadata is {value!r}, expected a dictionary")
        for key in FIELD_KEYS:
            if key in value:
                raise ValueError(f"Skill.metadata has {key!r}, expected no key of a field")
        check_metadata(value)

    def render(self) -> str:
        """Return the body."""
        return self.body


@attrs.frozen(kw_only=True)
class SkillSummary:
    """One skill, as a catalog tells of it."""

    ref: str
    """What it is loaded by."""
    name: str
    description: str
    when_to_use: str = ""
    origin: SkillOrigin = "external"
