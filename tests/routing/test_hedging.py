"""Tries side by side: when a further one begins, who wins, and what becomes of the others."""

import math
from collections import Counter
from collections.abc import Sequence

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from harness._errors import AttemptSuperseded
from harness.routing import (
    AttemptFailure,
    AttemptRecord,
    AttemptSuccess,
    CircuitBreaker,
    CircuitKey,
    Hedge,
    RouteCandidate,
    RouteFailed,
    RoutePlan,
    RouteServed,
    Slot,
    Try,
    execute_route_plan,
)
from harness.testing import Scene, cancel_everywhere, run_virtual
from tests.routing.endpoints import endpoint
from tests.routing.routes import (
    KINDS,
    Ending,
    Player,
    Step,
    WhenCut,
    failure,
    half_open,
    open_circuit,
    outcomes,
    plan_of,
    script,
    states,
)
from tests.strategies import route_plans

SILENT = Step(silent=100.0)
"""Says nothing for a long time."""


async def hedged(
    player: Player,
    plan: RoutePlan | None = None,
    *,
    after: float = 5.0,
    most: int = 2,
    breaker: CircuitBreaker | None = None,
) -> RouteServed[str] | RouteFailed:
    return await execute_route_plan(
        plan or plan_of("abc"),
        breaker or CircuitBreaker(),
        player,
        hedge=Hedge(after=after, most=most),
    )


def started(player: Player) -> list[tuple[str, float]]:
    """Return each provider and when its try began, counted from the first."""
    times = [each - player.starts[0] for each in player.starts]
    return list(zip(player.asked, times, strict=True))


# -- when a further try begins -----------------------------------------------------------------


@pytest.mark.rule("R-HEDGE-01")
async def test_after_silence_the_next_endpoint_is_tried_beside_the_first(
    autojump_clock: MockClock,
) -> None:
    player = script(a=SILENT, b=Step(silent=1, talks=1))
    result = await hedged(player)
    assert isinstance(result, RouteServed)
    assert (result.value, result.fallback) == ("from b", "provider")
    assert started(player) == [("a", 0.0), ("b", 5.0)]
    assert [each.hedge for each in player.tries] == [False, True]
    assert trio.current_time() - player.starts[0] == 7.0


@pytest.mark.rule("R-HEDGE-01")
async def test_without_a_hedge_silence_is_waited_out(autojump_clock: MockClock) -> None:
    player = script(a=SILENT, b="ok")
    await execute_route_plan(plan_of("ab"), CircuitBreaker(), player)
    assert player.asked == "a"


@pytest.mark.rule("R-HEDGE-01")
async def test_a_hedge_goes_by_the_plan_and_passes_over_circuits_that_refuse(
    autojump_clock: MockClock,
) -> None:
    breaker = CircuitBreaker()
    breaker.record_failure(endpoint("b"), failure("credential"), now=trio.current_time())
    player = script(a=SILENT, c=Step(silent=1))
    result = await hedged(player, breaker=breaker)
    assert started(player) == [("a", 0.0), ("c", 5.0)]
    assert outcomes(result) == "b:refused a:superseded c:served"


@pytest.mark.rule("R-HEDGE-02")
@pytest.mark.parametrize("most", [2, 3])
async def test_at_most_so_many_are_at_work(most: int, autojump_clock: MockClock) -> None:
    player = script(a=SILENT, b=SILENT, c=SILENT, d=SILENT)
    await hedged(player, plan_of("abcd"), most=most)
    assert started(player) == [("a", 0.0), ("b", 5.0), ("c", 10.0)][:most]


@pytest.mark.rule("R-HEDGE-02", "R-HEDGE-03")
async def test_one_that_fails_makes_room_and_the_clock_runs_from_the_latest_start(
    autojump_clock: MockClock,
) -> None:
    player = script(a=SILENT, b=Step(silent=1, ends="server_error"), c=Step(silent=1))
    result = await hedged(player)
    assert started(player) == [("a", 0.0), ("b", 5.0), ("c", 10.0)]
    assert outcomes(result) == "b:failed a:superseded c:served"


