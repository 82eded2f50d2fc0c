"""``harness run``, as a process of its own against a real server."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import get_args

import attrs
import pytest
import trio

from harness._cli._exit import EXIT_CODES
from harness._cli._show import JsonLines, Lines
from harness.events import (
    AssistantMessage,
    CallRejected,
    Failure,
    RunFinished,
    StopReason,
    TextDelta,
    TextReset,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    decode_event,
)
from tests.providers.server import (
    Exchange,
    Script,
    Server,
    chunked,
    head,
    in_turn,
    open_server,
    payload,
    replying,
    stream_of,
)

ROOT = Path(__file__).parents[2]
TOOLS = "tests.cli.shown_tools"


def stream(*values: object, done: bool = True) -> Script:
    return replying(head() + chunked(stream_of(*values, done=done)))


def text(*pieces: str) -> Script:
    return stream(*(payload(content=piece) for piece in pieces), payload("stop"))


def calls(*named: tuple[str, str]) -> Script:
    pieces = [
        {"index": n, "id": f"c{n}", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(named)
    ]
    return stream(payload(tool_calls=pieces), payload("tool_calls"))


@attrs.frozen
class Ended:
    code: int
    out: str
    err: str


def command(server: Server | None, *options: str) -> list[str]:
    url = [] if server is None else ["--base-url", server.base_url]
    return [sys.executable, "-m", "harness", "run", "Go.", "--model", "m", *url, *options]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return {**kept, "OPENAI_API_KEY": "secret-key", "PYTHONPATH": str(ROOT)}


async def harness_run(server: Server | None, *options: str) -> Ended:
    done = await trio.run_process(
        command(server, *options),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env=environment(),
        cwd=ROOT,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


@asynccontextmanager
async def started(server: Server, *options: str) -> AsyncIterator[trio.Process]:
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            partial(
                trio.run_process,
                command(server, *options),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                check=False,
                env=environment(),
                cwd=ROOT,
            )
        )
        yield process


async def read_until(process: trio.Process, wanted: str) -> str:
    assert process.stdout is not None
    got = ""
    while wanted not in got:
        with trio.fail_after(20):
            piece = await process.stdout.receive_some()
        assert piece, f"the output ended at {got!r}, expected {wanted!r} in it"
        got += piece.decode()
    return got


@pytest.mark.rule("R-CLI-01")
def test_every_stop_reason_has_an_exit_code() -> None:
    assert set(EXIT_CODES) == set(get_args(StopReason))


@pytest.mark.rule("R-CLI-01", "R-CLI-02")
async def test_done_is_0_and_the_text_and_a_line_per_call_are_shown() -> None:
    script = in_turn([calls(("shout", '{"text": "hi"}'), ("shout", "{}")), text("It is ", "HI.")])
    async with open_server(script) as server:
        ended = await harness_run(server, "--tools", f"{TOOLS}:shout")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert '· shout {"text": "hi"}' in lines
    assert any(line.startswith("✓ shout completed (") for line in lines)
    assert any(line.startswith("✗ shout validation (") for line in lines)
    assert "It is HI." in lines
    assert lines[-1] == "done: 2 turns, 2 calls, 0 + 0 tokens"
    assert "\x1b" not in ended.out
    assert "secret-key" not in ended.out + ended.err
    assert server.requests[0].headers["authorization"] == "Bearer secret-key"


@pytest.mark.rule("R-CLI-03")
async def test_json_is_one_event_per_line() -> None:
    async with open_server(in_turn([text("Hello")])) as server:
        ended = await harness_run(server, "--json")
    events = [decode_event(line) for line in ended.out.splitlines()]
    assert isinstance(events[-1], RunFinished)
    assert [each.text for each in events if isinstance(each, TextDelta)] == ["Hello"]


@pytest.mark.rule("R-CLI-02")
async def test_whole_replies_are_shown_without_streaming() -> None:
    body = {"choices": [{"message": {"content": "Whole."}, "finish_reason": "stop"}]}
    reply = json.dumps(body).encode()
    script = replying(head(200, "application/json", length=len(reply)) + reply)
    async with open_server(script) as server:
        ended = await harness_run(server, "--no-stream")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[0] == "Whole."
    assert json.loads(server.requests[0].body)["stream"] is False


@pytest.mark.rule("R-CLI-01")
async def test_an_error_is_1_and_says_what_happened() -> None:
    script = replying(head(401, "application/json", length=2) + b"{}")
    async with open_server(script) as server:
        ended = await harness_run(server)
    assert ended.code == 1
    assert ended.out.splitlines()[-2].startswith("failed: ")
    assert ended.out.splitlines()[-1].startswith("ProviderError: ")
    assert "Traceback" not in ended.err


USAGES = [
    (["--tools", "no_colon"], "expected MODULE:NAME"),
    (["--tools", "no_such_module:x"], "No module named 'no_such_module'"),
    (["--tools", f"{TOOLS}:nothing"], "has no attribute 'nothing'"),
    (["--tools", f"{TOOLS}:not_a_tool"], "cannot be a tool"),
    (["--deadline", "nan"], "--deadline is nan"),
    (["--deadline", "soon"], "invalid float value: 'soon'"),
    (["--max-turns", "-1"], "--max-turns is -1"),
    (["--unknown"], "unrecognized arguments: --unknown"),
]


@pytest.mark.rule("R-CLI-01", "R-GEN-06")
@pytest.mark.parametrize(("options", "said"), USAGES)
async def test_a_wrong_usage_is_2_and_names_the_offence(options: list[str], said: str) -> None:
    ended = await harness_run(None, *options)
    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.rule("R-CLI-01")
@pytest.mark.parametrize(
    ("options", "script", "code", "reason"),
    [
        (["--tools", f"{TOOLS}:ask"], calls(("ask", "{}")), 3, "waiting_for_reply"),
        (["--tools", f"{TOOLS}:nap"], calls(("nap", "{}")), 4, "resuming_later"),
        (["--max-turns", "1"], calls(("x", "{}")), 5, "turn_limit"),
        (["--max-tokens", "5"], calls(("x", "{}")), 6, "budget"),
        (
            ["--deadline", "0.2", "--tools", f"{TOOLS}:several"],
            calls(("wait", '{"seconds": 60}')),
            7,
            "deadline",
        ),
    ],
)
async def test_each_end_has_its_code(
    options: list[str], script: Script, code: int, reason: str
) -> None:
    used = stream(
        payload(
            tool_calls=[{"index": 0, "id": "c0", "function": {"name": "x", "arguments": "{}"}}]
        ),
        payload("tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 4}},
    )
    async with open_server(used if reason == "budget" else script) as server:
        ended = await harness_run(server, *options)
    assert ended.code == code, ended.out + ended.err
    assert f"{reason}: " in ended.out.splitlines()[-1]


async def hanging(exchange: Exchange) -> None:
    await exchange.send(
        head() + chunked(stream_of(payload(content="Half a "), done=False), end=False)
    )
    await exchange.gone()


@pytest.mark.rule("R-CLI-04")
async def test_the_first_interrupt_aborts_and_the_settled_end_is_shown() -> None:
    async with open_server(hanging) as server, started(server) as process:
        await read_until(process, "Half a")
        process.send_signal(signal.SIGINT)
        rest = await read_until(process, "tokens\n")
        assert rest.splitlines()[-1].startswith("aborted: 0 turns")
        with trio.fail_after(10):
            assert await process.wait() == 130


@pytest.mark.rule("R-CLI-04")
async def test_the_second_interrupt_ends_the_process_at_once() -> None:
    script = calls(("block", "{}"))
    tools = ("--tools", f"{TOOLS}:block")
    async with open_server(script) as server, started(server, *tools) as process:
        await read_until(process, "· block")
        process.send_signal(signal.SIGINT)
        with trio.move_on_after(0.3):
            await process.wait()
        assert process.returncode is None, "the first interrupt must wait for the thread"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        with trio.fail_after(10):
            assert await process.wait() == 130
        assert time.monotonic() - began < 5


@pytest.mark.rule("R-CLI-05")
async def test_a_reader_that_closes_the_output_ends_the_run() -> None:
    async with open_server(hanging) as server, started(server, "--json") as process:
        assert process.stdout is not None
        await process.stdout.receive_some()
        await process.stdout.aclose()
        assert process.stderr is not None
        with trio.fail_after(10):
            await server.idle(within=10)
            assert await process.wait() == 130
            assert b"Traceback" not in await process.stderr.receive_some()


# -- what is shown -----------------------------------------------------------------------------


@pytest.mark.rule("R-CLI-02")
def test_lines_of_text_and_lines_of_calls_do_not_run_into_each_other() -> None:
    output = StringIO()
    lines = Lines(output)
    failure = Failure(kind="ValueError", code="error", message="bad\nthing " * 40)
    for event in (
        TextDelta(turn_id="1", epoch=0, seq=0, text="Half"),
        TextReset(turn_id="1", epoch=1, seq=1, reason="attempt_failed"),
        TextDelta(turn_id="1", epoch=1, seq=2, text="Whole."),
        AssistantMessage(turn_id="1", text="Whole."),
        AssistantMessage(turn_id="2", text="Not streamed."),
        ToolCallDelta(turn_id="3", attempt=0, index=0, call_id="c", name="x", arguments='{"a":'),
        ToolCallDelta(turn_id="3", attempt=0, index=0, call_id="c", name="x", arguments="1}"),
        ToolStarted(call_id="c", name="x"),
        ToolFinished(call_id="c", name="x", outcome="interrupted", duration=1.5, abandoned=True),
        CallRejected(failure=failure),
        CallRejected(failure=failure, call_id="c"),
        RunFinished(stop_reason="failed", failure=failure),
    ):
        lines.event(event)
    shown = output.getvalue().splitlines()
    assert shown[:7] == [
        "Half",
        "(the text above is void; the model starts again)",
        "Whole.Not streamed.",
        '· x {"a":1}',
        "✗ x interrupted (1.50 s, its thread still runs)",
        shown[5],
        shown[6],
    ]
    assert shown[5].startswith("! rejected: bad thing bad")
    assert shown[6].startswith("! rejected c: bad thing bad")
    assert len(shown[5]) <= 112
    assert shown[7] == "failed: 0 turns, 0 calls, 0 + 0 tokens"


@pytest.mark.rule("R-CLI-03")
def test_json_lines_are_flushed_one_by_one() -> None:
    output = StringIO()
    JsonLines(output).event(RunFinished(stop_reason="done"))
    assert decode_event(output.getvalue()) == RunFinished(stop_reason="done")


@pytest.mark.rule("R-CLI-02")
def test_a_terminal_gets_colours_and_a_pipe_none() -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    shown = []
    for output in (StringIO(), Terminal()):
        Lines(output).event(ToolFinished(call_id="c", name="x", outcome="completed", duration=0))
        shown.append(output.getvalue())
    assert shown == ["✓ x completed (0.00 s)\n", "\x1b[32m✓ x completed (0.00 s)\x1b[0m\n"]


@pytest.mark.rule("R-CLI-02")
async def test_a_terminal_without_our_marks_gets_others() -> None:
    script = in_turn([calls(("shout", '{"text": "hi"}')), text("ü")])
    async with open_server(script) as server:
        done = await trio.run_process(
            command(server, "--tools", f"{TOOLS}:shout"),
            capture_stdout=True,
            check=False,
            env={**environment(), "PYTHONIOENCODING": "ascii"},
            cwd=ROOT,
        )
    assert done.returncode == 0
    assert done.stdout.decode("ascii").splitlines()[1].startswith("? shout completed")
