"""Which endpoint is next, and when, without a single task."""

import itertools
import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.routing import DISPOSITIONS, Disposition, Hedge, RoutePlan
from harness.routing._walk import Place, Walk
from tests.routing.routes import plan_of
from tests.strategies import route_plans

BY_CATEGORY = {(row.kind, row.category): row for row in DISPOSITIONS}
FAILS = BY_CATEGORY["http", "server_error"]
DEFECT = BY_CATEGORY["defect", "defect"]
ENDS = BY_CATEGORY["http", "client_error"]


def walk_over(
    first: str, second: str = "", *, retries: int = 2, hedge: Hedge | None = None
) -> Walk:
    return Walk(plan_of(first, second), max_defect_retries=retries, hedge=hedge)


def begin(walk: Walk, *, now: float = 0.0) -> Place:
    """Begin the try that is due."""
    place = walk.due(now)
    assert place is not None
    walk.begin(place, now=now)
    return place


def fail(walk: Walk, place: Place, row: Disposition = FAILS) -> tuple[Place, ...]:
    return walk.fail(place, row, probe=False, produced_output=False)


def name(place: Place | None) -> str | None:
    return None if place is None else str(place.candidate.provider_id)


@pytest.mark.rule("R-EXEC-04")
def test_a_walk_goes_by_the_plan() -> None:
    walk = walk_over("ab", "c", retries=1)
    asked = []
    while not walk.over:
        place = begin(walk)
        asked.append((name(place), place.stage, place.index, place.tries))
        fail(walk, place, DEFECT)
    assert asked == [
        *[("a", 0, 0, 1), ("a", 0, 0, 2), ("b", 0, 1, 1)],
        *[("b", 0, 1, 2), ("c", 1, 0, 1), ("c", 1, 0, 2)],
    ]
    assert walk.due(math.inf) is None


@pytest.mark.rule("R-EXEC-03")
def test_the_cursor_of_the_next_try_counts_earlier_tries_and_those_of_the_place() -> None:
    walk = walk_over("ab")
    first = begin(walk)
    fail(walk, first, DEFECT)
    assert attrs.astuple(walk.cursor(first)) == (0, 0, 1, 1)
    fail(walk, begin(walk))
    assert attrs.astuple(walk.cursor(begin(walk))) == (0, 1, 1, 3)


@pytest.mark.rule("R-EXEC-10", "R-EXEC-11", "R-EXEC-12", "R-EXEC-13")
@pytest.mark.parametrize(
    ("row", "probe", "output", "left"),
    list(itertools.product(DISPOSITIONS, [False, True], [False, True], [0, 1])),
)
def test_what_every_failure_leads_to(
    row: Disposition, probe: bool, output: bool, left: int
) -> None:
    walk = walk_over("abc", retries=left, hedge=Hedge(after=5.0, most=3))
    failing, beside = begin(walk), begin(walk, now=5.0)
    given_up = walk.fail(failing, row, probe=probe, produced_output=output)
    if output or not row.traverse:
        assert (given_up, walk.next(), walk.over) == ((beside,), None, True)
        return
    assert given_up == ()
    assert walk.at_work == (beside,)
    again = row.kind == "defect" and left > 0 and not probe
    assert name(walk.next()) == ("a" if again else "c")


@pytest.mark.rule("R-EXEC-09")
def test_a_place_that_is_used_up_is_not_asked_again() -> None:
    walk = walk_over("ab")
    first = walk.next()
    assert first is not None
    walk.use_up(first)
    assert name(walk.next()) == "b"
    assert walk.at_work == ()


