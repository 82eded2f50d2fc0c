"""A chat model against a real server on loopback that does as it is told, or worse."""

import json
import os
import subprocess
import sys
import traceback

import attrs
import httpx2
import pytest
import trio

from harness._errors import CompletionDefectError, ProviderError, UsageError
from harness._events import ReasoningDelta, TextDelta, ToolCallDelta
from harness._json import JSON
from harness._model import ModelTurn
from harness._usage import Usage
from harness.providers import ChatModel, _http
from tests.providers.asking import (
    KEY,
    PARIS,
    WHOLE,
    Surface,
    ask,
    asking,
    plain,
    resetting,
    stalling,
)
from tests.providers.server import (
    DONE,
    Exchange,
    Script,
    chunked,
    head,
    in_turn,
    open_server,
    payload,
    replying,
    sse,
    stream_of,
)

# -- what goes out, and what comes back --------------------------------------------------------


@pytest.mark.rule("R-PROV-01", "R-PROV-02")
async def test_a_request_goes_out_as_it_should() -> None:
    async with asking(
        replying(head() + chunked(PARIS)),
        api_key=KEY,
        headers={"X-Title": "test"},
        settings={"n": 1},
    ) as (model, server):
        await ask(model)
        (exchange,) = server.requests
    assert (exchange.method, exchange.target) == ("POST", "/v1/chat/completions")
    assert exchange.headers["authorization"] == f"Bearer {KEY}"
    assert exchange.headers["content-type"] == "application/json"
    assert exchange.headers["accept-encoding"] == "identity"
    assert exchange.headers["x-title"] == "test"
    assert json.loads(exchange.body) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Where?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 1,
    }


@pytest.mark.rule("R-PROV-05")
async def test_chunks_and_packets_may_be_cut_anywhere() -> None:
    body = stream_of(
        payload(reasoning="Où ?"), payload(content="Là-bas 🗼"), payload("stop"),
    )  # fmt: skip

    def in_chunks(size: int) -> bytes:
        return chunked(*(body[at : at + size] for at in range(0, len(body), size)))

    def in_packets(size: int) -> Script:
        whole = head() + in_chunks(5)

        async def script(exchange: Exchange) -> None:
            for at in range(0, len(whole), size):
                await exchange.send(whole[at : at + size])
                await trio.lowlevel.checkpoint()

        return script

    scripts = [replying(head() + in_chunks(size)) for size in (1, 2, 3, 7, 64, 1000)]
    scripts += [in_packets(size) for size in (3, 11, 50)]
    async with asking(in_turn(scripts)) as (model, server):
        for _ in scripts:
            turn = await ask(model)
            assert turn.message == {"role": "assistant", "content": "Là-bas 🗼"}
            assert turn.reasoning == "Où ?"
        assert server.accepted == 1


async def test_what_comes_is_told_as_it_comes() -> None:
    surface = Surface()
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}

    async def script(exchange: Exchange) -> None:
        await exchange.send(head())
        for each in (payload(reasoning="Hm"), payload(content="So"), payload(tool_calls=[call])):
            await exchange.send(chunked(sse(each), end=False))
            await trio.sleep(0.01)
            seen.append(len([x for x in surface.events if not hasattr(x, "output_tokens")]))
        await exchange.send(chunked(sse(payload("tool_calls")), DONE))

    seen: list[int] = []
    async with asking(script) as (model, _):
        await ask(model, surface)
    assert seen == [1, 2, 3]
    kinds = [type(each) for each in surface.events if not hasattr(each, "output_tokens")]
    assert kinds == [ReasoningDelta, TextDelta, ToolCallDelta]


@pytest.mark.rule("R-PROV-11")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_whole_reply_is_read_whether_it_was_asked_for_or_not(stream: bool) -> None:
    surface = Surface()
    async with asking(replying(plain(WHOLE)), stream=stream) as (model, server):
        turn = await ask(model, surface)
        assert json.loads(server.requests[0].body)["stream"] is stream
    assert turn == ModelTurn(
        message={"role": "assistant", "content": "Paris"},
        usage=Usage(input=3, output=2),
        finish_reason="stop",
    )
    assert surface.text() == "Paris"


@pytest.mark.rule("R-PROV-11")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "No", "code": "bad"}}', "^the provider reported 'No', expected a"),
        (b'{"choices": []}', "^the provider sent a list at 'choices', expected a choice$"),
        (b'{"choices": [', "^the provider sent a text that is not JSON: "),
    ],
)
async def test_a_whole_reply_that_is_none_is_an_error(
    stream: bool, body: bytes, message: str
) -> None:
    async with asking(replying(plain(body)), stream=stream) as (model, _):
        with pytest.raises(ProviderError, match=message) as caught:
            await ask(model)
    error = caught.value
    assert (error.kind, error.category, error.phase) == ("http", "server_error", "reply")
    assert error.status_code == 200