@pytest.mark.rule("R-HEDGE-03")
async def test_a_failure_beside_a_try_at_work_is_recorded_and_hurries_nothing(
    autojump_clock: MockClock,
) -> None:
    breaker = CircuitBreaker()
    player = script(a=Step(silent=6, ends="stalled"), b=Step(silent=3), c="ok")
    result = await hedged(player, breaker=breaker)
    assert started(player) == [("a", 0.0), ("b", 5.0)]
    assert outcomes(result) == "a:failed b:served"
    assert states(breaker) == {"a": ("closed", 1)}


@pytest.mark.rule("R-HEDGE-03")
async def test_when_the_last_one_at_work_fails_the_next_begins_at_once(
    autojump_clock: MockClock,
) -> None:
    player = script(a=Step(silent=6, ends="stalled"), b=Step(silent=2, ends="unreachable"), c="ok")
    await hedged(player)
    assert started(player) == [("a", 0.0), ("b", 5.0), ("c", 7.0)]


@pytest.mark.rule("R-HEDGE-03", "R-EXEC-10")
async def test_a_defect_beside_a_try_at_work_is_retried_before_later_endpoints(
    autojump_clock: MockClock,
) -> None:
    player = script(a=[Step(silent=6, ends="defect"), Step(silent=1)], b=SILENT, c="ok")
    result = await hedged(player)
    assert started(player) == [("a", 0.0), ("b", 5.0), ("a", 10.0)]
    assert outcomes(result) == "a:failed b:superseded a:served"


@pytest.mark.rule("R-HEDGE-04")
async def test_no_hedge_begins_once_somebody_answers(autojump_clock: MockClock) -> None:
    player = script(a=Step(silent=4, talks=50), b="ok")
    result = await hedged(player)
    assert (player.asked, outcomes(result)) == ("a", "a:served")


@pytest.mark.rule("R-HEDGE-04")
@pytest.mark.parametrize("seed", range(8))
def test_an_answer_in_the_very_instant_of_the_hedge_comes_first(seed: int) -> None:
    player = script(a=Step(silent=5, talks=50), b="ok")
    run_virtual(hedged, player, seed=seed)
    assert player.asked == "a"


# -- who wins ----------------------------------------------------------------------------------


@pytest.mark.rule("R-HEDGE-05")
async def test_the_first_to_answer_wins_and_is_told_so(autojump_clock: MockClock) -> None:
    player = script(a=Step(silent=9, talks=3), b=Step(silent=5, talks=3))
    result = await hedged(player)
    assert isinstance(result, RouteServed)
    assert (result.value, player.answers) == ("from a", [(0, True)])
    assert outcomes(result) == "b:superseded a:served"
    assert player.tries[0].answered() is True
    assert player.tries[1].answered() is False
    assert repr(player.tries[1]) == "<Try 1 at b, superseded>"


@pytest.mark.rule("R-HEDGE-05")
async def test_a_try_that_serves_without_having_answered_wins(autojump_clock: MockClock) -> None:
    player = script(a=SILENT, b=Step(silent=1))
    result = await hedged(player)
    assert outcomes(result) == "a:superseded b:served"


@pytest.mark.rule("R-HEDGE-05")
@pytest.mark.parametrize("seed", range(6))
def test_of_two_that_answer_in_one_instant_one_wins(seed: int) -> None:
    player = script(a=Step(silent=9, talks=1), b=Step(silent=4, talks=1))
    result = run_virtual(hedged, player, seed=seed)
    assert isinstance(result, RouteServed)
    assert [won for _, won in player.answers].count(True) == 1
    assert Counter(each.outcome for each in result.trace) == {"served": 1, "superseded": 1}


