"""The breaker: whose circuit it is, who is let through, and what is remembered."""

import gc
import math
from typing import Any

import attrs
import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.errors import RunUseError
from harness.routing import (
    AttemptError,
    CircuitBreaker,
    CircuitKey,
    CircuitState,
    RouteCandidate,
    Slot,
)
from harness.testing import run_virtual
from tests.routing.endpoints import SMALL, endpoint
from tests.routing.routes import failure

A, B = endpoint("a"), endpoint("b")

COUNTED = failure("server_error")
VOID_KEY = failure("credential")
DEFECT = failure("defect")


def fail(breaker: CircuitBreaker, times: int = 5, *, now: float = 0.0) -> None:
    """Make so many calls to A that fail."""
    for _ in range(times):
        with breaker.admit(A, now=now) as slot:
            slot.failure(COUNTED, now=now)


def succeed(breaker: CircuitBreaker, *, now: float = 0.0) -> None:
    with breaker.admit(A, now=now) as slot:
        slot.success(now=now)


def state(breaker: CircuitBreaker, *, now: float = 0.0) -> CircuitState:
    """Return the state of A's circuit."""
    found = [each for each in breaker.snapshot(now=now) if each.key == CircuitKey.of(A)]
    return found[0].state if found else "closed"


def admits(
    breaker: CircuitBreaker, candidate: RouteCandidate | CircuitKey = A, *, now: float = 0.0
) -> bool:
    """Whether a call is let through; it is not made."""
    with breaker.admit(candidate, now=now) as slot:
        return slot.admitted


# -- whose circuit it is -----------------------------------------------------------------------


@pytest.mark.rule("R-BRK-01")
def test_two_breakers_know_nothing_of_each_other() -> None:
    one, other = CircuitBreaker(), CircuitBreaker()
    fail(one)
    assert (admits(one), admits(other)) == (False, True)


@pytest.mark.rule("R-BRK-02", "R-BRK-12")
@pytest.mark.parametrize(
    ("change", "apart"),
    [
        ({"provider_id": B.provider_id}, True),
        ({"provider_invocation_model": "another"}, True),
        ({"credential_source": "tenant"}, True),
        ({"credential_scope": "t2"}, True),
        ({"canonical_model_id": SMALL}, False),
        ({"binding_fingerprint": "another"}, False),
        ({"capabilities": frozenset({"vision"})}, False),
        ({"max_completion_tokens": 7}, False),
        ({"credit_eligible": False}, False),
    ],
)
def test_only_provider_model_source_and_scope_tell_circuits_apart(
    change: dict[str, Any], apart: bool
) -> None:
    breaker = CircuitBreaker()
    fail(breaker)
    other = attrs.evolve(A, **change)
    assert admits(breaker, other) is apart
    assert (CircuitKey.of(other) != CircuitKey.of(A)) is apart
    assert admits(breaker, CircuitKey.of(other)) is apart


@pytest.mark.rule("R-BRK-12", "R-ROUTE-04")
def test_a_tenants_void_key_is_that_tenants_trouble() -> None:
    one, two = (endpoint(credential_scope=scope) for scope in ("t1", "t2"))
    breaker = CircuitBreaker()
    breaker.admit(one, now=0.0).failure(VOID_KEY, now=0.0)
    assert (admits(breaker, one), admits(breaker, two)) == (False, True)


@pytest.mark.rule("R-BRK-12")
def test_without_a_scope_all_share_one_circuit() -> None:
    breaker = CircuitBreaker()
    breaker.admit(endpoint(), now=0.0).failure(VOID_KEY, now=0.0)
    assert not admits(breaker, endpoint())


@pytest.mark.rule("R-BRK-13")
def test_a_snapshot_shows_the_scope_as_it_was_given_and_nothing_of_the_key() -> None:
    candidate = attrs.evolve(endpoint(credential_scope="tenant 7"), binding_fingerprint="s3cret")
    breaker = CircuitBreaker()
    breaker.admit(candidate, now=0.0).failure(VOID_KEY, now=0.0)
    (entry,) = breaker.snapshot(now=1.0)
    assert (entry.key.credential_scope, entry.state, entry.retry_at) == ("tenant 7", "open", 30.0)
    assert "s3cret" not in repr(entry)
    assert {field.name for field in attrs.fields(CircuitKey)} == {
        *("provider_id", "provider_invocation_model", "credential_source", "credential_scope")
    }


