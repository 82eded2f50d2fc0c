"""Servers over HTTP, in real time: killed, stopped and slow."""

import os
import signal
import sys
import time
from pathlib import Path

import httpx2
import pytest
import trio

from harness.mcp import HTTPServer, MCPServerError, open_mcp_tools
from harness.testing import assert_no_tasks_left
from tests.mcp.peers import call
from tests.mcp.servers import notes_of, over_http
from tests.providers.server import head, open_server, replying

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="hands a socket to a child"),
]

PROMPT = 0.25


@pytest.mark.rule("R-MCP-02")
async def test_a_server_over_http_is_called() -> None:
    async with over_http() as (url, _):
        async with open_mcp_tools(HTTPServer(name="web", url=url)) as toolset:
            assert (await call(toolset, "echo", '{"text": "hi"}')).data == {"result": "hi"}
            drawn = await call(toolset, "picture")
            assert drawn.parts[0]["type"] == "image_url"
        assert_no_tasks_left()


@pytest.mark.rule("R-MCP-02")
async def test_headers_and_a_client_of_the_hosts_are_used() -> None:
    seen: list[str | None] = []

    async def look(request: httpx2.Request) -> None:  # httpx2 awaits it
        seen.append(request.headers.get("authorization"))

    async with (
        over_http() as (url, _),
        httpx2.AsyncClient(
            trust_env=False, headers={"authorization": "mine"}, event_hooks={"request": [look]}
        ) as client,
    ):
        async with open_mcp_tools(HTTPServer(name="web", url=url, client=client)) as toolset:
            assert (await call(toolset, "echo", '{"text": "hi"}')).kind == "completed"
        assert set(seen) == {"mine"}
        assert not client.is_closed


@pytest.mark.rule("R-MCP-03")
async def test_headers_are_sent_and_a_refusal_is_a_clear_error() -> None:
    async with open_server(replying(head(401, length=0))) as shop:
        server = HTTPServer(name="web", url=shop.base_url, headers={"authorization": "s3cret"})
        with pytest.raises(MCPServerError, match="^the server 'web' cannot be used") as raised:
            async with open_mcp_tools(server):
                raise AssertionError
    assert {each.headers["authorization"] for each in shop.requests} == {"s3cret"}
    assert "s3cret" not in str(raised.value)


@pytest.mark.rule("R-MCP-03")
async def test_a_server_that_is_not_there_is_a_clear_error() -> None:
    url = "http://127.0.0.1:9/mcp?key=s3cret"
    server = HTTPServer(name="web", url=url, headers={"authorization": "s3cret"})
    with pytest.raises(
        MCPServerError, match="^the server 'web' cannot be used: ConnectE"
    ) as raised:
        async with open_mcp_tools(server):
            raise AssertionError
    assert "s3cret" not in str(raised.value)


@pytest.mark.rule("R-MCP-11")
async def test_a_cancelled_call_is_cancelled_at_its_server(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with (
        over_http(str(notes)) as (url, _),
        open_mcp_tools(HTTPServer(name="web", url=url)) as toolset,
    ):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(call, toolset, "slow", '{"seconds": 60}')
            with trio.fail_after(10):
                while notes_of(notes).count("slow began") < 10:  # noqa: ASYNC110  # a file
                    await trio.sleep(0.01)
            start = time.perf_counter()
            nursery.cancel_scope.cancel()
        assert time.perf_counter() - start < PROMPT
        with trio.fail_after(5):
            while notes_of(notes).count("slow cancelled") < 10:  # noqa: ASYNC110  # a file
                await trio.sleep(0.01)


@pytest.mark.rule("R-MCP-12")
async def test_a_stopped_server_delays_neither_an_abort_nor_the_end() -> None:
    async with over_http() as (url, process):
        async with open_mcp_tools(HTTPServer(name="web", url=url, grace=0.2)) as toolset:
            os.kill(process.pid, signal.SIGSTOP)
            for _ in range(3):
                start = time.perf_counter()
                with trio.move_on_after(0.1):
                    await call(toolset, "echo", '{"text": "x"}')
                assert time.perf_counter() - start < 0.1 + PROMPT
            start = time.perf_counter()
        assert time.perf_counter() - start < 0.2 + PROMPT
        assert_no_tasks_left()


@pytest.mark.rule("R-MCP-13")
async def test_a_killed_server_fails_its_calls() -> None:
    async with over_http() as (url, process):
        async with open_mcp_tools(HTTPServer(name="web", url=url)) as toolset:

            async def kill() -> None:
                await trio.sleep(0.2)
                process.kill()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(kill)
                outcome = await call(toolset, "slow", '{"seconds": 60}')
            assert outcome.failure_kind == "external"
            assert "not known" in outcome.error
            assert (await call(toolset, "echo", '{"text": "x"}')).failure_kind == "external"
            with pytest.raises(MCPServerError, match="^the server 'web' cannot be used"):
                await toolset.reconnect("web")
        assert_no_tasks_left()
