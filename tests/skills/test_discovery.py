import hashlib
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import JSON
from harness.skills import (
    DISCOVERY_PATH,
    DISCOVERY_SCHEMA,
    Skill,
    build_agent_skills_discovery_index,
    pyyaml,
    serialize_skill_markdown,
)
from harness.skills._discovery import discovery_url
from tests.skills.examples import skill, skills

YAML = pyyaml()

RFC_SCHEMA: Final[dict[str, JSON]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["$schema", "skills"],
    "properties": {
        "$schema": {"const": "https://schemas.agentskills.io/discovery/0.2.0/schema.json"},
        "skills": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "type", "description", "url", "digest"],
                "properties": {
                    "name": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 64,
                        "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$",
                    },
                    "type": {"enum": ["skill-md", "archive"]},
                    "description": {"type": "string", "minLength": 1, "maxLength": 1024},
                    "url": {"type": "string", "minLength": 1},
                    "digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
                },
            },
        },
    },
}
"""What the RFC's tables of fields say, as a JSON Schema."""


def entries(index: dict[str, JSON]) -> list[dict[str, JSON]]:
    listed = index["skills"]
    assert isinstance(listed, list)
    return [each for each in listed if isinstance(each, dict)]


@pytest.mark.rule("R-SKILL-28")
@settings(max_examples=30)
@given(st.lists(skills, max_size=4, unique_by=lambda each: each.name))
def test_the_index_is_valid_by_the_schema_of_the_rfc(published: list[Skill]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    index = build_agent_skills_discovery_index(published, YAML)
    jsonschema.Draft202012Validator(RFC_SCHEMA).validate(index)
    assert len(entries(index)) == len(published)


@pytest.mark.rule("R-SKILL-29")
def test_each_entry_has_the_digest_of_what_is_served() -> None:
    tides = skill(description="Reads\n tides.")
    index = build_agent_skills_discovery_index([tides], YAML)
    served = serialize_skill_markdown(tides, YAML).encode()
    assert DISCOVERY_PATH == "/.well-known/agent-skills/index.json"
    assert index == {
        "$schema": DISCOVERY_SCHEMA,
        "skills": [
            {
                "name": "tides",
                "type": "skill-md",
                "description": "Reads tides.",
                "url": "/.well-known/agent-skills/tides/SKILL.md",
                "digest": f"sha256:{hashlib.sha256(served).hexdigest()}",
            }
        ],
    }
    other = build_agent_skills_discovery_index([tides], YAML, served=lambda _: b"as it lies there")
    digest = hashlib.sha256(b"as it lies there").hexdigest()
    assert entries(other)[0]["digest"] == f"sha256:{digest}"


@pytest.mark.rule("R-SKILL-30")
@given(st.permutations(["a", "b", "c"]))
def test_entries_stand_by_name_and_their_address_can_be_the_hosts(names: list[str]) -> None:
    index = build_agent_skills_discovery_index(
        [skill(name) for name in names], YAML, url=lambda name: f"https://example.org/{name}"
    )
    assert [each["url"] for each in entries(index)] == [f"https://example.org/{n}" for n in "abc"]
    assert discovery_url("a") == "/.well-known/agent-skills/a/SKILL.md"


@pytest.mark.rule("R-SKILL-30")
def test_a_name_twice_or_out_of_format_raises() -> None:
    with pytest.raises(ValueError, match=r"^two skills are called 'tides', expected one of each"):
        build_agent_skills_discovery_index([skill(), skill()], YAML)
    with pytest.raises(ValueError, match=r"^Skill\.name is 'Bad_Name', expected at most 64"):
        build_agent_skills_discovery_index([skill(), skill("Bad_Name")], YAML)


def test_a_description_that_the_rfc_does_not_allow_raises() -> None:
    build_agent_skills_discovery_index([skill(description="x" * 1024)], YAML)
    with pytest.raises(ValueError, match=r"^the description of 'tides' has 1025 characters, exp"):
        build_agent_skills_discovery_index([skill(description="x" * 1025)], YAML)
