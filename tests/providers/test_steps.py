"""Requests that are lost to a connection which its server had closed, and sent once more."""

import gc
import itertools
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h11
import httpx2
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from harness._errors import ProviderError, UsageError
from harness._messages import user_message
from harness._model import ModelRequest
from harness.providers import ChatModel
from harness.providers._http import KEPT_CONNECTIONS
from harness.providers._steps import KeptConnectionError, Steps
from tests.providers.asking import PARIS, WHOLE, Surface, ask, asking, cut, plain
from tests.providers.server import Exchange, Script, Server, chunked, head, open_server

# -- the decision ------------------------------------------------------------------------------

SENT = "http11.send_request_headers"
CAUSES: dict[BaseException | None, bool] = {
    None: True,  # it ended in good order
    trio.BrokenResourceError(): True,
    trio.ClosedResourceError(): False,  # we closed it
    trio.TooSlowError(): False,
    h11.RemoteProtocolError("no HTTP"): False,
    h11.LocalProtocolError("not to be sent"): False,
}
LAST_STEPS = {
    f"{SENT}.failed": True,
    "http11.send_request_body.failed": True,
    "http11.receive_response_headers.failed": True,
    "http11.receive_response_body.failed": False,
    "http11.response_closed.failed": False,
    "http2.send_request_headers.failed": False,
    "http2.receive_response_headers.failed": False,
    "connection.connect_tcp.failed": False,
    "connection.start_tls.failed": False,
}
FIRST_STEPS = {
    "": True,
    "connection.connect_tcp.started": False,
    "connection.connect_unix_socket.started": False,
    "socks.connect_tcp.started": False,
}


@pytest.mark.rule("R-PROV-24")
async def test_a_request_is_lost_if_a_kept_connection_ended_and_brought_no_status() -> None:
    for first, last, cause in itertools.product(FIRST_STEPS, LAST_STEPS, CAUSES):
        steps = Steps()
        if first:
            await steps(first, {})
        await steps(f"{SENT}.started", {})
        assert not steps.lost
        error = Exception()
        error.__cause__ = cause
        await steps(last, {"exception": error})
        expected = FIRST_STEPS[first] and LAST_STEPS[last] and CAUSES[cause]
        assert steps.lost is expected, (first, last, cause)


@pytest.mark.rule("R-PROV-24")
async def test_kept_connections_are_refused_before_anything_is_sent_and_not_for_ever() -> None:
    steps = Steps(refusals=2)
    await steps("http2.send_request_headers.started", {})  # others share it
    for _ in range(2):
        with pytest.raises(KeptConnectionError):
            await steps(f"{SENT}.started", {})
    await steps(f"{SENT}.started", {})
    fresh = Steps(refusals=2)
    await fresh("connection.connect_tcp.started", {})
    await fresh(f"{SENT}.started", {})


# -- a real server -----------------------------------------------------------------------------


async def whole(exchange: Exchange) -> None:
    await exchange.send(plain(WHOLE))


async def streamed(exchange: Exchange) -> None:
    await exchange.send(head() + chunked(PARIS))


def ending_kept(how: str, reply: Script = streamed) -> Script:
    """Reply to the first request on each connection, and end the connection *how*."""

    async def script(exchange: Exchange) -> None:
        if exchange.number == 0:
            await reply(exchange)
            if how == "at once":
                await exchange.close()
            elif how == "as the next request comes":
                await exchange.asked_again()
                await exchange.reset()
        elif how == "in half a head":
            await exchange.send(b"HTTP/1.1 200 OK\r\nConte")
            await exchange.close()
        elif how == "with a reset":
            await exchange.reset()
        else:
            await exchange.close()

    return script


ENDS = [
    "at once",
    "as the next request comes",
    "after the next request",
    "with a reset",
    "in half a head",
]


@pytest.mark.rule("R-PROV-24")
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_on_a_connection_that_its_server_ends_is_sent_once_more(
    how: str, stream: bool
) -> None:
    script = ending_kept(how, streamed if stream else whole)
    async with asking(script, stream=stream) as (model, server):
        surface = Surface()
        for _ in range(5):
            turn = await ask(model, surface)
            assert turn.message["content"] == "Paris"
        assert surface.text() == "Paris" * 5  # told once each
        assert server.accepted == 5
        # What the server read: the first of each connection, and the ones that were lost.
        unread = how in ("at once", "as the next request comes")
        assert len(server.requests) == (5 if unread else 9)
        assert {each.body for each in server.requests} == {server.requests[0].body}
        assert {each.target for each in server.requests} == {"/v1/chat/completions"}


