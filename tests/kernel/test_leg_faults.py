"""What a model may do wrong, and the one documented end of each."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from harness import (
    Assembly,
    Halt,
    Message,
    ModelRequest,
    ModelTurn,
    TurnStream,
    assistant_message,
    user_message,
)
from harness._json import encode_text
from harness._messages import INTERRUPTED_TEXT, failure_envelope
from harness.errors import CompletionDefectError, ModelContractError
from harness.events import ToolStarted, decode_event, encode_event
from harness.testing import (
    RunHarness,
    ScriptItem,
    assert_calls_answered_once,
    assert_events_balance,
    assert_no_permit_held,
    assert_provider_valid,
    counting_tool,
    failing_tool,
    held_tool,
    run_harness,
    streamed,
    tool_call,
    tool_call_turn,
)
from tests.kernel.carrying import carried
from tests.kernel.reading import DONE, answers, kinds, named

GO: list[Message] = [user_message("Go.")]


def whole(turn: ModelTurn) -> ScriptItem:
    return turn


def pieces(turn: ModelTurn) -> ScriptItem:
    return streamed(turn, size=50_000)


both_ways = pytest.mark.parametrize("play", [whole, pieces])


async def assert_ends_with(kit: RunHarness, error: type[Exception]) -> None:
    """Run *kit*; fail unless it ends with *error*, having run nothing and changed nothing."""
    with pytest.raises(error) as caught:
        async with kit.open(GO) as run:
            await run.wait()
    assert run.result.error is caught.value
    assert run.result.stop_reason == "failed"
    assert run.state.messages == GO
    assert (run.state.turn, run.state.tool_calls, run.stats.tool_calls) == (0, 0, 0)
    assert_events_balance(kit.events)


# -- raises, and returns what it should not ----------------------------------------------------


@pytest.mark.parametrize("error", [OSError("gone"), CompletionDefectError("empty", "nothing")])
async def test_a_model_that_raises_ends_the_run_with_what_it_raised(error: Exception) -> None:
    await assert_ends_with(run_harness([error]), type(error))


@pytest.mark.rule("R-PROM-07")
async def test_a_model_that_raises_in_mid_stream_leaves_nothing_of_its_reply() -> None:
    turn = streamed(tool_call_turn([tool_call("look")], "Looking."))

    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        await kit.script.complete(request, stream)
        raise OSError("gone")

    kit = run_harness([turn], model=model)
    await assert_ends_with(kit, OSError)
    assert not kit.ran


class _HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


@pytest.mark.parametrize("error", [_HostileError(), OSError("half of a pair \ud800")])
async def test_an_error_that_cannot_be_told_ends_where_any_other_does(error: Exception) -> None:
    kit = run_harness([named("fail"), error], tools=[failing_tool(error, "fail")])
    with pytest.raises(type(error)) as caught:
        async with kit.open() as run:
            await run.wait()
    assert caught.value is error
    assert kinds(run.state.messages) == {"fail-0": "failed"}
    assert_events_balance(kit.events)
    assert [decode_event(encode_event(event)) for event in kit.events] == kit.events


@pytest.mark.rule("R-MODEL-01")
@pytest.mark.parametrize("answer", [None, "Done.", assistant_message("Done."), DONE.message, 7])
async def test_a_model_that_returns_no_turn_breaks_its_contract(answer: object) -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        return answer  # type: ignore[return-value]  # what is being tested

    await assert_ends_with(run_harness([], model=model), ModelContractError)


@pytest.mark.rule("R-MODEL-01")
async def test_a_model_that_is_not_async_breaks_its_contract() -> None:
    def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        return DONE

    kit = run_harness([], model=model)  # type: ignore[arg-type]  # what is being tested
    await assert_ends_with(kit, ModelContractError)


# -- names and ids -----------------------------------------------------------------------------


@pytest.mark.rule("R-MODEL-05")
@both_ways
async def test_an_unknown_tool_is_answered_not_found_and_the_run_goes_on(
    play: Callable[[ModelTurn], ScriptItem],
) -> None:
    kit = run_harness([play(named("known", "made_up")), DONE], tools=[counting_tool("known")])
    result = await kit.run()
    assert result.stop_reason == "done"
    found = answers(result.state.messages)
    assert found["known-0"]["success"] is True
    assert found["made_up-1"]["kind"] == "not_found"
    assert "known" in str(found["made_up-1"]["error"])


def twice(id: str) -> list[Message]:
    return [assistant_message(None, [tool_call("look", id=id), tool_call("look", id=id)])]


def played(*turns: ModelTurn) -> Callable[[ModelRequest, TurnStream], object]:
    """Return a model that plays *turns* as they are; a script would refuse a repeated id."""
    rest = [*turns]

    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        return rest.pop(0)

    return model


@pytest.mark.rule("R-MODEL-03")
async def test_two_calls_of_one_id_in_one_turn_are_a_defect_and_none_is_run() -> None:
    (message,) = twice("a")
    count = counting_tool("look")
    kit = run_harness([], model=played(ModelTurn(message=message)), tools=[count])  # type: ignore[arg-type]
    await assert_ends_with(kit, CompletionDefectError)
    assert count.started == 0


@pytest.mark.rule("R-MODEL-05")
async def test_a_host_that_keeps_repeated_ids_has_each_call_run_and_answered() -> None:
    (message,) = twice("a")
    count = counting_tool("look")
    model = played(ModelTurn(message=message), DONE)
    kit = run_harness([], model=model, tools=[count], assembly=Assembly(ids="keep"))  # type: ignore[arg-type]
    result = await kit.run()
    contents = [each["content"] for each in result.state.messages if each["role"] == "tool"]
    assert contents == ['{"success":true,"data":1}', '{"success":true,"data":2}']
    assert result.stop_reason == "done"
    assert carried(result.state).messages == result.state.messages


@pytest.mark.rule("R-MODEL-05")
async def test_calls_of_one_id_are_each_stopped(autojump_clock: MockClock) -> None:
    (message,) = twice("a")
    model = played(ModelTurn(message=message))
    kit = run_harness([], model=model, tools=[held_tool("look")], assembly=Assembly(ids="keep"))  # type: ignore[arg-type]
    async with kit.open() as run:
        await trio.testing.wait_all_tasks_blocked()
        run.abort()
        await run.wait()
    contents = [each["content"] for each in run.state.messages if each["role"] == "tool"]
    assert contents == [failure_envelope(INTERRUPTED_TEXT, "interrupted")] * 2


@pytest.mark.rule("R-MODEL-05")
async def test_ids_that_begin_anew_in_each_turn_are_matched_by_nearness() -> None:
    turn = ModelTurn(message=assistant_message(None, [tool_call("look", id="call_0")]))
    count = counting_tool("look")
    kit = run_harness([], model=played(turn, turn, DONE), tools=[count])  # type: ignore[arg-type]
    result = await kit.run()
    assert (result.stop_reason, count.started) == ("done", 2)
    roles = [each["role"] for each in result.state.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert carried(result.state).messages == result.state.messages


# -- arguments ---------------------------------------------------------------------------------


@pytest.mark.rule("R-MODEL-05")
@both_ways
async def test_a_megabyte_of_arguments_reaches_the_tool_whole(
    play: Callable[[ModelTurn], ScriptItem],
) -> None:
    text = "".join(chr(97 + place % 26) for place in range(1_000_000))
    count = counting_tool("look")
    kit = run_harness(
        [play(tool_call_turn([tool_call("look", {"text": text})])), DONE], tools=[count]
    )
    result = await kit.run()
    assert result.stop_reason == "done"
    assert [visit.arguments for visit in count.visits] == [{"text": text}]
    assert carried(result.state).messages == result.state.messages


@pytest.mark.rule("R-MODEL-03", "R-PROM-07")
@both_ways
@pytest.mark.parametrize(
    "arguments",
    [
        '{"text": "' + "a" * 1_000_000,
        '{"a":' * 100_000,
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        '{"a":' + "[" * 1_000 + "]" * 1_000 + "}",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5_000 + "}",
        '{"a": "\\ud800"}',
        "{'a': 1}",
        '{"a": 1} and more',
    ],
    ids=lambda arguments: arguments[:12],
)
async def test_arguments_that_are_no_json_are_a_defect_and_nothing_is_run(
    arguments: str, play: Callable[[ModelTurn], ScriptItem]
) -> None:
    count = counting_tool("look")
    calls = [tool_call("look"), tool_call("look", arguments)]
    kit = run_harness([play(tool_call_turn(calls))], tools=[count])
    with pytest.raises(CompletionDefectError) as caught:
        await kit.run(GO)
    assert caught.value.defect == "malformed_tool_call"
    assert len(str(caught.value)) < 500
    assert count.started == 0
    assert kit.states[0].messages == GO


@both_ways
async def test_arguments_as_deep_as_json_may_be_reach_the_tool(
    play: Callable[[ModelTurn], ScriptItem],
) -> None:
    arguments = '{"a":' + "[" * 150 + "]" * 150 + "}"
    count = counting_tool("look")
    kit = run_harness([play(tool_call_turn([tool_call("look", arguments)])), DONE], tools=[count])
    result = await kit.run()
    assert (result.stop_reason, count.started) == ("done", 1)
    assert encode_text(count.visits[0].arguments) == arguments


async def test_decoded_arguments_with_a_number_that_json_lacks_are_a_defect() -> None:
    asked = tool_call("look")
    asked["function"]["arguments"] = {"a": float("nan")}  # type: ignore[typeddict-item]  # foreign
    turn = ModelTurn(message=assistant_message(None, [asked]))
    kit = run_harness([], model=played(turn))  # type: ignore[arg-type]
    await assert_ends_with(kit, CompletionDefectError)


# -- very many calls ---------------------------------------------------------------------------


@pytest.mark.rule("R-MODEL-05")
@pytest.mark.slow
async def test_ten_thousand_calls_at_once_are_each_run_and_answered_once(
    autojump_clock: MockClock,
) -> None:
    count = counting_tool("count")
    kit = run_harness([named(*["count"] * 10_000), DONE], tools=[count])
    result = await kit.run()
    assert (result.stop_reason, count.started) == ("done", 10_000)
    assert (result.stats.tool_calls, result.state.tool_calls) == (10_000, 10_000)
    assert list(answers(result.state.messages)) == [f"count-{place}" for place in range(10_000)]
    assert_calls_answered_once(result.state.messages)
    assert_no_permit_held(kit.limiters)


async def test_two_thousand_calls_without_permits_can_be_stopped_in_full_flight(
    autojump_clock: MockClock,
) -> None:
    held = held_tool("held", pool=None)
    kit = run_harness([named(*["held"] * 2_000)], tools=[held])
    async with kit.open() as run:
        await trio.testing.wait_all_tasks_blocked()
        assert held.started == 2_000
        run.abort()
        await run.wait()
    assert run.result.stop_reason == "aborted"
    assert list(kinds(run.state.messages).values()) == ["interrupted"] * 2_000
    assert_provider_valid(run.state.messages)


async def test_two_thousand_names_that_nobody_knows_leave_no_pool_behind() -> None:
    turn = named(*(f"made_up_{place}" for place in range(2_000)))
    kit = run_harness([pieces(turn), DONE], tools=[])
    result = await kit.run()
    assert result.stop_reason == "done"
    assert all(each["kind"] == "not_found" for each in answers(result.state.messages).values())
    assert len([event for event in kit.events if isinstance(event, ToolStarted)]) == 2_000
    assert not kit.limiters._pools
