import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from hypothesis import find, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from harness._errors import InternalError, MissingExtraError
from harness.testing import Schedule, schedule, schedules
from harness.testing._schedule import lift_shields


async def _order(tasks: int = 5, rounds: int = 2) -> list[int]:
    """Return the order in which so many equal tasks take their steps."""
    order: list[int] = []

    async def step(number: int) -> None:
        for _ in range(rounds):
            order.append(number)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for number in range(tasks):
            nursery.start_soon(step, number)
    return order


def _run() -> list[int]:
    return trio.run(_order, clock=MockClock(autojump_threshold=0))


def _order_under(order: Schedule) -> list[int]:
    with schedule(order):
        return _run()


@contextmanager
def _without(name: str) -> Iterator[None]:
    scheduler = trio._core._run
    value = getattr(scheduler, name)
    delattr(scheduler, name)
    try:
        yield
    finally:
        setattr(scheduler, name, value)


def test_trio_still_keeps_its_scheduler_where_this_package_expects_it() -> None:
    scheduler = trio._core._run
    assert isinstance(scheduler._ALLOW_DETERMINISTIC_SCHEDULING, bool)
    assert isinstance(scheduler._r, random.Random)


@pytest.mark.parametrize("name", ["_r", "_ALLOW_DETERMINISTIC_SCHEDULING"])
def test_a_trio_that_keeps_it_elsewhere_is_refused_by_name(name: str) -> None:
    with _without(name), pytest.raises(InternalError, match=f"no private '{name}'"), schedule(0):
        pass  # pragma: no cover


@pytest.mark.rule("R-KIT-11")
@pytest.mark.parametrize("order", [0, 1, 12345, (), (1, 0, 3)])
def test_one_schedule_is_one_order(order: Schedule) -> None:
    assert len({tuple(_order_under(order)) for _ in range(5)}) == 1


@pytest.mark.rule("R-KIT-11")
def test_seeds_lead_to_many_orders() -> None:
    assert len({tuple(_order_under(seed)) for seed in range(20)}) > 10


@pytest.mark.rule("R-KIT-11")
def test_the_order_does_not_depend_on_what_was_run_before() -> None:
    first = _order_under(7)
    _run()
    random.random()
    assert _order_under(7) == first


def test_an_empty_tape_runs_the_oldest_task_first() -> None:
    assert _order_under(()) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


def test_each_number_of_a_tape_picks_the_next_task() -> None:
    # The first number is for trio's own start.
    assert _order_under((0, 4, 0, 0, 0))[:5] == [4, 1, 2, 3, 0]
    assert _order_under((0, 1, 1, 1, 1))[:5] == [1, 2, 3, 4, 0]


def test_a_number_beyond_the_tasks_there_are_counts_round() -> None:
    assert _order_under((0, 9)) == _order_under((0, 4)) != _order_under((0, 0))


@pytest.mark.parametrize("outside", [0, (1, 2)])
@pytest.mark.parametrize("inside", [0, (3,)])
def test_afterwards_the_scheduler_is_as_it_was(outside: Schedule, inside: Schedule) -> None:
    scheduler = trio._core._run
    before = (scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate())
    with pytest.raises(ZeroDivisionError), schedule(outside):
        expected = _run()
        with schedule(outside):
            with schedule(inside):
                assert _run() == _order_under(inside)
            assert _run() == expected
        raise ZeroDivisionError
    after = (scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate())
    assert after == before


@pytest.mark.parametrize("order", [0, (1,)])
def test_the_flag_without_which_no_source_counts_is_set(
    monkeypatch: pytest.MonkeyPatch, order: Schedule
) -> None:
    flag = "_ALLOW_DETERMINISTIC_SCHEDULING"
    monkeypatch.setattr(trio._core._run, flag, False)
    with schedule(order):
        assert getattr(trio._core._run, flag) is True
    assert getattr(trio._core._run, flag) is False


def test_a_tape_serves_a_real_clock_too() -> None:
    with schedule((0, 4)):
        assert trio.run(_order)[0] == 4


def test_without_hypothesis_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'trio-harness\[test\]'"):
        schedules()


@pytest.mark.parametrize("order", [True, 1.5, "0", (1, 2.0), (True,), [1], None])
def test_what_is_no_schedule_is_refused(order: object) -> None:
    with pytest.raises(TypeError, match="schedule is"), schedule(order):  # type: ignore[arg-type]
        pass  # pragma: no cover


def test_a_tape_holds_no_negative_numbers() -> None:
    with pytest.raises(ValueError, match=r"schedule is \(0, -1\)"), schedule((0, -1)):
        pass  # pragma: no cover


@given(schedules())
@settings(max_examples=30)
def test_a_tape_plays_every_task_once_per_round(tape: tuple[int, ...]) -> None:
    assert sorted(_order_under(tape)) == sorted([*range(5)] * 2)


@pytest.mark.rule("R-KIT-17")
def test_hypothesis_finds_the_smallest_tape_that_breaks_a_claim() -> None:
    def last_task_steps_first(tape: tuple[int, ...]) -> bool:
        return _order_under(tape)[0] == 4

    assert find(schedules(), last_task_steps_first) == (0, 4)


def test_under_hypothesis_a_seed_still_leads_to_its_own_order() -> None:
    expected = {seed: _order_under(seed) for seed in range(4)}
    seen: list[int] = []

    @given(st.sampled_from(sorted(expected)))
    @settings(max_examples=10, database=None)
    def check(seed: int) -> None:
        assert _order_under(seed) == expected[seed]
        seen.append(seed)

    check()
    assert set(seen) == set(expected)


async def test_lifted_shields_let_a_cancellation_in() -> None:
    tasks: list[trio.lowlevel.Task] = []

    async def wait_behind_two_shields() -> None:
        tasks.append(trio.lowlevel.current_task())
        with trio.CancelScope(shield=True), trio.CancelScope(shield=True):
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_behind_two_shields)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        lift_shields(tasks[0])
    assert nursery.cancel_scope.cancelled_caught
