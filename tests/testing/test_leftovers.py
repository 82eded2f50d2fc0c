import re
import threading

import pytest
import trio

from harness.testing import assert_no_tasks_left
from harness.testing._leftovers import busy_threads


@pytest.mark.rule("R-KIT-08")
async def test_no_task_is_left_once_its_nursery_has_ended() -> None:
    assert_no_tasks_left()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
        nursery.start_soon(trio.lowlevel.checkpoint)
    assert_no_tasks_left()


@pytest.mark.rule("R-KIT-08")
async def test_a_task_of_an_open_nursery_is_left() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever, name="lingering")
        with pytest.raises(AssertionError, match="tasks still run, expected none: lingering"):
            assert_no_tasks_left()
        nursery.cancel_scope.cancel()


@pytest.mark.rule("R-KIT-08")
async def test_a_task_of_a_task_is_left_and_its_place_is_named() -> None:
    async def wait_here() -> None:
        await trio.sleep_forever()

    async def start_another() -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(wait_here)
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_another)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(AssertionError) as caught:
            assert_no_tasks_left()
        nursery.cancel_scope.cancel()
    assert re.search(r"test_leftovers\.py:\d+ in wait_here", str(caught.value))


@pytest.mark.rule("R-KIT-08")
async def test_a_system_task_is_left_and_trios_own_are_not() -> None:
    done = trio.Event()
    trio.lowlevel.spawn_system_task(done.wait, name="a system task")
    with pytest.raises(AssertionError, match="a system task"):
        assert_no_tasks_left()
    done.set()
    await trio.testing.wait_all_tasks_blocked()
    assert_no_tasks_left()


async def test_a_worker_that_trio_keeps_for_later_is_not_busy() -> None:
    known = busy_threads()
    entered, go = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        go.wait(10)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, work)
        await trio.to_thread.run_sync(entered.wait)
        busy = busy_threads(known)
        assert len(busy) == 1
        assert busy_threads([*known, *busy]) == []
        go.set()
    assert busy_threads(known) == []
