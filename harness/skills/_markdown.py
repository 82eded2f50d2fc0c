"""SKILL.md: a frontmatter in YAML between two lines of dashes, then Markdown.

People write these by hand, and import forgives them what it can without guessing at what they
meant. Only two things fail: a frontmatter that YAML cannot read, and a description that is not
there, since nobody could tell when to load the skill. Everything else gets a default and a
warning. Failure is a value: one bad file must not hide the good ones beside it.

YAML is the host's. Which parser reads a file from outside is a decision about trust, so it is
passed in, and a ready pair stands behind an extra. What it is given is bounded before it sees
it, and what it returns is measured before it is looked into.

The mistake that is repaired is the one that everybody makes: ``description: Use when: x`` holds
a colon that YAML takes for a second mapping. The lines in question are quoted and read once
more, but only after the file as it stands was refused, so what is correct is never touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from harness._errors import NotJSONError, error_text
from harness._json import JSON
from harness.skills._skill import (
    FIELD_KEYS,
    MOST_VALUES,
    WHEN_KEYS,
    Skill,
    check_metadata,
    is_skill_name,
    slug,
    writable,
)

__all__ = [
    "YAML",
    "ParsedSkill",
    "SkillReading",
    "UnreadableSkill",
    "parse_skill_markdown",
    "serialize_skill_markdown",
]

_FENCE: Final = "---"
_LONGEST: Final = 64 * 1024
_DEEPEST: Final = 100
_REASON: Final = 300
_END: Final = re.compile(r"^---[ \t]*$", re.MULTILINE)
_FENCE_ROOM: Final = 80
_BARE_LINE: Final = re.compile(r"([A-Za-z_][\w-]*):[ \t]+([^\s'\"\[{|>&*!#].*)")
_HEADING: Final = re.compile(r"^#{1,6}[ \t]+(\S.*)", re.MULTILINE)


@attrs.frozen(kw_only=True)
class YAML:
    """The host's YAML functions."""

    load: Callable[[str], object]
    """From a document to plain values; may raise what it likes."""
    dump: Callable[[object], str]
    """From plain values to a document, keys in the order that they have."""


@attrs.frozen(kw_only=True)
class ParsedSkill:
    """A SKILL.md that could be read."""

    skill: Skill
    warnings: tuple[str, ...] = ()
    """What had to be guessed, left out or repaired."""


@attrs.frozen(kw_only=True)
class UnreadableSkill:
    """A SKILL.md that is none."""

    reason: str


SkillReading: TypeAlias = ParsedSkill | UnreadableSkill


def parse_skill_markdown(
    text: str, yaml: YAML, *, fallback_name: str | None = None
) -> SkillReading:
    """Return the skill that *text* describes, or why there is none. Never raises for a text.

    Args:
        text: the whole file; a byte-order mark and Windows line ends are tolerated.
        yaml: reads the frontmatter.
        fallback_name: the name, if the frontmatter has none; usually that of the folder. Else
            it is the first heading, or ``skill``.
    """
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    parts = _split(plain)
    if isinstance(parts, str):
        return UnreadableSkill(reason=parts)
    frontmatter, body = parts
    warnings: list[str] = []
    try:
        fields = _load(frontmatter, yaml, warnings)
    except _RefusedError as refusal:
        return UnreadableSkill(reason=str(refusal))
    description = _text_field(fields, ("description",), warnings)
    if not description.strip():
        return UnreadableSkill(reason="its frontmatter has no description, expected one")
    if not writable(body):
        return UnreadableSkill(reason="its body holds a lone surrogate, expected Unicode")
    return ParsedSkill(
        skill=Skill(
            name=_name(fields.get("name"), fallback_name, body, warnings),
            description=description,
            when_to_use=_text_field(fields, WHEN_KEYS, warnings),
            body=body,
            metadata=_metadata(fields, warnings),
        ),
        warnings=tuple(warnings),
    )


def serialize_skill_markdown(skill: Skill, yaml: YAML) -> str:
    """Return the SKILL.md of *skill*; `parse_skill_markdown` makes an equal skill of it.

    Raises:
        ValueError: its frontmatter would be too long to be read again.
    """
    fields: dict[str, JSON] = {"name": skill.name, "description": skill.description}
    if skill.when_to_use:
        fields["when_to_use"] = skill.when_to_use
    for key in sorted(skill.metadata):
        fields[key] = _in_order(skill.metadata[key])
    frontmatter = yaml.dump(fields).rstrip("\n")
    if len(frontmatter) > _LONGEST:
        raise ValueError(
            f"the frontmatter of {skill.name!r} has {len(frontmatter)} characters, "
            f"expected at most {_LONGEST}"
        )
    body = f"\n{skill.body}\n" if skill.body else ""
    return f"{_FENCE}\n{frontmatter}\n{_FENCE}\n{body}"


def _in_order(value: JSON) -> JSON:
    """Return *value* with the keys of each object sorted, so that equal skills look the same."""
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_in_order(each) for each in value]
    return value


