"""Folders of skills, read when a host asks for it.

Skills lie about in the layout of the public format: a folder for each, with a SKILL.md in it and
whatever the skill refers to beside it. Hosts have such folders side by side, sorted into
subfolders, or linked from where a package put them; the folder may also be a skill itself. All
of these are read. What is not: hidden folders, what lies within a skill, and a link that leads
to anything but a skill, or else one link to ``/`` would be a tour of the whole disk.

Everything is read at once and kept. So the catalog, the bodies and the lists of resources are
those of one moment, and a run does not change its mind when somebody edits a file. Only the
resources themselves are read later, when they are asked for.

A skill that cannot be read is reported beside the others, never raised.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import attrs

from harness._messages import FailureKind
from harness.skills._confined import RESOURCE_ROWS, Obstacle, read_below
from harness.skills._markdown import YAML, UnreadableSkill, parse_skill_markdown
from harness.skills._registry import skill_ref
from harness.skills._skill import Skill
from harness.skills._yaml import pyyaml

__all__ = [
    "RESOURCE_BYTES",
    "BrokenSkill",
    "FoundSkill",
    "FoundSkills",
    "ResourceRefused",
    "read_skills",
]

RESOURCE_BYTES: Final = 128 * 1024
"""The largest resource that is read, unless the caller says otherwise."""

_FILE_NAMES: Final = ("SKILL.md", "skill.md")
_SKILL_BYTES: Final = 1024 * 1024
_MOST_FOLDERS: Final = 5_000
_DEEPEST: Final = 3
_MOST_RESOURCES: Final = 100
_MOST_ENTRIES: Final = 2_000
_PASSED_BY: Final = frozenset({"node_modules", "__pycache__"})
_ROWS: Final = {row.obstacle: row for row in RESOURCE_ROWS}


@attrs.frozen(kw_only=True)
class ResourceRefused:
    """A resource that was not read, and why."""

    kind: FailureKind
    """``authz`` or ``not_found``."""
    reason: str


@attrs.frozen(kw_only=True)
class FoundSkill:
    """A skill, and the folder that it was found in."""

    skill: Skill
    folder: str | None = None
    """Where its resources are; None for a skill that has none."""
    resources: tuple[str, ...] = ()
    """Paths of its other files, from the folder on; the first hundred."""
    more_resources: bool = False
    """Whether there are others."""
    warnings: tuple[str, ...] = ()

    @property
    def ref(self) -> str:
        """What it is loaded by once it is registered."""
        return skill_ref(self.skill.name)


@attrs.frozen(kw_only=True)
class BrokenSkill:
    """A file or folder that is no skill, although it looks like one."""

    path: str
    reason: str


@attrs.frozen(kw_only=True)
class FoundSkills:
    """What `read_skills` found."""

    skills: tuple[FoundSkill, ...] = ()
    """By name, each name once."""
    broken: tuple[BrokenSkill, ...] = ()
    """By path."""

    def get(self, ref: str) -> FoundSkill | None:
        """Return the skill with this *ref*."""
        return next((each for each in self.skills if each.ref == ref), None)

    def read_resource(
        self, ref: str, path: str, *, most: int = RESOURCE_BYTES
    ) -> bytes | ResourceRefused:
        """Return the content of a regular file below the folder of the skill *ref*. Blocks.

        Links are resolved. Whatever is no such file is refused: what leaves the folder, is no
        regular file, has more than *most* bytes or may not be read (``authz``), and what is not
        there or is a folder (``not_found``).

        Raises:
            OSError: the system failed in another way than the path explains.
        """
        found = self.get(ref)
        if found is None or found.folder is None:
            what = "skill" if found is None else "folder of the skill"
            return ResourceRefused(kind="not_found", reason=f"there is no {what} {ref!r:.100}")
        content = read_below(found.folder, path, most=most)
        if isinstance(content, bytes):
            return content
        return _refused(found, path, content)


def _refused(found: FoundSkill, path: str, obstacle: Obstacle) -> ResourceRefused:
    row = _ROWS[obstacle]
    reason = f"the path {path!r:.200} was refused: {row.text}"
    if row.kind == "not_found" and found.resources:
        reason += f"; the skill has {', '.join(found.resources[:20])}"
        reason += " and others" if found.more_resources or len(found.resources) > 20 else ""
    return ResourceRefused(kind=row.kind, reason=reason)


def read_skills(*folders: str | os.PathLike[str], yaml: YAML | None = None) -> FoundSkills:
    """Read the skills in *folders*. Blocks; call it before a run, or in a thread.

    Args:
        folders: each a folder of skills, or a skill's own. Of two skills with one name, that of
            the first folder counts, and the other is broken.
        yaml: reads the frontmatters; PyYAML, by default.

    Raises:
        OSError: a folder is not there, or cannot be read.
        NotImplementedError: the system cannot open relative to a directory (Windows).
        MissingExtraError: *yaml* is None, and PyYAML is not installed.
    """
    yaml = pyyaml() if yaml is None else yaml
    skills: dict[str, FoundSkill] = {}
    broken: list[BrokenSkill] = []
    for folder in folders:
        os.stat(os.path.join(folder, "."))  # raises, if it is no folder
        for found in _found_below(os.fspath(folder), yaml):
            if isinstance(found, BrokenSkill):
                broken.append(found)
            elif found.skill.name in skills:
                first = skills[found.skill.name].folder
                reason = f"the skill in {first!r} is called {found.skill.name!r} too"
                broken.append(BrokenSkill(path=str(found.folder), reason=reason))
            else:
                skills[found.skill.name] = found
    return FoundSkills(
        skills=tuple(skills[name] for name in sorted(skills)),
        broken=tuple(sorted(broken, key=lambda each: each.path)),
    )


def _found_below(root: str, yaml: YAML) -> Iterator[FoundSkill | BrokenSkill]:
    """Yield what is found in *root*, folder by folder, in the order of their names."""
    waiting = [(root, 0, False)]
    looked_at = 0
    while waiting:
        folder, depth, linked = waiting.pop()
        looked_at += 1
        if looked_at > _MOST_FOLDERS:
            reason = f"it has more than {_MOST_FOLDERS} folders; the others were not looked at"
            yield BrokenSkill(path=root, reason=reason)
            return
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            if depth == 0:
                raise
            yield BrokenSkill(path=folder, reason=f"it cannot be read: {error.strerror}")
            continue
        names = {entry.name for entry in entries}
        file = next((name for name in _FILE_NAMES if name in names), None)
        if file is not None:
            yield _read_skill(folder, file, yaml)
        elif depth < _DEEPEST and not linked:
            waiting += [
                (entry.path, depth + 1, entry.is_symlink())
                for entry in reversed(entries)
                if _is_worth_a_look(entry, depth)
            ]


def _is_worth_a_look(entry: os.DirEntry[str], depth: int) -> bool:
    if entry.name.startswith(".") or entry.name in _PASSED_BY:
        return False
    try:
        return entry.is_dir(follow_symlinks=depth == 0)
    except OSError:  # a link in a circle
        return False


def _read_skill(folder: str, file: str, yaml: YAML) -> FoundSkill | BrokenSkill:
    path = os.path.join(folder, file)
    try:
        content = read_below(folder, file, most=_SKILL_BYTES)
        resources = _resources(folder)
    except OSError as error:
        return BrokenSkill(path=path, reason=f"it cannot be read: {error.strerror}")
    if not isinstance(content, bytes):
        return BrokenSkill(path=path, reason=_ROWS[content].text)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        reason = f"it is no text in UTF-8: {error.reason} at byte {error.start}"
        return BrokenSkill(path=path, reason=reason)
    folder_name = os.path.basename(os.path.abspath(folder))
    reading = parse_skill_markdown(text, yaml, fallback_name=folder_name)
    if isinstance(reading, UnreadableSkill):
        return BrokenSkill(path=path, reason=reading.reason)
    skill, warnings = reading.skill, reading.warnings
    if not skill.body.strip():
        return BrokenSkill(path=path, reason="it says nothing after its frontmatter")
    if skill.name != folder_name:
        warnings = (*warnings, f"it is called {skill.name!r}, and its folder {folder_name!r}")
    return FoundSkill(
        skill=skill,
        folder=os.path.realpath(folder),
        resources=tuple(resources[:_MOST_RESOURCES]),
        more_resources=len(resources) > _MOST_RESOURCES,
        warnings=warnings,
    )


def _resources(folder: str) -> list[str]:
    """Return the paths of the files in *folder*, sorted; one more than are kept, at most.

    Hidden files are passed by, and so are links: they may be read, but a list of them might not
    end. A file that no longer has a name in Unicode is one that no model can name.
    """
    found: list[str] = []
    seen = 0
    for where, folders, files in os.walk(folder):
        below = "" if where == folder else os.path.relpath(where, folder) + os.sep
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _PASSED_BY)
        if below.count(os.sep) == _DEEPEST:
            folders.clear()
        for name in sorted(files):
            path = f"{below}{name}".replace(os.sep, "/")
            if name.startswith(".") or path in _FILE_NAMES:
                continue
            if path.isprintable() and not os.path.islink(os.path.join(where, name)):
                found.append(path)
        seen += len(files) + len(folders)
        if len(found) > _MOST_RESOURCES or seen > _MOST_ENTRIES:
            break
    return sorted(found[: _MOST_RESOURCES + 1])
