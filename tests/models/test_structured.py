"""Models that answer in a form, or are asked again."""

from collections.abc import Sequence
from typing import Any

import attrs
import msgspec
import pytest
import trio

import harness
from harness import (
    Assembly,
    Chunk,
    Halt,
    ModelRequest,
    ModelTurn,
    RunResult,
    TextSurface,
    TurnStream,
    Usage,
    assistant_message,
    user_message,
)
from harness.errors import ModelContractError, ProviderError, StructuredOutputError
from harness.events import AssistantMessage, Event, ReasoningDelta, TextDelta, TextReset
from harness.models import MAX_OUTPUT_RETRIES, Output, StructuredModel
from harness.testing import (
    RUN_INVARIANTS,
    RunHarness,
    Scene,
    ScriptItem,
    cancel_everywhere,
    final_answer,
    run_harness,
    scripted_model,
    streamed,
    timed,
    tool_call,
    tool_call_turn,
)


class Weather(msgspec.Struct):
    city: str
    degrees: int


FORM = Output(Weather)
GOOD = '{"city": "Oslo", "degrees": -3}'
OSLO = Weather(city="Oslo", degrees=-3)
BAD = '{"city": "Oslo"}'
WORSE = "It is cold in Oslo."


def kit_of(
    turns: Sequence[ScriptItem], *, retries: int = MAX_OUTPUT_RETRIES, **ports: Any
) -> RunHarness:
    """A run whose scripted model is asked for the form."""
    kit = run_harness(turns, **ports)
    kit.model = StructuredModel(kit.script, FORM, retries=retries)
    return kit


def said(text: str, *, output: int = 0) -> ModelTurn:
    return final_answer(text, usage=Usage(output=output))


def shown(events: Sequence[Event]) -> str:
    """What a reader of the live text sees in the end."""
    text = ""
    for event in events:
        if isinstance(event, TextReset):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    return text


def resets(events: Sequence[Event]) -> list[str]:
    return [event.reason for event in events if isinstance(event, TextReset)]


# -- a reply in the form -----------------------------------------------------------------------


@pytest.mark.rule("R-OUT-07")
@pytest.mark.parametrize("turn", [said(GOOD, output=7), streamed(said(GOOD, output=7))])
async def test_the_result_of_a_run_has_the_value(turn: ScriptItem) -> None:
    kit = kit_of([turn])
    result = await kit.run()
    assert (result.stop_reason, result.text, result.parsed) == ("done", GOOD, OSLO)
    assert (result.stats.usage.output, result.stats.turns) == (7, 1)
    (request,) = kit.script.requests
    assert request.response_format == FORM.response_format
    assert resets(kit.events) == []


@pytest.mark.rule("R-OUT-07")
async def test_a_fenced_reply_stands_in_the_transcript_as_it_came() -> None:
    kit = kit_of([said(f"```json\n{GOOD}\n```")])
    result = await kit.run()
    assert (result.text, result.parsed) == (f"```json\n{GOOD}\n```", OSLO)


@pytest.mark.rule("R-OUT-07")
async def test_a_text_in_parts_is_read_as_one() -> None:
    parts = [{"type": "text", "text": piece} for piece in (GOOD[:9], GOOD[9:])]
    message: Any = {"role": "assistant", "content": parts}
    assert (await kit_of([ModelTurn(message=message)]).run()).parsed == OSLO


@pytest.mark.rule("R-OUT-07")
async def test_a_plain_function_can_be_asked_too() -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        return said(GOOD)

    assert (await harness.run(StructuredModel(model, FORM), "Go.")).parsed == OSLO


@pytest.mark.rule("R-OUT-07")
@pytest.mark.parametrize("dropped", [[], [said(BAD)]])
async def test_thinking_that_came_with_a_finished_reply_is_told(dropped: list[ModelTurn]) -> None:
    kit = kit_of([*dropped, final_answer(GOOD, reasoning="Hm.")])
    await kit.run()
    assert [event.text for event in kit.events if isinstance(event, ReasoningDelta)] == ["Hm."]


# -- asking again ------------------------------------------------------------------------------


@pytest.mark.rule("R-DEF-09")
async def test_a_model_is_asked_again_twice_unless_told_otherwise() -> None:
    kit = kit_of([said(WORSE), said(BAD), said(GOOD), said(GOOD)])
    assert (await kit.run()).parsed == OSLO
    kit = kit_of([said(WORSE), said(BAD), said(WORSE), said(GOOD)])
    with pytest.raises(StructuredOutputError):
        await kit.run()
    assert (MAX_OUTPUT_RETRIES, len(kit.script.requests)) == (2, 3)


