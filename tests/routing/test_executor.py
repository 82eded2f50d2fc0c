"""One try after the other: which endpoint, what the breaker hears, and how it ends."""

import signal
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from harness.routing import (
    AttemptFailure,
    AttemptRecord,
    AttemptSuccess,
    CircuitBreaker,
    CircuitKey,
    Fallback,
    RouteFailed,
    RouteServed,
    Try,
    execute_route_plan,
)
from harness.testing import Scene, cancel_everywhere, run_virtual
from tests.routing.endpoints import endpoint
from tests.routing.routes import (
    Step,
    failure,
    half_open,
    open_circuit,
    outcomes,
    plan_of,
    script,
    states,
)

A, B = endpoint("a"), endpoint("b")


# -- which endpoint ----------------------------------------------------------------------------


@pytest.mark.rule("R-EXEC-01", "R-EXEC-05")
async def test_the_second_endpoint_serves_when_the_first_fails() -> None:
    player = script(a="server_error", b="ok")
    result = await execute_route_plan(plan_of("ab"), CircuitBreaker(), player)
    assert isinstance(result, RouteServed)
    assert (result.value, result.candidate, result.fallback) == ("from b", B, "provider")
    assert player.asked == "ab"
    assert outcomes(result) == "a:failed b:served"


@pytest.mark.rule("R-EXEC-02")
async def test_a_try_gets_its_endpoint_and_returns_one_of_two_shapes() -> None:
    seen: list[Try] = []

    async def attempt(each: Try) -> AttemptSuccess[int] | AttemptFailure:
        seen.append(each)
        if each.candidate == A:
            return AttemptFailure(failure("server_error"))
        return AttemptSuccess(7)

    result = await execute_route_plan(plan_of("ab"), CircuitBreaker(), attempt)
    assert isinstance(result, RouteServed)
    assert result.value == 7
    assert [each.candidate for each in seen] == [A, B]
    assert [each.hedge for each in seen] == [False, False]
    assert repr(seen[1]) == "<Try 1 at b, won>"


@pytest.mark.rule("R-EXEC-02")
@pytest.mark.parametrize("returned", [None, "ok", failure("server_error")])
async def test_any_other_return_is_refused_and_the_slot_freed(
    returned: object, autojump_clock: MockClock
) -> None:
    async def attempt(_: Try) -> Any:
        return returned

    breaker = await half_open("a")
    with pytest.raises(TypeError, match="^the attempt function returned .*, expected an Attempt"):
        await execute_route_plan(plan_of("ab"), breaker, attempt)
    assert states(breaker) == {"a": ("half_open", 1)}


@pytest.mark.rule("R-EXEC-03")
async def test_a_cursor_says_stage_candidate_retry_and_ordinal() -> None:
    player = script(a=["defect", "defect", "server_error"], b="ok")
    await execute_route_plan(plan_of("ab"), CircuitBreaker(), player)
    assert player.cursors == [(0, 0, 0, 0), (0, 0, 1, 1), (0, 0, 2, 2), (0, 1, 0, 3)]


@pytest.mark.rule("R-EXEC-04")
async def test_retries_come_before_the_next_endpoint_and_that_before_the_next_model() -> None:
    player = script(a="defect", b="defect", c="defect")
    plan = plan_of("ab", "c")
    result = await execute_route_plan(plan, CircuitBreaker(), player, max_defect_retries=1)
    assert isinstance(result, RouteFailed)
    places = [cursor[:3] for cursor in player.cursors]
    assert places == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1)]


@pytest.mark.rule("R-EXEC-06")
@pytest.mark.parametrize(
    ("failing", "opened", "fallback"),
    [("", "", None), ("a", "", "provider"), ("", "a", "provider"), ("ab", "", "model")],
)
async def test_the_fallback_says_what_stood_in(
    failing: str, opened: str, fallback: Fallback | None
) -> None:
    breaker = CircuitBreaker()
    open_circuit(breaker, *opened)
    steps = {each: "unreachable" if each in failing else "ok" for each in "abc"}
    result = await execute_route_plan(plan_of("ab", "c"), breaker, script(**steps))
    assert isinstance(result, RouteServed)
    assert result.fallback == fallback


@pytest.mark.rule("R-EXEC-06", "R-EXEC-10")
async def test_an_answer_to_a_retry_is_no_fallback() -> None:
    player = script(a=["defect", "ok"])
    result = await execute_route_plan(plan_of("ab"), CircuitBreaker(), player)
    assert isinstance(result, RouteServed)
    assert (result.fallback, player.asked) == (None, "aa")


# -- how it ends -------------------------------------------------------------------------------