@pytest.mark.rule("R-PROV-06")
async def test_a_whole_reply_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.providers._chat.MAX_EVENT_BYTES", 100)
    body = b" " * 101
    async with asking(replying(plain(body), close=True), stream=False) as (model, _):
        with pytest.raises(
            ProviderError, match=r"^the provider sent a body of more than 100 bytes"
        ):
            await ask(model)


# -- failures ----------------------------------------------------------------------------------


@pytest.mark.rule("R-PROV-16")
@pytest.mark.parametrize(
    ("script", "phase"),
    [
        pytest.param(resetting(), "headers", id="reset before the headers"),
        pytest.param(replying(close=True), "headers", id="close before the headers"),
        pytest.param(resetting(b"HTTP/1.1 200 OK\r\nConte"), "headers", id="reset in the headers"),
        pytest.param(replying(b"garbage\r\n\r\n", close=True), "headers", id="no HTTP"),
        pytest.param(resetting(head()), "stream", id="reset after the headers"),
        pytest.param(
            resetting(head() + chunked(sse(payload(content="Par")), end=False)),
            "stream",
            id="reset in the stream",
        ),
        pytest.param(
            replying(head() + chunked(sse(payload(content="Par")), end=False), close=True),
            "stream",
            id="close in the stream",
        ),
        pytest.param(
            replying(head() + chunked(b'data: {"choices": [{"del', end=False), close=True),
            "stream",
            id="close in a line",
        ),
        pytest.param(
            replying(
                head() + chunked(sse(payload("stop", content="Paris")), end=False), close=True
            ),
            "stream",
            id="close after the finish reason",
        ),
        pytest.param(replying(plain(WHOLE)[:-5], close=True), "reply", id="close in a whole reply"),
    ],
)
async def test_a_connection_that_breaks_is_a_network_failure(script: Script, phase: str) -> None:
    async with asking(script) as (model, server):
        with pytest.raises(ProviderError) as caught:
            await ask(model)
        await server.idle()
    error = caught.value
    assert (error.kind, error.category, error.phase) == ("network", "unreachable", phase)
    assert (error.status_code, error.retry_after) == (None, None)


@pytest.mark.rule("R-PROV-16")
async def test_a_refused_connection_is_a_network_failure() -> None:
    async with open_server(replying()) as server:
        base_url = server.base_url
    async with ChatModel("m", base_url=base_url) as model:
        with pytest.raises(ProviderError) as caught:
            await ask(model)
    error = caught.value
    assert (error.kind, error.category, error.phase) == ("network", "unreachable", "connect")


@pytest.mark.rule("R-PROV-07")
@pytest.mark.parametrize(
    "content_type", ["text/event-stream", "text/event-stream; charset=utf-8", "text/plain"]
)
async def test_half_a_line_and_a_good_end_is_malformed(content_type: str) -> None:
    body = sse(payload(content="Par")) + b'data: {"choices": [{"del'
    async with asking(replying(plain(body, content_type=content_type))) as (model, _):
        with pytest.raises(ProviderError, match=r"^the provider sent a text that is not JSON") as e:
            await ask(model)
    assert (e.value.kind, e.value.category, e.value.phase) == ("http", "server_error", "stream")


async def test_a_web_page_is_no_stream() -> None:
    page = plain(b"<html>Welcome</html>", content_type="text/html; charset=utf-8")
    async with asking(replying(page)) as (model, _):
        with pytest.raises(ProviderError, match=r"^the provider sent a web page, expected a stre"):
            await ask(model)


def test_what_was_given_to_a_model_stays_as_it_was() -> None:
    settings: dict[str, JSON] = {"seed": 1}
    model = ChatModel("m", base_url="http://h", settings=settings)
    settings["messages"] = []
    assert model._settings == {"seed": 1}
    with pytest.raises(attrs.exceptions.FrozenAttributeError):
        model.base_url = "http://elsewhere"


@pytest.mark.rule("R-PROV-07")
async def test_an_end_without_a_word_is_unfinished_though_it_only_told_text() -> None:
    async with asking(replying(head() + chunked(sse(payload(content="Par"))))) as (model, _):
        with pytest.raises(
            CompletionDefectError, match="the stream ended with no finish"
        ) as caught:
            await ask(model)
    assert (caught.value.defect, caught.value.phase) == ("unfinished", "stream")


