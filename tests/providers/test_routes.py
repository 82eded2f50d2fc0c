"""Routes over real servers: every fault in every place, and two servers side by side."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import attrs
import pytest
import trio

from harness import StreamBudgets, TextSurface, Usage
from harness.errors import RouteError
from harness.models import ModelTransport, RoutedModel
from harness.providers import ChatModel
from harness.routing import (
    AttemptCursor,
    AttemptError,
    AttemptTarget,
    CircuitBreaker,
    Hedge,
    RouteCandidate,
)
from tests.models.routes import MODEL, told_by
from tests.providers.server import (
    Exchange,
    Script,
    Server,
    chunked,
    head,
    open_server,
    payload,
    replying,
    sse,
    stream_of,
)

BUDGETS: Final = StreamBudgets(first_answer=0.15, gap=0.15, absolute=5)
USAGE: Final = {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 2}}


def answer(text: str = "The answer.") -> Script:
    """A server that is well, however it is asked."""

    async def script(exchange: Exchange) -> None:
        if json.loads(exchange.body)["stream"]:
            pieces = [payload(content=piece) for piece in (text[:4], text[4:])]
            await exchange.send(head() + chunked(stream_of(*pieces, payload("stop"), USAGE)))
        else:
            choice = {"message": {"content": text}, "finish_reason": "stop"}
            reply = json.dumps({**USAGE, "choices": [choice]}).encode()
            await exchange.send(head(200, "application/json", length=len(reply)) + reply)

    return script


def status(code: int, *headers: str) -> Script:
    body = b'{"error": {"message": "no"}}'
    return replying(head(code, "application/json", *headers, length=len(body)) + body)


def half(*rest: bytes, end: bool = True) -> Script:
    """A stream that says something and goes on with *rest*."""
    start = stream_of(payload(content="Half"), done=False)
    return replying(head() + chunked(start, *rest, end=end))


def then(script: Script, *, close: bool) -> Script:
    async def both(exchange: Exchange) -> None:
        await script(exchange)
        if close:
            await exchange.close()
        else:
            await exchange.gone()

    return both


async def silent(exchange: Exchange) -> None:
    await exchange.gone()


def call(arguments: str) -> bytes:
    piece = {"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}}
    return sse(payload(tool_calls=[piece]))


# What a server does wrong, and the category of the failure that it is. None of them may be taken
# for an answer, whatever it has shown before.
FAULTS: Final[dict[str, tuple[Script, str]]] = {
    "429": (status(429, "Retry-After: 7"), "rate_limited"),
    "500": (status(500), "server_error"),
    "529": (status(529), "server_error"),
    "401": (status(401), "credential"),
    "404": (status(404), "provider_bad_request"),
    "closed at once": (then(replying(), close=True), "unreachable"),
    "silent from the start": (silent, "stalled"),
    "silent after the head": (then(replying(head()), close=False), "stalled"),
    "silent in the answer": (then(half(end=False), close=False), "stalled"),
    "cut in the answer": (then(half(end=False), close=True), "unreachable"),
    "an error in the stream": (
        half(sse({"error": {"message": "overloaded", "code": 500}})),
        "server_error",
    ),
    "an error event": (half(b"event: error\n" + sse({"error": "x"})), "server_error"),
    "no JSON in the stream": (half(b"data: {nonsense\n\n"), "server_error"),
    "no end of the answer": (half(), "defect"),
    "no end of the arguments": (half(call('{"city": "Par'), sse(payload("tool_calls"))), "defect"),
    "no end of the calls": (half(call("{}")), "defect"),
    "nothing said": (replying(head() + chunked(stream_of(payload("stop")))), "defect"),
}

SHOWN: Final = frozenset(name for name, _ in FAULTS.items()) - {
    "429",
    "500",
    "529",
    "401",
    "404",
    "closed at once",
    "silent from the start",
    "silent after the head",
    "nothing said",
}
"""The faults that come after text has been shown."""


@asynccontextmanager
async def routed(
    *scripts: Script,
    stream: bool = True,
    hedge: Hedge | None = None,
    breaker: CircuitBreaker | None = None,
) -> AsyncIterator[tuple[RoutedModel, list[Server]]]:
    """A route over a real server for each script."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(open_server(each)) for each in scripts]
        transports = []
        for n, server in enumerate(servers):
            model = ChatModel(f"m{n}", base_url=server.base_url, stream=stream)
            await stack.enter_async_context(model)
            transports.append(ModelTransport(f"p{n}", {MODEL: model}))
        breaker = breaker or CircuitBreaker()
        yield RoutedModel(MODEL, transports, budgets=BUDGETS, hedge=hedge, breaker=breaker), servers


