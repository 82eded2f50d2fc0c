"""Servers as processes, in real time: killed, stopped, slow to go, and gone in the end."""

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from harness import open_run
from harness.events import ToolStarted
from harness.mcp import MCPServerError, MCPTools, StdioServer, open_mcp_tools
from harness.mcp._stdio import ProcessEnd
from harness.testing import assert_no_tasks_left, scripted_model, tool_call, tool_call_turn
from harness.testing._leftovers import busy_threads
from tests.mcp.peers import call
from tests.mcp.servers import alive, notes_of, process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them"),
]

PROMPT = 0.25
"""Seconds that nothing may take which does not wait; a busy machine has some of it."""

RAW = """
import json, os, subprocess, sys, time

def say(id, **answer):
    print(json.dumps({"jsonrpc": "2.0", "id": id, **answer}), flush=True)

def text(id, text):
    say(id, result={"content": [{"type": "text", "text": str(text)}]})

def bear():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL).pid

BEFORE
for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method == "initialize":
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
        hello["serverInfo"] = {"name": "raw", "version": "1"}
        say(id, result=hello)
    elif method == "tools/list":
        say(id, result={"tools": [{"name": n, "inputSchema": {}} for n in TOOLS]})
    elif method == "tools/call":
        name = params["name"]
        if name == "pid":
            text(id, os.getpid())
        elif name == "bear":
            text(id, bear())
        elif name == "echo":
            text(id, params["arguments"]["text"])
        elif name == "odd":
            ODD
    elif id is not None:
        say(id, error={"code": -32601, "message": "no"})
AFTER
"""
TOOLS = ["pid", "bear", "echo", "slow", "odd"]


