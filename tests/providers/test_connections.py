"""Connections: closed at once by a stop, kept where they can be, owned by one block."""

import gc
import zlib
from collections.abc import Callable

import attrs
import httpx2
import pytest
import trio

from harness._errors import AttemptSuperseded, ProviderError, StreamStalled, UsageError
from harness._model import ModelTurn, StreamBudgets
from harness.providers import ChatModel, _http
from tests.providers.asking import (
    KEY,
    PARIS,
    REQUEST,
    WHOLE,
    Surface,
    ask,
    asking,
    cut,
    plain,
    resetting,
    stalling,
)
from tests.providers.server import (
    Exchange,
    Script,
    chunked,
    head,
    open_server,
    payload,
    replying,
    sse,
)

# -- stops -------------------------------------------------------------------------------------

STALLS: dict[str, Callable[[], Script]] = {
    "before the headers": stalling,
    "in the headers": lambda: stalling(b"HTTP/1.1 200 OK\r\nConte"),
    "after the headers": lambda: stalling(head()),
    "in the stream": lambda: stalling(head() + chunked(sse(payload(content="Par")), end=False)),
    "in a line": lambda: stalling(head() + chunked(b'data: {"choi', end=False)),
    "in a chunk": lambda: stalling(head() + b"ff\r\ndata: "),
    "in a whole reply": lambda: stalling(plain(WHOLE)[:-5]),
    "in an error": lambda: stalling(head(500)),
}


@pytest.mark.rule("R-PROV-17", "R-PROV-18")
@pytest.mark.parametrize("place", list(STALLS))
@pytest.mark.parametrize("stream", [True, False])
async def test_a_stall_ends_with_the_caller_s_deadline_and_the_server_sees_it_at_once(
    place: str, stream: bool
) -> None:
    surface = Surface()
    async with asking(STALLS[place](), stream=stream) as (model, server):
        with trio.move_on_after(0.05) as scope:
            await ask(model, surface)
        assert scope.cancelled_caught
        left = trio.current_time()
        assert left - scope.deadline < 0.1
        await server.idle()
        assert server.gone_at - scope.deadline < 0.2
    assert surface.text() == ("Par" if place == "in the stream" and stream else "")


SHORT = StreamBudgets(first_answer=0.04, gap=0.06, absolute=0.08)


@pytest.mark.rule("R-PROV-17", "R-PROV-18")
@pytest.mark.parametrize("place", list(STALLS))
@pytest.mark.parametrize("stream", [True, False])
async def test_a_stall_ends_with_the_budget_and_the_server_sees_it_at_once(
    place: str, stream: bool
) -> None:
    surface = Surface()
    begun_text = place == "in the stream" and stream
    async with asking(STALLS[place](), stream=stream, budgets=SHORT) as (model, server):
        begun = trio.current_time()
        with pytest.raises(StreamStalled) as caught:
            await ask(model, surface)
        left = trio.current_time()
        await server.idle()
        stalled = caught.value
        assert stalled.seconds <= left - begun < stalled.seconds + 0.1
        assert server.gone_at - begun < stalled.seconds + 0.2
    budget = "gap" if begun_text else "first_answer"
    assert stalled.budget == budget
    assert stalled.seconds == (getattr(SHORT, budget) if stream else SHORT.absolute)
    assert (stalled.kind, stalled.category) == ("stall", "stalled")
    assert surface.text() == ("Par" if begun_text else "")


@pytest.mark.rule("R-PROV-18")
@pytest.mark.parametrize("stream", [True, False])
async def test_without_budgets_of_its_own_a_model_keeps_to_those_of_the_turn(stream: bool) -> None:
    async with asking(stalling(head()), stream=stream) as (model, server):
        with pytest.raises(StreamStalled) as caught:
            await ask(model, Surface(budgets=SHORT))
        await server.idle(within=0.2)
    assert caught.value.seconds == (SHORT.first_answer if stream else SHORT.absolute)


@pytest.mark.rule("R-PROV-18")
async def test_a_whole_reply_may_take_longer_than_a_streamed_one_may_be_silent() -> None:
    async def script(exchange: Exchange) -> None:
        await trio.sleep(SHORT.gap)
        await exchange.send(plain(WHOLE))

    budgets = attrs.evolve(SHORT, absolute=5.0)
    async with asking(script, stream=False, budgets=budgets) as (model, _):
        turn = await ask(model)
    assert turn.message["content"] == "Paris"