@pytest.mark.rule("R-DEF-09")
@pytest.mark.parametrize("retries", [0, 1, 4])
async def test_as_often_as_it_was_told(retries: int) -> None:
    kit = kit_of([said(WORSE)] * 6, retries=retries)
    with pytest.raises(StructuredOutputError) as caught:
        await kit.run()
    assert len(kit.script.requests) == retries + 1
    assert caught.value.text == WORSE


@pytest.mark.rule("R-OUT-08")
async def test_the_model_sees_its_replies_and_their_faults() -> None:
    kit = kit_of([said(WORSE), said(BAD), said(GOOD)])
    await kit.run()
    first, second, third = (request.messages for request in kit.script.requests)
    assert first == (user_message("Go."),)
    assert second[:2] == (*first, assistant_message(WORSE))
    assert "not JSON" in str(second[2]["content"])
    assert third[:4] == (*second, assistant_message(BAD))
    assert third[4]["role"] == "user"
    assert "degrees: required, but missing" in str(third[4]["content"])
    assert len(third) == 5


@pytest.mark.rule("R-OUT-08")
async def test_dropped_replies_are_spent_and_enter_no_transcript() -> None:
    kit = kit_of([said(WORSE, output=5), streamed(said(BAD, output=6)), said(GOOD, output=7)])
    result = await kit.run()
    assert result.state.messages == [user_message("Go."), assistant_message(GOOD)]
    assert (result.stats.usage.output, result.state.usage.output) == (18, 18)
    assert result.stats.turns == 1


@pytest.mark.rule("R-OUT-08")
async def test_the_last_reply_is_spent_although_it_is_refused() -> None:
    kit = kit_of([said(WORSE, output=5), said(BAD, output=6)], retries=1)
    with pytest.raises(StructuredOutputError, match="degrees: required, but missing$"):
        await kit.run()
    (state,) = kit.states
    assert state.usage.output == 11
    assert state.messages == [user_message("Go.")]


@pytest.mark.rule("R-OUT-08")
async def test_each_turn_is_asked_again_on_its_own() -> None:
    call = tool_call_turn([tool_call("look")])
    kit = kit_of([call, said(WORSE), said(BAD), said(GOOD)])
    result = await kit.run()
    assert result.parsed == OSLO
    roles = [message["role"] for message in result.state.messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert all(each.response_format for each in kit.script.requests)


# -- what is no answer -------------------------------------------------------------------------


@pytest.mark.rule("R-OUT-09")
@pytest.mark.parametrize("text", [None, "Let me look.", GOOD])
async def test_a_reply_with_calls_is_returned_as_it_is(text: str | None) -> None:
    kit = kit_of([tool_call_turn([tool_call("look")], text), said(GOOD)])
    result = await kit.run()
    assert (result.parsed, kit.ran, len(kit.script.requests)) == (OSLO, ["call_1"], 2)


@pytest.mark.rule("R-OUT-09")
@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "refusal": "I would rather not."},
        {"role": "assistant", "content": "Sorry.", "refusal": "I would rather not."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "So."}, {"type": "refusal", "refusal": "No."}],
        },
    ],
)
async def test_a_refusal_is_returned_as_it_is(message: Any) -> None:
    kit = kit_of([ModelTurn(message=message), said(GOOD)])
    result = await kit.run()
    assert (result.stop_reason, result.parsed) == ("done", None)
    assert result.state.messages[-1] == message


@pytest.mark.rule("R-OUT-09")
async def test_a_streamed_refusal_is_returned_as_it_is() -> None:
    kit = kit_of([[Chunk(refusal="No."), Chunk(finish_reason="stop")], said(GOOD)])
    result = await kit.run()
    assert (result.parsed, result.state.messages[-1].get("refusal")) == (None, "No.")


@pytest.mark.rule("R-OUT-09")
async def test_a_reply_that_says_nothing_is_for_the_run_to_judge() -> None:
    with pytest.raises(ProviderError, match="the completion is empty"):
        await kit_of([said(" "), said(GOOD)]).run()
    result = await kit_of([said(" ")], assembly=Assembly(empty="accept")).run()
    assert (result.stop_reason, result.parsed) == ("done", None)