@pytest.mark.rule("R-HEDGE-01", "R-HEDGE-02", "R-HEDGE-03")
def test_a_further_try_is_due_after_silence_since_the_latest_start() -> None:
    walk = walk_over("abc", hedge=Hedge(after=5.0, most=2))
    assert walk.due_at() == -math.inf
    first = begin(walk, now=10.0)
    assert (walk.due_at(), walk.due(14.9), name(walk.due(15.0))) == (15.0, None, "b")
    second = begin(walk, now=16.0)
    assert walk.due_at() == math.inf
    fail(walk, second)
    assert walk.due_at() == 21.0
    fail(walk, first)
    assert walk.due_at() == -math.inf


@pytest.mark.rule("R-HEDGE-01")
def test_without_a_hedge_nothing_is_due_beside_a_try() -> None:
    walk = walk_over("ab")
    begin(walk)
    assert walk.due_at() == math.inf


@pytest.mark.rule("R-HEDGE-04", "R-HEDGE-07")
def test_an_answer_supersedes_and_nothing_is_due_until_its_try_fails() -> None:
    walk = walk_over("abcd", hedge=Hedge(after=5.0, most=3))
    first, second, third = begin(walk), begin(walk, now=5.0), begin(walk, now=10.0)
    assert walk.answer(second) == (first, third)
    assert (walk.at_work, walk.due_at()) == ((second,), math.inf)
    assert walk.answer(second) == ()
    fail(walk, second)
    assert [name(begin(walk)), name(begin(walk, now=5.0)), name(walk.next())] == ["a", "c", "d"]


@pytest.mark.rule("R-HEDGE-07")
def test_an_endpoint_that_owes_a_try_comes_before_those_that_were_superseded() -> None:
    walk = walk_over("ab", hedge=Hedge(after=5.0))
    begin(walk)
    second = begin(walk, now=5.0)
    walk.answer(second)
    fail(walk, second, DEFECT)
    assert name(walk.next()) == "b"


@pytest.mark.rule("R-HEDGE-08")
def test_a_sealed_walk_begins_nothing_and_lets_go_on_what_is_at_work() -> None:
    walk = walk_over("abc", hedge=Hedge(after=5.0))
    first = begin(walk)
    walk.seal()
    assert (walk.at_work, walk.due(math.inf), walk.over) == ((first,), None, False)
    assert (walk.close(), walk.over) == ((first,), True)


@pytest.mark.rule("R-EXEC-06")
def test_a_place_says_what_it_stands_in_for() -> None:
    walk = walk_over("ab", "cd")
    assert [place.fallback for place in walk._places] == [None, "provider", "model", "model"]


@given(
    plan=route_plans(),
    retries=st.integers(0, 2),
    hedge=st.none() | st.builds(Hedge, after=st.just(5.0), most=st.integers(2, 4)),
    draw=st.data(),
)
def test_every_walk_ends_within_its_bounds(
    plan: RoutePlan, retries: int, hedge: Hedge | None, draw: st.DataObject
) -> None:
    """The worst script there is: whoever answers fails, and never in a way that ends the walk."""
    walk = Walk(plan, max_defect_retries=retries, hedge=hedge)
    most = 1 if hedge is None else hedge.most
    places = sum(len(stage.candidates) for stage in plan.stages)
    tries, answering, now = 0, False, 0.0
    while not walk.over:
        at_work = walk.at_work
        assert len(at_work) <= most
        moves = [] if math.isinf(walk.due_at()) and at_work else ["begin"]
        moves += [] if not at_work else ["fail"] if answering else ["answer", "fail"]
        move = draw.draw(st.sampled_from(moves))
        if move == "begin":
            now = max(now, walk.due_at())
            begin(walk, now=now)
            tries += 1
        elif move == "answer":
            walk.answer(draw.draw(st.sampled_from(at_work)))
            answering = True
            assert len(walk.at_work) == 1
        else:
            row = draw.draw(st.sampled_from([FAILS, DEFECT, DEFECT]))
            fail(walk, draw.draw(st.sampled_from(at_work)), row)
            answering = False
    assert places <= tries <= places * (1 + retries) * most
    assert all(place.state == "used_up" for place in walk._places)
