"""Schedules of looking again: growing waits, within a budget."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.delegation import PollSchedule, PollStep, create_poll_schedule

GIVE_UP = PollStep(action="give_up")

positive = st.floats(0.01, 1e6)


def waits(schedule: PollSchedule, most: int = 10_000) -> list[float]:
    """Return the waits up to the end."""
    steps = itertools.takewhile(lambda step: step != GIVE_UP, iter(schedule.next, None))
    return [step.seconds for step in itertools.islice(steps, most)]


@pytest.mark.rule("R-CHILD-07")
def test_waits_double_up_to_half_a_minute_and_fill_an_hour() -> None:
    schedule = create_poll_schedule()
    seconds = waits(schedule)
    assert seconds[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert set(seconds[5:-1]) == {30}
    assert sum(seconds) == 3600
    assert seconds[-1] == 3600 - 31 - 30 * (len(seconds) - 6)
    assert [schedule.next() for _ in range(3)] == [GIVE_UP] * 3


@pytest.mark.rule("R-CHILD-07")
def test_the_last_wait_is_shortened() -> None:
    assert waits(create_poll_schedule(budget=10)) == [1, 2, 4, 3]
    assert waits(create_poll_schedule(budget=7)) == [1, 2, 4]
    assert waits(create_poll_schedule(budget=0.5)) == [0.5]
    assert waits(create_poll_schedule(budget=0)) == []
    assert waits(create_poll_schedule(first=9, maximum=2, budget=5)) == [2, 2, 1]


@pytest.mark.rule("R-CHILD-07")
@given(
    st.floats(0.5, 100),
    st.floats(1, 4),
    st.floats(0.5, 100),
    st.floats(0, 1000),
    st.none() | st.floats(0, 1),
)
def test_waits_grow_within_their_bounds(
    first: float, factor: float, maximum: float, budget: float, drawn: float | None
) -> None:
    source = None if drawn is None else lambda: drawn
    schedule = create_poll_schedule(first, factor, maximum=maximum, budget=budget, random=source)
    seconds = waits(schedule)
    assert math.fsum(seconds) == pytest.approx(budget)
    assert math.fsum(seconds) <= budget * (1 + 1e-12)
    assert all(0 < each <= maximum for each in seconds)
    assert seconds[:-1] == sorted(seconds[:-1])
    for earlier, later in itertools.pairwise(seconds[:-1]):
        assert later <= earlier * factor * (1 + 1e-12)
    assert schedule.next() == GIVE_UP


@pytest.mark.rule("R-CHILD-07")
def test_there_is_no_jitter_unless_a_random_source_is_given() -> None:
    numbers = iter([0.0, 1.0, 0.5])
    schedule = create_poll_schedule(first=8, factor=1, random=lambda: next(numbers))
    assert [schedule.next().seconds for _ in range(3)] == [8, 4, 6]


@pytest.mark.rule("R-CHILD-07")
@pytest.mark.parametrize("number", [True, "1", None, -0.1, 1.1, math.nan, math.inf])
def test_a_random_source_gives_numbers_from_nought_to_one(number: object) -> None:
    schedule = create_poll_schedule(random=lambda: number)  # type: ignore[arg-type,return-value]  # what is being tested
    with pytest.raises((TypeError, ValueError), match=r"^the random source gave .*, expected "):
        schedule.next()


@pytest.mark.rule("R-CHILD-07")
@pytest.mark.parametrize("name", ["first", "factor", "maximum", "budget"])
@pytest.mark.parametrize("value", [True, -1, math.nan, math.inf, "3", None])
def test_a_bound_that_is_none_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{name} is .*, expected "):
        create_poll_schedule(**{name: value})  # type: ignore[arg-type]  # what is being tested


@pytest.mark.rule("R-CHILD-07")
@pytest.mark.parametrize(("name", "value"), [("first", 0), ("maximum", 0), ("factor", 0.9)])
def test_waits_neither_vanish_nor_shrink(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is {value}, expected "):
        create_poll_schedule(**{name: value})  # type: ignore[arg-type]  # one of several names


@pytest.mark.rule("R-CHILD-08")
def test_a_reset_starts_at_the_first_delay_with_what_is_left() -> None:
    schedule = create_poll_schedule(budget=20)
    assert [schedule.next().seconds for _ in range(3)] == [1, 2, 4]
    schedule.reset()
    assert waits(schedule) == [1, 2, 4, 6]
    schedule.reset()
    assert schedule.next() == GIVE_UP


@pytest.mark.rule("R-CHILD-08")
@given(st.lists(st.booleans(), max_size=60))
def test_resets_give_no_time_back(resets: list[bool]) -> None:
    schedule = create_poll_schedule(budget=100)
    waited = 0.0
    for reset in resets:
        if reset:
            schedule.reset()
        waited += schedule.next().seconds
    assert waited + sum(waits(schedule)) == pytest.approx(100)
    assert repr(schedule) == "<PollSchedule waited=100 of 100 s>"