@pytest.mark.rule("R-HEDGE-06")
async def test_in_the_step_of_the_answer_the_loser_is_cancelled_and_released(
    autojump_clock: MockClock,
) -> None:
    breaker = await half_open("a")
    seen: list[tuple[bool, dict[str, tuple[str, int]]]] = []

    async def attempt(each: Try) -> AttemptSuccess[str]:
        if each.hedge:
            seen.append((each.answered(), states(breaker)))
            seen.append((first[0].answered(), states(breaker)))
            return AttemptSuccess("from b")
        first.append(each)
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())
        raise AssertionError

    first: list[Try] = []
    ended: list[float] = []
    began = trio.current_time()
    result = await execute_route_plan(plan_of("ab"), breaker, attempt, hedge=Hedge(after=5.0))
    assert seen == [(True, {"a": ("half_open", 1)}), (False, {"a": ("half_open", 1)})]
    assert ended == [began + 5.0]
    assert [(each.outcome, each.duration) for each in result.trace] == [
        ("superseded", 5.0),
        ("served", 0.0),
    ]


@pytest.mark.rule("R-HEDGE-06")
@pytest.mark.parametrize("when_cut", ["pass", "superseded", "aborted", "serve"])
async def test_nothing_that_a_loser_does_makes_a_failure_of_it(
    when_cut: WhenCut, autojump_clock: MockClock
) -> None:
    breaker = CircuitBreaker(failures=1)
    player = script(a=attrs.evolve(SILENT, when_cut=when_cut), b=Step(silent=1, talks=1))
    result = await hedged(player, breaker=breaker)
    assert isinstance(result, RouteServed)
    assert result.value == "from b"
    assert outcomes(result) == "a:superseded b:served"
    assert result.trace[0].category is None
    assert states(breaker) == {}


@pytest.mark.rule("R-HEDGE-06", "R-EXEC-15")
@pytest.mark.parametrize("by", ["a", "b"])
async def test_what_a_try_raises_cancels_the_others_and_leaves_as_the_same_object(
    by: str, autojump_clock: MockClock
) -> None:
    error = KeyError("a bug")
    breaker = await half_open("a", "b")
    steps = {"a": SILENT, "b": SILENT} | {by: Step(silent=8, ends=error)}
    player = script(**steps)
    began = trio.current_time()
    with pytest.raises(KeyError) as caught:
        await hedged(player, breaker=breaker)
    assert caught.value is error
    assert trio.current_time() == began + (8.0 if by == "a" else 13.0)
    assert states(breaker) == {"a": ("half_open", 1), "b": ("half_open", 1)}


@pytest.mark.rule("R-EXEC-15")
async def test_a_bug_in_how_a_loser_ends_is_not_lost(autojump_clock: MockClock) -> None:
    async def attempt(each: Try) -> AttemptSuccess[str]:
        if each.hedge:
            each.answered()
            await trio.sleep(9)
            return AttemptSuccess("from b")
        try:
            await trio.sleep_forever()
        finally:
            raise errors[0]

    errors = [KeyError("a bug of a")]
    with pytest.raises(KeyError) as caught:
        await execute_route_plan(plan_of("ab"), CircuitBreaker(), attempt, hedge=Hedge(after=5.0))
    assert caught.value is errors[0]


@pytest.mark.rule("R-EXEC-15")
async def test_what_several_tries_raise_leaves_in_one_group(autojump_clock: MockClock) -> None:
    async def attempt(each: Try) -> AttemptSuccess[str]:
        if not each.hedge:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("while it was cancelled")
        raise KeyError("a bug")

    with pytest.RaisesGroup(KeyError, ValueError, match="^several tries of a route raised"):
        await execute_route_plan(plan_of("ab"), CircuitBreaker(), attempt, hedge=Hedge(after=5.0))


@pytest.mark.rule("R-EXEC-16")
@pytest.mark.parametrize("seed", range(6))
def test_a_cancellation_of_several_tries_leaves_as_a_cancellation(seed: int) -> None:
    player = script(a=SILENT, b=SILENT)

    async def main() -> None:
        breaker = await half_open("a", "b")
        with trio.move_on_after(8) as scope:
            with pytest.raises(trio.Cancelled):
                await hedged(player, breaker=breaker)
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert player.ends == {0: trio.current_time(), 1: trio.current_time()}
        assert states(breaker) == {"a": ("half_open", 1), "b": ("half_open", 1)}

    run_virtual(main, seed=seed)


# -- a winner that fails -----------------------------------------------------------------------