@pytest.mark.rule("R-PROV-14", "R-PROV-12")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_429_says_how_long_to_wait(stream: bool) -> None:
    body = b'{"error": {"message": "Slow down", "type": "rate_limit_error", "code": null}}'
    script = replying(plain(body, 429, "Retry-After: 7", "X-Other: 1"))
    async with asking(script, stream=stream) as (model, server):
        with pytest.raises(ProviderError, match="status 429 and said 'Slow down'") as caught:
            await ask(model)
        with pytest.raises(ProviderError):
            await ask(model)
        assert server.accepted == 1  # a refusal that was read keeps its connection
    error = caught.value
    assert (error.kind, error.category, error.phase) == ("http", "rate_limited", "headers")
    assert (error.status_code, error.retry_after) == (429, 7.0)
    assert error.provider_code == "rate_limit_error"


@pytest.mark.rule("R-PROV-14")
@pytest.mark.parametrize(
    ("status", "category"),
    [(500, "server_error"), (401, "credential"), (404, "provider_bad_request"),
     (400, "client_error"), (302, "client_error")],
)  # fmt: skip
async def test_a_status_that_is_no_success_is_an_error(status: int, category: str) -> None:
    script = replying(plain(b"no", status, "Location: /elsewhere"))
    async with asking(script) as (model, server):
        with pytest.raises(ProviderError) as caught:
            await ask(model)
        assert len(server.requests) == 1
    assert (caught.value.kind, caught.value.category) == ("http", category)
    assert caught.value.status_code == status


@pytest.mark.rule("R-PROV-14")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(stalling(head(503) + chunked(b"busy", end=False)), id="stalls"),
        pytest.param(resetting(head(503) + chunked(b"busy", end=False)), id="is reset"),
        pytest.param(stalling(head(503) + chunked(b"busy" + b" " * 10**6, end=False)), id="is big"),
    ],
)
async def test_a_body_that_fails_does_not_hide_the_status(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_http, "ERROR_SECONDS", 0.1)
    async with asking(script) as (model, server):
        with pytest.raises(ProviderError, match="status 503 and said 'busy'") as caught:
            await ask(model)
        await server.idle(within=0.2)
    assert caught.value.category == "server_error"


@pytest.mark.rule("R-PROV-10")
async def test_an_error_object_in_the_stream_is_the_provider_s_error() -> None:
    told = {"error": {"message": "Overloaded", "code": 529, "type": "overloaded_error"}}
    body = sse(payload(content="Par"), told)
    surface = Surface()
    async with asking(stalling(head() + chunked(body, end=False))) as (model, server):
        with pytest.raises(ProviderError, match=r"^the provider reported 'Overloaded'") as caught:
            await ask(model, surface)
        await server.idle(within=0.2)  # it was not waited for the end of the body
    error = caught.value
    assert (error.kind, error.category, error.phase) == ("http", "server_error", "stream")
    assert (error.status_code, error.provider_code) == (200, "overloaded_error")
    assert surface.text() == "Par"


@pytest.mark.rule("R-PROV-08")
async def test_arguments_cut_by_length_are_a_defect_and_the_connection_is_kept() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"city": "Pa'}}
    body = stream_of(payload(None, tool_calls=[call]), payload("length"))
    async with asking(replying(head() + chunked(body))) as (model, server):
        for _ in range(2):
            with pytest.raises(CompletionDefectError) as caught:
                await ask(model)
            assert caught.value.defect == "truncated"
        assert server.accepted == 1


@pytest.mark.rule("R-PROV-25")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "place", ["/elsewhere", "http://127.0.0.1:9/", "ftp://x", "http://[::1", "http://a..b:99999/"]
)
async def test_a_redirect_is_an_error_that_names_where_it_led(status: int, place: str) -> None:
    script = replying(plain(b"Moved", status, f"Location: {place}"))
    async with (
        open_server(script) as server,
        httpx2.AsyncClient(follow_redirects=True, trust_env=False) as client,
    ):
        with pytest.raises(ProviderError) as caught:
            await ask(ChatModel("m", base_url=server.base_url, client=client))
        assert len(server.requests) == 1
    assert str(caught.value) == (
        f"the provider answered with status {status}, a redirect to {place!r} and said 'Moved',"
        " expected a completion"
    )
    assert (caught.value.kind, caught.value.category) == ("http", "client_error")


@pytest.mark.rule("R-PROV-15")
@pytest.mark.parametrize(
    "script",
    [
        replying(plain(f"Incorrect API key: {KEY}".encode(), 401)),
        replying(head() + chunked(sse({"error": {"message": KEY, "code": KEY}}))),
        replying(plain(json.dumps({"error": KEY}).encode())),
        replying(head() + chunked(sse({"choices": KEY}))),
        replying(plain(b"", 307, f"Location: /?key={KEY}")),
        replying(b"HTTP/9 " + KEY.encode() + b"\r\n\r\n", close=True),
        replying(head() + KEY.encode() + b"\r\n", close=True),
    ],
)
async def test_the_key_is_in_no_repr_and_no_error(script: Script) -> None:
    async with asking(script, api_key=KEY, headers={"api-key": KEY[::-1]}) as (model, _):
        with pytest.raises(ProviderError) as caught:
            await ask(model)
        shown = f"{model!r} {caught.value!r} {caught.value.provider_code} {vars(caught.value)}"
    shown += "".join(traceback.format_exception(caught.value))
    assert KEY not in shown
    assert KEY[::-1] not in shown