class _RefusedError(Exception):
    """A frontmatter that cannot be read; only within this module."""


def _split(text: str) -> tuple[str, str] | str:
    """Return the frontmatter and the body of *text*, or what is wrong with it."""
    first, _, rest = text.partition("\n")
    if first.rstrip() != _FENCE:
        return "it does not begin with a line '---', expected a frontmatter with a description"
    # Only as far as a frontmatter may go: what follows can be megabytes of anything.
    end = _END.search(rest[: _LONGEST + _FENCE_ROOM])
    if end is None or end.start() > _LONGEST:
        if len(rest) > _LONGEST:
            return f"its frontmatter has more than {_LONGEST} characters, expected an end before"
        return "its frontmatter is not closed, expected a second line '---'"
    return rest[: end.start()], rest[end.end() + 1 :]


def _load(frontmatter: str, yaml: YAML, warnings: list[str]) -> dict[object, object]:
    _check_depth(frontmatter)
    try:
        value = _call(yaml, frontmatter)
    except _RefusedError as first:
        repaired = "\n".join(map(_quoted, frontmatter.split("\n")))
        if repaired == frontmatter:
            raise
        try:
            value = _call(yaml, repaired)
        except _RefusedError:
            raise first from None
        warnings.append("a value with a colon was not quoted, and was read as if it were")
    if not isinstance(value, dict):
        raise _RefusedError(
            f"its frontmatter is a {type(value).__name__}, expected keys with a description"
        )
    return value


def _call(yaml: YAML, text: str) -> object:
    try:
        return yaml.load(text)
    except Exception as error:  # noqa: BLE001  # whatever the host's parser raises, it cannot read
        reason = " ".join(error_text(error).split())[:_REASON]
        raise _RefusedError(f"its frontmatter cannot be read: {reason}") from None


def _check_depth(frontmatter: str) -> None:
    """Refuse nesting that a recursive parser might not survive; quotes are not looked at."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", frontmatter):
        depth = depth + 1 if bracket in "[{" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    if deepest > _DEEPEST or re.search(rf"(?:[-?:][ \t]++){{{_DEEPEST}}}", frontmatter):
        raise _RefusedError(f"its frontmatter is nested more than {_DEEPEST} deep")


def _quoted(line: str) -> str:
    """Return *line* with its value in quotes, if it is a bare one that holds a colon."""
    found = _BARE_LINE.fullmatch(line.rstrip())
    if found is None or not re.search(r":(?:[ \t]|$)", found[2]):
        return line
    value = found[2].replace("'", "''")
    return f"{found[1]}: '{value}'"


def _text_field(fields: dict[object, object], keys: tuple[str, ...], warnings: list[str]) -> str:
    """Return the first of *keys* that says something; a number or a truth becomes its text."""
    for key in keys:
        value = fields.get(key)
        if value is None or value == "":
            continue
        text = _scalar_text(value)
        if text is None:
            warnings.append(f"{key} is {_kind(value)}, expected a text; it was left out")
            continue
        if not isinstance(value, str):
            warnings.append(f"{key} is {_kind(value)}, and was taken as the text {text!r}")
        return text
    return ""


def _scalar_text(value: object) -> str | None:
    """Return *value* as a text; None for one that has parts, or cannot be written."""
    value = _as_written(value)
    if isinstance(value, bool | int | float):
        try:
            value = str(value)
        except ValueError:  # more digits than the interpreter writes
            return None
    return str(value) if writable(value) else None


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"


def _name(given: object, fallback: str | None, body: str, warnings: list[str]) -> str:
    """Return the name that the frontmatter gives, or one as close to it as there is."""
    if is_skill_name(given):
        return str(given)
    text = None if given is None else _scalar_text(given)
    wrong = _kind(given) if text is None and given is not None else repr(text)[:100]
    name = slug(text or "") or slug(fallback or "") or slug(_heading(body)) or "skill"
    warnings.append(f"name is {wrong}, expected lower-case words; it is called {name!r}")
    return name


def _heading(body: str) -> str:
    found = _HEADING.search(body)
    return "" if found is None else found[1]


def _metadata(fields: dict[object, object], warnings: list[str]) -> dict[str, JSON]:
    kept: dict[str, JSON] = {}
    left = MOST_VALUES - 1
    for key, value in fields.items():
        if key in FIELD_KEYS:
            continue
        plain = _as_written(value)
        try:
            left -= check_metadata({key: plain}, left + 1) - 1
        except NotJSONError as error:
            name = f"{key!r:.100}" if isinstance(key, str) else _kind(key)
            warnings.append(f"the key {name} was left out: {error}")
        else:
            kept[str(key)] = plain  # type: ignore[assignment]  # JSON, by the check
    return kept


def _as_written(value: object) -> object:
    """Return a date as the text that it was; everything else as it is."""
    written = getattr(value, "isoformat", None)
    return written() if callable(written) else value