# -- opening -----------------------------------------------------------------------------------


@pytest.mark.rule("R-BRK-03")
def test_the_fifth_failure_in_a_row_opens_for_thirty_seconds() -> None:
    breaker = CircuitBreaker()
    fail(breaker, 4)
    assert state(breaker) == "closed"
    fail(breaker, 1)
    assert state(breaker) == "open"
    assert (admits(breaker, now=29.9), admits(breaker, now=30.0)) == (False, True)


@pytest.mark.rule("R-BRK-03")
def test_count_cooldown_and_ceiling_are_the_hosts_choice() -> None:
    breaker = CircuitBreaker(failures=1, cooldown=2.0, max_cooldown=3.0)
    breaker.admit(A, now=0.0).failure(failure("rate_limited", retry_after=99.0), now=0.0)
    assert (admits(breaker, now=2.9), admits(breaker, now=3.0)) == (False, True)
    with pytest.raises(ValueError, match="^max_cooldown is 1.0, expected at least the cooldown"):
        CircuitBreaker(max_cooldown=1.0)


@pytest.mark.rule("R-BRK-04")
def test_a_success_clears_the_count() -> None:
    breaker = CircuitBreaker()
    fail(breaker, 4)
    succeed(breaker)
    fail(breaker, 4)
    assert state(breaker) == "closed"


@pytest.mark.rule("R-BRK-05")
def test_a_void_key_opens_at_once() -> None:
    breaker = CircuitBreaker()
    breaker.admit(A, now=0.0).failure(VOID_KEY, now=0.0)
    assert state(breaker) == "open"


@pytest.mark.rule("R-FAIL-02", "R-BRK-08")
@pytest.mark.parametrize("name", ["defect", "client_error", "provider_bad_request", "aborted"])
def test_failures_that_say_nothing_of_the_endpoint_do_not_count(name: str) -> None:
    breaker = CircuitBreaker(failures=1)
    for _ in range(20):
        breaker.admit(A, now=0.0).failure(failure(name), now=0.0)
    assert breaker.snapshot(now=0.0) == ()


# -- half-open ---------------------------------------------------------------------------------


def opened(*, now: float = 0.0) -> CircuitBreaker:
    breaker = CircuitBreaker()
    fail(breaker, now=now)
    return breaker


@pytest.mark.rule("R-BRK-06")
def test_after_the_cooldown_one_of_two_callers_is_let_through() -> None:
    breaker = opened()
    early = breaker.admit(A, now=29.999)
    assert (early.admitted, early.probe, early.retry_at) == (False, False, 30.0)
    assert state(breaker, now=30.0) == "half_open"
    first, second = breaker.admit(A, now=30.0), breaker.admit(A, now=30.0)
    assert (first.admitted, first.probe, first.retry_at) == (True, True, None)
    assert (second.admitted, second.probe, second.retry_at) == (False, False, None)


@pytest.mark.rule("R-BRK-07")
def test_a_probe_that_succeeds_closes_and_clears_the_count() -> None:
    breaker = opened()
    breaker.admit(A, now=30.0).success(now=31.0)
    assert breaker.snapshot(now=31.0) == ()
    fail(breaker, 4, now=32.0)
    assert state(breaker, now=32.0) == "closed"


@pytest.mark.rule("R-BRK-07")
def test_a_probe_that_fails_opens_for_a_full_cooldown_again() -> None:
    breaker = opened()
    breaker.admit(A, now=30.0).failure(COUNTED, now=34.0)
    assert (admits(breaker, now=63.9), admits(breaker, now=64.0)) == (False, True)


@pytest.mark.rule("R-BRK-08")
def test_a_probe_that_is_released_by_hand_is_free_for_the_next_caller() -> None:
    breaker = opened()
    probe = breaker.admit(A, now=30.0)
    breaker.release_probe(A)
    assert state(breaker, now=30.0) == "half_open"
    following = breaker.admit(A, now=30.0)
    assert following.probe
    probe.success(now=31.0)
    assert state(breaker, now=31.0) == "probing"


