"""One event, or one whole reply, to one chunk; what whole streams come to is in `test_shapes`."""

import json
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._json import JSON
from harness._model import CallPiece, Chunk
from harness._usage import Usage
from harness.completion import Assembler
from harness.providers._chunks import read_event, read_reply
from harness.providers._failures import WireError
from harness.providers._sse import ServerEvent
from tests.providers.server import payload


def event(value: object, name: str = "") -> ServerEvent:
    return ServerEvent(name, value if isinstance(value, bytes) else json.dumps(value).encode())


def choice(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, **fields}]}


@pytest.mark.rule("R-PROV-09")
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "5 at 'the event', expected an object"),
        ([], "a list at 'the event', expected an object"),
        ({"choices": 5}, "5 at 'choices', expected a list"),
        ({"choices": {}}, "an object at 'choices', expected a list"),
        ({"choices": [None]}, "null at 'choices', expected an object"),
        ({"choices": [{"index": "0"}]}, "a text at 'choices.index', expected a count"),
        ({"choices": [{"index": True}]}, "True at 'choices.index', expected a count"),
        ({"choices": [{"index": -1}]}, "-1 at 'choices.index', expected a count"),
        (choice(delta="text"), "a text at 'delta', expected an object"),
        (choice(finish_reason=1), "1 at 'choices.finish_reason', expected a text"),
        (payload(content=5), "5 at 'content', expected a list"),
        (payload(content=[5]), "5 at 'content', expected a part"),
        (payload(content=[{"type": "text", "text": 5}]), "5 at 'content.text', expected a text"),
        (payload(refusal=[]), "a list at 'delta.refusal', expected a text"),
        (payload(tool_calls={}), "an object at 'tool_calls', expected a list"),
        (payload(tool_calls=[None]), "null at 'tool_calls', expected an object"),
        (payload(tool_calls=[{"index": 0.5}]), "0.5 at 'tool_calls.index', expected a count"),
        (payload(tool_calls=[{"id": 5}]), "5 at 'tool_calls.id', expected a text"),
        (payload(tool_calls=[{"type": 5}]), "5 at 'tool_calls.type', expected a text"),
        (payload(tool_calls=[{"function": "f"}]), "a text at 'function', expected an object"),
        (
            payload(tool_calls=[{"function": {"name": 5}}]),
            "5 at 'function.name', expected a text",
        ),
        (
            payload(tool_calls=[{"function": {"arguments": [1]}}]),
            "a list at 'arguments', expected a text or an object",
        ),
        (payload(function_call=5), "5 at 'function_call', expected an object"),
    ],
)
def test_a_field_that_decides_must_have_its_type(value: object, message: str) -> None:
    with pytest.raises(WireError) as caught:
        read_event(event(value))
    assert caught.value.message == message
    assert not caught.value.theirs


@pytest.mark.rule("R-PROV-09")
@pytest.mark.parametrize("strange", [5, [], {}, [5, None], True, {"text": {}}])
def test_a_field_that_only_tells_is_left_out(strange: JSON) -> None:
    chunk = read_event(
        event(
            payload(content="Paris", role=strange, reasoning=strange, reasoning_details=strange)
            | {"usage": strange, "x_groq": strange, "id": strange}
        )
    )
    assert chunk == Chunk(text="Paris")


@pytest.mark.rule("R-PROV-10")
@pytest.mark.parametrize("data", [b"", b"  ", b"[DONE]", b"null", b"5", b"{}"])
def test_an_event_called_error_is_one_whatever_it_holds(data: bytes) -> None:
    with pytest.raises(WireError) as caught:
        read_event(ServerEvent("error", data))
    assert caught.value.theirs
    assert caught.value.message == (data.decode().strip() or "an error event without a word")


@pytest.mark.rule("R-PROV-27")
def test_a_name_that_is_the_text_null_is_none() -> None:
    call = {"index": 0, "id": "null", "function": {"name": "null", "arguments": "null"}}
    assert read_event(event(payload(tool_calls=[call]))).calls == (
        CallPiece(index=0, id="null", arguments="null"),
    )