@pytest.mark.rule("R-PROV-24")
async def test_a_big_request_that_is_cut_while_it_is_sent_is_sent_once_more() -> None:
    request = ModelRequest(
        run_id="r", turn_id="t", turn=0, messages=[user_message("x" * 3 * 2**20)]
    )
    async with asking(ending_kept("as the next request comes")) as (model, server):
        await ask(model)
        await model.complete(request, Surface().stream())
        assert server.accepted == 2
        assert [len(each.body) > 2**20 for each in server.requests] == [False, True]


async def keep(model: ChatModel, server: Server, count: int) -> None:
    """Leave *count* connections in the pool of *model*."""
    before = len(server.requests)
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(ask, model)
    assert len(server.requests) == before + count
    assert server.open == count


def meeting(count: int, script: Script) -> Script:
    """Let the first *count* requests wait for each other, so that each has a connection."""
    together = trio.Event()

    async def waiting(exchange: Exchange) -> None:
        if len(exchange.server.requests) == count:
            together.set()
        await together.wait()
        await script(exchange)

    return waiting


@pytest.mark.rule("R-PROV-24")
@pytest.mark.parametrize("count", [1, 2, 5, KEPT_CONNECTIONS])
async def test_the_second_try_has_a_fresh_connection_however_many_stale_ones_are_kept(
    count: int,
) -> None:
    async with asking(meeting(count, ending_kept("after the next request"))) as (model, server):
        await keep(model, server, count)
        turn = await ask(model)
        assert turn.message["content"] == "Paris"
        assert server.accepted == count + 1
        assert len(server.requests) == count + 2  # nothing was sent on the refused ones
        await server.idle(but=1, within=0.2)  # and they are closed


@pytest.mark.rule("R-PROV-24")
async def test_the_second_try_waits_for_a_place_in_a_full_pool_and_connects_there() -> None:
    limits = httpx2.Limits(max_connections=1)
    async with (
        open_server(ending_kept("after the next request")) as server,
        httpx2.AsyncClient(limits=limits, trust_env=False) as client,
    ):
        model = ChatModel("m", base_url=server.base_url, client=client)
        with trio.fail_after(2):
            async with trio.open_nursery() as nursery:
                for _ in range(6):
                    nursery.start_soon(ask, model)
        assert server.open == 1


@pytest.mark.rule("R-PROV-24")
@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_fresh_connection_that_ends_is_a_failure_and_is_not_tried_again(how: str) -> None:
    async def script(exchange: Exchange) -> None:
        await (exchange.close() if how == "closed" else exchange.reset())

    async with asking(script) as (model, server):
        with pytest.raises(ProviderError) as caught:
            await ask(model)
        assert (server.accepted, len(server.requests)) == (1, 1)
    error = caught.value
    assert (error.kind, error.category, error.phase) == ("network", "unreachable", "headers")


@pytest.mark.rule("R-PROV-24")
async def test_a_request_is_sent_twice_at_most() -> None:
    async def script(exchange: Exchange) -> None:
        if len(exchange.server.requests) == 1:
            await streamed(exchange)
        else:
            await exchange.close()

    async with asking(script) as (model, server):
        await ask(model)
        with pytest.raises(ProviderError) as caught:
            await ask(model)
        assert (server.accepted, len(server.requests)) == (2, 3)
    assert (caught.value.kind, caught.value.phase) == ("network", "headers")
    assert caught.value.__context__ is caught.value.__cause__  # of the second try alone


@pytest.mark.rule("R-PROV-24")
async def test_a_second_try_that_cannot_connect_failed_to_connect() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    server = Server(port, ending_kept("after the next request"))

    async def serve_once() -> None:
        async with listener:
            stream = await listener.accept()
        await server.serve(stream)

    async with ChatModel("m", base_url=server.base_url) as model, trio.open_nursery() as nursery:
        nursery.start_soon(serve_once)
        await ask(model)
        with pytest.raises(ProviderError) as caught:
            await ask(model)
    assert (caught.value.kind, caught.value.phase) == ("network", "connect")