@pytest.mark.rule("R-BRK-08")
def test_a_probe_with_an_outcome_that_says_nothing_is_freed() -> None:
    breaker = opened()
    breaker.admit(A, now=30.0).failure(DEFECT, now=31.0)
    assert state(breaker, now=31.0) == "half_open"
    assert breaker.admit(A, now=31.0).probe


# -- retry-after -------------------------------------------------------------------------------


@pytest.mark.rule("R-BRK-09")
def test_what_the_opening_failure_asks_for_lengthens_the_cooldown() -> None:
    breaker = CircuitBreaker()
    fail(breaker, 4)
    breaker.admit(A, now=0.0).failure(failure("rate_limited", retry_after=90.0), now=0.0)
    assert (admits(breaker, now=89.0), admits(breaker, now=90.0)) == (False, True)


@pytest.mark.rule("R-BRK-10")
@pytest.mark.parametrize(("asked_for", "end"), [(1.0, 30.0), (36_000.0, 900.0), (0.0, 30.0)])
def test_it_never_shortens_one_and_is_cut_at_the_ceiling(asked_for: float, end: float) -> None:
    breaker = CircuitBreaker(failures=1)
    breaker.admit(A, now=0.0).failure(failure("rate_limited", retry_after=asked_for), now=0.0)
    assert breaker.snapshot(now=0.0)[0].retry_at == end


@pytest.mark.rule("R-BRK-10")
def test_it_does_not_open_a_closed_circuit() -> None:
    breaker = CircuitBreaker()
    breaker.admit(A, now=0.0).failure(failure("rate_limited", retry_after=90.0), now=0.0)
    assert admits(breaker)


@pytest.mark.rule("R-BRK-10", "R-BRK-11")
@pytest.mark.parametrize(("asked_for", "end"), [(None, 30.0), (5.0, 30.0), (50.0, 60.0)])
def test_a_call_that_was_on_its_way_can_only_move_the_end_later(
    asked_for: float | None, end: float
) -> None:
    breaker = CircuitBreaker()
    on_its_way = breaker.admit(A, now=0.0)
    fail(breaker)
    on_its_way.failure(failure("rate_limited", retry_after=asked_for), now=10.0)
    assert breaker.snapshot(now=10.0)[0].retry_at == end


# -- late outcomes -----------------------------------------------------------------------------


@pytest.mark.rule("R-BRK-11")
@pytest.mark.parametrize("now", [10.0, 40.0])
def test_a_late_success_closes_neither_an_open_nor_a_half_open_circuit(now: float) -> None:
    breaker = CircuitBreaker()
    on_its_way = breaker.admit(A, now=0.0)
    fail(breaker)
    on_its_way.success(now=now)
    assert state(breaker, now=now) == ("open" if now < 30 else "half_open")


@pytest.mark.rule("R-BRK-11")
@pytest.mark.parametrize("error", [COUNTED, VOID_KEY, DEFECT])
def test_a_late_outcome_does_not_use_up_the_probe(error: AttemptError) -> None:
    breaker = CircuitBreaker()
    on_its_way = breaker.admit(A, now=0.0)
    fail(breaker)
    probe = breaker.admit(A, now=30.0)
    on_its_way.failure(error, now=31.0)
    assert state(breaker, now=31.0) == "probing"
    probe.success(now=32.0)
    assert state(breaker, now=32.0) == "closed"


@pytest.mark.rule("R-BRK-11")
def test_a_failure_from_before_is_late_even_if_the_circuit_has_closed_again() -> None:
    breaker = CircuitBreaker()
    on_its_way = breaker.admit(A, now=0.0)
    fail(breaker)
    breaker.admit(A, now=30.0).success(now=30.0)
    assert breaker.snapshot(now=30.0) == ()
    on_its_way.failure(VOID_KEY, now=31.0)
    assert breaker.snapshot(now=31.0) == ()
    on_its_way = breaker.admit(A, now=31.0)
    on_its_way.failure(VOID_KEY, now=32.0)
    assert state(breaker, now=32.0) == "open"


