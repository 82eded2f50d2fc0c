import itertools
from collections.abc import Awaitable, Callable
from typing import NoReturn

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness._shield import only_cancelled, open_kept_nursery, run_shielded, stop_due


@attrs.define(eq=False)
class Cut(trio.abc.Instrument):
    """Cancels a scope just before the task step of a given number."""

    number: int
    scope: trio.CancelScope
    steps: int = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.steps == self.number:
            self.scope.cancel()
        self.steps += 1


@attrs.define(eq=False)
class Cutting:
    """One run of a scenario that was cut."""

    scope: trio.CancelScope
    finished: bool = False
    error: BaseException | None = None


def cut_everywhere(
    scenario: Callable[[], Awaitable[None]], check: Callable[[Cutting], None]
) -> int:
    """Run *scenario* once for each of its task steps, cut there; return how many there are."""

    async def run(number: int) -> bool:
        cutting = Cutting(trio.CancelScope())
        cut = Cut(number, cutting.scope)
        trio.lowlevel.add_instrument(cut)
        with cutting.scope:
            try:
                await trio.lowlevel.checkpoint()
                await scenario()
                cutting.finished = True
            except ValueError as error:
                cutting.error = error
        trio.lowlevel.remove_instrument(cut)
        assert trio.lowlevel.current_task().child_nurseries == []
        check(cutting)
        return cut.steps > number

    for number in itertools.count():
        if not trio.run(run, number, clock=MockClock(autojump_threshold=0)):
            return number
    raise AssertionError


def five_seconds_from_now() -> float:
    return trio.current_time() + 5


def never_asked() -> NoReturn:
    raise AssertionError("no stop has arrived")


ERRORS: list[BaseException] = [
    ValueError("no"),
    ExceptionGroup("two", [ValueError("no"), KeyError("no")]),
    KeyboardInterrupt(),
    SystemExit(3),
    StopAsyncIteration(),
]


@pytest.mark.rule("R-GEN-02", "R-GEN-03")
def test_shielded_work_is_done_wherever_a_stop_arrives_and_the_stop_is_not_lost() -> None:
    done: list[str] = []

    async def work() -> None:
        await trio.lowlevel.checkpoint()
        await trio.sleep(1)
        done.append("work")

    async def scenario() -> None:
        await run_shielded(work, give_up_at=five_seconds_from_now)
        await trio.lowlevel.checkpoint()

    def check(cutting: Cutting) -> None:
        assert cutting.error is None
        assert cutting.scope.cancelled_caught is not cutting.finished
        began.append(bool(done))
        done.clear()

    began: list[bool] = []
    cuts = cut_everywhere(scenario, check)
    assert cuts > 5
    # Only a cut before the scenario's own first step leaves the work undone.
    assert began[2:] == [True] * (len(began) - 2)


async def test_without_a_stop_nobody_asks_when_to_give_up(autojump_clock: MockClock) -> None:
    async def work() -> None:
        await trio.sleep(100)

    await run_shielded(work, give_up_at=never_asked)
    assert trio.current_time() == 100


@pytest.mark.rule("R-GEN-02")
async def test_work_is_cancelled_when_the_time_to_give_up_has_come(
    autojump_clock: MockClock,
) -> None:
    asked: list[float] = []
    left: list[float] = []

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            left.append(trio.current_time())

    def give_up_at() -> float:
        asked.append(trio.current_time())
        return 5

    with trio.move_on_at(3) as stop:
        await run_shielded(work, give_up_at=give_up_at)
    assert stop.cancelled_caught
    assert (asked, left, trio.current_time()) == ([3], [5], 5)