@pytest.mark.rule("R-OUT-09")
@pytest.mark.parametrize("turn", [None, said(WORSE)])
async def test_a_halt_passes_through(turn: ModelTurn | None) -> None:
    halt = Halt(code="tripwire", message="No.", turn=turn)
    kit = kit_of([halt, said(GOOD)])
    result = await kit.run()
    assert (result.stop_reason, result.parsed) == ("halted", None)
    assert result.halt is not None
    assert result.halt.code == "tripwire"


NONE: Any = None
ODD: Any = {"content": [3]}
BROKEN: list[Any] = [
    None,
    "text",
    ModelTurn(message=NONE),
    attrs.evolve(said(BAD), message=ODD),
    attrs.evolve(said(BAD), usage=NONE),
]


@pytest.mark.rule("R-OUT-09")
@pytest.mark.parametrize("answer", BROKEN)
async def test_what_is_no_turn_is_for_the_run_to_judge(answer: Any) -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> Any:
        return answer

    with pytest.raises(ModelContractError):
        await harness.run(StructuredModel(model, FORM), "Go.")


@pytest.mark.rule("R-OUT-09")
async def test_what_the_model_raises_is_raised_and_nobody_is_asked_again() -> None:
    error = ZeroDivisionError("their bug")
    kit = kit_of([said(WORSE), error, said(GOOD)])
    with pytest.raises(ZeroDivisionError) as caught:
        await kit.run()
    assert caught.value is error
    assert kit.script.remaining == 1


# -- the live text -----------------------------------------------------------------------------


@pytest.mark.rule("R-DEF-10")
@pytest.mark.parametrize("size", [1, 5, 100])
async def test_a_reader_ends_up_with_the_final_answer_once(size: int) -> None:
    turns = [streamed(said(text), size=size) for text in (WORSE, BAD, GOOD)]
    kit = kit_of(turns)
    result = await kit.run()
    assert shown(kit.events) == GOOD == result.text
    assert resets(kit.events) == ["structured_output_retry"] * 2
    (final,) = [each for each in kit.events if isinstance(each, AssistantMessage)]
    assert final.text == GOOD
    assert {each.epoch for each in kit.events if isinstance(each, TextDelta)} == {0, 1, 2}


@pytest.mark.rule("R-DEF-10")
async def test_an_attempt_that_fails_within_a_retry_leaves_its_reason() -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        again = len(request.messages) > 1
        if again:
            with pytest.raises(OSError, match="gone"):
                async with stream.attempt():
                    raise OSError("gone")
        async with stream.attempt() as attempt:
            attempt.send_nowait(Chunk(text=GOOD if again else BAD, finish_reason="stop"))
        return attempt.turn()

    kit = run_harness([], model=StructuredModel(model, FORM))
    result = await kit.run()
    assert (result.parsed, shown(kit.events)) == (OSLO, GOOD)
    assert resets(kit.events) == ["structured_output_retry"]


@pytest.mark.rule("R-DEF-10")
@pytest.mark.parametrize("finished", [[said(GOOD)], [said(WORSE), said(GOOD)]])
async def test_a_reply_that_does_not_stream_takes_back_one_that_did(
    finished: list[ModelTurn],
) -> None:
    kit = kit_of([streamed(said(BAD)), *finished])
    result = await kit.run()
    assert (result.text, shown(kit.events)) == (GOOD, "")
    assert resets(kit.events) == ["structured_output_retry"]


@pytest.mark.rule("R-DEF-10")
async def test_so_does_one_that_does_not_stream_after_an_attempt_that_failed() -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        if len(request.messages) > 1:
            with pytest.raises(OSError, match="gone"):
                async with stream.attempt():
                    raise OSError("gone")
            return said(GOOD)
        async with stream.attempt() as attempt:
            attempt.send_nowait(Chunk(text=BAD, finish_reason="stop"))
        return attempt.turn()

    kit = run_harness([], model=StructuredModel(model, FORM))
    result = await kit.run()
    assert (result.text, shown(kit.events)) == (GOOD, "")
    assert resets(kit.events) == ["structured_output_retry"]


@pytest.mark.rule("R-DEF-10")
async def test_a_reply_with_calls_takes_back_what_was_shown() -> None:
    kit = kit_of([streamed(said(BAD)), streamed(tool_call_turn([tool_call("look")])), said(GOOD)])
    result = await kit.run()
    assert (result.parsed, shown(kit.events)) == (OSLO, "")
    assert resets(kit.events) == ["structured_output_retry"]


