import pytest
import trio

from harness import Halt, Limits, ModelRequest, ModelTurn, Outcome, TurnStream
from harness._errors import MissingPortError
from harness.events import RunFinished, RunStarted, ToolFinished
from harness.kernel import Emitter, Limiters
from harness.testing import (
    FakeTool,
    Scene,
    counting_ids,
    counting_tool,
    failing_tool,
    final_answer,
    held_tool,
    run_harness,
    schedule,
    slow_tool,
    tool_call,
    tool_call_turn,
)


@pytest.mark.rule("R-KIT-04")
async def test_what_a_stop_cut_was_dispatched_and_did_not_complete(
    autojump_clock: trio.testing.MockClock,
) -> None:
    kit = run_harness(
        [tool_call_turn([tool_call("quick", id="q"), tool_call("slow", id="s")])],
        tools=[slow_tool(1, "quick"), slow_tool(9)],
    )
    async with kit.open() as run:
        await trio.sleep(2)
        run.abort()
    assert kit.ran == ["q", "s"]
    assert kit.side_effects == ["q"]


@pytest.mark.rule("R-KIT-04")
async def test_a_call_that_fails_has_run_and_has_not_completed() -> None:
    kit = run_harness(
        [tool_call_turn([tool_call("fail"), tool_call("nobody")]), final_answer("Done.")],
        tools=[failing_tool(ValueError("no"))],
    )
    await kit.run()
    assert kit.ran == ["call_1", "call_2"]
    assert kit.side_effects == []


@pytest.mark.rule("R-KIT-05")
def test_the_calls_of_a_batch_start_in_request_order_under_every_schedule() -> None:
    for seed in range(100):
        kit = run_harness(
            [
                tool_call_turn(
                    [tool_call("a"), tool_call("b"), tool_call("c", id="x"), tool_call("a")]
                ),
                final_answer("Done."),
            ]
        )
        with schedule(seed):
            trio.run(kit.run)
        assert kit.ran == ["call_1", "call_2", "x", "call_3"]


@pytest.mark.rule("R-KIT-04")
async def test_every_name_in_the_script_is_a_tool_unless_tools_are_given() -> None:
    turns = [tool_call_turn([tool_call("a"), tool_call("b")]), final_answer("Done.")]
    kit = run_harness(turns)
    await kit.run()
    assert kit.side_effects == ["call_1", "call_2"]
    own = counting_tool("a")
    kit = run_harness(turns, tools=[own])
    await kit.run()
    assert own.started == 1
    assert kit.side_effects == ["call_1"]


@pytest.mark.rule("R-KIT-04", "R-KIT-06")
async def test_a_fresh_harness_starts_from_nothing() -> None:
    kit = run_harness([final_answer("Hello.")])
    assert (kit.ran, kit.side_effects, kit.states, kit.events) == ([], [], [], [])
    result = await kit.run()
    state = kit.states[0]
    assert result.state is state
    assert (state.run_id, state.leg, state.turn, state.tool_calls) == ("run_1", 1, 1, 0)


@pytest.mark.rule("R-KIT-04")
async def test_every_port_can_be_replaced() -> None:
    limiters, emitter, ids = Limiters(1), Emitter(), counting_ids()
    ids("run")
    kit = run_harness(
        [final_answer("Hello.")], limiters=limiters, events=emitter, ids=ids, limits=Limits(turns=1)
    )
    reader = emitter.open_reader()
    result = await kit.run("Hi.")
    assert kit.limiters is limiters
    assert result.run_id == "run_2"
    assert isinstance(reader.receive_nowait(), RunStarted)


@pytest.mark.rule("R-KIT-04")
async def test_a_port_can_be_replaced_for_one_run() -> None:
    kit = run_harness([final_answer("Hello.")])
    result = await kit.run(limits=Limits(turns=0))
    assert result.stop_reason == "turn_limit"
    assert (await kit.run()).stop_reason == "done"


@pytest.mark.rule("R-KIT-04")
async def test_another_model_may_ask_the_script() -> None:
    async def hesitant(request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        answer = await kit.script.complete(request, stream)
        return Halt(code="doubt", message="not sure", turn=answer)  # type: ignore[arg-type]

    kit = run_harness([final_answer("Hello.")], model=hesitant)
    assert (await kit.run()).stop_reason == "halted"
    assert kit.script.remaining == 0


async def test_what_was_told_is_kept_over_several_runs() -> None:
    kit = run_harness([final_answer("One."), final_answer("Two.")])
    await kit.run()
    assert isinstance(kit.events[-1], RunFinished)
    before = len(kit.events)
    await kit.run()
    assert isinstance(kit.events[before], RunStarted)
    assert [state.run_id for state in kit.states] == ["run_1", "run_2"]


async def test_the_legs_of_one_run_have_one_state() -> None:
    kit = run_harness([final_answer("One."), final_answer("Two.")])
    state = (await kit.run()).state
    state.messages.append({"role": "user", "content": "More."})
    await kit.run(state)
    assert kit.states == [state]


async def test_what_the_body_raises_comes_out_and_the_run_is_over() -> None:
    held = held_tool()
    kit = run_harness([tool_call_turn([tool_call("held")])], tools=[held])
    error = KeyError("body")
    with pytest.raises(KeyError) as caught:
        async with kit.open() as run:
            await trio.testing.wait_all_tasks_blocked()
            assert held.started == 1
            raise error
    assert caught.value is error
    assert run.result.stop_reason == "aborted"
    finished = [event for event in kit.events if isinstance(event, ToolFinished)]
    assert [event.outcome for event in finished] == ["interrupted"]


async def test_a_scene_is_told_of_every_start_and_keeps_the_harness() -> None:
    scene = Scene()
    kit = run_harness(
        [tool_call_turn([tool_call("a"), tool_call("b", id="x")]), final_answer("Done.")],
        scene=scene,
    )
    await kit.run()
    assert scene.kept(type(kit)) is kit
    assert [start.name for start in scene.starts] == kit.ran == ["call_1", "x"]


async def test_the_toolset_is_asked_everything_through_the_harness() -> None:
    tools: list[FakeTool] = [counting_tool("a", serial=True), slow_tool(0, "b")]
    kit = run_harness([final_answer("Done.")], tools=tools)
    toolset = kit.ports["tools"]
    assert not isinstance(toolset, list)
    assert [each["function"] for each in toolset.definitions()] == [  # type: ignore[union-attr]
        tool.definition["function"] for tool in tools
    ]
    assert not toolset.fatal(ValueError("x"))  # type: ignore[union-attr]
    with pytest.raises(MissingPortError):
        await toolset.activate(Outcome.completed())  # type: ignore[union-attr]