async def test_work_that_is_given_up_at_once_still_begins(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append("began")
        await trio.sleep(1)
        seen.append("went on")

    with trio.CancelScope() as stop:
        stop.cancel()
        await run_shielded(work, give_up_at=trio.current_time)
    assert stop.cancelled_caught
    assert seen == ["began"]


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("error", ERRORS)
async def test_what_the_work_raised_is_raised_as_the_same_object(
    error: BaseException, stopped: bool, autojump_clock: MockClock
) -> None:
    async def work() -> None:
        await trio.sleep(1)
        raise error

    with trio.CancelScope() as stop:
        if stopped:
            stop.cancel()
        with pytest.raises(type(error)) as caught:
            await run_shielded(work, give_up_at=five_seconds_from_now)
        assert caught.value is error


async def test_an_interrupt_while_the_work_fails_is_not_lost(autojump_clock: MockClock) -> None:
    async def work() -> None:
        await trio.sleep(1)
        raise ValueError("no")

    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    with trio.CancelScope() as stop:
        stop.cancel()
        with pytest.RaisesGroup(ValueError, pytest.RaisesGroup(KeyboardInterrupt)):
            await run_shielded(work, give_up_at=interrupted)


@pytest.mark.parametrize("error", [*ERRORS, StopIteration()])
async def test_what_the_body_raised_leaves_as_the_same_object(
    error: BaseException, autojump_clock: MockClock
) -> None:
    ended: list[float] = []

    async def child(stop: trio.Event) -> None:
        await stop.wait()
        await trio.sleep(3)
        ended.append(trio.current_time())

    async def block() -> None:
        stop = trio.Event()
        async with open_kept_nursery() as nursery:
            nursery.start_soon(child, stop)
            await trio.lowlevel.checkpoint()
            stop.set()
            raise error

    # A coroutine may not raise a StopIteration: whatever it is raised by, that becomes its cause.
    with pytest.raises((type(error), RuntimeError)) as caught:
        await block()
    assert error in (caught.value, caught.value.__cause__)
    assert ended == [3]


@pytest.mark.rule("R-GEN-02", "R-GEN-03")
def test_a_cancellation_passes_through_a_kept_nursery_wherever_it_arrives() -> None:
    async def child() -> None:
        await trio.sleep(2)

    async def scenario() -> None:
        async with open_kept_nursery() as nursery:
            nursery.start_soon(child)
            nursery.start_soon(trio.lowlevel.checkpoint)
            await trio.sleep(1)
        await trio.lowlevel.checkpoint()

    def check(cutting: Cutting) -> None:
        assert cutting.error is None
        assert cutting.scope.cancelled_caught is not cutting.finished

    assert cut_everywhere(scenario, check) > 5


@pytest.mark.rule("R-GEN-02")
def test_an_error_of_the_body_is_not_lost_to_a_cancellation_of_its_children() -> None:
    error = ValueError("no")

    async def child() -> None:
        for _ in range(3):
            await trio.sleep(1)

    async def scenario() -> None:
        async with open_kept_nursery() as nursery:
            nursery.start_soon(child)
            await trio.sleep(1)
            raise error

    seen: list[BaseException | None] = []

    def check(cutting: Cutting) -> None:
        assert cutting.error in (None, error)
        assert cutting.scope.cancelled_caught is (cutting.error is None)
        seen.append(cutting.error)

    assert cut_everywhere(scenario, check) > 5
    assert set(seen) == {None, error}
    assert seen.index(error) < len(seen) - 1  # also in a run whose children were cut


@pytest.mark.rule("R-GEN-02")
async def test_what_follows_a_block_whose_body_was_cancelled_does_not_happen() -> None:
    seen: list[str] = []
    with trio.CancelScope() as scope:
        async with open_kept_nursery():
            scope.cancel()
            await trio.sleep(1)
        seen.append("went on")
    assert scope.cancelled_caught
    assert seen == []


async def test_a_body_that_cancels_its_nursery_ends_well(autojump_clock: MockClock) -> None:
    async with open_kept_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.cancel_scope.cancel()
        await trio.sleep(60)
    assert trio.current_time() == 0


async def failing(after: float) -> None:
    await trio.sleep(after)
    raise KeyError("child")


async def test_the_error_of_a_child_is_grouped_and_the_body_cancelled_by_it_adds_nothing(
    autojump_clock: MockClock,
) -> None:
    with pytest.RaisesGroup(KeyError):
        async with open_kept_nursery() as nursery:
            nursery.start_soon(failing, 1)
            await trio.sleep_forever()
    with pytest.RaisesGroup(KeyError):
        async with open_kept_nursery() as nursery:
            nursery.start_soon(failing, 1)


async def test_when_the_body_and_a_child_fail_both_are_raised(autojump_clock: MockClock) -> None:
    error = ValueError("body")

    async def block() -> None:
        async with open_kept_nursery() as nursery:
            nursery.start_soon(failing, 1)
            raise error

    with pytest.raises(ExceptionGroup) as caught:  # noqa: ASYNC401  # the very objects
        await block()
    assert caught.value.exceptions[0] is error
    assert pytest.RaisesGroup(ValueError, pytest.RaisesGroup(KeyError)).matches(caught.value)


async def test_a_child_that_fails_while_the_block_is_cancelled_is_heard(
    autojump_clock: MockClock,
) -> None:
    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("cleanup")

    with pytest.RaisesGroup(KeyError), trio.move_on_after(1) as stop:
        async with open_kept_nursery() as nursery:
            nursery.start_soon(child)
            await trio.sleep_forever()
    assert stop.cancel_called


async def test_a_stop_is_due_from_the_moment_it_can_be_seen(autojump_clock: MockClock) -> None:
    assert not stop_due()
    with trio.CancelScope() as scope:
        assert not stop_due()
        scope.cancel()
        assert stop_due()
        with trio.CancelScope(shield=True):
            assert not stop_due()
            await trio.lowlevel.checkpoint()
    with trio.CancelScope(deadline=7):
        await trio.lowlevel.checkpoint()
        assert not stop_due()
        autojump_clock.jump(7)
        # The deadline has come, and no checkpoint has told trio yet.
        assert stop_due()


@pytest.mark.rule("R-GEN-02")
async def test_a_group_is_a_cancellation_only_if_all_its_leaves_are() -> None:
    cancelled: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            cancelled.append(error)
            raise
    (leaf,) = cancelled
    assert only_cancelled(leaf)
    assert only_cancelled(BaseExceptionGroup("", [leaf, BaseExceptionGroup("", [leaf])]))
    assert not only_cancelled(BaseExceptionGroup("", [leaf, ValueError("no")]))
    assert not only_cancelled(
        BaseExceptionGroup("", [BaseExceptionGroup("", [KeyboardInterrupt()])])
    )
    assert not only_cancelled(ValueError("no"))
