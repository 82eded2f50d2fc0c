"""Real threads in real time: a mocked clock would not wait for them."""

import contextvars
import functools
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest
import trio

from harness.tools._thread import _Visit, run_abandonable, run_in_thread
from tests.tools.threads import Blocking, threads_over

Run: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


class Permit:
    """A permit, and in which threads it was kept and released."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.released: list[int] = []

    def keep(self) -> Callable[[], None]:
        self.kept.append(threading.get_ident())
        return lambda: self.released.append(threading.get_ident())


def never_keep() -> Callable[[], None]:
    raise AssertionError("nobody was to keep a permit")


both = pytest.mark.parametrize(
    "run",
    [
        functools.partial(run_in_thread, name="tool"),
        functools.partial(run_abandonable, name="tool", keep_permit=never_keep),
    ],
    ids=["awaited", "abandonable"],
)


@pytest.mark.rule("R-TOOL-22")
@both
async def test_a_function_runs_in_another_thread_with_the_callers_context(run: Run) -> None:
    variable.set("mine")
    assert await run(lambda: (variable.get(), threading.current_thread().name)) == ("mine", "tool")
    assert await run(threading.get_ident) != threading.get_ident()


@both
async def test_what_a_function_raises_is_raised(run: Run) -> None:
    error = LookupError("x")

    def fail() -> None:
        raise error

    with pytest.raises(LookupError) as caught:
        await run(fail)
    assert caught.value is error


@pytest.mark.rule("R-TOOL-22")
@both
async def test_a_coroutine_is_a_result_like_any_other(run: Run) -> None:
    async def later() -> str:
        return "later"

    assert await (await run(later)) == "later"


@pytest.mark.rule("R-TOOL-22")
@both
async def test_a_cancellation_while_no_thread_is_free_keeps_nothing(run: Run) -> None:
    occupant, entered = Blocking(), list[str]()
    trio.to_thread.current_default_thread_limiter().total_tokens = 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, occupant)
        await occupant.until_entered()
        with trio.move_on_after(0.02) as scope:
            await run(lambda: entered.append("entered"))
        occupant.end.set()
    assert scope.cancelled_caught
    await threads_over()
    assert entered == []


@pytest.mark.rule("R-TOOL-23")
async def test_by_default_a_cancellation_waits_for_the_thread_and_gets_its_result() -> None:
    blocking, results = Blocking(), list[str]()

    async def call() -> None:
        results.append(await run_in_thread(blocking, name="tool"))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await blocking.until_entered()
            nursery.cancel_scope.cancel()
            threading.Timer(0.02, blocking.end.set).start()
    assert results == ["ended"]


async def test_an_awaited_function_may_look_for_a_cancellation_itself() -> None:
    blocking = Blocking()
    blocking.end.set()

    def watch() -> None:
        blocking()
        while True:
            trio.from_thread.check_cancelled()
            time.sleep(0.001)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(functools.partial(run_in_thread, watch, name="tool"))
            await blocking.until_entered()
            nursery.cancel_scope.cancel()
    assert nursery.cancel_scope.cancelled_caught


async def abandoned(
    function: Callable[[], object], permit: Permit, until: Callable[[], Awaitable[None]]
) -> None:
    """Call *function*, and cancel the call once *until* returns."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            functools.partial(run_abandonable, function, name="tool", keep_permit=permit.keep)
        )
        await until()
        nursery.cancel_scope.cancel()


@pytest.mark.rule("R-TOOL-23")
async def test_an_abandoned_thread_keeps_its_permit_until_it_ends() -> None:
    blocking, permit = Blocking(), Permit()
    with trio.fail_after(10):
        await abandoned(blocking, permit, blocking.until_entered)
        here = threading.get_ident()
        assert (permit.kept, permit.released) == ([here], [])
        blocking.end.set()
        await threads_over()
    assert (permit.kept, permit.released) == ([here], [here])


async def test_what_an_abandoned_thread_raises_or_leaves_to_await_is_dropped() -> None:
    async def later() -> None: ...

    blocking, permit = Blocking(), Permit()

    def fail() -> None:
        blocking()
        raise ValueError("nobody hears it")

    def start() -> object:
        blocking()
        return later()

    for function in (fail, start):
        blocking.entered.clear()
        blocking.end.clear()
        with trio.fail_after(10):
            await abandoned(function, permit, blocking.until_entered)
            blocking.end.set()
            await threads_over()
    assert len(permit.kept) == len(permit.released) == 2


def visit_of(function: Callable[[], str]) -> _Visit[str]:
    async def main() -> trio.lowlevel.TrioToken:
        return trio.lowlevel.current_trio_token()

    return _Visit(function, trio.run(main))


@pytest.mark.rule("R-TOOL-23")
def test_a_thread_withdrawn_before_it_began_never_enters_the_function() -> None:
    visit = visit_of(lambda: pytest.fail("entered"))
    visit.withdraw(never_keep)
    assert visit.enter() == ()


@pytest.mark.rule("R-TOOL-23")
def test_a_thread_that_ended_first_keeps_nothing() -> None:
    visit = visit_of(lambda: "ended")
    assert visit.enter() == ("ended",)
    visit.withdraw(never_keep)


def test_a_thread_that_outlives_the_whole_trio_run_ends_quietly() -> None:
    blocking, permit = Blocking(), Permit()
    visit = visit_of(blocking)
    results: list[tuple[str, ...]] = []
    thread = threading.Thread(target=lambda: results.append(visit.enter()))
    thread.start()
    assert blocking.entered.wait(10)
    visit.withdraw(permit.keep)
    blocking.end.set()
    thread.join(10)
    assert results == [("ended",)]
    assert (len(permit.kept), permit.released) == (1, [])


@pytest.mark.rule("R-TOOL-23")
@pytest.mark.parametrize("moment", ["handed over", "ending"])
async def test_whichever_comes_first_a_permit_is_kept_just_while_a_thread_is_inside(
    moment: str,
) -> None:
    """A race on purpose: each round may go either way, and each way must add up."""
    for _ in range(60):
        blocking, permit = Blocking(), Permit()
        inside = list[str]()

        def act(blocking: Blocking = blocking, inside: list[str] = inside) -> None:
            inside.append("entered")
            blocking()
            inside.append("ended")

        async def until(blocking: Blocking = blocking) -> None:
            if moment == "ending":
                await blocking.until_entered()
                blocking.end.set()
            else:  # the call starts in the first, and its thread in the second
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()

        with trio.fail_after(10):
            await abandoned(act, permit, until)
            at_cut = list(inside)
            blocking.end.set()
            await threads_over()
        assert len(permit.kept) == len(permit.released) <= 1
        if permit.kept:
            assert inside == ["entered", "ended"]
        else:
            assert inside == at_cut
