from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
import trio

import harness
from harness._cli._remote import OpenRequests, open_remote
from harness.providers import ChatModel
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

WHOLE = replying(head(200, "text/plain", length=2) + b"ok")


@asynccontextmanager
async def watched(script: Script) -> AsyncIterator[tuple[OpenRequests, httpx2.AsyncClient]]:
    watch = OpenRequests()
    async with (
        open_server(script) as server,
        httpx2.AsyncClient(
            base_url=server.base_url,
            event_hooks={"request": [watch.attach]},
            trust_env=False,
            timeout=None,
        ) as client,
    ):
        yield watch, client


async def half_a_reply(exchange: Exchange) -> None:
    await exchange.send(head() + chunked(sse(payload(content="One")), end=False))
    await exchange.gone()


async def test_a_reply_that_was_read_is_no_longer_open() -> None:
    async with watched(WHOLE) as (watch, client):
        assert not await watch.busy()
        for _ in range(3):
            await client.get("/")
            assert not await watch.busy()
        with trio.fail_after(1):
            await watch.wait_idle()


async def test_a_stream_is_open_until_it_is_cut() -> None:
    async with watched(half_a_reply) as (watch, client), trio.open_nursery() as nursery:

        async def read() -> None:
            async with client.stream("GET", "/") as reply:
                async for _ in reply.aiter_raw():
                    reading.set()

        reading = trio.Event()
        nursery.start_soon(read)
        await reading.wait()
        assert await watch.busy()
        with trio.move_on_after(0.05) as waiting:
            await watch.wait_idle()
        assert waiting.cancelled_caught
        nursery.cancel_scope.cancel()
    assert not await watch.busy()


async def test_several_streams_are_counted_one_by_one() -> None:
    async with watched(half_a_reply) as (watch, client), trio.open_nursery() as nursery:
        scopes = [trio.CancelScope(), trio.CancelScope()]

        async def read(scope: trio.CancelScope, reading: trio.Event) -> None:
            with scope:
                async with client.stream("GET", "/") as reply:
                    async for _ in reply.aiter_raw():
                        reading.set()

        for scope in scopes:
            reading = trio.Event()
            nursery.start_soon(read, scope, reading)
            await reading.wait()
        scopes[0].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert await watch.busy()
        scopes[1].cancel()
        with trio.fail_after(1):
            await watch.wait_idle()


async def silent(exchange: Exchange) -> None:
    await exchange.gone()


async def torn(exchange: Exchange) -> None:
    await exchange.send(head() + chunked(b"half", end=False))
    await exchange.reset()


async def test_a_request_that_is_cut_before_its_reply_is_closed_too() -> None:
    async with watched(silent) as (watch, client):
        with trio.move_on_after(0.05):
            await client.get("/")
        assert not await watch.busy()


async def test_a_connection_that_breaks_is_closed() -> None:
    async with watched(torn) as (watch, client):
        with pytest.raises(httpx2.TransportError):
            await client.get("/")
        assert not await watch.busy()


async def test_a_server_that_is_not_there_leaves_nothing_open() -> None:
    watch = OpenRequests()
    async with httpx2.AsyncClient(event_hooks={"request": [watch.attach]}) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get("http://127.0.0.1:9/")
    assert not await watch.busy()


async def test_a_request_that_is_watched_is_sent_once_more_if_its_connection_had_been_closed() -> (
    None
):
    async def script(exchange: Exchange) -> None:
        if exchange.number == 0:
            await exchange.send(head() + chunked(sse(payload("stop", content="Hello"))))
        else:
            await exchange.close()

    async with watched(script) as (watch, client):
        model = ChatModel("m", base_url=str(client.base_url), client=client)
        for _ in range(3):
            assert (await harness.run(model, "?")).text == "Hello"
            assert not await watch.busy()


async def test_a_remote_endpoint_says_what_is_watched_in_place_of_slots() -> None:
    async with open_remote("m", base_url="http://127.0.0.1:9/v1", api_key="secret") as endpoint:
        assert endpoint.about == (
            "m at http://127.0.0.1:9/v1; a remote server shows no slots,"
            " so its connection is watched"
        )
        assert isinstance(endpoint.watch, OpenRequests)
        assert "secret" not in repr(endpoint)
