import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from harness._errors import StoreError
from harness.receipts import hold_lease
from harness.testing import Scene, cancel_everywhere

DOWN = StoreError("store.unreachable", "the database is down")


class Renewals:
    """Answers renewals from a list, the last one again and again, and notes when they came."""

    def __init__(self, *answers: bool | Exception, takes: float = 0.0) -> None:
        self.answers = list(answers)
        self.takes = takes
        self.at: list[float] = []

    async def __call__(self) -> bool:
        self.at.append(trio.current_time())
        await trio.sleep(self.takes)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.rule("R-RCPT-13")
async def test_a_lease_is_renewed_every_third_of_it_while_the_work_lasts(
    autojump_clock: MockClock,
) -> None:
    renew = Renewals(True)
    async with hold_lease(renew, seconds=9) as held:
        await trio.sleep(100)
        assert not held.lost
    assert not held.lost
    assert renew.at == [3.0 * n for n in range(1, 34)]
    await trio.sleep(100)
    assert len(renew.at) == 33
    assert not held.lost


@pytest.mark.rule("R-RCPT-13")
async def test_a_lease_counts_from_the_start_of_its_last_good_renewal(
    autojump_clock: MockClock,
) -> None:
    renew = Renewals(True, True, StoreError("store.busy", "busy"), takes=2.0)
    async with hold_lease(renew, seconds=9) as held:
        await trio.sleep(1_000)
    assert held.lost
    # Renewals began at 3 and 6, and only then did they fail: nine seconds after the second.
    assert renew.at[:2] == [3.0, 6.0]
    assert trio.current_time() == 15.0


async def test_work_is_cut_in_the_moment_its_lease_is_refused(autojump_clock: MockClock) -> None:
    renew = Renewals(True, False)
    ended: list[float] = []
    async with hold_lease(renew, seconds=9) as held:
        try:
            await trio.sleep(1_000)
        finally:
            ended.append(trio.current_time())
            assert held.lost
    assert held.lost
    assert ended == [6.0]


async def test_a_store_that_fails_is_asked_again_until_the_lease_is_over(
    autojump_clock: MockClock,
) -> None:
    renew = Renewals(DOWN)
    async with hold_lease(renew, seconds=9) as held:
        await trio.sleep(1_000)
    assert held.lost
    assert trio.current_time() == 9.0
    assert renew.at == pytest.approx([3.0, 3.9, 4.8, 5.7, 6.6, 7.5, 8.4])


async def test_a_store_that_comes_back_in_time_is_as_good_as_ever(
    autojump_clock: MockClock,
) -> None:
    renew = Renewals(DOWN, DOWN, True)
    async with hold_lease(renew, seconds=9) as held:
        await trio.sleep(20)
    assert not held.lost
    assert renew.at[:4] == pytest.approx([3.0, 3.9, 4.8, 7.8])


async def test_a_store_that_never_answers_does_not_keep_the_work_going(
    autojump_clock: MockClock,
) -> None:
    async def never() -> bool:
        await trio.sleep_forever()
        raise AssertionError

    async with hold_lease(never, seconds=9) as held:
        await trio.sleep(1_000)
    assert held.lost
    assert trio.current_time() == 9.0


async def test_an_answer_that_comes_too_late_is_none(autojump_clock: MockClock) -> None:
    renew = Renewals(True, takes=20.0)
    async with hold_lease(renew, seconds=9) as held:
        with trio.CancelScope(shield=True):
            await trio.sleep(50)  # what a cancellation cannot cut
    assert held.lost
    assert renew.at == [3.0]


async def test_a_lease_that_is_over_is_not_asked_for_again(autojump_clock: MockClock) -> None:
    renew = Renewals(DOWN)
    async with hold_lease(renew, seconds=9) as held:
        with trio.CancelScope(shield=True):
            await trio.sleep(50)
    assert held.lost
    assert max(renew.at) < 9


async def test_a_lease_counts_from_when_it_was_asked_for(autojump_clock: MockClock) -> None:
    asked = trio.current_time()
    await trio.sleep(4)  # the store took its time
    renew = Renewals(DOWN)
    async with hold_lease(renew, seconds=9, since=asked) as held:
        await trio.sleep(1_000)
    assert held.lost
    assert trio.current_time() == 9.0
    assert renew.at[0] == 4.0


async def test_a_lease_that_is_over_at_the_start_lets_nothing_begin(
    autojump_clock: MockClock,
) -> None:
    renew = Renewals(True)
    went_on = False
    async with hold_lease(renew, seconds=9, since=trio.current_time() - 9) as held:
        assert held.lost
        await trio.lowlevel.checkpoint_if_cancelled()  # all that a thread asks before it starts
        went_on = True
    assert not went_on
    assert held.lost
    assert renew.at == []


async def test_entering_is_no_checkpoint(autojump_clock: MockClock) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with hold_lease(Renewals(True), seconds=9):
            entered = True
    assert entered


@pytest.mark.rule("R-RCPT-13")
async def test_a_worker_that_slept_past_its_lease_gets_no_further_than_its_next_checkpoint(
    autojump_clock: MockClock,
) -> None:
    """As after a SIGSTOP: what was waited for is there, and so is the end of the lease."""
    autojump_clock.autojump_threshold = math.inf
    answered = trio.Event()
    steps: list[str] = []

    async def jump() -> None:
        await trio.testing.wait_all_tasks_blocked()
        autojump_clock.jump(3_600)
        answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(jump)
        async with hold_lease(Renewals(True), seconds=9) as held:
            await answered.wait()
            steps.append("woken")
            assert held.lost
            await trio.lowlevel.checkpoint()
            steps.append("went on")
    assert steps == ["woken"]
    assert held.lost