@pytest.mark.rule("R-DEF-10")
async def test_where_nothing_was_shown_nothing_is_taken_back() -> None:
    kit = kit_of([said(BAD), said(WORSE), streamed(said(GOOD))])
    result = await kit.run()
    assert (result.parsed, shown(kit.events), resets(kit.events)) == (OSLO, GOOD, [])


@pytest.mark.rule("R-DEF-10")
async def test_a_run_that_fails_leaves_the_last_reply_readable() -> None:
    kit = kit_of([streamed(said(BAD)), streamed(said(WORSE))], retries=1)
    with pytest.raises(StructuredOutputError):
        await kit.run()
    assert shown(kit.events) == WORSE


@pytest.mark.rule("R-OUT-10")
@pytest.mark.parametrize(
    "surface", [TextSurface(retractable=False), TextSurface(max_resets=0)], ids=repr
)
async def test_a_surface_that_takes_nothing_back_gets_no_second_try(surface: TextSurface) -> None:
    kit = kit_of([streamed(said(BAD)), streamed(said(GOOD))], text=surface)
    with pytest.raises(StructuredOutputError):
        await kit.run()
    assert (shown(kit.events), len(kit.script.requests)) == (BAD, 1)


@pytest.mark.rule("R-OUT-10")
async def test_a_surface_that_takes_back_so_often_gets_so_many_tries() -> None:
    turns = [streamed(said(text)) for text in (BAD, WORSE, GOOD)]
    kit = kit_of(turns, text=TextSurface(max_resets=1))
    with pytest.raises(StructuredOutputError):
        await kit.run()
    assert (shown(kit.events), len(kit.script.requests)) == (WORSE, 2)


@pytest.mark.rule("R-OUT-10")
async def test_what_was_not_shown_can_be_asked_for_again_anywhere() -> None:
    kit = kit_of([said(BAD), streamed(said(GOOD))], text=TextSurface(retractable=False))
    result = await kit.run()
    assert (result.parsed, shown(kit.events)) == (OSLO, GOOD)


@pytest.mark.rule("R-OUT-10")
async def test_an_effect_outside_the_stream_is_not_repeated() -> None:
    asked: list[ModelRequest] = []

    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        asked.append(request)
        async with stream.attempt() as attempt:
            attempt.mark_produced_output()
        return said(BAD)

    with pytest.raises(StructuredOutputError):
        await harness.run(StructuredModel(model, FORM), "Go.")
    assert len(asked) == 1


# -- stops -------------------------------------------------------------------------------------


def test_a_run_that_is_cut_anywhere_between_replies_is_settled() -> None:
    async def scenario(scene: Scene) -> None:
        turns: list[ScriptItem] = [
            timed(1, streamed(said(BAD, output=2), size=9)),
            timed(1, streamed(tool_call_turn([tool_call("look")]), size=9)),
            timed(1, streamed(said(WORSE, output=2), size=9)),
            timed(1, streamed(said(GOOD, output=2), size=9)),
        ]
        kit = kit_of(turns, scene=scene)
        results: list[RunResult] = []

        @scene.afterwards
        def check() -> None:
            for state in kit.states:
                texts = [message.get("content") for message in state.messages]
                assert BAD not in texts
                assert WORSE not in texts
            assert all(result.parsed == OSLO for result in results)

        results.append(await kit.run())

    cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=40)


async def test_a_deadline_ends_a_run_within_a_retry(autojump_clock: trio.abc.Clock) -> None:
    kit = kit_of([timed(3, said(BAD)), timed(3, said(GOOD))])
    result = await kit.run(deadline=5)
    assert (result.stop_reason, result.parsed, trio.current_time()) == ("deadline", None, 5)


# -- bounds ------------------------------------------------------------------------------------


@pytest.mark.rule("R-OUT-11")
@pytest.mark.parametrize("retries", [-1, True, 1.0, None])
def test_retries_that_are_no_count_are_refused(retries: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^retries is "):
        StructuredModel(scripted_model([]), FORM, retries=retries)


@pytest.mark.rule("R-OUT-11")
def test_what_is_no_model_and_no_form_is_refused() -> None:
    model: Any = 3
    with pytest.raises(TypeError, match=r"^model is 3, expected a Model or an async function$"):
        StructuredModel(model, FORM)
    form: Any = Weather
    with pytest.raises(TypeError, match=r"^output is <class .*, expected an Output$"):
        StructuredModel(scripted_model([]), form)


def test_its_repr_names_its_form() -> None:
    assert repr(StructuredModel(scripted_model([]), FORM)) == (
        "<StructuredModel for <Output 'Weather'>>"
    )