@pytest.mark.rule("R-EXEC-07")
async def test_failure_is_returned_with_the_last_error_and_a_line_for_each_try(
    autojump_clock: MockClock,
) -> None:
    player = script(a=Step(silent=2, ends="server_error"), b=Step(silent=3, ends="stalled"))
    result = await execute_route_plan(plan_of("ab"), CircuitBreaker(), player)
    assert isinstance(result, RouteFailed)
    assert (result.reason, result.retry_after) == ("failed", None)
    assert result.error is not None
    assert (result.error.category, result.error.target.duration) == ("stalled", 3.0)
    first, second = (attempt.cursor for attempt in player.tries)
    assert result.trace == (
        AttemptRecord(
            cursor=first,
            provider_id=A.provider_id,
            outcome="failed",
            category="server_error",
            duration=2.0,
        ),
        AttemptRecord(
            cursor=second,
            provider_id=B.provider_id,
            outcome="failed",
            category="stalled",
            duration=3.0,
        ),
    )


@pytest.mark.rule("R-EXEC-08")
async def test_with_nothing_to_try_the_reason_says_why(autojump_clock: MockClock) -> None:
    breaker, player = CircuitBreaker(), script(a="ok", b="ok")
    empty = await execute_route_plan(plan_of(""), breaker, player)
    assert isinstance(empty, RouteFailed)
    assert (empty.reason, empty.error, empty.retry_after, empty.trace) == (
        *("empty_plan", None, None),
        (),
    )
    open_circuit(breaker, "a")
    await trio.sleep(10)
    open_circuit(breaker, "b")
    await trio.sleep(5)
    shut = await execute_route_plan(plan_of("ba"), breaker, player)
    assert isinstance(shut, RouteFailed)
    assert (shut.reason, shut.error, shut.retry_after) == ("circuits_open", None, 15.0)
    assert outcomes(shut) == "b:refused a:refused"
    assert player.tries == []


@pytest.mark.rule("R-EXEC-08")
async def test_no_time_is_known_while_all_wait_for_probes_of_others(
    autojump_clock: MockClock,
) -> None:
    breaker = await half_open("a")
    with breaker.admit(A, now=trio.current_time()) as probe:
        assert probe.probe
        result = await execute_route_plan(plan_of("a"), breaker, script(a="ok"))
    assert isinstance(result, RouteFailed)
    assert (result.reason, result.retry_after) == ("circuits_open", None)


@pytest.mark.rule("R-EXEC-09")
async def test_an_endpoint_whose_circuit_refuses_is_passed_over() -> None:
    breaker, player = CircuitBreaker(), script(a="ok", b="ok")
    open_circuit(breaker, "a")
    before = states(breaker)
    result = await execute_route_plan(plan_of("ab"), breaker, player)
    assert isinstance(result, RouteServed)
    assert (player.asked, outcomes(result)) == ("b", "a:refused b:served")
    refused, served = result.trace
    assert (refused.category, refused.duration) == (None, 0.0)
    assert refused.cursor.ordinal == served.cursor.ordinal == 0
    assert states(breaker) == before


@pytest.mark.rule("R-EXEC-10", "R-FAIL-02")
async def test_defects_are_retried_up_to_the_limit_at_each_endpoint() -> None:
    breaker, player = CircuitBreaker(failures=1), script(a="defect", b="defect")
    await execute_route_plan(plan_of("ab"), breaker, player, max_defect_retries=2)
    assert player.asked == "aaabbb"
    assert states(breaker) == {}


@pytest.mark.rule("R-EXEC-10")
@pytest.mark.parametrize("name", ["server_error", "rate_limited", "unreachable", "stalled"])
async def test_nothing_but_a_defect_is_retried(name: str) -> None:
    player = script(a=name, b="ok")
    await execute_route_plan(plan_of("ab"), CircuitBreaker(), player)
    assert player.asked == "ab"


@pytest.mark.rule("R-DEF-09", "R-EXEC-10")
async def test_by_default_an_endpoint_is_asked_three_times() -> None:
    player = script(a="defect")
    await execute_route_plan(plan_of("a"), CircuitBreaker(), player)
    assert player.asked == "aaa"


@pytest.mark.rule("R-EXEC-11")
async def test_a_probe_is_one_call(autojump_clock: MockClock) -> None:
    breaker, player = await half_open("a"), script(a="defect", b="ok")
    await execute_route_plan(plan_of("ab"), breaker, player)
    assert player.asked == "ab"
    assert states(breaker) == {"a": ("half_open", 1)}
    assert breaker.admit(A, now=trio.current_time()).probe