@pytest.mark.rule("R-HEDGE-07")
async def test_when_the_winner_fails_the_superseded_are_tried_again_before_later_ones(
    autojump_clock: MockClock,
) -> None:
    breaker = CircuitBreaker()
    player = script(a=[SILENT, "ok"], b=Step(silent=1, talks=1, ends="server_error"), c="ok")
    result = await hedged(player, breaker=breaker)
    assert isinstance(result, RouteServed)
    assert started(player) == [("a", 0.0), ("b", 5.0), ("a", 7.0)]
    assert player.cursors == [(0, 0, 0, 0), (0, 1, 0, 1), (0, 0, 1, 2)]
    assert outcomes(result) == "a:superseded b:failed a:served"
    assert result.fallback is None
    assert states(breaker) == {"b": ("closed", 1)}


@pytest.mark.rule("R-HEDGE-07")
async def test_a_winner_with_a_defect_is_asked_again_first(autojump_clock: MockClock) -> None:
    player = script(a=SILENT, b=[Step(silent=1, talks=1, ends="defect"), Step(talks=0)])
    result = await hedged(player)
    assert started(player) == [("a", 0.0), ("b", 5.0), ("b", 7.0)]
    assert outcomes(result) == "a:superseded b:failed b:served"


@pytest.mark.rule("R-HEDGE-07", "R-HEDGE-01")
async def test_silence_counts_again_after_a_winner_has_failed(autojump_clock: MockClock) -> None:
    player = script(a=SILENT, b=Step(silent=1, talks=1, ends="server_error"), c=Step(silent=1))
    result = await hedged(player)
    assert started(player) == [("a", 0.0), ("b", 5.0), ("a", 7.0), ("c", 12.0)]
    assert outcomes(result) == "a:superseded b:failed a:superseded c:served"


@pytest.mark.rule("R-HEDGE-08")
@pytest.mark.parametrize(
    ("last", "other"),
    [
        (Step(silent=1, ends="client_error"), "cancelled"),
        (Step(silent=1, talks=1, ends="server_error", produced_output=True), "superseded"),
    ],
)
async def test_a_failure_that_ends_the_route_gives_up_the_others(
    last: Step, other: str, autojump_clock: MockClock
) -> None:
    breaker = await half_open("a")
    player = script(a=SILENT, b=last, c="ok")
    began = trio.current_time()
    result = await hedged(player, breaker=breaker)
    assert isinstance(result, RouteFailed)
    assert result.error is not None
    assert result.error.category == last.ends
    assert sorted(outcomes(result).split()) == [f"a:{other}", "b:failed"]
    assert player.asked == "ab"
    assert trio.current_time() < began + 8.0
    assert states(breaker)["a"] == ("half_open", 1)


@pytest.mark.rule("R-HEDGE-08", "R-EXEC-13")
async def test_output_of_a_loser_cannot_be_taken_back_either(autojump_clock: MockClock) -> None:
    player = script(
        a=attrs.evolve(SILENT, when_cut="output"), b=Step(silent=1, talks=1, ends="server_error")
    )
    result = await hedged(player)
    assert isinstance(result, RouteFailed)
    assert (player.asked, outcomes(result)) == ("ab", "a:superseded b:failed")


@pytest.mark.rule("R-HEDGE-01")
async def test_a_hedge_after_no_time_is_a_race(autojump_clock: MockClock) -> None:
    player = script(a=Step(silent=2), b=Step(silent=1), c=Step(silent=3))
    result = await hedged(player, after=0.0, most=3)
    assert started(player) == [("a", 0.0), ("b", 0.0), ("c", 0.0)]
    assert isinstance(result, RouteServed)
    assert result.value == "from b"


# -- any plan, any script ----------------------------------------------------------------------


endings: st.SearchStrategy[Ending] = st.sampled_from(["ok", *sorted(KINDS)])
steps = st.builds(
    Step,
    silent=st.sampled_from([0.0, 1.0, 4.0, 5.0, 6.0, 12.0]),
    talks=st.sampled_from([None, 0.0, 1.0, 7.0]),
    ends=endings,
    produced_output=st.sampled_from([False, False, False, True]),
    retry_after=st.sampled_from([None, 20.0]),
    when_cut=st.sampled_from(["pass", "superseded", "aborted", "serve", "output"]),
)
"""What a try may do, over and over."""