@attrs.define
class Renaming(httpx2.AsyncBaseTransport):
    """A caller's transport that makes an error of its own of a cancellation."""

    inner: httpx2.AsyncBaseTransport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self.inner.handle_async_request(request)
        except trio.Cancelled:
            raise httpx2.ReadTimeout("gave up") from None  # noqa: ASYNC103, ASYNC104  # it is bad

    async def aclose(self) -> None:
        await self.inner.aclose()


@pytest.mark.rule("R-PROV-18")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_stall_is_one_whatever_the_transport_makes_of_being_cancelled(stream: bool) -> None:
    async with open_server(stalling()) as server:
        transport = Renaming(httpx2.AsyncHTTPTransport(trust_env=False))
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
            model = ChatModel(
                "m", base_url=server.base_url, client=client, stream=stream, budgets=SHORT
            )
            with pytest.raises(StreamStalled) as caught:
                await ask(model)
            await server.idle(within=0.2)
    assert isinstance(caught.value.__cause__, ProviderError)


@pytest.mark.rule("R-PROV-17")
@pytest.mark.parametrize("stream", [True, False])
async def test_of_two_that_share_a_turn_the_one_that_answers_later_is_closed(stream: bool) -> None:
    turns: list[ModelTurn] = []

    async def lose(model: ChatModel) -> None:
        with pytest.raises(AttemptSuperseded):
            await model.complete(REQUEST, shared)

    async def win(model: ChatModel) -> None:
        turns.append(await model.complete(REQUEST, shared))

    surface = Surface()
    shared = surface.stream()
    async with (
        asking(stalling(head()), stream=stream) as (slow, loser),
        asking(replying(head() + chunked(PARIS))) as (quick, _),
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lose, slow)
            nursery.start_soon(win, quick)
        await loser.idle(within=0.2)
    assert turns[0].message["content"] == surface.text() == "Paris"


@pytest.mark.rule("R-PROV-17")
@pytest.mark.parametrize(
    ("stream", "fresh", "stride"),
    [(True, True, 1), (True, False, 3), (False, True, 3), (False, False, 3)],
)
async def test_a_stop_at_any_step_loses_no_connection_and_no_place_in_the_pool(
    stream: bool, fresh: bool, stride: int
) -> None:
    async def script(exchange: Exchange) -> None:
        for each in (head(), chunked(PARIS[:40], end=False), chunked(PARIS[40:], end=False)):
            await exchange.send(each)
            await trio.lowlevel.checkpoint()
        await exchange.send(chunked())

    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=0 if fresh else 1)
    async with open_server(script if stream else replying(plain(WHOLE))) as server:
        async with httpx2.AsyncClient(limits=limits, trust_env=False) as client:
            model = ChatModel("m", base_url=server.base_url, client=client, stream=stream)
            await ask(model)
            for at in range(0, 300, stride):
                if await cut(at, lambda: ask(model)):
                    break
                await server.idle(within=0.5, but=0 if fresh else 1)
                with trio.fail_after(0.5):  # the one place is free again, or this waits
                    turn = await ask(model)
                assert turn.message["content"] == "Paris"
            else:
                raise AssertionError("the scenario never ended by itself")
            assert at > 20
        await server.idle()
    gc.collect()


@pytest.mark.rule("R-PROV-17")
async def test_a_chunk_that_is_refused_closes_the_stream_behind_it() -> None:
    body = sse(payload(content="Par"), {"choices": 5}, payload(content="is"))
    async with asking(stalling(head() + chunked(body, end=False))) as (model, server):
        for _ in range(3):
            with pytest.raises(ProviderError, match=r"^the provider sent 5 at 'choices'"):
                await ask(model)
            await server.idle(within=0.2)


@pytest.mark.rule("R-PROV-17")
async def test_a_mess_behind_a_refused_chunk_does_not_hide_why_it_was_refused() -> None:
    mess = chunked(sse({"choices": 5}), end=False) + b"no chunk at all\r\n"
    async with asking(stalling(head() + mess)) as (model, server):
        with pytest.raises(ProviderError, match=r"^the provider sent 5 at 'choices'"):
            await ask(model)
        await server.idle(within=0.2)


@pytest.mark.rule("R-PROV-17", "R-PROV-16")
@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_body_that_is_not_encoded_as_its_head_says_closes_every_layer(
    status: int, stream: bool
) -> None:
    start = head(status, "text/event-stream", "Content-Encoding: gzip", length=99)
    async with asking(stalling(start + b"not gzip at all"), stream=stream) as (model, server):
        for _ in range(3):
            with pytest.raises(ProviderError) as caught:
                await ask(model)
            assert caught.value.status_code == status
            if status == 200:
                assert (caught.value.kind, caught.value.category) == ("http", "server_error")
                assert caught.value.phase == ("stream" if stream else "reply")
            gc.collect()
            await server.idle(within=0.2)