def test_a_malformed_text_is_not_echoed() -> None:
    with pytest.raises(WireError) as caught:
        read_event(event({"choices": "sk-secret"}))
    assert "secret" not in caught.value.message


REPLY = {
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Look:",
                "reasoning": "Hm",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "a", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}


@pytest.mark.rule("R-PROV-11")
def test_a_whole_reply_is_one_chunk_that_ends_and_calls_stay_apart() -> None:
    assert read_reply(json.dumps(REPLY).encode()) == Chunk(
        text="Look:",
        reasoning="Hm",
        calls=(
            CallPiece(index=0, id="a", type="function", name="f", arguments="{}"),
            CallPiece(index=1, id="a", type="function", name="g", arguments="{}"),
        ),
        usage=Usage(input=3, output=2),
        finish_reason="tool_calls",
        end=True,
    )


@pytest.mark.rule("R-PROV-11")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b'{"choices": [{"mess', "not JSON"),
        (b"{malformed json: <<<chaos>>>", "not JSON"),
        (b"[]", "a list at 'the reply'"),
        (b"{}", "null at 'choices', expected a choice"),
        (b'{"choices": []}', "a list at 'choices', expected a choice"),
        (b'{"choices": [{"index": 1, "message": {}}]}', "expected a choice"),
        (b'{"choices": [{"index": 0}]}', "null at 'message', expected an object"),
        (b'{"error": {"message": "No such model"}}', "No such model"),
        (b'{"error": "No such model"}', "No such model"),
    ],
)
def test_what_is_no_completion_is_an_error(body: bytes, message: str) -> None:
    with pytest.raises(WireError) as caught:
        read_reply(body)
    assert message in caught.value.message


KEYS = st.sampled_from(
    [
        "choices", "index", "delta", "message", "content", "refusal", "tool_calls", "function",
        "function_call", "name", "arguments", "id", "type", "text", "thinking", "finish_reason",
        "reasoning", "reasoning_content", "reasoning_details", "usage", "x_groq", "error", "code",
        "object", "prompt_tokens", "completion_tokens",
    ]
)  # fmt: skip
WORDS = st.sampled_from(["", "text", "thinking", "refusal", "function", "error", "stop", "{}", "x"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS
VALUES: st.SearchStrategy[JSON] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)
CHUNKS = VALUES | st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"delta": VALUES, "message": VALUES}), max_size=2)}
)


@pytest.mark.rule("R-PROV-09")
@given(CHUNKS, st.sampled_from(["", "error", "message"]))
def test_any_json_is_a_chunk_or_an_error(value: JSON, name: str) -> None:
    data = json.dumps(value).replace("Infinity", "0").encode()
    for read in (partial(read_event, ServerEvent(name, data)), partial(read_reply, data)):
        with suppress(WireError):
            Assembler().observe(read())


@pytest.mark.rule("R-PROV-09")
@given(st.binary(max_size=80), st.sampled_from(["", "error"]))
def test_any_bytes_are_a_chunk_or_an_error(data: bytes, name: str) -> None:
    with suppress(WireError):
        assert isinstance(read_event(ServerEvent(name, data)), Chunk)


@pytest.mark.rule("R-PROV-09")
@pytest.mark.parametrize(
    "data",
    [
        b'{"choices": ' * 5000,
        b"[" * 300 + b"]" * 300,
        b'{"choices": [{"delta": {"content": "\\ud800"}}]}',
        b'{"choices": [{"index": 1e400}]}',
        b'{"choices": [{"index": 1' + b"0" * 5000 + b"}]}",
        b'{"choices": [{"delta": {"content": NaN}}]}',
        b"\xff",
    ],
)
def test_json_that_is_not_strict_is_an_error(data: bytes) -> None:
    with pytest.raises(WireError):
        read_event(ServerEvent("", data))
