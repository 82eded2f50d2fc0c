"""The index by which a site tells agents which skills it publishes.

This is the document of the Agent Skills Discovery RFC, version 0.2.0, which is served at
``/.well-known/agent-skills/index.json``. Each entry has the digest of the very bytes that its
address serves; a client refuses what has another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

from harness._json import JSON
from harness.skills._markdown import YAML, serialize_skill_markdown
from harness.skills._skill import Skill, one_line

__all__ = [
    "DISCOVERY_PATH",
    "DISCOVERY_SCHEMA",
    "build_agent_skills_discovery_index",
    "discovery_url",
]

DISCOVERY_SCHEMA: Final = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
DISCOVERY_PATH: Final = "/.well-known/agent-skills/index.json"

_LONGEST_DESCRIPTION: Final = 1_024


def discovery_url(name: str) -> str:
    """Return the address of the skill *name* on the site that the index is on."""
    return f"/.well-known/agent-skills/{name}/SKILL.md"


def build_agent_skills_discovery_index(
    skills: Iterable[Skill],
    yaml: YAML,
    *,
    url: Callable[[str], str] = discovery_url,
    served: Callable[[Skill], bytes] | None = None,
) -> dict[str, JSON]:
    """Return the index of *skills*, sorted by name, to be served as JSON.

    Args:
        skills: what is published, each as a SKILL.md of its own.
        yaml: writes the frontmatter of what is served.
        url: from a name to the address of its file.
        served: the bytes at that address; what `serialize_skill_markdown` returns, by default.

    Raises:
        ValueError: a name stands twice (one that is in no format cannot be that of a `Skill`), or a
            description is longer than the RFC allows.
    """
    entries: dict[str, JSON] = {}
    for skill in skills:
        name = skill.name
        if name in entries:
            raise ValueError(f"two skills are called {name!r}, expected one of each name")
        description = one_line(skill.description)
        if len(description) > _LONGEST_DESCRIPTION:
            raise ValueError(
                f"the description of {name!r} has {len(description)} characters, expected at "
                f"most {_LONGEST_DESCRIPTION}"
            )
        content = (
            serialize_skill_markdown(skill, yaml).encode() if served is None else served(skill)
        )
        entries[name] = {
            "name": name,
            "type": "skill-md",
            "description": description,
            "url": url(name),
            "digest": f"sha256:{hashlib.sha256(content).hexdigest()}",
        }
    return {"$schema": DISCOVERY_SCHEMA, "skills": [entries[name] for name in sorted(entries)]}
