import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness._json import JSON, encode
from harness._messages import (
    EXTRA_KEY,
    FAILURE_KINDS,
    FailureKind,
    Message,
    MessagesView,
    assistant_message,
    failure_envelope,
    success_envelope,
    system_message,
    tool_message,
    user_message,
    wire_message,
)
from tests.strategies import anything, extra_keys, json_values, settled_transcripts, texts

CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def test_a_message_of_each_role() -> None:
    assert system_message("Be brief.") == {"role": "system", "content": "Be brief."}
    assert user_message("Hello") == {"role": "user", "content": "Hello"}
    assert assistant_message("Hello") == {"role": "assistant", "content": "Hello"}
    assert assistant_message(None, (CALL,)) == {  # type: ignore[arg-type]  # a plain dictionary
        "role": "assistant",
        "content": None,
        "tool_calls": [CALL],
    }
    assert tool_message("a", "{}") == {"role": "tool", "tool_call_id": "a", "content": "{}"}


def test_a_message_without_calls_has_no_key_for_them() -> None:
    assert "tool_calls" not in assistant_message("Hello", [])


def test_content_parts_follow_the_envelope_as_they_are() -> None:
    part: dict[str, JSON] = {"type": "image_url", "image_url": {"url": "data:,"}}
    message = tool_message("a", '{"success":true}', (part,))
    assert message["content"] == [{"type": "text", "text": '{"success":true}'}, part]


def test_an_envelope_is_compact_and_begins_with_success() -> None:
    assert success_envelope({"n": 1, "é": [None]}) == '{"success":true,"data":{"n":1,"é":[null]}}'
    assert success_envelope(None) == '{"success":true,"data":null}'
    assert failure_envelope("no é") == '{"success":false,"error":"no é"}'
    assert (
        failure_envelope("no", "not_found") == '{"success":false,"kind":"not_found","error":"no"}'
    )


def test_what_is_no_number_becomes_null_at_any_depth() -> None:
    data = [math.nan, {"a": math.inf, "b": (-math.inf, 1.5)}]
    assert success_envelope(data) == '{"success":true,"data":[null,{"a":null,"b":[null,1.5]}]}'


cycle: list[object] = []
cycle.append(cycle)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (object(), "object"),
        ({1, 2}, "set"),
        ({1: 2}, "dict"),
        ("\ud800", "str"),
        (cycle, "list"),
        ([b"x"], "list"),
        pytest.param(10**5000, "int", id="long integer"),
    ],
)
def test_a_result_that_is_not_json_still_says_success(data: object, kind: str) -> None:
    assert json.loads(success_envelope(data)) == {
        "success": True,
        "data": f"The call succeeded; its result ({kind}) is not JSON.",
    }


@given(anything)
def test_whatever_succeeded_the_envelope_says_so(data: object) -> None:
    envelope = json.loads(success_envelope(data))
    assert list(envelope) == ["success", "data"]
    assert envelope["success"] is True


@given(json_values)
def test_json_comes_out_of_an_envelope_as_it_went_in(data: JSON) -> None:
    assert json.loads(success_envelope(data))["data"] == data


@given(st.text(st.characters()), st.sampled_from([None, *FAILURE_KINDS]))
def test_a_failure_can_always_be_told(error: str, kind: FailureKind | None) -> None:
    envelope = json.loads(failure_envelope(error, kind))
    assert list(envelope) == ["success", *(["kind"] if kind else []), "error"]
    assert (envelope["success"], envelope.get("kind")) == (False, kind)
    assert len(envelope["error"]) == len(error)


@pytest.mark.rule("R-GEN-05")
@settings(max_examples=40)
@given(settled_transcripts(), extra_keys)
def test_keys_that_nobody_knows_reach_the_provider_and_ours_does_not(
    messages: list[Message], extra: dict[str, JSON]
) -> None:
    for message in messages:
        assert wire_message(message) is message
        ours: Message = {**message, **extra, "x-harness": {"note": 1}}  # type: ignore[typeddict-item]  # keys nobody knows
        assert wire_message(ours) == {**message, **extra}
        assert EXTRA_KEY in ours
        encode(wire_message(ours))


@pytest.mark.rule("R-GEN-04")
@given(st.lists(texts.map(user_message), min_size=1, max_size=5), st.data())
def test_a_view_reads_like_the_list_it_was_made_of(
    messages: list[Message], data: st.DataObject
) -> None:
    view, before = MessagesView(messages), tuple(messages)
    messages.append(user_message("later"))
    assert len(view) == len(before)
    assert tuple(view) == before
    assert list(reversed(view)) == list(reversed(before))
    index = data.draw(st.integers(-len(before), len(before) - 1))
    assert view[index] is before[index]
    bounds = st.none() | st.integers(-9, 9)
    cut = slice(data.draw(bounds), data.draw(bounds), data.draw(st.sampled_from([None, 1, -1, 2])))
    assert view[cut] == before[cut]
    for beyond in (len(before), -len(before) - 1):
        with pytest.raises(IndexError, match=rf"^message {beyond} of {len(before)}$"):
            view[beyond]


@pytest.mark.rule("R-GEN-04")
def test_nothing_can_be_written_through_a_view() -> None:
    messages = [user_message("one")]
    view = MessagesView(messages)
    for attempt in ("append", "insert", "pop", "__setitem__", "__delitem__", "clear"):
        assert not hasattr(view, attempt)
    with pytest.raises(AttributeError):
        view.messages = messages  # type: ignore[attr-defined]  # that is the point
    assert repr(view) == "<MessagesView of 1 messages>"


def test_a_view_costs_the_same_whatever_its_length() -> None:
    class Untouched(list[Message]):
        def __iter__(self) -> None:  # type: ignore[override]  # nobody may ask
            raise AssertionError("copied")

    messages = Untouched([user_message("one")] * 3)
    view = MessagesView(messages)
    assert len(view) == 3
    assert view[1] is messages[1]


@given(texts)
def test_a_text_is_carried_as_it_is(text: str) -> None:
    for message in (user_message(text), system_message(text), assistant_message(text)):
        assert message["content"] == text
