"""What a leg starts from, and what is refused before it starts."""

import copy
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import (
    JSON,
    Message,
    Pause,
    RunState,
    Suspend,
    assistant_message,
    tool_message,
    user_message,
)
from harness._ids import counting_ids
from harness._messages import CallMessage
from harness.errors import NotJSONError, RunUseError, TranscriptError
from harness.kernel._start import state_from
from harness.testing import final_answer, run_harness
from harness.transcript import raw_arguments
from tests.strategies import anything, settled_transcripts


def call(arguments: str = "{}", id: str = "a") -> CallMessage:
    return {"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}


ASKED: list[Message] = [user_message("Go."), assistant_message(None, [call(), call(id="b")])]
ANSWERED: list[Message] = [*ASKED, tool_message("a", "{}"), tool_message("b", "{}")]


# -- text --------------------------------------------------------------------------------------


@pytest.mark.rule("R-START-01")
def test_text_becomes_what_a_user_says() -> None:
    state = state_from(" Go. ", counting_ids())
    assert state == RunState(run_id="run_1", messages=[user_message(" Go. ")])


@pytest.mark.rule("R-START-01")
@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_blank_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^input is '.*', expected text$"):
        state_from(text)


def test_text_that_no_provider_can_be_sent_is_refused() -> None:
    with pytest.raises(NotJSONError, match="lone surrogate"):
        state_from("broken \ud800")


# -- messages ----------------------------------------------------------------------------------


@pytest.mark.rule("R-START-01")
@settings(max_examples=50, deadline=None)
@given(settled_transcripts())
def test_settled_messages_are_taken_with_every_key_and_copied(messages: list[Message]) -> None:
    before = copy.deepcopy(messages)
    state = state_from(messages)
    assert state.messages == before
    for message in state.messages:
        message["content"] = "changed"
        for asked in message.get("tool_calls", ()):
            asked["function"]["name"] = "changed"
    state.messages.clear()
    assert messages == before


@pytest.mark.rule("R-START-01")
def test_what_was_given_can_be_changed_afterwards() -> None:
    parts: list[dict[str, JSON]] = [{"type": "text", "text": "Go."}]
    messages: list[Message] = [{"role": "user", "content": parts}]
    state = state_from(messages)
    parts[0]["text"] = "Stop."
    messages.append(user_message("Stop."))
    assert state.messages == [{"role": "user", "content": [{"type": "text", "text": "Go."}]}]


@pytest.mark.rule("R-START-03")
@pytest.mark.parametrize("arguments", ["[1, 2]", "not JSON", '{"cut": ', "NaN"])
def test_arguments_that_poison_a_transcript_are_replaced_and_kept(arguments: str) -> None:
    asked = assistant_message(None, [call(arguments)])
    state = state_from([user_message("Go."), asked, tool_message("a", "{}")])
    assert state.messages[1]["tool_calls"] == [call("{}")]
    assert raw_arguments(state.messages[1], 0) == arguments
    assert asked["tool_calls"] == [call(arguments)]


@pytest.mark.rule("R-START-02")
@pytest.mark.parametrize("messages", [[], ()])
def test_no_messages_are_refused(messages: list[Message]) -> None:
    with pytest.raises(TranscriptError, match="no messages"):
        state_from(messages)


@pytest.mark.rule("R-START-02")
@pytest.mark.parametrize(
    "messages",
    [
        ASKED,
        ANSWERED[:-1],
        [*ASKED, ANSWERED[3], ANSWERED[2]],
        [*ANSWERED, tool_message("a", "{}")],
        [*ASKED, user_message("Well?"), *ANSWERED[2:]],
        [user_message("Go."), tool_message("a", "{}")],
    ],
)
def test_messages_that_are_not_settled_are_refused_with_the_reasons(
    messages: list[Message],
) -> None:
    with pytest.raises(TranscriptError) as caught:
        state_from(messages)
    assert caught.value.refusals


@pytest.mark.rule("R-START-02")
@pytest.mark.parametrize("where", ["content", "x-note"])
@pytest.mark.parametrize("value", [float("nan"), {1, 2}, (1, 2), b"bytes", "\ud800", object()])
def test_messages_that_are_no_json_are_refused_with_the_path(where: str, value: object) -> None:
    message = {"role": "user", "content": "Go.", where: value}
    with pytest.raises(NotJSONError) as caught:
        state_from([message])  # type: ignore[list-item]  # what is being tested
    assert caught.value.path[:2] == (0, where)


@pytest.mark.rule("R-START-02")
@pytest.mark.parametrize(
    "message", ["Go.", None, 7, ["Go."], {}, {"content": "Go."}, {"role": 5, "content": "Go."}]
)
def test_what_is_no_message_is_refused_by_its_place(message: object) -> None:
    with pytest.raises(TranscriptError, match="message 1"):
        state_from([user_message("Go."), message])  # type: ignore[list-item]  # what is being tested


@pytest.mark.rule("R-START-01")
@pytest.mark.parametrize("given_input", [None, 7, b"Go.", user_message("Go."), object(), {"Go."}])
def test_what_is_no_input_at_all_is_refused_by_its_value(given_input: object) -> None:
    with pytest.raises(TypeError, match=r"^input is .*, expected text, messages or a RunState$"):
        state_from(given_input)  # type: ignore[arg-type]  # what is being tested


@pytest.mark.rule("R-START-01")
def test_messages_may_come_in_any_sequence_and_are_read_once() -> None:
    def one_by_one() -> Iterator[Message]:
        yield user_message("Go.")

    assert state_from((user_message("Go."),)).messages == [user_message("Go.")]
    with pytest.raises(TypeError, match=r"^input is <generator"):
        state_from(one_by_one())  # type: ignore[arg-type]  # what is being tested


@given(anything | st.lists(anything, max_size=3))
def test_whatever_is_given_starts_a_leg_or_is_refused_by_a_documented_error(
    given_input: object,
) -> None:
    try:
        state = state_from(given_input)  # type: ignore[arg-type]  # what is being tested
    except (TypeError, ValueError):  # NotJSONError and TranscriptError are of these
        return
    assert state.messages


# -- a state -----------------------------------------------------------------------------------


@pytest.mark.rule("R-START-01")
def test_a_state_is_taken_as_it_is() -> None:
    state = RunState(run_id="mine", messages=[*ANSWERED])
    assert state_from(state, counting_ids()) is state
    assert state.messages == ANSWERED


@pytest.mark.rule("R-START-02")
def test_a_state_that_waits_has_just_its_open_calls_unanswered() -> None:
    state = RunState(run_id="mine", messages=ANSWERED[:-1], pause=Pause(open=("b",)))
    assert state_from(state) is state


@pytest.mark.rule("R-START-02")
@pytest.mark.parametrize(
    ("messages", "opened"),
    [
        ([], ()),
        (ASKED, ()),
        (ASKED, ("a",)),
        (ANSWERED[:-1], ("a", "b")),
        (ANSWERED, ("b",)),
        (ASKED, ("a", "b", "c")),
    ],
)
def test_a_state_whose_transcript_is_not_settled_is_refused(
    messages: list[Message], opened: tuple[str, ...]
) -> None:
    pause = Pause(open=opened, suspends={each: Suspend.answer("Really?") for each in opened})
    with pytest.raises(TranscriptError):
        state_from(RunState(run_id="mine", messages=messages, pause=pause))


@pytest.mark.rule("R-STATE-03")
async def test_a_state_runs_one_leg_at_a_time() -> None:
    kit = run_harness([final_answer("Done."), final_answer("Done again.")])
    async with kit.open() as run:
        with pytest.raises(RunUseError, match="has a leg running"):
            await kit.run(run.state)
        await run.wait()
    run.state.messages.append(user_message("Again."))
    assert (await kit.run(run.state)).text == "Done again."
    assert run.state.leg == 2


@pytest.mark.rule("R-START-02")
async def test_a_refused_start_leaves_the_state_free_and_uncounted() -> None:
    kit = run_harness([final_answer("Done.")])
    state = RunState(run_id="mine", messages=[*ASKED])
    with pytest.raises(TranscriptError):
        await kit.run(state)
    state.messages[:] = [user_message("Go.")]
    with pytest.raises(ValueError, match="settle_timeout"):
        await kit.run(state, settle_timeout=-1.0)
    await kit.run(state)
    assert state.leg == 1
