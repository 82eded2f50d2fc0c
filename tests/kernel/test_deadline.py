"""Deadlines that several pieces of work share."""

import math

import pytest
import trio
from trio.testing import MockClock

from harness import RunDeadline
from harness.errors import RunTimeoutError
from harness.kernel import classify_run_failure


@pytest.mark.rule("R-DEAD-01")
async def test_a_deadline_raises_with_its_label_once_it_has_passed(
    autojump_clock: MockClock,
) -> None:
    deadline = RunDeadline(5, "the nightly report")
    passed = []
    for _ in range(2):
        await trio.sleep(2)
        deadline.raise_if_timed_out()
        passed.append(deadline.timed_out)
    await trio.sleep(1)
    assert [*passed, deadline.timed_out] == [False, False, True]
    with pytest.raises(RunTimeoutError, match="^the nightly report ran out of time$") as caught:
        deadline.raise_if_timed_out()
    assert caught.value.label == "the nightly report"
    assert caught.value.code == "run.timeout"


@pytest.mark.rule("R-DEAD-02", "R-DEAD-03")
async def test_scopes_of_one_deadline_end_at_one_instant(autojump_clock: MockClock) -> None:
    deadline = RunDeadline(5, "x")
    ends = []
    for wait in (2, 100, 100):
        try:
            with deadline.scope():
                await trio.sleep(wait)
        except RunTimeoutError:
            ends.append(trio.current_time())
    assert ends == [5, 5]


@pytest.mark.rule("R-DEAD-02")
async def test_a_deadline_leaves_no_timer_behind(autojump_clock: MockClock) -> None:
    with RunDeadline(5, "x").scope():
        pass
    assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf


@pytest.mark.rule("R-DEAD-04", "R-DEAD-08")
async def test_a_cancellation_from_outside_passes_and_is_no_timeout(
    autojump_clock: MockClock,
) -> None:
    deadline = RunDeadline(5, "x")
    with trio.move_on_after(1) as outer, deadline.scope():
        await trio.sleep_forever()
    assert outer.cancelled_caught
    assert not deadline.timed_out


@pytest.mark.rule("R-DEAD-04")
async def test_timed_out_stays_true(autojump_clock: MockClock) -> None:
    deadline = RunDeadline(5, "x")
    with trio.move_on_after(6) as outer, pytest.raises(RunTimeoutError), deadline.scope():
        await trio.sleep_forever()
    assert not outer.cancelled_caught
    assert deadline.timed_out
    await trio.sleep(100)
    assert deadline.timed_out


@pytest.mark.rule("R-DEAD-05", "R-DEAD-06")
async def test_what_ended_a_run_is_told_by_the_time_or_by_a_timeout(
    autojump_clock: MockClock,
) -> None:
    deadline = RunDeadline(5, "x")
    error = ValueError("no")
    other = RunTimeoutError("another")
    assert classify_run_failure(deadline, error) == "failed"
    assert classify_run_failure(deadline, other) == "timed_out"
    grouped = ExceptionGroup("g", [error, ExceptionGroup("h", [other])])
    assert classify_run_failure(deadline, grouped) == "timed_out"
    assert classify_run_failure(deadline, ExceptionGroup("g", [error])) == "failed"
    await trio.sleep(5)
    assert classify_run_failure(deadline, error) == "timed_out"


@pytest.mark.rule("R-DEAD-07", "R-GEN-06")
@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, True, "5"])
async def test_a_timeout_is_finite_and_positive(seconds: float) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^RunDeadline\.timeout is "):
        RunDeadline(seconds, "x")