def raw(*, odd: str = "pass", before: str = "", after: str = "", **options: Any) -> StdioServer:
    """A server of a few lines, which is started at once.

    *odd* answers calls of the tool of this name, *after* is done when its input has ended. A
    call of its tool ``slow`` is never answered.
    """
    script = RAW.replace("TOOLS", repr(TOOLS)).replace("ODD", odd)
    script = script.replace("BEFORE", before).replace("AFTER", after)
    return StdioServer(name="raw", command=sys.executable, args=["-c", script], **options)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def command_lines() -> Iterator[str]:
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield each.read_text("utf-8", errors="replace")


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Fail if the block leaves a task, a thread or a descriptor behind."""
    await trio.to_thread.run_sync(int)  # trio keeps a worker for the next one
    before = descriptors()
    threads = busy_threads()
    yield
    assert_no_tasks_left()
    assert busy_threads() == threads
    assert descriptors() == before


async def number(toolset: MCPTools, name: str) -> int:
    data: Any = (await call(toolset, name)).data
    return int(data)


@pytest.mark.rule("R-MCP-02")
async def test_a_process_is_started_called_and_gone() -> None:
    async with nothing_left():
        async with open_mcp_tools(process()) as toolset:
            told: Any = (await call(toolset, "pid")).data
            pid = told["result"]
            assert pid != os.getpid()
            assert os.getpgid(pid) == pid
            assert (await call(toolset, "echo", '{"text": "hi"}')).data == {"result": "hi"}
        assert not alive(pid)


@pytest.mark.rule("R-MCP-04")
async def test_a_program_that_is_none_is_a_clear_error(tmp_path: Path) -> None:
    async with nothing_left():
        with pytest.raises(MCPServerError, match="cannot be used: FileNotFoundError"):
            async with open_mcp_tools(StdioServer(name="x", command="/no/such/program")):
                raise AssertionError
        dies = StdioServer(
            name="x",
            command=sys.executable,
            args=["-c", "import sys; sys.exit('no configuration')"],
            cwd=tmp_path,
        )
        with pytest.raises(MCPServerError) as raised:
            async with open_mcp_tools(dies):
                raise AssertionError
    assert str(raised.value) == (
        "the server 'x' cannot be used: its process ended with the status 1; "
        "it wrote: no configuration"
    )


@pytest.mark.rule("R-MCP-03")
async def test_a_process_that_says_nothing_is_given_up_and_gone() -> None:
    async with nothing_left():
        start = time.perf_counter()
        mute = StdioServer(name="x", command="sleep", args=["600"], startup=0.3)
        with pytest.raises(MCPServerError, match=r"^the server 'x' was not ready within 0\.3 s$"):
            async with open_mcp_tools(mute):
                raise AssertionError
        assert time.perf_counter() - start < 0.3 + 0.5 + 2 * PROMPT


@pytest.mark.rule("R-MCP-04")
async def test_standard_error_goes_to_a_file_if_one_is_given(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        async with open_mcp_tools(process(stderr=file)) as toolset:
            outcome = await call(toolset, "die", '{"status": 3}')
    assert "last words" in log.read_text("utf-8")
    assert outcome.failure_kind == "external"


@pytest.mark.rule("R-MCP-04")
async def test_standard_error_is_not_shown_and_never_fills_up(
    capfd: pytest.CaptureFixture[str],
) -> None:
    noisy = raw(before="sys.stderr.write('noise' * 1_000_000)\nsys.stderr.flush()")
    async with open_mcp_tools(noisy):
        pass
    assert capfd.readouterr().err == ""


@pytest.mark.rule("R-MCP-11")
async def test_a_cancelled_call_is_cancelled_at_its_server(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with open_mcp_tools(process(str(notes))) as toolset:
        start = time.perf_counter()
        with trio.move_on_after(0.2):
            await call(toolset, "slow", '{"seconds": 60}')
        assert time.perf_counter() - start < 0.2 + PROMPT
        with trio.fail_after(5):
            while "slow cancelled" not in notes_of(notes):  # noqa: ASYNC110  # a file tells nobody
                await trio.sleep(0.01)
        assert (await call(toolset, "echo", '{"text": "on"}')).kind == "completed"


@pytest.mark.rule("R-MCP-12")
async def test_a_stopped_server_delays_no_abort() -> None:
    async with nothing_left():
        async with open_mcp_tools(raw(grace=0)) as toolset:
            pid = await number(toolset, "pid")
            os.kill(pid, signal.SIGSTOP)
            # More than the pipe and the buffer before it hold.
            full = '{"text": "' + "x" * 100_000 + '"}'
            for _ in range(3):
                start = time.perf_counter()
                with trio.move_on_after(0.1) as scope:
                    await call(toolset, "echo", full)
                assert scope.cancelled_caught
                assert time.perf_counter() - start < 0.1 + PROMPT
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(call, toolset, "echo", full)
                await trio.sleep(0.2)
                start = time.perf_counter()
                nursery.cancel_scope.cancel()
            assert time.perf_counter() - start < PROMPT
            start = time.perf_counter()
        assert time.perf_counter() - start < 0.5 + 2 * PROMPT
        assert not alive(pid)


@pytest.mark.rule("R-MCP-12")
async def test_the_abort_of_a_run_does_not_wait_for_a_stopped_server() -> None:
    model = scripted_model([tool_call_turn([tool_call("slow"), tool_call("slow")])])
    async with nothing_left(), open_mcp_tools(raw(grace=0)) as toolset:
        pid = await number(toolset, "pid")
        os.kill(pid, signal.SIGSTOP)
        async with open_run(model, "?", tools=toolset) as run:
            async for event in run.events:
                if isinstance(event, ToolStarted):
                    break
            await trio.sleep(0.1)
            start = time.perf_counter()
            run.abort("enough")
            await run.wait()
        assert time.perf_counter() - start < PROMPT
        assert run.result.stop_reason == "aborted"


@pytest.mark.rule("R-MCP-12")
async def test_a_server_that_was_stopped_goes_on() -> None:
    async with open_mcp_tools(raw()) as toolset:
        pid = await number(toolset, "pid")
        os.kill(pid, signal.SIGSTOP)
        with trio.move_on_after(0.1):
            await call(toolset, "echo", '{"text": "lost"}')
        os.kill(pid, signal.SIGCONT)
        assert (await call(toolset, "echo", '{"text": "on"}')).data == "on"


@pytest.mark.rule("R-MCP-13")
async def test_a_killed_server_fails_its_calls_and_says_how_it_ended() -> None:
    async with nothing_left(), open_mcp_tools(raw()) as toolset:
        pid = await number(toolset, "pid")

        async def kill() -> None:
            await trio.sleep(0.1)
            os.kill(pid, signal.SIGKILL)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            outcome = await call(toolset, "slow")
        assert outcome.failure_kind == "external"
        assert "its process was ended by SIGKILL" in outcome.error
        assert "not known" in outcome.error
        after = await call(toolset, "echo", '{"text": "x"}')
        assert "nothing was done" in after.error
        assert toolset.statistics()[0].error == "its process was ended by SIGKILL"
        await toolset.reconnect("raw")
        assert await number(toolset, "pid") != pid
        assert toolset.statistics()[0].error == ""


@pytest.mark.rule("R-MCP-18")
@pytest.mark.parametrize("how", ["leader leaves", "leader is killed"])
async def test_the_whole_group_is_gone_with_its_leader(how: str) -> None:
    async with open_mcp_tools(raw()) as toolset:
        pid, child = await number(toolset, "pid"), await number(toolset, "bear")
        assert alive(child)
        if how == "leader is killed":
            os.kill(pid, signal.SIGKILL)
            with trio.fail_after(0.9):  # no later than its output would be given up
                while alive(child):  # noqa: ASYNC110  # not ours, so nobody tells of its end
                    await trio.sleep(0.01)
    assert not alive(pid)
    assert not alive(child)


STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.rule("R-MCP-17")
async def test_a_server_that_does_not_go_is_killed_after_its_grace() -> None:
    server = raw(before=STUBBORN, after="time.sleep(600)", grace=0.3)
    async with nothing_left():
        async with open_mcp_tools(server):
            start = time.perf_counter()
        assert 0.3 <= time.perf_counter() - start < 0.3 + 0.5 + 2 * PROMPT


@pytest.mark.rule("R-MCP-17")
async def test_a_server_that_has_much_to_say_at_its_end_comes_to_its_end(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    last = f"""
for _ in range(50_000):
    print('{{"jsonrpc":"2.0","method":"notifications/odd"}}')
