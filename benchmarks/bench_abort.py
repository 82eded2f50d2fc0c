"""From `abort()` until the run has returned and every tool's ``finally`` has run."""

from __future__ import annotations

import functools

import trio

from benchmarks._measure import Figure, Stopwatch, compare
from harness import Emitter, ModelRequest, ModelTurn, TurnStream, open_run, tool
from harness.testing import tool_call, tool_call_turn

__all__ = ["figures"]


async def ours(in_flight: int, queued: int = 0) -> float:
    """Abort a run with so many calls."""
    unwound = 0

    @tool(pool=None if not queued else "held")
    async def held() -> None:
        nonlocal unwound
        try:
            await trio.sleep_forever()
        finally:
            unwound += 1

    calls = [tool_call("held", id=str(n)) for n in range(in_flight + queued)]
    turn = tool_call_turn(calls)

    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        return turn

    watch = Stopwatch()
    async with open_run(model, "Go.", tools=[held], events=Emitter()) as opened:
        await trio.testing.wait_all_tasks_blocked()
        watch.start()
        opened.abort()
        await opened.wait()
        seconds = watch.stop()
    assert unwound == in_flight
    assert len(opened.state.messages) == 2 + in_flight + queued
    return seconds


async def raw(in_flight: int) -> float:
    """Cancel the same tools in a plain nursery, each with a limiter and a scope of its own."""
    limiter = trio.CapacityLimiter(in_flight)
    unwound = 0

    async def held() -> None:
        nonlocal unwound
        async with limiter:
            with trio.CancelScope():
                try:
                    await trio.sleep_forever()
                finally:
                    unwound += 1

    watch = Stopwatch()
    seconds = 0.0
    ended = trio.Event()

    async def leg(scope: trio.CancelScope) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for _ in range(in_flight):
                    nursery.start_soon(held)
        ended.set()

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(leg, scope)
        await trio.testing.wait_all_tasks_blocked()
        watch.start()
        scope.cancel()
        await ended.wait()
        seconds = watch.stop()
    assert unwound == in_flight
    return seconds


def figures(*, samples: int) -> list[Figure]:
    """Measure."""
    return [
        compare(
            f"abort_in_flight_{count}",
            functools.partial(ours, count),
            functools.partial(raw, count),
            samples=samples,
        )
        for count in (10, 100, 1_000)
    ]
