"""The request body, and the headers."""

import json

import attrs
import pytest

from harness._errors import NotJSONError, UsageError
from harness._json import JSON
from harness._messages import Message, MessagesView
from harness._model import ModelRequest
from harness.providers._wire import (
    check_settings,
    encode_request,
    request_headers,
    secrets_in,
)

TOOL: dict[str, JSON] = {"type": "function", "function": {"name": "f", "parameters": {}}}


def asked(*messages: Message, **fields: object) -> ModelRequest:
    view = MessagesView(list(messages) or [{"role": "user", "content": "hi"}])
    return attrs.evolve(
        ModelRequest(run_id="r", turn_id="t", turn=0, messages=view),
        **fields,  # type: ignore[arg-type]  # a test's own fields
    )


def body_of(
    request: ModelRequest, *, stream: bool = True, settings: dict[str, JSON] | None = None
) -> dict[str, JSON]:
    encoded = encode_request(request, model="m", stream=stream, settings=settings or {})
    decoded: dict[str, JSON] = json.loads(encoded)
    return decoded


@pytest.mark.rule("R-PROV-01")
def test_a_bare_request_has_a_bare_body() -> None:
    assert body_of(asked(), stream=False) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": False,
    }


@pytest.mark.rule("R-PROV-01")
def test_each_field_of_the_request_is_in_the_body() -> None:
    body = body_of(
        asked(
            tools=[TOOL], tool_choice="required", response_format={"type": "json_object"},
            settings={"temperature": 0},
        ),
        stream=False,
    )  # fmt: skip
    assert body["tools"] == [TOOL]
    assert body["tool_choice"] == "required"
    assert body["response_format"] == {"type": "json_object"}
    assert body["temperature"] == 0


@pytest.mark.rule("R-PROV-01")
def test_messages_pass_as_they_are_but_for_our_own_key() -> None:
    message: Message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
        "x-harness": {"raw": "{"},
    }
    kept = {**message, "cache_control": {"type": "ephemeral"}}
    body = body_of(asked(kept))  # type: ignore[arg-type]  # a key that no type knows
    del kept["x-harness"]
    assert body["messages"] == [kept]
    assert "x-harness" in message


@pytest.mark.rule("R-PROV-02")
def test_a_stream_is_asked_to_end_with_its_usage() -> None:
    body = body_of(asked())
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


@pytest.mark.rule("R-PROV-03")
def test_a_request_s_settings_replace_the_model_s_and_none_takes_a_key_out() -> None:
    defaults: dict[str, JSON] = {"temperature": 1, "top_p": 1, "stop": ["x"]}
    request = asked(settings={"temperature": 0, "top_p": None, "stream_options": None})
    body = body_of(request, settings=defaults)
    assert body["temperature"] == 0
    assert body["stop"] == ["x"]
    assert not {"top_p", "stream_options"} & set(body)


@pytest.mark.rule("R-PROV-04")
@pytest.mark.parametrize(
    "key", ["model", "messages", "stream", "tools", "tool_choice", "response_format"]
)
def test_a_setting_cannot_replace_a_field(key: str) -> None:
    for value in ("x", None):
        with pytest.raises(UsageError, match=f"^the settings have '{key}', expected it as "):
            check_settings({key: value})
        with pytest.raises(UsageError, match=f"^the settings have '{key}', expected it as "):
            encode_request(asked(settings={key: value}), model="m", stream=True, settings={})


@pytest.mark.rule("R-PROV-04")
def test_what_is_not_json_is_refused_with_its_place() -> None:
    with pytest.raises(NotJSONError, match=r"^not JSON at messages\.0\.content"):
        body_of(asked({"role": "user", "content": {1, 2}}))  # type: ignore[typeddict-item]  # wrong
    with pytest.raises(NotJSONError, match=r"^not JSON at seed"):
        check_settings({"seed": float("nan")})


KEY = "sk-0123456789abcdef"


@pytest.mark.rule("R-PROV-02")
def test_the_key_is_a_bearer_token_and_given_headers_replace_ours() -> None:
    headers = request_headers({"User-Agent": "mine", "X-Title": "t"}, api_key=KEY, stream=True)
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["user-agent"] == "mine"
    assert headers["x-title"] == "t"
    assert headers["accept"] == "text/event-stream, application/json"
    bare = request_headers({}, api_key=None, stream=False)
    assert "authorization" not in bare
    assert bare["accept"] == "application/json"


@pytest.mark.rule("R-PROV-15")
@pytest.mark.parametrize("bad", [f"{KEY}\n", f" {KEY}", f"{KEY}\r\nx: y", f"{KEY}é", "", 5, None])
def test_a_value_that_no_header_carries_is_refused_and_not_shown(bad: str) -> None:
    with pytest.raises(UsageError, match=r"^the header 'api-key' ") as caught:
        request_headers({"api-key": bad}, api_key=None, stream=True)
    assert KEY not in str(caught.value)
    if bad is not None:
        with pytest.raises(UsageError, match=r"^api_key ") as caught:
            request_headers({}, api_key=bad, stream=True)
        assert KEY not in str(caught.value)


@pytest.mark.rule("R-PROV-15")
def test_what_may_be_secret_is_known_as_it_is_sent_and_as_it_is_read() -> None:
    headers = {"Authorization": f"Bearer {KEY}", "proxy-authorization": "Basic x", "x": "a b"}
    found = [each for each in secrets_in(headers, "a=1%2B&b=c+d&e&f=") if each]
    assert found == [f"Bearer {KEY}", KEY, "Basic x", "x", "a b", "1%2B", "1+", "c+d", "c d"]


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\n", "é"])
def test_a_name_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"^a header is called "):
        request_headers({name: "x"}, api_key=None, stream=True)
