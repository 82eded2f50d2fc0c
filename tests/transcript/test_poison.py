import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness._arguments import Parsed, parse_arguments
from harness._json import JSON, encode
from harness._messages import CallMessage, Message, assistant_message, user_message, wire_message
from harness.transcript import check_openai, raw_arguments, without_poison
from tests.strategies import anything, call_messages, extra_keys, settled_transcripts, texts
from tests.transcript.examples import asks, call


def asking(*arguments: object) -> Message:
    calls = [call(f"call-{index}", each) for index, each in enumerate(arguments)]
    return asks(*calls)  # type: ignore[return-value]  # some are no texts, that is the point


def arguments_of(message: Message) -> list[str]:
    return [each["function"]["arguments"] for each in message["tool_calls"]]


@pytest.mark.rule("R-VALID-28")
@pytest.mark.parametrize(
    "raw", ['{"path": "/et', "[1, 2]", "null", "7", "true", '"{}"', "{'a': 1}", '{"n": 1e999}']
)
def test_arguments_that_are_no_object_are_replaced_and_their_text_is_kept(raw: str) -> None:
    message = asking('{"fine":1}', raw)
    before = copy.deepcopy(message)
    harmless = without_poison(message)
    assert arguments_of(harmless) == ['{"fine":1}', "{}"]
    assert harmless["x-harness"] == {"raw_arguments": {"1": raw}}
    assert message == before
    assert "arguments_not_object" in {each.code for each in check_openai([message])}
    assert "arguments_not_object" not in {each.code for each in check_openai([harmless])}
    assert raw not in str(wire_message(harmless))


@pytest.mark.rule("R-VALID-28")
@settings(max_examples=40)
@given(settled_transcripts())
def test_a_message_with_nothing_to_replace_is_handed_back_itself(messages: list[Message]) -> None:
    for message in messages:
        assert without_poison(message) is message


@pytest.mark.rule("R-VALID-28")
@given(st.lists(anything | texts, max_size=4))
def test_whatever_the_arguments_are_they_can_be_replayed_afterwards(raw: list[object]) -> None:
    harmless = without_poison(asking(*raw))
    for text in arguments_of(harmless):
        assert isinstance(parse_arguments(text), Parsed)
    encode(harmless)
    assert without_poison(harmless) is harmless


@pytest.mark.rule("R-VALID-28")
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("", "{}"),
        (" \n", "{}"),
        (None, "{}"),
        ({"n": [1.5]}, '{"n":[1.5]}'),
        (b'{"n":1}', '{"n":1}'),
    ],
)
def test_what_loses_nothing_is_written_out_and_not_kept(raw: object, expected: str) -> None:
    harmless = without_poison(asking(raw))
    assert arguments_of(harmless) == [expected]
    assert "x-harness" not in harmless


@pytest.mark.parametrize(
    "message",
    [
        user_message("[1"),
        assistant_message("[1"),
        asks(),
        {"role": "assistant", "tool_calls": None},
        {"role": "assistant", "tool_calls": "[1"},
        asks("[1", {"function": "[1"}),
        asks({"id": "a", "type": "custom", "function": {"arguments": "[1"}}),
        asks({"id": "a", "type": "custom", "custom": {"name": "sh", "input": "[1"}}),
    ],
)
def test_what_is_no_function_call_is_left_alone(message: Message) -> None:
    assert without_poison(message) is message


@pytest.mark.rule("R-VALID-29")
@given(st.lists(texts | st.sampled_from(["{}", "[", '{"n":1}']), min_size=1, max_size=4))
def test_the_text_that_the_model_wrote_can_be_read_again(raw: list[str]) -> None:
    message = asking(*raw)
    harmless = without_poison(message)
    for index, text in enumerate(raw):
        assert raw_arguments(message, index) == text
        assert raw_arguments(harmless, index) == (text if text.strip() else "{}")


@pytest.mark.rule("R-VALID-29")
@pytest.mark.parametrize("index", [-1, 1, 7])
def test_reading_the_arguments_of_a_call_that_is_not_there_raises(index: int) -> None:
    with pytest.raises(IndexError, match=rf"^call {index} was asked for, the message has 1$"):
        raw_arguments(asking("{}"), index)
    with pytest.raises(IndexError, match=r"^call 0 was asked for, the message has 0$"):
        raw_arguments(user_message("{}"), 0)


def test_a_text_that_json_cannot_carry_is_kept_with_its_odd_characters_spelled_out() -> None:
    harmless = without_poison(asking('{"half a pair": "\ud83d'))
    assert raw_arguments(harmless, 0) == '{"half a pair": "\\ud83d'
    encode(harmless)


def test_what_was_kept_before_stays() -> None:
    message = asking("[1", "{}")
    message["x-harness"] = {"note": "ours", "raw_arguments": {"1": "kept"}}
    harmless = without_poison(message)
    assert harmless["x-harness"] == {
        "note": "ours",
        "raw_arguments": {"1": "kept", "0": "[1"},
    }
    assert raw_arguments(harmless, 1) == "kept"
    assert message["x-harness"] == {"note": "ours", "raw_arguments": {"1": "kept"}}


@pytest.mark.rule("R-GEN-05")
@settings(max_examples=40)
@given(extra_keys, extra_keys, extra_keys, call_messages())
def test_keys_that_nobody_knows_survive(
    of_message: dict[str, JSON],
    of_call: dict[str, JSON],
    of_function: dict[str, JSON],
    plain: CallMessage,
) -> None:
    function = {**plain["function"], **of_function, "arguments": "[1"}
    message = asks({**plain, **of_call, "function": function}, **of_message)
    harmless = dict(without_poison(message))  # type: ignore[arg-type]  # keys nobody knows
    del harmless["x-harness"]
    function["arguments"] = "{}"
    assert harmless == asks({**plain, **of_call, "function": function}, **of_message)
