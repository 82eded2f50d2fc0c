"""The watchdog of an attempt, in virtual time."""

import math
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from harness._errors import StreamStalled
from harness._events import TextDelta
from harness._model import Attempt, Chunk, StreamBudgets
from harness._usage import Usage
from harness.testing import Scene, cancel_everywhere, schedule
from tests.completion.streams import said
from tests.completion.turns import Turn

BUDGETS: Final = StreamBudgets(first_answer=120, gap=30, absolute=900)


def run_with(seed: int, main: Callable[[], Awaitable[None]]) -> None:
    """Run *main* in virtual time, its tasks in the order of *seed*."""
    with schedule(seed):
        trio.run(main, clock=MockClock(autojump_threshold=0))


async def pause(seconds: float, *chunks: Chunk, then: Chunk | None = None) -> Turn:
    """Send *chunks*, be silent for *seconds*, and perhaps go on."""
    turn = Turn()
    async with turn.stream.attempt() as attempt:
        for chunk in chunks:
            attempt.send_nowait(chunk)
        await trio.sleep(seconds)
        if then is not None:
            attempt.send_nowait(then)
    return turn


@pytest.mark.rule("R-WATCH-02", "R-WATCH-12")
async def test_a_silent_provider_is_given_up(autojump_clock: MockClock) -> None:
    with pytest.raises(StreamStalled, match=r"^the stream stalled: its budget first_answer"):
        await pause(10_000)
    assert trio.current_time() == 120


@pytest.mark.rule("R-WATCH-06", "R-WATCH-12")
async def test_an_answer_that_stops_is_given_up_by_the_tight_budget(
    autojump_clock: MockClock,
) -> None:
    turn = Turn()
    with pytest.raises(StreamStalled) as caught:
        async with turn.stream.attempt() as attempt:
            await trio.sleep(10)
            attempt.send_nowait(said("Hel"))
            await trio.sleep(20)
            attempt.send_nowait(said("lo"))
            await trio.sleep_forever()
    assert trio.current_time() == 60
    assert (caught.value.budget, caught.value.elapsed) == ("gap", 60)
    assert turn.text == "Hello"


@pytest.mark.rule("R-WATCH-06", "R-WATCH-08")
async def test_thinking_puts_the_end_of_the_wait_off_and_an_answer_moves_it_closer(
    autojump_clock: MockClock,
) -> None:
    turn = Turn()
    with pytest.raises(StreamStalled) as caught:
        async with turn.stream.attempt() as attempt:
            attempt.send_nowait(said("a"))
            await trio.sleep(29)
            attempt.send_nowait(Chunk(reasoning="Hm"))
            await trio.sleep(100)
            attempt.send_nowait(said("b"))
            await trio.sleep_forever()
    assert trio.current_time() == 159
    assert caught.value.budget == "gap"


@pytest.mark.rule("R-WATCH-10", "R-WATCH-12")
async def test_an_answer_without_an_end_is_given_up(autojump_clock: MockClock) -> None:
    turn = Turn()
    with pytest.raises(StreamStalled) as caught:
        async with turn.stream.attempt() as attempt:
            while True:
                await trio.sleep(7)
                attempt.send_nowait(said("x"))
    assert (trio.current_time(), caught.value.budget) == (900, "absolute")


@pytest.mark.rule("R-WATCH-18")
async def test_budgets_are_the_attempt_s_or_else_the_stream_s(autojump_clock: MockClock) -> None:
    turn = Turn()
    for budgets, expected in ((None, 120.0), (StreamBudgets(first_answer=5), 5.0)):
        started = trio.current_time()
        with pytest.raises(StreamStalled):
            async with turn.stream.attempt(budgets=budgets):
                await trio.sleep_forever()
        assert trio.current_time() - started == expected


@pytest.mark.rule("R-WATCH-19")
@pytest.mark.parametrize("seed", range(20))
def test_a_chunk_that_is_there_in_the_very_instant_was_in_time(seed: int) -> None:
    async def main() -> None:
        turn = Turn()
        async with turn.stream.attempt() as attempt:
            for letter, seconds in (("a", 120), ("b", 30), ("c", 30)):
                await trio.sleep(seconds)
                attempt.send_nowait(said(letter))
        assert turn.text == "abc"

    run_with(seed, main)


@pytest.mark.rule("R-WATCH-13")
@pytest.mark.parametrize("outer", [119, 120])
@pytest.mark.parametrize("seed", range(10))
def test_a_stop_from_outside_is_no_stall(outer: float, seed: int) -> None:
    async def main() -> None:
        with trio.move_on_after(outer) as scope:
            await pause(10_000)
        assert scope.cancelled_caught

    run_with(seed, main)


class Transport:
    """Makes an error of its own out of a cancellation."""

    def __init__(self) -> None:
        self.error = OSError("connection lost")

    async def wait(self) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise self.error from None  # noqa: ASYNC104  # what it stands for


