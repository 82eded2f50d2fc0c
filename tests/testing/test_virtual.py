import contextlib
import math
import re
import threading
import warnings
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from harness.testing import DeadlockError, LeftoverError, run_virtual
from harness.testing._virtual import run_watched
from tests.testing.plugin_sample import numbers


async def _wait_for_ever() -> None:
    await trio.Event().wait()


async def _wait_behind_a_shield() -> None:
    with trio.CancelScope(shield=True):
        await trio.Event().wait()


async def _wait_with_children() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_wait_for_ever)
        nursery.start_soon(_wait_behind_a_shield)


async def _swallow_and_wait() -> None:
    with contextlib.suppress(trio.Cancelled):  # what not to do
        await trio.Event().wait()


def test_a_day_takes_no_time_and_the_result_comes_back() -> None:
    async def sleep(seconds: float) -> float:
        started = trio.current_time()
        await trio.sleep(seconds)
        return trio.current_time() - started

    assert run_virtual(sleep, 86_400) == 86_400


def test_errors_come_out_as_they_are() -> None:
    error = ValueError("x")

    async def fail() -> None:
        raise error

    with pytest.raises(ValueError, match="x") as caught:
        run_virtual(fail)
    assert caught.value is error


@pytest.mark.rule("R-KIT-14")
@pytest.mark.parametrize(
    "scenario", [_wait_for_ever, _wait_behind_a_shield, _wait_with_children, _swallow_and_wait]
)
def test_a_deadlock_ends_with_where_each_task_waits(
    scenario: Callable[[], Awaitable[None]],
) -> None:
    with pytest.raises(DeadlockError) as caught:
        run_virtual(scenario)
    # The main task, and with it the two children if there are any; none of trio's own.
    assert len(caught.value.waiting) == (3 if scenario is _wait_with_children else 1)
    waiting = "\n".join(caught.value.waiting)
    assert re.search(rf"test_virtual\.py:\d+ in {scenario.__name__}", waiting)
    if scenario is _wait_with_children:
        assert "in _wait_for_ever" in waiting
        assert "in _wait_behind_a_shield" in waiting


@pytest.mark.rule("R-KIT-14")
def test_a_deadlock_is_reported_and_not_what_its_end_made_of_it() -> None:
    async def turn_it_into_something_else() -> None:
        try:
            await trio.Event().wait()
        finally:
            raise ValueError("a symptom")

    with pytest.raises(DeadlockError) as caught:
        run_virtual(turn_it_into_something_else)
    assert isinstance(caught.value.__cause__, ValueError)


def test_to_look_whether_all_tasks_are_blocked_is_no_deadlock() -> None:
    async def look_often() -> int:
        for _ in range(300):
            await trio.testing.wait_all_tasks_blocked()
        return 300

    assert run_virtual(look_often) == 300


def test_to_wait_for_another_thread_is_no_deadlock() -> None:
    async def main() -> str:
        token, handed = trio.lowlevel.current_trio_token(), trio.Event()
        hand_in = threading.Event()

        def work() -> None:
            hand_in.wait(10)
            token.run_sync_soon(handed.set)

        thread = threading.Thread(target=work)
        thread.start()
        timer = threading.Timer(0.05, hand_in.set)
        timer.start()
        await handed.wait()
        thread.join()
        timer.join()
        return "handed in"

    assert run_watched(main, clock=MockClock(autojump_threshold=0)) == "handed in"


def test_to_wait_for_a_thread_that_has_not_begun_is_no_deadlock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.testing._virtual.busy_threads", lambda known=(): [])

    async def main() -> bool:
        return await trio.to_thread.run_sync(threading.Event().wait, 0.1)

    assert run_watched(main, clock=MockClock(autojump_threshold=0)) is False


def test_a_real_clock_is_left_alone() -> None:
    async def main() -> float:
        await trio.lowlevel.checkpoint()
        return trio.lowlevel.current_statistics().seconds_to_next_deadline

    assert run_watched(main) == math.inf


@pytest.mark.rule("R-KIT-15")
def test_a_task_outside_of_every_nursery_is_left_behind() -> None:
    async def main() -> None:
        trio.lowlevel.spawn_system_task(trio.sleep_forever)

    with pytest.raises(LeftoverError, match=r"task trio\.sleep_forever"):
        run_virtual(main)


@pytest.mark.rule("R-KIT-15")
def test_an_async_generator_left_suspended_is_left_behind() -> None:
    kept: list[object] = []

    async def main() -> None:
        generator = numbers()
        kept.append(generator)
        await anext(generator)

    with pytest.raises(LeftoverError, match=r"async generator .*numbers"):
        run_virtual(main)


@pytest.mark.rule("R-KIT-15")
def test_an_async_generator_dropped_in_the_middle_is_left_behind() -> None:
    async def main() -> None:
        await anext(numbers())

    with pytest.raises(LeftoverError, match="was garbage collected before"):
        run_virtual(main)


@pytest.mark.rule("R-KIT-15")
def test_a_coroutine_that_was_never_awaited_is_left_behind() -> None:
    async def main() -> None:
        trio.sleep(1)  # type: ignore[unused-coroutine]  # noqa: ASYNC105  # the point

    with pytest.raises(LeftoverError, match="coroutine 'sleep' was never awaited"):
        run_virtual(main)


@pytest.mark.rule("R-KIT-15")
@pytest.mark.parametrize("cyclic", [False, True])
def test_an_unclosed_socket_is_left_behind(cyclic: bool) -> None:
    async def main() -> None:
        box: list[object] = [trio.socket.socket()]
        if cyclic:
            box.append(box)

    with pytest.raises(LeftoverError, match="unclosed"):
        run_virtual(main)


def test_what_was_finished_is_not_left_behind() -> None:
    async def main() -> list[int]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            nursery.start_soon(trio.sleep, 2)
        return [number async for number in numbers()]

    assert run_virtual(main) == [1, 2]


def test_other_warnings_go_on_as_they_would_have() -> None:
    async def main() -> None:
        warnings.warn("mind the gap", UserWarning, stacklevel=1)

    with pytest.warns(UserWarning, match="mind the gap"):
        run_virtual(main)


@pytest.mark.rule("R-KIT-14")
def test_a_deadlock_of_a_task_outside_of_every_nursery_ends_too() -> None:
    async def main() -> None:
        trio.lowlevel.spawn_system_task(_wait_behind_a_shield)
        await trio.lowlevel.checkpoint()

    with pytest.raises(DeadlockError, match="in _wait_behind_a_shield"):
        run_virtual(main)