hedges = st.none() | st.builds(
    Hedge, after=st.sampled_from([0.0, 1.0, 5.0]), most=st.sampled_from([2, 3])
)


class AuditedBreaker(CircuitBreaker):
    """A breaker that remembers the slots it gave, and looks at them at each question."""

    def __init__(self, *, failures: int) -> None:
        super().__init__(failures=failures, cooldown=10.0)
        self.given: list[tuple[CircuitKey, Slot]] = []

    def admit(self, candidate: RouteCandidate | CircuitKey, *, now: float) -> Slot:
        slot = super().admit(candidate, now=now)
        assert isinstance(candidate, RouteCandidate)
        self.given.append((CircuitKey.of(candidate), slot))
        probes = Counter(key for key, each in self.given if each.probe and each._pending)
        assert all(count == 1 for count in probes.values()), "a second probe was let through"
        return slot

    @property
    def pending(self) -> int:
        """How many calls have been let through that have no outcome yet."""
        return sum(slot._pending for _, slot in self.given)


@attrs.define(eq=False)
class Watch:
    """What must hold whenever a try begins."""

    plan: RoutePlan
    player: Player
    most: int

    def __call__(self, attempt: Try) -> None:
        cursor = attempt.cursor
        assert attempt.candidate is self.plan.stages[cursor.stage].candidates[cursor.candidate]
        assert not self.player.output, "replayed after output that cannot be taken back"
        others = [
            each
            for each in self.player.tries
            if each.cursor.ordinal not in self.player.ends and not each.superseded
        ]
        assert len(others) < self.most
        assert attempt.hedge is bool(others)
        assert all(each._stage == "silent" for each in others), "begun beside an answer"


def health(breaker: CircuitBreaker) -> dict[CircuitKey, int]:
    return {each.key: each.failures for each in breaker.snapshot(now=trio.current_time())}


def heard(plan: RoutePlan, trace: Sequence[AttemptRecord]) -> dict[CircuitKey, int]:
    """Return the failures that the circuits must have counted, going by the trace."""
    counts: Counter[CircuitKey] = Counter()
    for each in trace:
        key = CircuitKey.of(plan.stages[each.cursor.stage].candidates[each.cursor.candidate])
        if each.outcome == "served":
            counts[key] = 0
        elif each.category in ("server_error", "rate_limited", "unreachable", "stalled"):
            counts[key] += 1
    return {key: count for key, count in counts.items() if count}


scripts = st.fixed_dictionaries(
    {provider: st.lists(steps, min_size=1, max_size=4) for provider in ("a", "b", "c")}
    | {"eu-gateway.2": st.lists(steps, min_size=1, max_size=4)}
)


@pytest.mark.rule(
    *("R-HEDGE-02", "R-HEDGE-04", "R-HEDGE-05", "R-HEDGE-06", "R-HEDGE-07", "R-HEDGE-08"),
    *("R-EXEC-09", "R-EXEC-10", "R-EXEC-13"),
)
@settings(max_examples=150)
@given(
    plan=route_plans(),
    script=scripts,
    hedge=hedges,
    retries=st.integers(0, 2),
    failures=st.sampled_from([1, 2, 1000]),
    cut=st.none() | st.sampled_from([0.0, 3.0, 6.0, 11.0]),
    seed=st.integers(0, 5),
)
def test_any_route_ends_within_its_bounds_and_keeps_its_promises(
    plan: RoutePlan,
    script: dict[str, list[Step]],
    hedge: Hedge | None,
    retries: int,
    failures: int,
    cut: float | None,
    seed: int,
) -> None:
    player, breaker = Player(script), AuditedBreaker(failures=failures)
    most = 1 if hedge is None else hedge.most
    player.on_start = Watch(plan, player, most)
    places = sum(len(stage.candidates) for stage in plan.stages)

    async def main() -> None:
        result = None
        with trio.move_on_after(math.inf if cut is None else cut) as scope:
            result = await execute_route_plan(
                plan, breaker, player, max_defect_retries=retries, hedge=hedge
            )
        assert breaker.pending == 0
        assert len(player.tries) == sum(slot.admitted for _, slot in breaker.given)
        assert len(player.tries) <= places * (1 + retries) * most
        if result is None:
            assert scope.cancelled_caught
            return
        made = [each for each in result.trace if each.outcome != "refused"]
        assert sorted(each.cursor.ordinal for each in made) == list(range(len(player.tries)))
        served = [each for each in made if each.outcome == "served"]
        assert len(served) == isinstance(result, RouteServed)
        assert all((each.category is None) is (each.outcome != "failed") for each in made)
        if failures == 1000 and not any(each.category == "credential" for each in made):
            assert health(breaker) == heard(plan, made)

    run_virtual(main, seed=seed)


