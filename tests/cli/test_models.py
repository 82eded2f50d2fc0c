"""``harness run`` with several models: a route, shown live."""

import sys
from functools import partial

import pytest
import trio

from tests.cli.test_run import ROOT, Ended, environment, stream, text
from tests.providers.server import (
    Exchange,
    Server,
    chunked,
    head,
    open_server,
    payload,
    replying,
    stream_of,
)

OVERLOADED = replying(head(503, "application/json", length=2) + b"{}")


async def run_route(*options: str, **variables: str) -> Ended:
    done = await trio.run_process(
        [sys.executable, "-m", "harness", "run", "Go.", *options],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env={**environment(), **variables},
        cwd=ROOT,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def at(*servers: Server) -> list[str]:
    options = []
    for number, server in enumerate(servers):
        options += ["--model", f"m{number}", "--base-url", server.base_url]
    return options


async def hanging(exchange: Exchange) -> None:
    await exchange.gone()


async def half(exchange: Exchange) -> None:
    whole = stream_of(payload(content="Half an ans"), done=False)
    await exchange.send(head() + chunked(whole, end=False))
    await exchange.close()


@pytest.mark.rule("R-CLI-06")
async def test_the_next_model_answers_when_the_first_is_down() -> None:
    async with open_server(OVERLOADED) as first, open_server(text("Hello.")) as second:
        ended = await run_route(*at(first, second))
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[:3] == [
        (
            "✗ m0 at 127-0-0-1: server_error (503): the provider answered with status 503 and said "
            "'{}', expected a completion"
        ),
        "→ trying m1 at 127-0-0-1.2 instead",
        "Hello.",
    ]


@pytest.mark.rule("R-CLI-06")
async def test_a_half_answer_is_seen_to_be_void() -> None:
    async with open_server(half) as first, open_server(text("A whole one.")) as second:
        ended = await run_route(*at(first, second))
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0] == "Half an ans"
    assert lines[1].startswith("✗ m0 at 127-0-0-1: unreachable: ")
    assert lines[3] == "(the text above is void; the model starts again)"
    assert lines[4] == "A whole one."


@pytest.mark.rule("R-CLI-06")
async def test_a_model_that_is_silent_is_hedged_or_given_up() -> None:
    async with open_server(hanging) as first, open_server(text("Hello.")) as second:
        hedged = await run_route(*at(first, second), "--hedge", "0.1")
        stalled = await run_route(*at(first, second), "--first-answer", "0.1")
    assert "→ trying m1 at 127-0-0-1.2 beside it" in hedged.out
    assert "· m0 at 127-0-0-1 was slower and is given up" in hedged.out
    assert "✗ m0 at 127-0-0-1: stalled: " in stalled.out
    for ended in (hedged, stalled):
        assert ended.code == 0, ended.err
        assert "Hello." in ended.out.splitlines()


@pytest.mark.rule("R-CLI-06")
async def test_an_empty_reply_is_asked_for_again() -> None:
    scripts = iter([stream(payload("stop")), text("Hello.")])

    async def script(exchange: Exchange) -> None:
        await next(scripts)(exchange)

    async with open_server(script) as first, open_server(hanging) as second:
        ended = await run_route(*at(first, second))
    assert "→ trying m0 at 127-0-0-1 again" in ended.out


@pytest.mark.rule("R-CLI-07")
async def test_a_key_goes_to_the_server_that_it_belongs_to() -> None:
    async with open_server(OVERLOADED) as first, open_server(OVERLOADED) as second:
        run = partial(run_route, *at(first, second))
        ended = await run()
        assert ended.code == 1
        assert first.requests[-1].headers["authorization"] == "Bearer secret-key"
        assert "authorization" not in second.requests[-1].headers
        await run("--key-env", "ONE", "--key-env", "TWO", ONE="first-key", TWO="second-key")
        assert first.requests[-1].headers["authorization"] == "Bearer first-key"
        assert second.requests[-1].headers["authorization"] == "Bearer second-key"
        same = ["--model", "a", "--model", "b", "--base-url", first.base_url]
        await run_route(*same)
        keys = [each.headers.get("authorization") for each in first.requests[-2:]]
        assert keys == ["Bearer secret-key"] * 2


@pytest.mark.rule("R-CLI-01", "R-GEN-06")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--base-url", "http://a/v1", "--base-url", "http://b/v1"], "--base-url is given 2 times"),
        (["--key-env", "NO_SUCH_KEY"], "--key-env is 'NO_SUCH_KEY'"),
        (["--hedge", "nan"], "--hedge is nan"),
        (["--hedge", "2"], "--hedge is 2.0 for one model, expected several"),
        (["--gap", "0"], "gap is 0"),
        (["--first-answer", "inf"], "first_answer is inf"),
    ],
)
async def test_a_wrong_usage_names_the_offence(options: list[str], said: str) -> None:
    ended = await run_route("--model", "m", *options)
    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err
