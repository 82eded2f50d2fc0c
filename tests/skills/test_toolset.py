import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from harness import (
    JSON,
    Admission,
    Batch,
    CallContext,
    CallPolicy,
    Message,
    Outcome,
    RunState,
    ToolCall,
    run,
    tool,
)
from harness.errors import MissingPortError, ToolDefinitionError
from harness.skills import (
    FoundSkill,
    FoundSkills,
    SkillCatalog,
    SkilledToolset,
    SkillInstructions,
    SkillLimits,
    describe_catalog,
    read_skills,
    with_skills,
)
from harness.testing import (
    RUN_INVARIANTS,
    Scene,
    cancel_everywhere,
    counting_tool,
    final_answer,
    run_harness,
    scripted_model,
    slow_tool,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList, disclosed, plugin_from_tools, render_outcome
from tests.skills.examples import skill, write_skill
from tests.tools.contexts import ask, context_for

FOUND = FoundSkills(
    skills=(
        FoundSkill(skill=skill("tides", "Read the table.", when_to_use="Near\n- water.")),
        FoundSkill(skill=skill("charts", "Mind the depths.")),
    )
)


def names(toolset: SkilledToolset) -> list[str]:
    return [each["function"]["name"] for each in toolset.definitions()]  # type: ignore[call-overload, index, misc]


def catalog(toolset: SkilledToolset) -> str:
    return toolset.definitions()[0]["function"]["parameters"]["properties"]["name"]["description"]  # type: ignore[call-overload, index, return-value]


def answers(state: RunState) -> list[dict[str, JSON]]:
    return [json.loads(str(each["content"])) for each in state.messages if each["role"] == "tool"]


def test_the_tools_of_skills_stand_before_the_others(tmp_path: Path) -> None:
    write_skill(tmp_path, "tides", files={"table.md": "Low."})
    with_files = with_skills([counting_tool("book")], read_skills(tmp_path))
    assert names(with_files) == ["load_skill", "read_skill_resource", "book"]
    assert names(with_skills([counting_tool("book")], FOUND)) == ["load_skill", "book"]
    assert names(with_skills([counting_tool("book")], FoundSkills())) == ["book"]


def test_the_catalog_stands_in_the_definition_a_line_for_each() -> None:
    lines = catalog(with_skills([], FOUND)).split("\n")
    assert lines[0] == "The skills, in their authors' words:"
    assert lines[1:] == ["- charts: Reads tides.", "- tides: Reads tides. Near - water."]
    short = with_skills([], FOUND, limits=SkillLimits(catalog_tokens=0))
    assert catalog(short).split("\n")[1:] == ["- charts", "- tides"]


def test_the_description_can_be_the_hosts() -> None:
    def describe(of: SkillCatalog) -> str:
        return ",".join(each.summary.name for each in of.loadable)

    assert catalog(with_skills([], FOUND, describe=describe)) == "charts,tides"
    assert describe_catalog(SkillCatalog(active=(), loadable=())).count("\n") == 0


def test_no_description_of_a_tool_is_longer_than_providers_take() -> None:
    many = tuple(
        FoundSkill(skill=skill(f"skill-{n}", description="x" * 900), resources=("a",))
        for n in range(500)
    )
    toolset = with_skills([], FoundSkills(skills=many))
    told = [each["function"]["description"] for each in toolset.definitions()]  # type: ignore[call-overload, index]
    assert all(isinstance(each, str) and len(each) <= 1_024 for each in told)
    assert catalog(toolset).count("\n") == 500


async def test_the_definitions_stay_what_they_are_through_every_loading() -> None:
    toolset = with_skills([counting_tool("book")], FOUND)
    before = json.dumps(toolset.definitions())
    await toolset.activate(Outcome.completed(activate_skills=["platform:tides"]))
    assert json.dumps(toolset.definitions()) == before


@pytest.mark.parametrize("name", ["load_skill", "read_skill_resource"])
def test_a_tool_of_the_same_name_is_refused(name: str, tmp_path: Path) -> None:
    write_skill(tmp_path, "tides", files={"table.md": "Low."})
    with pytest.raises(ToolDefinitionError, match=rf"^'{name}' cannot be a tool: two tools have"):
        with_skills([counting_tool(name)], read_skills(tmp_path))
    with_skills([counting_tool("read_skill_resource")], FOUND)


def test_skills_that_cannot_be_registered_are_refused() -> None:
    twice = FoundSkills(skills=(FOUND.skills[0], FOUND.skills[0]))
    with pytest.raises(ValueError, match="a second skill is called 'tides', expected one"):
        with_skills([], twice)
    empty = FoundSkills(skills=(FoundSkill(skill=skill(body="")),))
    with pytest.raises(ValueError, match="the body of 'tides' is '', expected a text"):
        with_skills([], empty)


class Inner(ToolList):
    """A toolset that notes what is passed on to it."""

    def __init__(self) -> None:
        super().__init__([counting_tool("book")])
        self.noted: list[object] = []

    def policy(self, call: ToolCall) -> CallPolicy:
        self.noted.append(("policy", call.name))
        return CallPolicy(pool="inner")

    async def admit(self, batch: Batch) -> Admission:
        self.noted.append(("admit", len(batch.calls)))
        return Admission(memo="seen")

    async def activate(self, outcome: Outcome) -> None:
        self.noted.append((outcome.activate_plugins, outcome.activate_skills))

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        self.noted.append(("render", call.name))
        return render_outcome(call, outcome)

    def fatal(self, error: BaseException) -> bool:
        self.noted.append(("fatal", type(error).__name__))
        return True


async def test_everything_else_is_passed_on() -> None:
    inner = Inner()
    toolset = with_skills(inner, FOUND)
    load, book = ask("load_skill", '{"name": "tides"}'), ask("book")
    custom = ask("load_skill", call_type="custom")
    assert toolset.policy(load).serial
    assert toolset.policy(book).pool == toolset.policy(custom).pool == "inner"
    batch = context_for(load, None).batch
    assert (await toolset.admit(batch)).memo == "seen"
    assert (await toolset.execute(load, context_for(load, None))).activates
    assert (await toolset.execute(book, context_for(book, None))).kind == "completed"
    assert (await toolset.execute(custom, context_for(custom, None))).kind == "failed"
    toolset.render(load, Outcome.completed())
    assert toolset.fatal(ValueError())
    await toolset.activate(Outcome.completed(activate_skills=["platform:tides"]))
    await toolset.activate(
        Outcome.completed(activate_skills=["other", "platform:tides"], activate_plugins=["p"])
    )
    assert inner.noted == [
        ("policy", "book"),
        ("policy", "load_skill"),
        ("admit", 1),
        ("render", "load_skill"),
        ("fatal", "ValueError"),
        (("p",), ("other",)),
    ]


async def test_what_nobody_can_activate_is_missing() -> None:
    toolset = with_skills([], FOUND)
    with pytest.raises(MissingPortError):
        await toolset.activate(Outcome.completed(activate_plugins=["p"]))


async def test_a_skill_that_brings_no_text_fails_its_activation() -> None:
    toolset = with_skills([], FOUND, shas={"platform:tides": "older"})
    with pytest.raises(LookupError, match="^'platform:tides' was not loaded: it has changed"):
        await toolset.activate(Outcome.completed(activate_skills=["platform:tides"]))


async def test_what_was_loaded_and_is_gone_stands_in_nobodys_way() -> None:
    active = ["platform:gone"]
    toolset = with_skills([], FOUND, active=active)
    await toolset.activate(Outcome.completed(activate_skills=["platform:tides"]))
    assert active == ["platform:gone", "platform:tides"]


@pytest.mark.rule("R-SKILL-16", "R-SKILL-31")
async def test_a_run_loads_a_skill_and_reads_what_it_refers_to(tmp_path: Path) -> None:
    write_skill(
        tmp_path,
        "tides",
        text="---\nname: tides\ndescription: Tells the tides.\n---\nSee ref/table.md.",
        files={"ref/table.md": "Low water at 12:40."},
    )
    write_skill(tmp_path, "broken", text="no frontmatter")
    (tmp_path / "secret").write_text("hidden")
    active: list[str] = []
    shas: dict[str, str] = {}
    path = '{"skill": "tides", "path": '
    model = scripted_model(
        [
            tool_call_turn([tool_call("load_skill", '{"name": "tides"}')]),
            tool_call_turn(
                [
                    tool_call("read_skill_resource", path + '"ref/table.md"}'),
                    tool_call("read_skill_resource", path + '"../secret"}'),
                ]
            ),
            final_answer("At 12:40."),
        ]
    )
    toolset = with_skills([], read_skills(tmp_path), active=active, shas=shas)
    result = await run(model, "When is low water?", tools=toolset)
    assert result.text == "At 12:40."
    loaded, read, refused = answers(result.state)
    assert loaded["data"] == {
        "skill": "tides",
        "instructions": "See ref/table.md.",
        "resources": ["ref/table.md"],
    }
    assert read["data"] == "Low water at 12:40."
    assert (refused["success"], refused["kind"]) == (False, "authz")
    assert active == [*shas] == ["platform:tides"]
    assert model.requests[0].tools == model.requests[2].tools == toolset.definitions()
    assert "- tides: Tells the tides." in json.dumps(model.requests[0].tools)


async def test_two_skills_of_one_batch_are_judged_one_after_the_other() -> None:
    calls = [tool_call("load_skill", json.dumps({"name": name})) for name in ("tides", "charts")]
    kit = run_harness(
        [tool_call_turn(calls), final_answer("Done.")],
        tools=with_skills([], FOUND, limits=SkillLimits(active=1)),
    )
    result = await kit.run()
    first, second = answers(result.state)
    assert first["success"] is True
    assert str(second["error"]).startswith("The skill was not loaded: 1 of at most 1 skills")


@pytest.mark.rule("R-SKILL-17")
async def test_a_host_may_render_the_texts_itself() -> None:
    applied: list[tuple[str, ...]] = []

    async def apply(instructions: tuple[SkillInstructions, ...]) -> None:
        applied.append(tuple(each.body for each in instructions))

    calls = [tool_call("load_skill", json.dumps({"name": name})) for name in ("tides", "charts")]
    kit = run_harness(
        [tool_call_turn(calls), final_answer("Done.")],
        tools=with_skills([], FOUND, apply_instructions=apply),
    )
    result = await kit.run()
    assert [each["data"] for each in answers(result.state)] == [
        {"skill": "tides", "loaded": True},
        {"skill": "charts", "loaded": True},
    ]
    assert applied == [("Read the table.",), ("Mind the depths.", "Read the table.")]


async def test_a_host_that_cannot_render_them_has_loaded_nothing() -> None:
    async def apply(instructions: tuple[SkillInstructions, ...]) -> None:
        raise OSError("the prompt store is down")

    active: list[str] = []
    kit = run_harness(
        [tool_call_turn([tool_call("load_skill", '{"name": "tides"}')]), final_answer("Sorry.")],
        tools=with_skills([], FOUND, apply_instructions=apply, active=active),
    )
    (answer,) = answers((await kit.run()).state)
    assert (answer["kind"], answer["error"]) == ("system", "the prompt store is down")
    assert active == []


@tool
async def tell(word: str) -> str:
    """Tell."""
    return word


def test_a_run_with_skills_can_be_cancelled_anywhere() -> None:
    async def scenario(scene: Scene) -> None:
        active: list[str] = []
        shas: dict[str, str] = {}
        applied: list[Sequence[str]] = []

        async def apply(instructions: tuple[SkillInstructions, ...]) -> None:
            await trio.sleep(1)
            applied.append([each.ref for each in instructions])

        load = [tool_call("load_skill", json.dumps({"name": name})) for name in ("tides", "charts")]
        kit = run_harness(
            [
                tool_call_turn([*load, tool_call("book", "{}")]),
                tool_call_turn([tool_call("load_skill", '{"name": "tides"}')]),
                final_answer("Done."),
            ],
            tools=with_skills(
                [slow_tool(2, "book")], FOUND, active=active, shas=shas, apply_instructions=apply
            ),
            scene=scene,
        )

        @scene.afterwards
        def what_is_loaded_is_what_was_answered() -> None:
            assert active == [*shas]
            assert len(applied) >= len(active) >= len(applied) - 1
            for state in kit.states:
                told = [
                    f"platform:{each['data']['skill']}"
                    for each in answers(state)
                    if each["success"]
                    and isinstance(each["data"], dict)
                    and "skill" in each["data"]
                ]
                assert list(dict.fromkeys(told)) == active

        await kit.run()

    report = cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=30)
    assert report.cancelled > 20


async def test_any_context_will_do() -> None:
    call = ask("tell", '{"word": "x"}')
    context: CallContext[object] = context_for(call, None)
    outcome = await with_skills([tell], FOUND).execute(call, context)
    assert outcome == Outcome.completed("x")


async def test_a_tool_that_comes_to_have_one_of_our_names_is_not_shown() -> None:
    @tool
    def load_skill() -> str:
        """Pretend."""
        return ""

    inner = disclosed(plugins=[plugin_from_tools("rival", "A rival.", [load_skill])])
    skilled = with_skills(inner, FOUND)
    before = skilled.definitions()
    assert skilled.definitions() is before
    await skilled.activate(Outcome.completed(activate_plugins=["rival"]))
    assert sorted(names(skilled)) == ["load_skill", "load_tools", "search_tools"]
