"""One circuit: its whole table, and what the table does to the state."""

import itertools
import math
from typing import get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.routing import BREAKER_ROWS, CircuitAction, CircuitEvent, CircuitState
from harness.routing._circuit import Circuit, CircuitTerms, breaker_row

STATES: tuple[CircuitState, ...] = get_args(CircuitState)
EVENTS: tuple[CircuitEvent, ...] = get_args(CircuitEvent)
PAIRS = list(itertools.product(STATES, EVENTS))

EXPECTED: dict[CircuitState, str] = {
    "closed": "admit/closed reset/closed count/closed trip/open none/closed none/closed",
    "open": "refuse/open none/open lengthen/open lengthen/open none/open lengthen/open",
    "half_open": "admit/probing" + " none/half_open" * 5,
    "probing": "refuse/probing reset/closed trip/open trip/open none/half_open none/probing",
}
"""What is done and which state follows, in the order of the events."""


def terms(*, failures: int = 2, cooldown: float = 10.0, ceiling: float = 100.0) -> CircuitTerms:
    return CircuitTerms(failures=failures, cooldown=cooldown, max_cooldown=ceiling)


def circuit_in(state: CircuitState) -> tuple[Circuit, float]:
    """Return a circuit that came to *state* by itself, and the time at which it is in it."""
    circuit = Circuit(terms())
    if state == "closed":
        return circuit, 0.0
    circuit.fail(0.0, generation=0, at_once=True, retry_after=None)
    if state == "open":
        return circuit, 5.0
    if state == "probing":
        assert circuit.ask(10.0)
    return circuit, 10.0


@pytest.mark.rule("R-BRK-06", "R-BRK-07", "R-BRK-11")
@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_every_event_in_every_state_does_what_was_decided(
    state: CircuitState, event: CircuitEvent
) -> None:
    row = breaker_row(state, event)
    assert f"{row.action}/{row.then}" == EXPECTED[state].split()[EVENTS.index(event)]
    assert row.why


@pytest.mark.rule("R-BRK-06")
def test_the_table_has_one_row_for_each_state_and_event() -> None:
    pairs = [(row.state, row.event) for row in BREAKER_ROWS]
    assert sorted(pairs) == sorted(PAIRS)
    assert {row.action for row in BREAKER_ROWS} == set(get_args(CircuitAction))
    assert {row.then for row in BREAKER_ROWS} == set(STATES)


def test_a_row_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        BREAKER_ROWS[0].then = "open"  # type: ignore[misc]  # what is being tested


@pytest.mark.rule("R-BRK-07", "R-BRK-11")
@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_a_circuit_does_what_its_row_says(state: CircuitState, event: CircuitEvent) -> None:
    circuit, now = circuit_in(state)
    before, failures, until = circuit.generation, circuit.failures, circuit._until
    generation = before - 1 if event == "late" else before
    row = breaker_row(state, event)
    if event == "asked":
        assert circuit.ask(now) is (row.action == "admit")
    elif event == "succeeded":
        circuit.succeed(now, generation=generation)
    elif event == "released":
        circuit.release(generation=generation)
    else:
        circuit.fail(now, generation=generation, at_once=event == "broke", retry_after=50.0)
    # In a closed circuit with room a failure counts; in any other it is told from nothing else.
    assert circuit.state(now) == row.then
    assert circuit.generation == before + (row.then != row.state)
    grown = failures + (row.action in ("count", "trip"))
    assert circuit.failures == (0 if row.action == "reset" else grown)
    assert circuit._until == (now + 50.0 if row.action in ("trip", "lengthen") else until)


@pytest.mark.rule("R-BRK-03")
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"failures": 0}, ValueError),
        ({"failures": True}, TypeError),
        ({"failures": 2.0}, TypeError),
        ({"cooldown": 0.0}, ValueError),
        ({"cooldown": -1.0}, ValueError),
        ({"cooldown": math.nan}, ValueError),
        ({"cooldown": math.inf}, ValueError),
        ({"cooldown": True}, TypeError),
        ({"ceiling": math.inf}, ValueError),
        ({"ceiling": 9.0}, ValueError),
    ],
)
def test_terms_out_of_their_bounds_are_refused(
    change: dict[str, float], error: type[Exception]
) -> None:
    name = next(iter(change)).replace("ceiling", "max_cooldown")
    with pytest.raises(error, match=f"^{name} is "):
        terms(**change)  # type: ignore[arg-type]  # what is being tested


@pytest.mark.rule("R-BRK-09", "R-BRK-10")
@given(st.lists(st.tuples(st.floats(0, 40), st.none() | st.floats(0, 1000)), max_size=8))
def test_the_end_of_a_cooldown_only_ever_moves_later_and_never_past_the_ceiling(
    failures: list[tuple[float, float | None]],
) -> None:
    circuit = Circuit(terms(cooldown=30.0))
    circuit.fail(0.0, generation=0, at_once=True, retry_after=None)
    ends = [30.0]
    now = 0.0
    for pause, retry_after in failures:
        now += pause
        end = circuit.retry_at(now)
        if end is None:
            break
        circuit.fail(now, generation=0, at_once=False, retry_after=retry_after)
        moved = circuit.retry_at(now)
        assert moved == max(end, now + min(retry_after or 0.0, 100.0))
        ends.append(moved)
    assert ends == sorted(ends)