@pytest.mark.rule("R-WATCH-14")
async def test_what_a_transport_made_of_the_stall_is_its_cause(autojump_clock: MockClock) -> None:
    transport, turn = Transport(), Turn()
    with pytest.raises(StreamStalled) as caught:
        async with turn.stream.attempt():
            await transport.wait()
    assert caught.value.__cause__ is transport.error


@pytest.mark.rule("R-WATCH-14")
@pytest.mark.parametrize("outer", [119, 120])
async def test_what_a_transport_made_of_a_stop_is_not_renamed(
    autojump_clock: MockClock, outer: float
) -> None:
    transport, turn = Transport(), Turn()
    with trio.move_on_after(outer), pytest.raises(OSError, match="connection lost") as caught:
        async with turn.stream.attempt():
            await transport.wait()
    assert caught.value is transport.error


@pytest.mark.rule("R-WATCH-14")
async def test_a_stop_that_comes_while_a_stalled_body_closes_is_not_renamed(
    autojump_clock: MockClock,
) -> None:
    turn, error = Turn(), OSError("connection lost")

    async def slow_to_close() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
            raise error

    with trio.move_on_after(122), pytest.raises(OSError, match="connection lost") as caught:
        async with turn.stream.attempt():
            await slow_to_close()
    assert caught.value is error


@pytest.mark.rule("R-WATCH-15")
async def test_a_body_that_ends_well_is_no_stall(mock_clock: MockClock) -> None:
    turn = Turn()
    async with turn.stream.attempt() as attempt:
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(500)  # the loop was blocked for so long
        attempt.send_nowait(said("Hi"))
    assert attempt.turn().message["content"] == "Hi"


@pytest.mark.rule("R-WATCH-15")
@pytest.mark.parametrize("late", [True, False], ids=["it still writes", "it had all"])
async def test_a_body_that_ends_well_after_it_was_given_up(
    autojump_clock: MockClock, late: bool
) -> None:
    turn, stalls = Turn(), list[StreamStalled]()
    attempt: Attempt | None = None
    try:
        async with turn.stream.attempt() as attempt:
            attempt.send_nowait(said("Hi"))
            with trio.CancelScope(shield=True):
                await trio.sleep(300)
            assert attempt.given_up
            if late:
                attempt.send_nowait(said("!"))
            attempt.send_nowait(Chunk(usage=Usage(input=3)))
    except StreamStalled as stall:
        stalls.append(stall)
    assert turn.text == "Hi"
    if late:
        assert turn.spent == [Usage(input=3)]
    else:
        assert attempt is not None
        assert attempt.turn().message["content"] == "Hi"
    assert len(stalls) == late


@pytest.mark.rule("R-WATCH-17")
@pytest.mark.parametrize("fail", [True, False])
async def test_no_timer_outlives_the_block(autojump_clock: MockClock, fail: bool) -> None:
    turn = Turn()
    try:
        async with turn.stream.attempt() as attempt:
            attempt.send_nowait(said("Hi"))
            if fail:
                raise ValueError
    except ValueError:
        pass
    assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf


@pytest.mark.rule("R-WATCH-20")
async def test_a_reader_that_is_slow_is_no_stall(autojump_clock: MockClock) -> None:
    turn = await pause(0, said("Hi"))
    await trio.sleep(1000)
    assert turn.text == "Hi"


@pytest.mark.rule("R-ATTEMPT-12")
async def test_what_a_stalled_attempt_cost_is_spent(autojump_clock: MockClock) -> None:
    turn = Turn()
    with pytest.raises(StreamStalled):
        async with turn.stream.attempt() as attempt:
            attempt.send_nowait(Chunk(usage=Usage(input=7)))
            await trio.sleep_forever()
    assert turn.spent == [Usage(input=7)]


@pytest.mark.rule("R-WATCH-12", "R-WATCH-13")
def test_at_every_cut_a_stalling_attempt_stalls_or_is_cancelled() -> None:
    async def scenario(scene: Scene) -> None:
        turn = Turn()

        @scene.afterwards
        def check() -> None:
            assert turn.text in {"", "Hi"}
            stalled = isinstance(scene.error, StreamStalled)
            assert stalled == (scene.outcome == "raised")
            assert len([each for each in turn.told if isinstance(each, TextDelta)]) <= 1

        async with turn.stream.attempt(budgets=StreamBudgets(first_answer=3, gap=2)) as attempt:
            await trio.sleep(1)
            attempt.send_nowait(said("Hi"))
            await trio.sleep(9)

    report = cancel_everywhere(scenario, minimum=8, seeds=(0, 1, 2), raises=(StreamStalled,))
    assert report.cancelled > 0
    assert report.raised > 0
