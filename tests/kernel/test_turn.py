"""What a model may be, and what it may return."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import Assembly, Halt, Message, ModelRequest, ModelTurn, TurnStream, assistant_message
from harness._json import check_json
from harness._messages import CallMessage
from harness.completion import is_empty_reply
from harness.errors import CompletionDefectError, ModelContractError
from harness.kernel._turn import as_model, check_answer, text_of
from harness.transcript import calls_of, without_poison
from tests.strategies import anything, call_messages, malformed_messages, texts

STRICT = Assembly()


def turn(message: object, **fields: object) -> ModelTurn:
    return ModelTurn(message=message, **fields)  # type: ignore[arg-type]  # models are foreign code


def asking(*calls: CallMessage) -> Message:
    return assistant_message(None, calls)


def call(id: str = "call_1", name: str = "look", arguments: str = "{}") -> CallMessage:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


# -- what a model may be -----------------------------------------------------------------------


async def answer(request: ModelRequest, stream: TurnStream) -> ModelTurn:
    return turn(assistant_message("yes"))


class _Methodical:
    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn:
        return turn(assistant_message("yes"))


def test_an_object_with_the_method_is_taken_as_it_is() -> None:
    model = _Methodical()
    assert as_model(model) is model


def test_a_function_becomes_a_model() -> None:
    assert callable(as_model(answer).complete)


@pytest.mark.rule("R-MODEL-01")
@pytest.mark.parametrize("given_model", [None, "gpt", 7, object(), ["a", "b"]])
def test_what_is_neither_is_refused_by_its_own_name(given_model: object) -> None:
    with pytest.raises(TypeError, match=r"^model is .*, expected a Model or an async function$"):
        as_model(given_model)  # type: ignore[arg-type]  # what is being tested


# -- what it may return ------------------------------------------------------------------------


@pytest.mark.rule("R-MODEL-01")
@pytest.mark.parametrize(
    "returned",
    [None, "done", {"role": "assistant", "content": "hi"}, 7, object(), assistant_message("hi")],
)
def test_what_is_no_turn_and_no_halt_breaks_the_contract(returned: object) -> None:
    with pytest.raises(ModelContractError, match=r"expected a ModelTurn or a Halt$"):
        check_answer(returned, STRICT)


@pytest.mark.rule("R-MODEL-01")
@pytest.mark.parametrize(
    "message",
    [
        None,
        "hi",
        [],
        {},
        {"content": "hi"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": 5},
        {"role": "assistant", "content": b"hi"},
        {"role": "assistant", "content": {"text": "hi"}},
        {"role": "assistant", "content": ["hi"]},
        {"role": "assistant", "content": [{"text": "a part without a type"}]},
        {"role": "assistant", "content": "hi", "refusal": 5},
        {"role": "assistant", "content": "hi", "tool_calls": "none"},
        {"role": "assistant", "content": "hi", "tool_calls": {"id": "a"}},
        {"role": "assistant", "content": "hi", "tool_calls": ["look"]},
        {"role": "assistant", "content": "hi", "tool_calls": [None]},
        {"role": "assistant", "tool_calls": [{"id": "a", "type": 5, "function": {"name": "x"}}]},
        {"role": "assistant", "content": "hi", "x-note": {1, 2}},
        {"role": "assistant", "content": "hi", "score": float("nan")},
        {"role": "assistant", "content": "a lone surrogate \ud800"},
    ],
)
def test_a_message_that_is_malformed_breaks_the_contract(message: object) -> None:
    with pytest.raises(ModelContractError):
        check_answer(turn(message), STRICT)
    with pytest.raises(ModelContractError):
        check_answer(Halt(code="stop", message="why", turn=turn(message)), STRICT)
    with pytest.raises(ModelContractError):
        check_answer(turn(message, accept=False), STRICT)


@pytest.mark.rule("R-MODEL-01")
@pytest.mark.parametrize("field", [{"usage": None}, {"usage": 5}, {"finish_reason": 5}])
def test_a_turn_with_a_field_of_a_wrong_type_breaks_the_contract(field: dict[str, object]) -> None:
    with pytest.raises(ModelContractError):
        check_answer(turn(assistant_message("hi"), **field), STRICT)


@pytest.mark.rule("R-MODEL-02")
@given(
    malformed_messages
    | malformed_messages.map(
        lambda message: {**message, "role": "assistant"} if isinstance(message, dict) else message
    ),
    st.sampled_from([None, "stop", "length", "tool_calls"]),
    st.booleans(),
    st.sampled_from([STRICT, Assembly(ids="keep", empty="accept")]),
)
def test_whatever_a_model_returns_is_usable_or_refused_by_one_of_two_errors(
    message: object, finish_reason: str | None, accept: bool, assembly: Assembly
) -> None:
    try:
        checked = check_answer(turn(message, finish_reason=finish_reason, accept=accept), assembly)
    except (ModelContractError, CompletionDefectError):
        return
    assert isinstance(checked, ModelTurn)
    # What was let through is read, appended and stored by others, none of which may fail.
    clean = without_poison(checked.message)
    check_json(clean)
    assert len(calls_of(clean)) == len(clean.get("tool_calls") or ())
    assert isinstance(text_of(clean), str)


@pytest.mark.rule("R-MODEL-01")
@given(anything)
def test_anything_else_a_model_returns_is_refused(returned: object) -> None:
    with pytest.raises(ModelContractError):
        check_answer(returned, STRICT)


@pytest.mark.rule("R-MODEL-03")
@pytest.mark.parametrize(
    ("message", "finish_reason", "defect"),
    [
        (assistant_message(""), "stop", "empty"),
        (assistant_message(" \n"), "stop", "empty"),
        (assistant_message(None), None, "empty"),
        (assistant_message(""), "length", "truncated"),
        (asking(call(arguments='{"query": "as')), "length", "truncated"),
        (asking(call(arguments='{"query": "as')), "tool_calls", "malformed_tool_call"),
        (asking(call(arguments="NaN")), "tool_calls", "malformed_tool_call"),
        (asking(call(id="")), "tool_calls", "malformed_tool_call"),
        (asking(call(name="")), "tool_calls", "malformed_tool_call"),
        (asking(call(), call()), "tool_calls", "malformed_tool_call"),
    ],
)
def test_a_message_with_a_defect_is_refused_with_its_kind(
    message: Message, finish_reason: str | None, defect: str
) -> None:
    with pytest.raises(CompletionDefectError) as caught:
        check_answer(turn(message, finish_reason=finish_reason), STRICT)
    assert caught.value.defect == defect


def test_a_turn_that_is_to_be_discarded_may_be_empty() -> None:
    discarded = turn(assistant_message(""), accept=False)
    assert check_answer(discarded, STRICT) is discarded


def test_a_turn_that_is_to_be_discarded_may_have_no_defect_in_its_calls() -> None:
    with pytest.raises(CompletionDefectError):
        check_answer(turn(asking(call(id="")), accept=False), STRICT)


@pytest.mark.parametrize("content", ["", " ", None, []])
def test_an_empty_reply_that_the_host_accepts_is_kept_out_of_the_transcript(
    content: str | None,
) -> None:
    checked = check_answer(turn(assistant_message(content)), Assembly(empty="accept"))
    assert isinstance(checked, ModelTurn)
    assert not checked.accept


def test_a_reply_with_text_is_accepted_where_empty_ones_are() -> None:
    said = turn(assistant_message("yes"))
    assert check_answer(said, Assembly(empty="accept")) is said


def test_the_turn_of_a_halt_is_checked_like_any_other() -> None:
    empty = Halt(code="stop", message="why", turn=turn(assistant_message("")))
    with pytest.raises(CompletionDefectError):
        check_answer(empty, STRICT)
    checked = check_answer(empty, Assembly(empty="accept"))
    assert isinstance(checked, Halt)
    assert checked.turn is not None
    assert not checked.turn.accept


def test_a_halt_without_a_turn_is_usable() -> None:
    halt = Halt(code="stop", message="why")
    assert check_answer(halt, STRICT) == halt


# -- reading a message -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello", "hello"),
        ("  hello ", "  hello "),
        (None, ""),
        ("", ""),
        (" \t\n", ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image_url"}, {"type": "text", "text": "b"}], "b"),
        ([{"type": "text", "text": None}], ""),
        ([{"type": "text", "text": " "}], ""),
    ],
)
def test_the_text_of_a_message_is_that_of_its_text_parts(content: object, text: str) -> None:
    assert text_of({"role": "assistant", "content": content}) == text  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("message", "empty"),
    [
        (assistant_message(""), True),
        (assistant_message(" "), True),
        (assistant_message("hi"), False),
        (asking(call()), False),
        ({"role": "assistant", "content": None, "refusal": "no"}, False),
        ({"role": "assistant", "content": None, "refusal": ""}, True),
    ],
)
def test_a_message_is_empty_if_it_says_and_asks_nothing(message: Message, empty: bool) -> None:
    assert is_empty_reply(message) == empty


@settings(max_examples=50, deadline=None)
@given(st.lists(call_messages(), max_size=3), texts)
def test_the_calls_of_a_message_are_those_it_holds_in_order(
    calls: Sequence[CallMessage], text: str
) -> None:
    read = calls_of(assistant_message(text, calls))
    assert [each.index for each in read] == list(range(len(calls)))
    assert [(each.id, each.type, each.name, each.arguments) for each in read] == [
        (each["id"], each["type"], each["function"]["name"], each["function"]["arguments"])
        for each in calls
    ]


@pytest.mark.rule("R-MODEL-02")
@pytest.mark.parametrize("calls", [None, []])
def test_a_message_that_says_it_has_no_calls_is_a_message_without_calls(calls: object) -> None:
    said = turn({"role": "assistant", "content": "hi", "tool_calls": calls, "x-note": 1})
    checked = check_answer(said, STRICT)
    assert isinstance(checked, ModelTurn)
    assert checked.message == {"role": "assistant", "content": "hi", "x-note": 1}


@pytest.mark.rule("R-MODEL-02")
def test_a_call_without_a_type_is_a_function_call_and_is_stored_as_one() -> None:
    untyped = call()
    del untyped["type"]  # type: ignore[misc]  # some providers leave it out
    checked = check_answer(turn(asking(untyped)), STRICT)
    assert isinstance(checked, ModelTurn)
    assert checked.message["tool_calls"] == [call()]
    assert calls_of(checked.message)[0].type == "function"


@pytest.mark.parametrize(
    ("body", "name", "arguments"),
    [
        ({"function": {"name": "shell", "arguments": "ls"}}, "shell", "ls"),
        ({"custom": {"name": "shell", "input": "ls"}}, "shell", "ls"),
        ({"custom": {"name": 5, "input": None}}, "", ""),
        ({"custom": "shell"}, "", ""),
        ({}, "", ""),
    ],
)
def test_a_call_of_another_type_is_read_as_far_as_it_goes(
    body: dict[str, object], name: str, arguments: str
) -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", **body}]}
    checked = check_answer(turn(message), STRICT)
    assert isinstance(checked, ModelTurn)
    (read,) = calls_of(checked.message)
    assert (read.id, read.type, read.name, read.arguments) == ("a", "custom", name, arguments)


@pytest.mark.rule("R-MODEL-04")
@pytest.mark.parametrize(
    ("arguments", "stored", "read"),
    [
        ("[1, 2]", "{}", "[1, 2]"),
        ("null", "{}", "null"),
        ("", "{}", "{}"),
        (None, "{}", "{}"),
        ({"a": 1}, '{"a":1}', '{"a":1}'),
        ('{"a": 1}', '{"a": 1}', '{"a": 1}'),
    ],
)
def test_the_arguments_of_a_checked_call_can_be_replayed_and_are_read_as_written(
    arguments: object, stored: str, read: str
) -> None:
    asked = call(arguments=arguments)  # type: ignore[arg-type]  # as providers send them
    checked = check_answer(turn(asking(asked)), STRICT)
    assert isinstance(checked, ModelTurn)
    assert checked.message["tool_calls"][0]["function"]["arguments"] == stored
    assert calls_of(checked.message)[0].arguments == read


def test_a_checked_turn_is_the_one_that_was_returned() -> None:
    said = turn(assistant_message("yes"), parsed={"ok": True})
    assert check_answer(said, STRICT) is said
    assert attrs.evolve(said) == said