open({str(mark)!r}, "w").close()
"""
    async with nothing_left(), open_mcp_tools(raw(after=last, grace=10)):
        pass
    assert mark.exists()


@pytest.mark.rule("R-MCP-17")
async def test_leaving_that_is_cancelled_hurries_and_leaves_nothing() -> None:
    server = raw(before=STUBBORN, after="time.sleep(600)", grace=60)
    async with nothing_left():
        with trio.move_on_after(1) as scope:
            async with open_mcp_tools(server):
                scope.deadline = trio.current_time() + 0.2
                start = time.perf_counter()
        assert time.perf_counter() - start < 0.2 + 0.5 + 2 * PROMPT


@pytest.mark.rule("R-MCP-17")
async def test_a_cancelled_body_leaves_nothing() -> None:
    async with nothing_left():
        with trio.CancelScope() as scope:
            async with open_mcp_tools(raw(grace=60)) as toolset:
                pid, child = await number(toolset, "pid"), await number(toolset, "bear")
                scope.cancel()
                start = time.perf_counter()
        assert time.perf_counter() - start < 0.5 + 2 * PROMPT
        assert not alive(pid)
        assert not alive(child)


@pytest.mark.rule("R-MCP-17")
@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.01, 0.05, 0.2, 0.4])
async def test_an_opening_that_is_cancelled_leaves_nothing(seconds: float, tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    server = raw(before=f"mark = {mark!r}; time.sleep(0.1)", grace=60)
    async with nothing_left():
        with trio.move_on_after(seconds):
            async with open_mcp_tools(server):
                await trio.sleep_forever()
        assert not any(mark in line for line in command_lines())


@pytest.mark.rule("R-MCP-10")
async def test_stray_lines_and_unreadable_answers_hold_nobody_up() -> None:
    deep = '"[" * 9_999 + "]" * 9_999'
    answer = f"""print("stray", id); print('{{"id":%s,"result":%s}}' % (id, {deep}), flush=True)"""
    async with open_mcp_tools(raw(odd=answer, before='print("Listening …")')) as toolset:
        with trio.fail_after(5):
            outcome = await call(toolset, "odd")
    assert outcome.failure_kind == "external"
    assert outcome.error.startswith("the server's answer could not be read (raw)")


@pytest.mark.rule("R-MCP-13")
async def test_a_server_that_closes_its_output_is_gone() -> None:
    async with open_mcp_tools(raw(odd="os.close(1); time.sleep(600)", grace=0)) as toolset:
        with trio.fail_after(5):
            outcome = await call(toolset, "odd")
        assert outcome.failure_kind == "external"
        assert "the connection ended" in outcome.error


@pytest.mark.rule("R-MCP-13")
async def test_a_server_that_closes_its_input_is_gone_when_it_is_written_to() -> None:
    async with open_mcp_tools(raw(odd="os.close(0); time.sleep(600)", grace=0)) as toolset:
        with trio.move_on_after(0.3):
            await call(toolset, "odd")
        with trio.fail_after(5):
            outcome = await call(toolset, "echo", '{"text": "x"}')
        assert outcome.failure_kind == "external"


@pytest.mark.rule("R-MCP-08")
async def test_ten_megabytes_come_back_whole() -> None:
    text = "x" * 10_000_000
    async with open_mcp_tools(raw()) as toolset:
        with trio.fail_after(30):
            assert (await call(toolset, "echo", f'{{"text": "{text}"}}')).data == text


def test_of_what_a_process_wrote_the_end_is_kept() -> None:
    end = ProcessEnd()
    assert (end.text, end.last_words) == ("", "")
    for number_ in range(100_000):
        end.note(b"%d\n" % number_)
    assert end.last_words.endswith("99998\n99999")
    assert len(end.last_words) <= 4_000


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "its process ended with the status 0"),
        (-9, "its process was ended by SIGKILL"),
        (-250, "its process was ended by the signal 250"),
    ],
)
def test_how_a_process_ended_is_told(status: int, text: str) -> None:
    assert ProcessEnd(status).text == text