# -- slots -------------------------------------------------------------------------------------


@pytest.mark.rule("R-BRK-15")
def test_a_block_that_is_left_without_an_outcome_frees_the_probe() -> None:
    breaker = opened()
    with breaker.admit(A, now=30.0) as fallen_through:
        assert fallen_through.probe
    assert admits(breaker, now=30.0)
    with pytest.raises(KeyError), breaker.admit(A, now=30.0) as raised:
        assert raised.probe
        raise KeyError("a bug")
    assert admits(breaker, now=30.0)

    async def cancelled() -> None:
        with trio.CancelScope() as scope, breaker.admit(A, now=30.0) as slot:
            assert slot.probe
            scope.cancel()
            await trio.sleep_forever()

    run_virtual(cancelled)
    assert state(breaker, now=30.0) == "half_open"


@pytest.mark.rule("R-BRK-15")
def test_hosts_that_call_by_hand_report_by_hand() -> None:
    breaker = CircuitBreaker()
    for _ in range(5):
        breaker.record_failure(A, COUNTED, now=0.0)
    assert state(breaker) == "open"
    breaker.record_success(CircuitKey.of(A), now=0.0)
    assert state(breaker) == "open"
    assert breaker.admit(A, now=30.0).probe
    breaker.record_success(A, now=31.0)
    assert breaker.snapshot(now=31.0) == ()
    breaker.record_failure(A, VOID_KEY, now=32.0)
    assert breaker.admit(A, now=62.0).probe
    breaker.record_failure(A, DEFECT, now=63.0)
    assert state(breaker, now=63.0) == "half_open"


def test_a_slot_takes_one_outcome() -> None:
    breaker = CircuitBreaker(failures=1)
    slot = breaker.admit(A, now=0.0)
    slot.failure(COUNTED, now=0.0)
    with pytest.raises(RunUseError, match="^the call has its outcome already, expected one that"):
        slot.success(now=0.0)
    slot.release()
    refused = breaker.admit(A, now=0.0)
    assert not refused.admitted
    with pytest.raises(RunUseError, match="^the call was refused, expected one that is on its way"):
        refused.failure(COUNTED, now=0.0)
    refused.release()
    assert state(breaker) == "open"


def test_what_is_no_failure_is_refused_and_does_not_use_the_slot_up() -> None:
    slot = opened().admit(A, now=30.0)
    with pytest.raises(TypeError, match="^the failure is 503, expected an AttemptError$"):
        slot.failure(503, now=30.0)  # type: ignore[arg-type]  # what is being tested
    slot.success(now=31.0)


@pytest.mark.parametrize(
    ("now", "error"),
    [(math.nan, ValueError), (math.inf, ValueError), (-1.0, ValueError), (True, TypeError)],
)
def test_a_time_that_is_none_is_refused(now: float, error: type[Exception]) -> None:
    breaker = CircuitBreaker()
    slot = breaker.admit(A, now=0.0)
    for call in (
        lambda: breaker.admit(A, now=now),
        lambda: breaker.snapshot(now=now),
        lambda: breaker.record_success(A, now=now),
        lambda: breaker.record_failure(A, COUNTED, now=now),
        lambda: slot.success(now=now),
        lambda: slot.failure(COUNTED, now=now),
    ):
        with pytest.raises(error, match="^now is "):
            call()
    slot.success(now=1.0)


def test_an_endpoint_is_a_candidate_or_a_key() -> None:
    with pytest.raises(TypeError, match="^the endpoint is 'a', expected a RouteCandidate or a"):
        CircuitBreaker().admit("a", now=0.0)  # type: ignore[arg-type]  # what is being tested


def test_breaker_and_slot_say_what_they_are() -> None:
    breaker = opened()
    assert repr(breaker) == "<CircuitBreaker, 1 endpoints in trouble>"
    assert repr(breaker.admit(A, now=0.0)) == "<Slot refused until 30.0>"
    slot = breaker.admit(A, now=30.0)
    assert repr(slot) == "<Slot pending, probe=True>"
    slot.release()
    assert repr(slot) == "<Slot settled, probe=True>"