@pytest.mark.rule("R-EXEC-10")
async def test_a_retry_is_asked_for_anew_and_may_be_refused() -> None:
    breaker = CircuitBreaker()

    async def attempt(_: Try) -> AttemptSuccess[str] | AttemptFailure:
        open_circuit(breaker, "a")  # another route's call finds the key void meanwhile
        return AttemptFailure(failure("defect"))

    result = await execute_route_plan(plan_of("a"), breaker, attempt)
    assert isinstance(result, RouteFailed)
    assert (result.reason, outcomes(result)) == ("failed", "a:failed a:refused")


@pytest.mark.rule("R-EXEC-12")
@pytest.mark.parametrize("name", ["client_error", "bug", "aborted"])
async def test_a_failure_that_would_be_the_same_everywhere_ends_it(name: str) -> None:
    player = script(a=name, b="ok", c="ok")
    result = await execute_route_plan(plan_of("ab", "c"), CircuitBreaker(), player)
    assert isinstance(result, RouteFailed)
    assert (player.asked, outcomes(result)) == ("a", "a:failed")


@pytest.mark.rule("R-EXEC-13", "R-EXEC-14")
@pytest.mark.parametrize(("name", "counted"), [("server_error", 1), ("defect", 0)])
async def test_output_that_was_produced_ends_it_and_the_circuit_hears_all_the_same(
    name: str, counted: int
) -> None:
    breaker, player = CircuitBreaker(), script(a=Step(ends=name, produced_output=True), b="ok")
    result = await execute_route_plan(plan_of("ab", "b"), breaker, player)
    assert isinstance(result, RouteFailed)
    assert player.asked == "a"
    assert states(breaker) == ({"a": ("closed", counted)} if counted else {})


# -- what is raised ----------------------------------------------------------------------------


@pytest.mark.rule("R-EXEC-15")
@pytest.mark.parametrize(
    "error",
    [
        KeyError("a bug"),
        KeyboardInterrupt(),
        ExceptionGroup("several", [KeyError("one"), ValueError("other")]),
    ],
)
async def test_what_a_try_raises_leaves_as_the_same_object_and_frees_the_probe(
    error: BaseException, autojump_clock: MockClock
) -> None:
    breaker = await half_open("a")
    with pytest.raises(type(error)) as caught:
        await execute_route_plan(plan_of("ab"), breaker, script(a=error, b="ok"))
    assert caught.value is error
    assert states(breaker) == {"a": ("half_open", 1)}
    assert breaker.admit(A, now=trio.current_time()).probe


@pytest.mark.rule("R-EXEC-16")
async def test_a_cancellation_passes_and_frees_the_probe(autojump_clock: MockClock) -> None:
    breaker, player = await half_open("a"), script(a=Step(silent=9), b="ok")
    with trio.move_on_after(1) as scope:
        await execute_route_plan(plan_of("ab"), breaker, player)
    assert scope.cancelled_caught
    assert (player.asked, states(breaker)) == ("a", {"a": ("half_open", 1)})
    assert breaker.admit(A, now=trio.current_time()).probe


@pytest.mark.rule("R-EXEC-16")
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_begun_in_a_scope_that_is_cancelled(seed: int) -> None:
    player = script(a="ok")

    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await execute_route_plan(plan_of("a"), CircuitBreaker(), player)
        assert scope.cancelled_caught

    run_virtual(main, seed=seed)
    assert player.tries == []


@pytest.mark.rule("R-EXEC-15", "R-EXEC-16")
async def test_a_bug_in_how_a_cancelled_try_ends_is_not_lost(autojump_clock: MockClock) -> None:
    async def attempt(_: Try) -> AttemptSuccess[str]:
        try:
            await trio.sleep_forever()
        finally:
            raise error

    error = KeyError("a bug")
    with trio.move_on_after(1):
        with pytest.raises(KeyError) as caught:
            await execute_route_plan(plan_of("ab"), CircuitBreaker(), attempt)
        assert caught.value is error


@trio.lowlevel.enable_ki_protection
def interrupt_from_the_keyboard() -> None:
    """Press Ctrl-C at a moment when trio keeps it for the main task."""
    signal.raise_signal(signal.SIGINT)


@pytest.mark.rule("R-EXEC-15")
def test_an_interrupt_that_hits_the_execution_itself_ends_the_tries_at_once() -> None:
    async def attempt(_: Try) -> AttemptSuccess[str]:
        interrupt_from_the_keyboard()
        await trio.sleep(9)
        return AttemptSuccess("too late")

    async def main() -> None:
        breaker = await half_open("a")
        began = trio.current_time()
        with pytest.raises(KeyboardInterrupt):
            await execute_route_plan(plan_of("a"), breaker, attempt)
        assert trio.current_time() == began
        assert states(breaker) == {"a": ("half_open", 1)}

    run_virtual(main)