@pytest.mark.rule("R-ROUTED-03", "R-STREAM-27", "R-STREAM-28")
@pytest.mark.parametrize(
    "surface",
    [TextSurface(), TextSurface(retractable=False), TextSurface(max_resets=0)],
    ids=["retractable", "permanent", "no resets"],
)
@pytest.mark.parametrize("fault", FAULTS)
async def test_the_text_is_right_or_the_error_is(fault: str, surface: TextSurface) -> None:
    script, category = FAULTS[fault]
    async with routed(script, answer()) as (model, servers):
        told = await told_by(model, surface=surface)
    tries = 3 if category == "defect" else 1
    if surface == TextSurface() or fault not in SHOWN:
        assert told.error is None
        assert told.text == "The answer."
        assert told.tries == [*[("p0", category)] * tries, ("p1", "served")]
        assert len(told.resets) == (tries if fault in SHOWN else 0)
        assert told.result is not None
        assert told.result.state.messages[-1]["content"] == "The answer."
    else:
        assert isinstance(told.error, RouteError)
        assert told.error.category == category
        assert told.tries == [("p0", category)]
        assert told.text == "Half"
        assert told.resets == []
        assert servers[1].requests == []


@pytest.mark.rule("R-ROUTED-03", "R-ROUTED-07")
@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - SHOWN - {"silent after the head"}))
async def test_replies_that_are_not_streamed_fall_back_too(fault: str) -> None:
    script, category = FAULTS[fault]
    async with routed(script, answer(), stream=False) as (model, _):
        told = await told_by(attrs.evolve(model, budgets=StreamBudgets(absolute=0.3)))
    if fault == "nothing said":
        category = "server_error"  # a stream, where a whole reply was asked for
    assert told.error is None
    assert told.text == "The answer."
    assert told.tries[-2:] == [("p0", category), ("p1", "served")]


@pytest.mark.rule("R-ROUTED-11", "R-HEDGE-02", "R-HEDGE-03", "R-STREAM-32")
async def test_of_two_servers_the_first_to_answer_is_shown_and_the_other_is_left_at_once() -> None:
    cost = {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 0}}

    async def slow(exchange: Exchange) -> None:
        thinking = stream_of(cost, payload(reasoning="Hm"), done=False)
        await exchange.send(head() + chunked(thinking, end=False))
        await exchange.gone()

    answered_at: list[float] = []

    async def quick(exchange: Exchange) -> None:
        await trio.sleep(0.02)
        answered_at.append(trio.current_time())
        await answer()(exchange)

    breaker = CircuitBreaker()
    async with routed(slow, quick, hedge=Hedge(after=0.05), breaker=breaker) as (model, servers):
        for candidate in model.plan().plan.stages[0].candidates:
            breaker.record_failure(candidate, lost(candidate), now=trio.current_time())
        told = await told_by(model)
        await servers[0].idle()
        left_after = servers[0].gone_at - answered_at[0]
    assert told.error is None
    assert told.text == "The answer."
    assert told.resets == []
    assert sorted(told.tries) == [("p0", "superseded"), ("p1", "served")]
    # By the loser's own clock: its client had gone when the winner had hardly begun.
    assert 0 <= left_after < 0.2
    assert told.result is not None
    assert told.result.stats.usage == Usage(input=80, output=2)
    assert {each.tried.provider: each.usage.input for each in told.finished} == {"p0": 40, "p1": 40}
    # The one that served has cleared its count, and the one that was slower has changed nothing.
    known = breaker.snapshot(now=trio.current_time())
    assert [(each.key.provider_id, each.failures) for each in known] == [("p0", 1)]


def lost(candidate: RouteCandidate) -> AttemptError:
    cursor = AttemptCursor(stage=0, candidate=0, retry=0, ordinal=0)
    target = AttemptTarget.of(candidate, cursor=cursor, duration=0)
    return AttemptError(kind="network", category="unreachable", target=target)


@pytest.mark.rule("R-ROUTED-11")
@pytest.mark.parametrize("after", [0.0, 0.03])
async def test_a_run_that_is_cut_while_two_servers_work_leaves_both(after: float) -> None:
    async def slow(exchange: Exchange) -> None:
        await exchange.send(head())
        await exchange.gone()

    async with routed(slow, slow, slow, hedge=Hedge(after=0.01, most=3)) as (model, servers):
        with trio.move_on_after(after + 0.1):
            await told_by(model)
        for each in servers:
            await each.idle()
        assert sum(len(each.requests) for each in servers) >= 2
