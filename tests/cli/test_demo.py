from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trio

from harness._cli import _demo, main
from harness._cli._child import LocalModelError
from harness._cli._demo import Page, Remote, add_demo_parser, demo
from harness._cli._scenes import Claim
from harness._cli._show import Styles
from tests.providers.server import DONE, Exchange, chunked, head, open_server, payload, sse

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "first_run.py"
CLAIMS = (
    r"✓ a tool was called and ran to its end",
    r"✓ the answer came piece by piece, and the run was done",
    r"✓ its transcript is settled, and either kind of provider would take it",
    r"✓ the abort fell into the answer, and the run was settled \d+\.\d ms later",
    r"✓ {watch} at the abort, and {rest} \d+\.\d ms after it",
    r"✓ the deadline of \d+\.\d\d s ended the run [a-z ]+, and it was settled \d+\.\d ms later",
)


class Provider:
    """A server that searches when it has not searched yet, and then answers at length."""

    def __init__(self, *, calls: bool = True, pieces: int = 40) -> None:
        self.calls = calls
        self.pieces = pieces
        self.choices: list[object] = []

    async def __call__(self, exchange: Exchange) -> None:
        asked = json.loads(exchange.body)
        self.choices.append(asked.get("tool_choice"))
        await exchange.send(head())
        if self.calls and asked["messages"][-1]["role"] != "tool":
            await self._call(exchange)
        else:
            await self._answer(exchange)

    async def _call(self, exchange: Exchange) -> None:
        function = {"name": "search_text", "arguments": '{"word": "yeast"}'}
        call = {"index": 0, "id": "c1", "type": "function", "function": function}
        events = sse(payload(tool_calls=[call]), payload("tool_calls"))
        await exchange.send(chunked(events + DONE))

    async def _answer(self, exchange: Exchange) -> None:
        for number in range(self.pieces):
            await trio.sleep(0.01)
            await exchange.send(chunked(sse(payload(content=f"word{number} ")), end=False))
        await exchange.send(chunked(sse(payload("stop")) + DONE))


def shows(output: str, *, watch: str, rest: str) -> None:
    for claim in CLAIMS:
        pattern = claim.format(watch=re.escape(watch), rest=rest)
        assert re.search(f"^{pattern}$", output, re.MULTILINE), f"{pattern}\n{output}"
    assert "NOT SEEN" not in output
    assert output.endswith("\n8 of 8 claims were seen\n")


async def test_the_demo_with_an_endpoint_of_the_users_watches_its_connection(
    tmp_path: Path,
) -> None:
    provider, out = Provider(), io.StringIO()
    async with open_server(provider) as server:
        remote = Remote(model="some-model", base_url=server.base_url, api_key="k")
        assert await demo(remote, tmp_path / "cache", out) == 0
    shows(out.getvalue(), watch="its connection was open", rest="closed")
    assert "a remote server shows no slots, so its connection is watched" in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert provider.choices == ["required", "none"] * 3
    assert server.requests[0].headers["authorization"] == "Bearer k"
    assert not (tmp_path / "cache").exists()


async def test_the_demo_fails_if_it_did_not_see_a_tool(tmp_path: Path) -> None:
    out = io.StringIO()
    async with open_server(Provider(calls=False)) as server:
        remote = Remote(model="some-model", base_url=server.base_url)
        assert await demo(remote, tmp_path, out) == 1
    assert "✗ NOT SEEN: a tool was called and ran to its end\n" in out.getvalue()
    assert out.getvalue().endswith("\n7 of 8 claims were seen\n")


async def test_the_demo_fails_if_it_could_not_abort_within_an_answer(tmp_path: Path) -> None:
    out = io.StringIO()
    async with open_server(Provider(pieces=2)) as server:
        remote = Remote(model="some-model", base_url=server.base_url)
        assert await demo(remote, tmp_path, out) == 1
    assert "✗ NOT SEEN: the abort fell into the answer" in out.getvalue()
    assert "✗ NOT SEEN: its connection was open at the abort, and closed after it" in out.getvalue()


async def test_a_demo_without_its_texts_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_demo, "example_folder", lambda: tmp_path)
    with pytest.raises(LocalModelError, match=r"^there are no texts in .*, expected those of the"):
        await demo(None, tmp_path, io.StringIO())


def test_claims_are_coloured_on_a_terminal_only() -> None:
    plain, coloured = io.StringIO(), io.StringIO()
    claims = [Claim("it was", True), Claim("it was not", False)]
    Page(plain, Styles()).claims(claims)
    Page(coloured, Styles(good="<g>", bad="<b>", plain="<p>")).claims(claims)
    assert plain.getvalue() == "✓ it was\n✗ NOT SEEN: it was not\n"
    assert coloured.getvalue() == "<g>✓ it was<p>\n<b>✗ NOT SEEN: it was not<p>\n"