@pytest.mark.rule("R-PROV-17", "R-PROV-19")
async def test_what_follows_the_end_event_is_closed_also_when_it_cannot_be_decoded() -> None:
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(PARIS) + packer.flush(zlib.Z_FULL_FLUSH)
    start = head(200, "text/event-stream", "Content-Encoding: gzip")
    script = stalling(start + chunked(packed, b"\xff" * 20, end=False))
    async with asking(script) as (model, server):
        turn = await ask(model)
        assert turn.message["content"] == "Paris"
        gc.collect()
        await server.idle(within=0.2)


# -- connections -------------------------------------------------------------------------------


@pytest.mark.rule("R-PROV-19")
@pytest.mark.parametrize("late", [False, True])
async def test_a_connection_is_kept_when_the_body_ends_after_the_end_event(late: bool) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(head() + chunked(PARIS, end=False))
        if late:
            await trio.sleep(0.01)
        await exchange.send(chunked())

    async with asking(script) as (model, server):
        for _ in range(3):
            await ask(model)
        assert server.accepted == 1


@pytest.mark.rule("R-PROV-19")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(stalling(head() + chunked(PARIS, end=False)), id="goes on in silence"),
        pytest.param(
            stalling(head() + chunked(PARIS, b": x\n\n" * 50_000, end=False)), id="goes on and on"
        ),
        pytest.param(resetting(head() + chunked(PARIS, end=False)), id="is reset"),
        pytest.param(replying(head() + chunked(PARIS, sse(5))), id="says nonsense"),
    ],
)
async def test_what_follows_the_end_event_does_not_matter(script: Script) -> None:
    async with asking(script) as (model, server):
        begun = trio.current_time()
        turn = await ask(model)
        assert trio.current_time() - begun < _http.END_SECONDS + 0.15
        assert turn.message["content"] == "Paris"
        await model.__aexit__(None, None, None)
        await server.idle(within=0.2)


@pytest.mark.rule("R-PROV-19")
async def test_many_completions_at_once_have_a_connection_each() -> None:
    together = trio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.send(head())
        if exchange.server.open == 40:
            together.set()
        await together.wait()
        await exchange.send(chunked(PARIS))

    async with asking(script) as (model, server), trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(ask, model)
        with trio.fail_after(2):
            await together.wait()
        assert server.accepted == 40


@pytest.mark.rule("R-PROV-20")
async def test_a_model_is_used_in_its_block() -> None:
    async with open_server(replying(head() + chunked(PARIS))) as server:
        model = ChatModel("m", base_url=server.base_url)
        with pytest.raises(
            UsageError, match=r"^<ChatModel 'm' at '127.0.0.1'> is not open, expect"
        ):
            await ask(model)
        for _ in range(2):
            async with model:
                await ask(model)
                with pytest.raises(UsageError, match="was opened again, expected one block at"):
                    await model.__aenter__()
            await server.idle()
        with pytest.raises(UsageError, match="is not open"):
            await ask(model)


@pytest.mark.rule("R-PROV-20")
async def test_a_block_that_is_cancelled_closes_its_connections() -> None:
    async with open_server(replying(head() + chunked(PARIS))) as server:
        with trio.CancelScope() as scope:
            async with ChatModel("m", base_url=server.base_url) as model:
                await ask(model)
                assert server.open == 1
                scope.cancel()
        await server.idle(within=0.2)


@pytest.mark.rule("R-PROV-20", "R-PROV-18")
async def test_a_caller_s_client_stays_open_and_its_timeouts_are_not_used() -> None:
    async def script(exchange: Exchange) -> None:
        await trio.sleep(0.05)
        await exchange.send(head() + chunked(PARIS))

    async with (
        open_server(script) as server,
        httpx2.AsyncClient(timeout=0.01, trust_env=False) as client,
    ):
        async with ChatModel("m", base_url=server.base_url, client=client) as model:
            await ask(model)
        await ask(model)  # no block is needed
        assert not client.is_closed


@pytest.mark.rule("R-PROV-21")
async def test_the_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    async with asking(replying(head() + chunked(PARIS))) as (model, server):
        await ask(model)
        assert "authorization" not in server.requests[0].headers