@pytest.mark.rule("R-BRK-14")
def test_of_fifty_tasks_that_ask_in_one_instant_one_gets_the_probe() -> None:
    admitted: list[Slot] = []

    async def ask(breaker: CircuitBreaker) -> None:
        with breaker.admit(A, now=trio.current_time()) as slot:
            await trio.lowlevel.checkpoint()
            if slot.admitted:
                admitted.append(slot)
            await trio.sleep(1)

    async def main() -> None:
        breaker = opened(now=trio.current_time())
        await trio.sleep(30)
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(ask, breaker)

    run_virtual(main)
    assert [slot.probe for slot in admitted] == [True]


# -- what is remembered ------------------------------------------------------------------------


@pytest.mark.rule("R-BRK-16")
def test_ten_thousand_healthy_endpoints_leave_nothing_behind() -> None:
    breaker = CircuitBreaker()
    for number in range(10_000):
        key = attrs.evolve(CircuitKey.of(A), credential_scope=str(number))
        if number % 2:
            breaker.admit(key, now=0.0).failure(COUNTED, now=0.0)
        breaker.admit(key, now=0.0).success(now=0.0)
    gc.collect()
    assert breaker.snapshot(now=0.0) == ()
    assert (len(breaker._known), len(breaker._troubled)) == (0, 0)


@pytest.mark.rule("R-BRK-16")
def test_failures_are_remembered_although_their_slots_are_gone() -> None:
    breaker = CircuitBreaker()
    fail(breaker, 1)
    gc.collect()
    assert breaker.snapshot(now=0.0)[0].failures == 1


# -- any order of calls ------------------------------------------------------------------------


class BreakerMachine(RuleBasedStateMachine):
    """Two endpoints called in any order; the model knows who may hold A's probe."""

    @initialize(failures=st.integers(1, 3), cooldown=st.floats(1, 20))
    def start(self, failures: int, cooldown: float) -> None:
        self.breaker = CircuitBreaker(failures=failures, cooldown=cooldown, max_cooldown=60.0)
        self.now = 0.0
        self.calls: list[Slot] = []
        self.probe: Slot | None = None

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def ask(self) -> None:
        before = state(self.breaker, now=self.now)
        slot = self.breaker.admit(A, now=self.now)
        assert slot.admitted is (before in ("closed", "half_open"))
        assert slot.probe is (before == "half_open")
        assert (slot.retry_at is not None) is (before == "open")
        if slot.probe:
            assert self.probe is None, "a second probe was let through"
            self.probe = slot
        if slot.admitted:
            self.calls.append(slot)

    @precondition(lambda self: self.calls)
    @rule(draw=st.data(), how=st.sampled_from(["success", "release", "count", "open", "none"]))
    def end(self, draw: st.DataObject, how: str) -> None:
        slot = self.calls.pop(draw.draw(st.integers(0, len(self.calls) - 1)))
        before = state(self.breaker, now=self.now)
        if how == "success":
            slot.success(now=self.now)
        elif how == "release":
            slot.release()
        else:
            retry_after = draw.draw(st.none() | st.floats(0, 100))
            name = {"count": "rate_limited", "open": "credential", "none": "defect"}[how]
            slot.failure(failure(name, retry_after=retry_after), now=self.now)
        after = state(self.breaker, now=self.now)
        if slot is self.probe:
            self.probe = None
            told = {"success": "closed", "count": "open", "open": "open"}
            assert after == told.get(how, "half_open")
        elif before != "closed":
            assert after == before, "a call that holds no probe changed the state"

    @rule()
    def release_by_hand(self) -> None:
        self.breaker.release_probe(A)
        self.probe = None

    @invariant()
    def the_probe_is_out_exactly_while_its_call_is(self) -> None:
        probing = state(self.breaker, now=self.now) == "probing"
        assert probing is (self.probe is not None)

    @invariant()
    def no_cooldown_passes_the_ceiling_and_healthy_circuits_are_forgotten(self) -> None:
        for entry in self.breaker.snapshot(now=self.now):
            assert entry.state != "closed" or entry.failures
            assert entry.retry_at is None or self.now < entry.retry_at <= self.now + 60.0


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