async def test_an_error_of_the_transport_is_the_cause_of_its_failure() -> None:
    async with asking(replying(b"HTTP/9 x\r\n\r\n", close=True), api_key=KEY) as (model, _):
        with pytest.raises(ProviderError) as caught:
            await ask(model)
    assert isinstance(caught.value.__cause__, httpx2.RemoteProtocolError)


@pytest.mark.rule("R-PROV-15")
@pytest.mark.parametrize(
    ("mine", "query", "theirs"),
    [
        ({"Authorization": f"Bearer {KEY}"}, "", {}),
        ({"x-api-key": KEY}, "", {}),
        ({}, f"?key={KEY}", {}),
        ({}, "?key=sk%2D0123456789abcdef", {}),
        ({}, "", {"headers": {"authorization": f"Bearer {KEY}"}}),
        ({}, "", {"params": {"key": KEY}}),
    ],
)
async def test_a_key_is_hidden_wherever_it_was_given(
    mine: dict[str, str], query: str, theirs: dict[str, dict[str, str]]
) -> None:
    sent = query.partition("=")[2] or KEY
    script = replying(plain(f"keep-alive: no {KEY} or {sent}".encode(), 401))
    async with (
        open_server(script) as server,
        httpx2.AsyncClient(trust_env=False, **theirs) as client,  # type: ignore[arg-type]  # either
    ):
        model = ChatModel("m", base_url=server.base_url + query, headers=mine, client=client)
        with pytest.raises(ProviderError, match="said 'keep-alive: no .redacted. or .redacted.'"):
            await ask(model)


def test_a_key_that_cannot_be_sent_is_refused_when_the_model_is_made() -> None:
    with pytest.raises(UsageError, match=r"^api_key holds what no header carries"):
        ChatModel("m", base_url="http://h", api_key=f"{KEY}\n")
    with pytest.raises(UsageError, match=r"^the settings have 'messages'"):
        ChatModel("m", base_url="http://h", settings={"messages": []})
    with pytest.raises(UsageError, match=r"^base_url is 'h'"):
        ChatModel("m", base_url="h")


# -- usage -------------------------------------------------------------------------------------

COUNTED = {"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 10}}
COUNTS = Usage(input=1000, output=10)


def priced(usage: Usage) -> float:
    return usage.input / 100 + usage.output


@pytest.mark.rule("R-PROV-13")
async def test_usage_costs_what_the_price_says() -> None:
    surface = Surface()
    body = stream_of(payload("stop", content="Paris"), COUNTED)
    async with asking(replying(head() + chunked(body)), price=priced) as (model, _):
        turn = await ask(model, surface)
    assert turn.usage == Usage(input=1000, output=10, cost_cents=20.0)
    assert surface.spent == []


@pytest.mark.rule("R-PROV-13")
async def test_a_price_that_is_none_is_the_caller_s_error() -> None:
    body = stream_of(payload("stop", content="Paris"), COUNTED)
    async with asking(replying(head() + chunked(body)), price=lambda _: -1.0) as (model, _):
        with pytest.raises(ValueError, match=r"^Usage\.cost_cents is -1\.0"):
            await ask(model)


@pytest.mark.rule("R-PROV-22")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(stream_of(payload("length"), COUNTED), id="a defect"),
        pytest.param(sse(payload(content="Par"), COUNTED), id="an end without a word"),
        pytest.param(sse(COUNTED, {"error": {"message": "Broken"}}), id="an error"),
    ],
)
async def test_what_bought_no_turn_is_spent_all_the_same(body: bytes) -> None:
    surface = Surface()
    async with asking(replying(head() + chunked(body))) as (model, _):
        with pytest.raises(ProviderError):
            await ask(model, surface)
    assert surface.spent == [COUNTS]


@pytest.mark.rule("R-PROV-22")
async def test_what_a_stopped_stream_had_reported_is_spent() -> None:
    surface = Surface()
    async with asking(stalling(head() + chunked(sse(COUNTED), end=False))) as (model, _):
        with trio.move_on_after(0.05) as scope:
            await ask(model, surface)
        assert scope.cancelled_caught
    assert surface.spent == [COUNTS]


# -- the extra ---------------------------------------------------------------------------------


@pytest.mark.rule("R-PROV-23")
def test_without_the_extra_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['httpx2'] = None; import harness.providers"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ran.returncode == 1
    assert ran.stderr.rstrip().endswith(
        "harness._errors.MissingExtraError: 'httpx2' is not installed, "
        "expected it with: pip install 'trio-harness[http]'"
    )
