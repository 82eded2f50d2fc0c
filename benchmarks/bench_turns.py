"""Turns with one trivial call each, and batches that fan out."""

from __future__ import annotations

import functools

import trio

from benchmarks._measure import Figure, Stopwatch, compare
from harness import Emitter, Limits, ModelRequest, ModelTurn, TurnStream, open_run, run, tool
from harness.testing import final_answer, tool_call, tool_call_turn

__all__ = ["figures"]


@tool
async def work() -> str:
    """Do next to nothing."""
    await trio.lowlevel.checkpoint()
    return "ok"


async def model(request: ModelRequest, stream: TurnStream, *, turns: int, calls: int) -> ModelTurn:
    """Ask for *calls* in each turn but the last."""
    if request.turn == turns:
        return final_answer("Done.")
    ids = (f"{request.turn}.{n}" for n in range(calls))
    return tool_call_turn([tool_call("work", id=each) for each in ids])


async def ours(turns: int, calls: int, *, read: bool) -> float:
    """A run; with *read* a reader takes every event."""
    asked = functools.partial(model, turns=turns, calls=calls)
    limits = Limits(turns=turns + 1)
    watch = Stopwatch()
    watch.start()
    if read:
        async with open_run(asked, "Go.", tools=[work], limits=limits) as opened:
            async for _ in opened.events:
                pass
        result = opened.result
    else:
        result = await run(asked, "Go.", tools=[work], events=Emitter(), limits=limits)
    seconds = watch.stop()
    assert (result.stop_reason, len(result.state.messages)) == ("done", 2 + turns * (1 + calls))
    return seconds


async def raw(turns: int, calls: int) -> float:
    """The same in plain trio: a nursery per batch, a limiter for the tool."""
    limiter = trio.CapacityLimiter(5)
    messages: list[object] = ["Go."]
    watch = Stopwatch()
    watch.start()
    for turn in range(turns):
        asked = [(f"{turn}.{n}", "work") for n in range(calls)]
        messages.append(asked)
        answers: list[str | None] = [None] * calls

        async def call(index: int, answers: list[str | None] = answers) -> None:
            async with limiter:
                await trio.lowlevel.checkpoint()
                answers[index] = "ok"

        async with trio.open_nursery() as nursery:
            for index in range(calls):
                nursery.start_soon(call, index)
        messages.extend(answers)
    messages.append("Done.")
    seconds = watch.stop()
    assert len(messages) == 2 + turns * (1 + calls)
    return seconds


def figures(*, samples: int) -> list[Figure]:
    """Measure."""
    read = functools.partial(ours, read=True)
    unread = functools.partial(ours, read=False)
    return [
        compare(
            "turn_overhead",
            functools.partial(read, 50, 1),
            functools.partial(raw, 50, 1),
            samples=samples,
        ),
        compare(
            "turn_overhead_unread",
            functools.partial(unread, 50, 1),
            functools.partial(raw, 50, 1),
            samples=samples,
        ),
        compare(
            "fanout_1000",
            functools.partial(unread, 1, 1_000),
            functools.partial(raw, 1, 1_000),
            samples=samples,
        ),
    ]
