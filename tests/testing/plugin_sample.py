"""Tests that the plugin must pass or fail; run by `test_pytest_plugin`, each named for its end."""

import socket
import threading
from collections.abc import AsyncIterator

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

GO = threading.Event()
KEPT: list[object] = []
ORDERS: set[tuple[int, ...]] = set()


async def numbers() -> AsyncIterator[int]:  # noqa: ASYNC900, ASYNC911  # what not to do
    yield 1  # noqa: ASYNC911
    yield 2  # noqa: ASYNC911


async def the_order() -> tuple[int, ...]:
    order: list[int] = []

    async def step(number: int) -> None:
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(step, number)
    return tuple(order)


# -- sound tests -------------------------------------------------------------------------------


async def test_passes_in_virtual_time(autojump_clock: MockClock) -> None:
    await trio.sleep(10_000)


async def test_passes_with_a_background_task_of_a_fixture(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(trio.sleep_forever)
    await trio.sleep(1)


@pytest.fixture
async def resource() -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        yield "ready"
        nursery.cancel_scope.cancel()


async def test_passes_with_an_async_fixture(resource: str) -> None:
    assert resource == "ready"


async def test_passes_with_a_thread_under_virtual_time(autojump_clock: MockClock) -> None:
    assert await trio.to_thread.run_sync(lambda: 5) == 5


def test_passes_with_a_thread_that_is_just_ending() -> None:
    threading.Thread(target=threading.Event().wait, args=(0.05,)).start()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_passes_when_its_mark_allows_the_leak() -> None:
    socket.socket()


@pytest.mark.parametrize("_", range(3))
async def test_passes_with_one_order_each_time(_: int, trio_seed: int) -> None:
    ORDERS.add((trio_seed, *await the_order()))
    assert len({order for order in ORDERS if order[0] == trio_seed}) == 1


@given(st.integers(0, 5))
def test_passes_under_hypothesis(seconds: int) -> None:
    trio.run(trio.sleep, seconds, clock=MockClock(autojump_threshold=0))


@given(st.integers(0, 5))
async def test_passes_as_an_async_test_under_hypothesis(number: int) -> None:
    await trio.lowlevel.checkpoint()


async def test_skips_inside() -> None:
    pytest.skip("not today")


# -- tests that leave something, or hang -------------------------------------------------------


async def test_fails_by_deadlock(autojump_clock: MockClock) -> None:
    await trio.Event().wait()


async def test_fails_by_deadlock_behind_a_shield(autojump_clock: MockClock) -> None:
    with trio.CancelScope(shield=True):
        await trio.Event().wait()


async def test_fails_by_a_task() -> None:
    trio.lowlevel.spawn_system_task(trio.sleep_forever)


def test_fails_by_a_thread() -> None:
    threading.Thread(target=GO.wait, name="a lingering thread", daemon=True).start()


async def test_fails_by_a_suspended_generator() -> None:
    generator = numbers()
    KEPT.append(generator)
    await anext(generator)


async def test_fails_by_a_dropped_generator() -> None:
    await anext(numbers())


async def test_fails_by_an_unawaited_coroutine() -> None:
    trio.sleep(1)  # type: ignore[unused-coroutine]  # noqa: ASYNC105  # the point


def test_fails_by_a_socket() -> None:
    socket.socket()


def test_fails_by_a_socket_in_a_cycle() -> None:
    box: list[object] = [socket.socket()]
    box.append(box)


async def test_fails_plainly() -> None:
    async with trio.open_nursery():
        raise ValueError("only this")


async def test_fails_with_several() -> None:
    async def fail(error: Exception) -> None:
        raise error

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail, ValueError("this"))
        nursery.start_soon(fail, KeyError("and that"))


def test_fails_with_a_group_of_its_own() -> None:
    raise ExceptionGroup("both", [ValueError("this"), KeyError("and that")])