@pytest.mark.rule("R-HEDGE-06", "R-EXEC-16", "R-BRK-15")
@pytest.mark.parametrize("ending", ["ok", "server_error"])
@pytest.mark.parametrize("when_cut", ["pass", "superseded"])
def test_a_hedged_route_can_be_cut_everywhere_and_leaks_no_slot(
    ending: str, when_cut: WhenCut
) -> None:
    async def scenario(scene: Scene) -> None:
        breaker = AuditedBreaker(failures=5)
        for provider in ("a", "b"):
            open_circuit(breaker, provider)
        await trio.sleep(10)
        player = script(
            a=[Step(silent=9, when_cut=when_cut), Step(silent=1)],
            b=Step(silent=1, talks=1, ends=ending),
        )

        @scene.afterwards
        def check() -> None:
            assert breaker.pending == 0
            told = {str(each.key.provider_id): each for each in breaker.snapshot(now=100.0)}
            assert "probing" not in {each.state for each in told.values()}
            # A circuit has heard only of a try that ended by itself.
            assert ("a" not in told) is ("a" in player.finished)
            served = ending == "ok" and "b" in player.finished
            assert ("b" not in told) is served

        result = await hedged(player, plan_of("ab"), breaker=breaker)
        assert isinstance(result, RouteServed)

    report = cancel_everywhere(scenario, minimum=25, seeds=[0, 1])
    assert report.cancelled


@pytest.mark.rule("R-HEDGE-02")
@pytest.mark.parametrize("rivals", ["a", "ac"])
async def test_who_was_superseded_gives_way_to_a_winner_that_has_not_said_so_yet(
    rivals: str, autojump_clock: MockClock
) -> None:
    async def attempt(trial: Try) -> AttemptSuccess[str] | AttemptFailure:
        if trial.candidate.provider_id in rivals:
            await trio.sleep(20 - trio.current_time())
            error = attrs.evolve(
                failure("aborted", target=trial.target()), cause=AttemptSuperseded(0)
            )
            return AttemptFailure(error, produced_output=True)  # by the winner's text, perhaps
        await trio.sleep(30 - trio.current_time())
        return AttemptSuccess(trial.candidate.provider_id)

    plan = plan_of("".join(sorted({"b", *rivals})))
    result = await execute_route_plan(
        plan, CircuitBreaker(), attempt, hedge=Hedge(after=5, most=1 + len(rivals))
    )
    assert isinstance(result, RouteServed)
    assert result.value == "b"
    expected = dict.fromkeys(rivals, "superseded") | {"b": "served"}
    assert {str(each.provider_id): each.outcome for each in result.trace} == expected
    assert trio.current_time() == 30


@pytest.mark.rule("R-HEDGE-02")
async def test_who_was_superseded_by_nobody_in_the_route_has_ended_it(
    autojump_clock: MockClock,
) -> None:
    async def attempt(trial: Try) -> AttemptSuccess[str] | AttemptFailure:
        error = attrs.evolve(failure("aborted", target=trial.target()), cause=AttemptSuperseded(0))
        return AttemptFailure(error)

    result = await execute_route_plan(plan_of("ab"), CircuitBreaker(), attempt)
    assert isinstance(result, RouteFailed)
    assert outcomes(result) == "a:failed"