@pytest.mark.rule("R-PROV-24")
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(b"garbage\r\n\r\n", "network", id="no HTTP"),
        pytest.param(b"HTTP/9 200 OK\r\n\r\n", "network", id="another HTTP"),
        pytest.param(head(500, length=0), "http", id="a status"),
        pytest.param(head(), "network", id="a head"),
        pytest.param(head() + chunked(PARIS[:40], end=False), "network", id="half a body"),
    ],
)
async def test_a_kept_connection_that_brought_something_is_not_tried_again(
    answer: bytes, kind: str
) -> None:
    async def script(exchange: Exchange) -> None:
        if exchange.number == 0:
            await streamed(exchange)
        else:
            await exchange.send(answer)
            await exchange.close()

    async with asking(script) as (model, server):
        await ask(model)
        with pytest.raises(ProviderError) as caught:
            await ask(model)
        assert caught.value.kind == kind
        assert (server.accepted, len(server.requests)) == (1, 2)


@pytest.mark.rule("R-PROV-24")
async def test_a_connection_that_is_closed_on_this_side_is_not_tried_again() -> None:
    async def script(exchange: Exchange) -> None:
        await (streamed(exchange) if exchange.number == 0 else exchange.gone())

    async with asking(script) as (model, server):
        await ask(model)
        async with trio.open_nursery() as nursery:

            async def lose() -> None:
                with pytest.raises(ProviderError) as caught:
                    await ask(model)
                assert caught.value.kind == "network"

            nursery.start_soon(lose)
            while len(server.requests) < 2:
                await wait_all_tasks_blocked(0.01)
            await model.__aexit__(None, None, None)
        assert server.accepted == 1


async def test_a_client_that_is_closed_is_refused() -> None:
    client = httpx2.AsyncClient(trust_env=False)
    await client.aclose()
    with pytest.raises(UsageError, match=r"^the client of the model is closed, expected an open "):
        await ask(ChatModel("m", base_url="http://127.0.0.1:9", client=client))


# -- stops -------------------------------------------------------------------------------------


@asynccontextmanager
async def stale_pool(count: int) -> AsyncIterator[tuple[ChatModel, Server]]:
    """A model whose pool has *count* stale connections, and room for no more."""
    script = meeting(count, ending_kept("after the next request"))
    limits = httpx2.Limits(max_connections=count)
    untrusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reading the trusted takes its time
    async with open_server(script) as server:
        async with httpx2.AsyncClient(verify=untrusting, limits=limits, trust_env=False) as client:
            model = ChatModel("m", base_url=server.base_url, client=client)
            await keep(model, server, count)
            yield model, server
        await server.idle(within=0.5)
    gc.collect()


@pytest.mark.rule("R-PROV-24", "R-PROV-17")
@pytest.mark.parametrize(("count", "stride"), [(1, 1), (2, 2)])
async def test_a_stop_at_any_step_of_either_try_loses_no_connection_and_no_place(
    count: int, stride: int
) -> None:
    twice = 0
    for at in range(0, 300, stride):
        async with stale_pool(count) as (model, server):
            ended = await cut(at, lambda model=model: ask(model))  # type: ignore[misc]  # inferred
            twice += len(server.requests) == count + 2
            with trio.fail_after(0.5):  # a lost place would make one of these wait
                async with trio.open_nursery() as nursery:
                    for _ in range(count):
                        nursery.start_soon(ask, model)
            assert server.open <= count
        if ended:
            break
    else:
        raise AssertionError("the scenario never ended by itself")
    assert at > 30
    assert twice * stride > 10  # so many cuts came while the second try was under way


@pytest.mark.rule("R-PROV-24", "R-PROV-18")
async def test_a_second_try_that_stalls_ends_with_the_scope_around_it() -> None:
    async def script(exchange: Exchange) -> None:
        if exchange.server.accepted == 1:
            await ending_kept("after the next request")(exchange)
        else:
            await exchange.gone()

    async with asking(script) as (model, server):
        await ask(model)
        with trio.move_on_after(0.05) as scope:
            await ask(model)
        assert scope.cancelled_caught
        assert len(server.requests) == 3
        await server.idle(within=0.2)
