from pathlib import Path

import pytest

from harness import Outcome, Tool
from harness.skills import FoundSkill, SkillLimits, create_skill_registry, read_skills
from harness.skills._loading import SkillLoader, resource_tool
from harness.skills._resolution import SkillStore
from tests.skills.examples import link, skill, write_skill
from tests.tools.contexts import run

LIMITS = SkillLimits()


class Loading:
    """A loader of three skills."""

    def __init__(self, *, tells: bool = True, limits: SkillLimits = LIMITS) -> None:
        found = [
            FoundSkill(skill=skill("charts", "Charts." * 4)),
            FoundSkill(skill=skill("tides"), resources=("a.md",), more_resources=True),
            FoundSkill(skill=skill("waves", "Waves.")),
        ]
        registry = create_skill_registry(print)
        for each in found:
            registry.register_platform(each.skill)
        self.active: list[str] = []
        self.shas: dict[str, str] = {}
        self.tool: Tool = SkillLoader(
            found={each.skill.name: each for each in found},
            store=SkillStore(registry=registry),
            active=self.active,
            shas=self.shas,
            limits=limits,
            tells=tells,
        ).tool("The catalog.")

    async def load(self, name: object) -> Outcome:
        return await run(self.tool, {"name": name})


def test_loading_is_serial_and_leaves_nothing_behind() -> None:
    tool = Loading().tool
    assert (tool.policy.serial, tool.policy.effect) == (True, "none")
    assert tool.definition["function"] == {
        "name": "load_skill",
        "description": (
            "Load a skill: written instructions for a kind of task, with files that they refer to. "
            "Load the one that fits before you begin such a task."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "name": {
                    "type": "string",
                    "enum": ["charts", "tides", "waves"],
                    "description": "The catalog.",
                }
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    }


async def test_a_skill_is_told_and_asked_to_be_activated() -> None:
    outcome = await Loading().load("tides")
    assert outcome.kind == "completed"
    assert outcome.activate_skills == ("platform:tides",)
    assert outcome.data == {
        "skill": "tides",
        "instructions": "Look at the table.",
        "resources": ["a.md"],
        "more_resources": True,
    }
    assert (await Loading(tells=False).load("waves")).data == {"skill": "waves", "loaded": True}


async def test_a_skill_that_is_loaded_is_told_again_and_costs_nothing() -> None:
    loading = Loading(limits=SkillLimits(active=1, body_tokens=1))
    loading.active.append("platform:waves")
    outcome = await loading.load("waves")
    assert (outcome.kind, outcome.activate_skills) == ("completed", ())
    assert outcome.data == {"skill": "waves", "instructions": "Waves."}


@pytest.mark.parametrize("name", ["none", "platform:tides", "", None, 7, ["tides"], "x" * 9_999])
async def test_an_unknown_name_fails_and_the_known_ones_are_told(name: object) -> None:
    outcome = await Loading().load(name)
    assert (outcome.kind, outcome.failure_kind) == ("failed", "not_found")
    assert outcome.error.startswith(
        f"no skill is called {name!r:.100}, expected one of charts, tides"
    )


async def test_what_has_no_room_is_refused() -> None:
    loading = Loading(limits=SkillLimits(active=2, body_tokens=8))
    loading.active.append("platform:waves")
    outcome = await loading.load("charts")
    assert (outcome.kind, outcome.failure_kind) == ("failed", "conflict")
    assert "would take about 9 of at most 8 tokens" in outcome.error
    assert (await loading.load("tides")).kind == "completed"
    loading.active.append("platform:tides")
    outcome = await loading.load("charts")
    assert outcome.error.startswith("The skill was not loaded: 2 of at most 2 skills")
    assert outcome.activate_skills == ()


async def test_what_is_gone_takes_no_room() -> None:
    loading = Loading(limits=SkillLimits(active=1))
    loading.active.append("platform:gone")
    assert (await loading.load("tides")).kind == "completed"


async def test_a_skill_that_has_changed_since_is_not_told() -> None:
    loading = Loading()
    loading.shas["platform:tides"] = "older"
    outcome = await loading.load("tides")
    assert (outcome.kind, outcome.failure_kind) == ("failed", "conflict")
    assert outcome.error == (
        "the skill 'tides' was not loaded: it has changed since this conversation began to use it"
    )
    assert (await loading.load("waves")).kind == "completed"


@pytest.fixture
def reader(tmp_path: Path) -> Tool:
    write_skill(
        tmp_path / "s", "tides", files={"a.md": "Low.", "x.bin": b"\xff\xfe", "big": "x" * 99}
    )
    write_skill(tmp_path / "s", "waves")
    (tmp_path / "secret").write_text("secret")
    link("../../secret", tmp_path / "s" / "tides" / "out")
    return resource_tool(read_skills(tmp_path / "s"), 50)


def test_only_skills_with_files_can_be_read_and_a_stop_does_not_wait(reader: Tool) -> None:
    parameters = reader.schema.json_schema()
    assert parameters["properties"] == {
        "skill": {"type": "string", "enum": ["tides"]},
        "path": {"type": "string"},
    }
    assert (reader.abandon, reader.policy.effect) == (True, "none")


@pytest.mark.rule("R-SKILL-31")
@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        ("a.md", None, "Low."),
        ("SKILL.md", "authz", "the path 'SKILL.md' was refused: it is larger than may be read"),
        ("big", "authz", "the path 'big' was refused: it is larger than may be read"),
        ("out", "authz", "the path 'out' was refused: it leads out of the skill's folder by a li"),
        ("../../secret", "authz", "the path '../../secret' was refused: it goes up with '..', ex"),
        ("none", "not_found", "the path 'none' was refused: there is no such file; the skill has"),
        ("x.bin", "validation", "'x.bin' is no text but 2 bytes of something else, expected a te"),
        (7, "validation", "the path is 7, expected a text"),
    ],
)
async def test_a_file_is_told_or_refused(
    reader: Tool, path: object, kind: str | None, text: str
) -> None:
    outcome = await run(reader, {"skill": "tides", "path": path})
    assert outcome.failure_kind == kind
    told = outcome.data if kind is None else outcome.error
    assert isinstance(told, str)
    assert told.startswith(text)
    assert "secret" not in str(outcome.data)


@pytest.mark.parametrize("name", ["waves", "none", None, ["tides"]])
async def test_a_skill_without_files_is_not_found(reader: Tool, name: object) -> None:
    outcome = await run(reader, {"skill": name, "path": "a.md"})
    assert (outcome.kind, outcome.failure_kind) == ("failed", "not_found")
    assert outcome.error == f"no skill with files is called {name!r}, expected one of tides"