# -- the command -------------------------------------------------------------------------------


def remote_of(
    monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], **environ: str
) -> Remote | None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    parser = argparse.ArgumentParser()
    add_demo_parser(parser.add_subparsers())
    return _demo._remote(parser.parse_args(["demo", *arguments]))


def test_a_model_that_is_named_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    named = remote_of(
        monkeypatch, ["--model", "m"], OPENAI_BASE_URL="http://host/v1", OPENAI_API_KEY="k"
    )
    assert named == Remote(model="m", base_url="http://host/v1", api_key="k")
    assert "k" not in repr(named).partition("base_url")[2].replace("http://host/v1", "")


def test_an_address_on_the_command_line_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--model", "m", "--base-url", "http://other/v1"]
    assert remote_of(monkeypatch, arguments, OPENAI_BASE_URL="http://host/v1") == Remote(
        model="m", base_url="http://other/v1"
    )


def test_without_a_named_model_it_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remote_of(monkeypatch, [], OPENAI_BASE_URL="http://host/v1", OPENAI_API_KEY="k") is None


def test_an_address_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", "m", "--base-url", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("harness demo: base_url is 'nowhere', expected")


def test_an_address_without_a_model_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--base-url", "http://host/v1"]) == 2
    assert capsys.readouterr().err == (
        "harness demo: --base-url is 'http://host/v1', expected --model with it\n"
    )


def test_a_provider_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"]) == 1
    assert "harness demo: the call to the provider ended with ConnectError" in (
        capsys.readouterr().err
    )


def test_missing_extras_are_named() -> None:
    program = (
        "import sys; sys.modules['httpx2'] = None\n"
        "from harness._cli import main; sys.exit(main(['demo', '--model', 'm']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        "harness demo: 'httpx2' is not installed, expected it with:"
        " pip install 'trio-harness[http]'\n"
    )


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}


async def test_a_reader_that_goes_away_ends_the_demo_quietly() -> None:
    async with open_server(Provider()) as server:
        process = await trio.lowlevel.open_process(
            [
                *(sys.executable, "-m", "harness", "demo"),
                *("--model", "m", "--base-url", server.base_url),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        assert process.stdout is not None
        assert process.stderr is not None
        async with process.stdout, process.stderr:
            assert await process.stdout.receive_some(1)
            await process.stdout.aclose()
            complaints = b"".join([piece async for piece in process.stderr])
            assert await process.wait() == 1
    assert complaints == b""


async def test_ctrl_c_settles_the_run_and_ends_with_its_own_code() -> None:
    provider = Provider(pieces=10_000)
    async with open_server(provider) as server:
        process = await trio.lowlevel.open_process(
            [
                *(sys.executable, "-m", "harness", "demo"),
                *("--model", "m", "--base-url", server.base_url),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        assert process.stdout is not None
        assert process.stderr is not None
        async with process.stdout, process.stderr:
            shown = b""
            while b"word3" not in shown:
                shown += await process.stdout.receive_some()
            process.send_signal(signal.SIGINT)
            with trio.fail_after(20):
                complaints = b"".join([piece async for piece in process.stderr])
                assert await process.wait() == 130
    assert complaints == b"harness demo: interrupted\n"


# -- the example -------------------------------------------------------------------------------


async def test_the_first_example_runs_as_printed() -> None:
    async with open_server(Provider(pieces=3)) as server:
        ended = await trio.run_process(
            [sys.executable, str(EXAMPLE), "some-model"],
            capture_stdout=True,
            env={**environment(), "OPENAI_BASE_URL": server.base_url},
        )
    assert ended.stdout.decode() == (
        "[search_text: completed]\nword0 word1 word2 \ndone after 2 turns\n"
    )


# -- the real model ----------------------------------------------------------------------------


@pytest.mark.local_model
def test_the_demo_with_its_own_model_sees_everything_it_claims(
    model_file: Path, gone: Callable[..., bool]
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "harness", "demo"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shows(ended.stdout, watch="the server's slot was busy", rest="idle")
    assert "\x1b" not in ended.stdout
    assert gone(server_process(ended.stdout))


@pytest.mark.local_model
def test_ctrl_c_takes_the_model_server_along(model_file: Path, gone: Callable[..., bool]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "harness", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(),
    ) as running:
        assert running.stdout is not None
        pid = server_process(running.stdout.readline())
        os.killpg(running.pid, signal.SIGINT)
        _, complaints = running.communicate(timeout=60)
        assert running.returncode == 130
    assert complaints == "harness demo: interrupted\n"
    assert gone(pid)


def server_process(output: str) -> int:
    found = re.search(r"\(process (\d+)\)", output)
    assert found is not None, output
    return int(found[1])


@pytest.mark.local_model
def test_fetching_alone_prints_where_the_file_is(
    model_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--fetch-only"]) == 0
    assert capsys.readouterr().out == f"{model_file}\n"