@pytest.mark.rule("R-EXEC-15")
def test_an_interrupt_beside_a_bug_is_not_lost() -> None:
    async def attempt(_: Try) -> AttemptSuccess[str]:
        interrupt_from_the_keyboard()
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("a bug in how it ends")

    async def main() -> None:
        with pytest.RaisesGroup(KeyError, KeyboardInterrupt):
            await execute_route_plan(plan_of("a"), CircuitBreaker(), attempt)

    run_virtual(main)


# -- time --------------------------------------------------------------------------------------


@pytest.mark.rule("R-EXEC-17")
async def test_no_time_passes_between_two_tries(autojump_clock: MockClock) -> None:
    breaker = CircuitBreaker(failures=1)
    player = script(a=Step(ends="rate_limited", retry_after=60.0), b="ok")
    began = trio.current_time()
    result = await execute_route_plan(plan_of("ab"), breaker, player)
    assert isinstance(result, RouteServed)
    assert trio.current_time() == began
    (entry,) = breaker.snapshot(now=began)
    assert (entry.key, entry.retry_at) == (CircuitKey.of(A), began + 60.0)


@pytest.mark.rule("R-EXEC-18")
async def test_a_completion_whose_text_is_not_what_was_asked_for_is_a_success() -> None:
    async def attempt(_: Try) -> AttemptSuccess[str] | AttemptFailure:
        return AttemptSuccess("{not json")

    result = await execute_route_plan(plan_of("ab"), CircuitBreaker(), attempt)
    assert isinstance(result, RouteServed)
    assert (result.value, len(result.trace)) == ("{not json", 1)


@pytest.mark.rule("R-EXEC-19")
async def test_the_second_try_finds_the_first_ones_failure_in_the_breaker() -> None:
    breaker, player = CircuitBreaker(), script(a="server_error", b="ok")
    seen: list[dict[str, tuple[str, int]]] = []
    player.on_start = lambda _: seen.append(states(breaker))
    await execute_route_plan(plan_of("ab"), breaker, player)
    assert seen == [{}, {"a": ("closed", 1)}]
    assert states(breaker) == {"a": ("closed", 1)}


@pytest.mark.rule("R-EXEC-19", "R-BRK-04")
async def test_a_success_clears_what_the_circuit_had_counted() -> None:
    breaker = CircuitBreaker()
    breaker.record_failure(A, failure("server_error"), now=trio.current_time())
    await execute_route_plan(plan_of("a"), breaker, script(a="ok"))
    assert states(breaker) == {}


# -- arguments ---------------------------------------------------------------------------------


@pytest.mark.rule("R-ROUTE-01")
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"plan": "a"}, TypeError, "^plan is 'a', expected a RoutePlan$"),
        ({"breaker": None}, TypeError, "^breaker is None, expected a CircuitBreaker$"),
        ({"hedge": 5.0}, TypeError, "^hedge is 5.0, expected a Hedge$"),
        ({"max_defect_retries": -1}, ValueError, "^max_defect_retries is -1, expected at least 0$"),
        ({"max_defect_retries": True}, TypeError, "^max_defect_retries is True, expected an int$"),
    ],
)
async def test_arguments_of_another_kind_are_refused_before_anything_is_tried(
    change: dict[str, Any], error: type[Exception], words: str
) -> None:
    player = script(a="ok")
    arguments: dict[str, Any] = {"plan": plan_of("a"), "breaker": CircuitBreaker()} | change
    with pytest.raises(error, match=words):
        await execute_route_plan(attempt=player, **arguments)
    assert player.tries == []


# -- cut anywhere ------------------------------------------------------------------------------


@pytest.mark.rule("R-EXEC-16", "R-BRK-15")
def test_a_route_can_be_cut_everywhere_and_leaks_no_slot() -> None:
    async def scenario(scene: Scene) -> None:
        breaker = await half_open("a", "b")
        player = script(
            a=Step(silent=1, talks=1, ends="server_error"), b=[Step(silent=1, ends="defect"), "ok"]
        )

        @scene.afterwards
        def check() -> None:
            told = {str(each.key.provider_id): each for each in breaker.snapshot(now=100.0)}
            assert all(each.state == "half_open" for each in told.values())
            # What ended by itself was counted, and what was cut was not.
            assert told["a"].failures == 1 + player.finished.count("a")

        await execute_route_plan(plan_of("ab"), breaker, player)

    report = cancel_everywhere(scenario, minimum=15)
    assert report.cancelled