STOPPED = """
import trio
from harness.receipts import hold_lease

async def renew():
    return True

async def main():
    async with hold_lease(renew, seconds=1.5) as held:
        while True:
            print("at work", flush=True)
            await trio.sleep(0.05)
    print("lost" if held.lost else "held", flush=True)

trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.rule("R-RCPT-13")
@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGSTOP")
def test_a_process_that_was_stopped_past_its_lease_does_not_go_on() -> None:
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    ) as process:
        try:
            assert process.stdout is not None
            for _ in range(5):
                assert process.stdout.readline() == "at work\n"
            process.send_signal(signal.SIGSTOP)
            time.sleep(2.0)
            process.send_signal(signal.SIGCONT)
            lines = process.stdout.read().splitlines()
        finally:
            process.kill()
    # What it had written before it was stopped may still be in the pipe; nothing after is.
    assert lines[-1] == "lost"
    assert len(lines) <= 3


ERRORS: list[BaseException] = [
    ValueError("no"),
    ExceptionGroup("two", [ValueError("no"), KeyError("no")]),
    KeyboardInterrupt(),
    SystemExit(3),
    StopAsyncIteration(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("lost", [False, True])
async def test_what_the_work_raises_leaves_as_itself(
    error: BaseException, lost: bool, autojump_clock: MockClock
) -> None:
    with pytest.raises(type(error)) as caught:
        async with hold_lease(Renewals(not lost), seconds=9) as held:
            try:
                await trio.sleep(5)
            finally:
                raise error
    assert caught.value is error
    assert held.lost is lost


async def test_a_cancellation_from_outside_passes_through(autojump_clock: MockClock) -> None:
    with trio.move_on_after(5) as outer:
        async with hold_lease(Renewals(True), seconds=9) as held:
            await trio.sleep_forever()
    assert outer.cancelled_caught
    assert not held.lost
    assert trio.current_time() == 5.0


async def test_a_lease_is_renewed_until_work_that_was_stopped_has_ended(
    autojump_clock: MockClock,
) -> None:
    renew = Renewals(True)
    value = None
    with trio.move_on_after(5) as outer:
        async with hold_lease(renew, seconds=9) as held:
            with trio.CancelScope(shield=True):
                await trio.sleep(29)
            value = "done"
        value = "kept"  # leaving raises no cancellation, so nothing that was done is dropped
    assert value == "kept"
    assert not outer.cancelled_caught
    assert not held.lost
    assert renew.at == [3.0 * n for n in range(1, 10)]


@pytest.mark.parametrize("ends", ["returns", "cut"])
async def test_a_renewal_that_has_a_mistake_cuts_the_work_and_is_raised(
    ends: str, autojump_clock: MockClock
) -> None:
    mistake = RuntimeError("a bug")
    with pytest.raises(RuntimeError) as caught:
        async with hold_lease(Renewals(mistake), seconds=9):
            if ends == "cut":
                await trio.sleep_forever()
            with trio.CancelScope(shield=True):
                await trio.sleep(4)
    assert caught.value is mistake
    assert trio.current_time() == (3.0 if ends == "cut" else 4.0)


async def test_a_mistake_outweighs_a_cancellation(autojump_clock: MockClock) -> None:
    mistake = RuntimeError("a bug")
    with pytest.raises(RuntimeError) as caught, trio.move_on_after(2):
        async with hold_lease(Renewals(mistake), seconds=9):
            with trio.CancelScope(shield=True):
                await trio.sleep(4)
            await trio.lowlevel.checkpoint()
    assert caught.value is mistake


async def test_a_mistake_is_noted_on_what_the_work_raises(autojump_clock: MockClock) -> None:
    error = ValueError("no")
    with pytest.raises(ValueError, match="no") as caught:
        async with hold_lease(Renewals(RuntimeError("a bug")), seconds=9):
            try:
                await trio.sleep_forever()
            finally:
                raise error
    assert caught.value is error
    assert error.__notes__ == ["the lease could not be renewed: a bug"]


@pytest.mark.parametrize(
    ("seconds", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (math.inf, ValueError),
        (math.nan, ValueError),
        (True, TypeError),
        ("1", TypeError),
    ],
)
async def test_a_lease_without_a_length_is_refused(seconds: float, error: type[Exception]) -> None:
    with pytest.raises(error, match="seconds is"):
        async with hold_lease(Renewals(True), seconds=seconds):
            raise AssertionError
    with pytest.raises(ValueError, match="since is nan"):
        async with hold_lease(Renewals(True), seconds=1, since=math.nan):
            raise AssertionError


Work = Callable[[], Awaitable[None]]


async def wait() -> None:
    await trio.sleep(4)


async def resist() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(4)


@pytest.mark.parametrize("work", [wait, resist])
@pytest.mark.parametrize("answers", [(True,), (True, False), (DOWN,), (DOWN, True)], ids=str)
def test_a_lease_can_be_cut_anywhere(answers: tuple[bool | Exception, ...], work: Work) -> None:
    async def scenario(scene: Scene) -> None:
        renew = Renewals(*answers, takes=0.2)
        done = ended = 0

        @scene.afterwards
        def check() -> None:
            began = len(renew.at)
            assert ended <= 1
            if work is resist and began:
                assert done == ended == 1  # what it did was not dropped
            if scene.outcome == "completed" and not done:
                assert held.lost

        async with hold_lease(renew, seconds=3) as held:
            try:
                await work()
                done += 1
            finally:
                ended += 1
        await trio.lowlevel.checkpoint()

    cancel_everywhere(scenario, minimum=8)
