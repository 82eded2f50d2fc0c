"""The reasons that a leg ends for: the order of the table, and who owns a stop."""

import itertools
import math
from typing import get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.events import StopReason
from harness.kernel import STOP_ORDER, StopRow
from harness.kernel._stop import Fact, StopSignal, first_reason

FACTS: tuple[Fact, ...] = get_args(Fact)

OUTRANKS: tuple[tuple[Fact, Fact, str], ...] = (
    ("failed", "cancelled", "an error must be seen; the cancellation is still pending outside"),
    ("cancelled", "aborted", "the host's own scope comes before the run's"),
    ("aborted", "out_of_time", "somebody's will says more than a clock"),
    ("out_of_time", "halted", "what stops a run from outside comes before what ends it inside"),
    ("halted", "refused", "the calls of a turn that halted are refused because of that"),
    ("refused", "open_calls", "a batch that was refused has asked nobody anything"),
    ("open_calls", "stop_asked", "a question that is open must be answered, stop or not"),
    ("stop_asked", "wakes", "a run that was to stop does not come back by itself"),
    ("wakes", "no_turns", "a pause that was asked for is no lack of room"),
    ("no_turns", "no_budget", "a run's own limit comes before what it shares"),
    ("no_budget", "checkpoint", "a run that cannot go on is not merely parked"),
    ("checkpoint", "finished", "what parks a run comes before what would have ended it"),
)
"""Which fact comes before which, pair by pair, and why; the rest follows from these."""

REPORTED: dict[Fact, StopReason] = {
    "failed": "failed",
    "cancelled": "cancelled",
    "aborted": "aborted",
    "out_of_time": "deadline",
    "halted": "halted",
    "refused": "budget",
    "open_calls": "waiting_for_reply",
    "stop_asked": "aborted",
    "wakes": "resuming_later",
    "no_turns": "turn_limit",
    "no_budget": "budget",
    "checkpoint": "checkpointed",
    "finished": "done",
}


def outranked() -> dict[Fact, set[Fact]]:
    """Return what each fact outranks, directly or by way of others."""
    beaten: dict[Fact, set[Fact]] = {fact: set() for fact in FACTS}
    for higher, lower, _ in OUTRANKS:
        beaten[higher].add(lower)
    for middle, higher in itertools.product(FACTS, FACTS):
        if middle in beaten[higher]:
            beaten[higher] |= beaten[middle]
    return beaten


@pytest.mark.rule("R-LOOP-58")
def test_every_combination_of_facts_reports_the_one_that_outranks_the_others() -> None:
    beaten = outranked()
    walked = 0
    for size in range(len(FACTS) + 1):
        for facts in itertools.combinations(FACTS, size):
            left = set(facts) - {lower for higher in facts for lower in beaten[higher]}
            expected: list[StopReason | None] = [REPORTED[fact] for fact in left]
            assert [first_reason(*facts)] == (expected or [None]), facts
            walked += 1
    assert walked == 2 ** len(FACTS)


@given(st.permutations(FACTS), st.integers(0, len(FACTS)), st.integers(0, 3))
def test_the_order_and_number_in_which_facts_are_given_do_not_count(
    facts: list[Fact], size: int, nones: int
) -> None:
    given_facts = facts[:size]
    noisy = [*given_facts, *given_facts, *[None] * nones]
    assert first_reason(*noisy) == first_reason(*sorted(given_facts))


@pytest.mark.rule("R-LOOP-58")
def test_the_table_has_one_row_for_each_fact_and_a_fact_for_each_reason() -> None:
    assert sorted(row.fact for row in STOP_ORDER) == sorted(FACTS)
    assert {row.reason for row in STOP_ORDER} == set(get_args(StopReason))
    assert all(row.meaning for row in STOP_ORDER)


def test_a_row_cannot_be_changed() -> None:
    row: StopRow = STOP_ORDER[0]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        row.reason = "done"  # type: ignore[misc]  # what is being tested


# -- who owns a stop ---------------------------------------------------------------------------


@pytest.mark.parametrize(("now", "owned"), [(4.0, True), (5.0, True), (5.1, False)])
def test_an_abort_owns_the_stop_unless_the_deadline_came_before(now: float, owned: bool) -> None:
    stop = StopSignal(deadline=5.0)
    stop.abort("enough", None, now=now)
    assert (stop.aborted, stop.message) == (owned, "enough" if owned else None)


def test_the_first_abort_names_the_reason() -> None:
    stop = StopSignal(deadline=math.inf)
    stop.abort("first", None, now=1.0)
    stop.abort("second", None, now=2.0)
    assert stop.message == "first"


@given(st.lists(st.none() | st.floats(0, 100), max_size=6))
def test_an_abort_can_only_shorten_the_grace(graces: list[float | None]) -> None:
    stop = StopSignal(deadline=math.inf)
    caps: list[float] = []
    for grace in graces:
        stop.abort(None, grace, now=0.0)
        caps.append(stop.grace_cap)
    assert caps == sorted(caps, reverse=True)
    assert stop.grace_cap == min([math.inf, *(each for each in graces if each is not None)])


def test_an_abort_after_the_deadline_shortens_the_grace_all_the_same() -> None:
    stop = StopSignal(deadline=5.0)
    stop.abort("late", 1.0, now=6.0)
    assert (stop.aborted, stop.grace_cap) == (False, 1.0)
