import math
import pickle
import re

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import assistant_message, tool_message, user_message
from harness._messages import Message
from harness.testing import (
    FindingError,
    LeftoverError,
    Scenario,
    ScenarioFailedError,
    Scene,
    UnrepeatableError,
    VacuousError,
    assert_no_permit_held,
    assert_transcript_settled,
    cancel_everywhere,
    nothing_started_after_stop,
    tool_call,
)
from tests.testing.plugin_sample import numbers


async def _sleep_once(scene: Scene) -> None:
    await trio.sleep(1)


def _failure_of(scenario: Scenario) -> ScenarioFailedError:
    with pytest.raises(ScenarioFailedError) as caught:
        cancel_everywhere(scenario, invariants=[nothing_started_after_stop])
    return caught.value


# -- which cuts there are ----------------------------------------------------------------------


@pytest.mark.rule("R-KIT-08", "R-KIT-12")
def test_the_cuts_are_before_the_start_and_both_sides_of_each_wait() -> None:
    seen: list[tuple[bool, str]] = []
    report = cancel_everywhere(
        _sleep_once, invariants=[lambda scene: seen.append((scene.stopped, scene.outcome))]
    )
    # Two uncut playings; then before the start, asleep, and about to wake.
    assert seen == [(False, "completed")] * 2 + [(True, "cancelled")] * 3
    assert report.cuts == (3,)
    assert (report.cancelled, report.completed, report.raised) == (3, 0, 0)
    assert str(report) == "3 cuts under 1 schedules: 3 cancelled, 0 completed, 0 raised"


@pytest.mark.rule("R-KIT-12")
def test_the_steps_of_every_task_are_cut() -> None:
    async def three_tasks(scene: Scene) -> None:
        async with trio.open_nursery() as nursery:
            for seconds in (1, 2, 3):
                nursery.start_soon(trio.sleep, seconds)

    # Each child has two steps, and the parent is resumed once: seven steps of two moments, of
    # which the parent's first and last lie outside of what was counted.
    assert cancel_everywhere(three_tasks).cuts == (1 + 1 + 3 * 2 * 2 + 1,)


@pytest.mark.rule("R-KIT-12")
def test_each_schedule_is_cut_everywhere() -> None:
    async def race(scene: Scene) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(trio.sleep, 1)

    report = cancel_everywhere(race, seeds=[0, 1, (2, 1)])
    assert report.cuts == (15, 15, 15)


@settings(max_examples=25, deadline=None)
@given(
    waits=st.lists(st.sampled_from(["sleep", "checkpoint", "event"]), min_size=1, max_size=4),
    tasks=st.integers(1, 3),
    seed=st.integers(0, 3),
)
def test_every_cut_is_made_once_and_ends_the_scenario(
    waits: list[str], tasks: int, seed: int
) -> None:
    ends: list[tuple[bool, str]] = []

    async def work() -> None:
        for wait in waits:
            if wait == "sleep":
                await trio.sleep(1)
            elif wait == "checkpoint":
                await trio.lowlevel.checkpoint()
            else:
                event = trio.Event()
                event.set()
                await event.wait()

    async def scenario(scene: Scene) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(work)

    report = cancel_everywhere(
        scenario,
        seeds=[seed],
        invariants=[lambda scene: ends.append((scene.stopped, scene.outcome))],
    )
    assert ends[:2] == [(False, "completed")] * 2
    assert all(stopped for stopped, _ in ends[2:])
    outcomes = [outcome for _, outcome in ends[2:]]
    assert len(outcomes) == sum(report.cuts)
    # Once a cut comes too late to be felt, every later one does.
    assert outcomes == ["cancelled"] * report.cancelled + ["completed"] * report.completed


# -- planted bugs ------------------------------------------------------------------------------


def _delivery(*, checkpoint_first: bool) -> Scenario:
    """Items go from a channel to a log; with the bug one is in neither for a moment."""

    async def scenario(scene: Scene) -> None:
        send, receive = trio.open_memory_channel[int](math.inf)
        for item in range(3):
            send.send_nowait(item)
        log: list[int] = []

        @scene.afterwards
        def nothing_is_lost() -> None:
            waiting = receive.statistics().current_buffer_used
            assert len(log) + waiting == 3

        for _ in range(3):
            item = await receive.receive()
            if checkpoint_first:
                await trio.lowlevel.checkpoint()
            log.append(item)

    return scenario


def _batch(*, closes: bool) -> Scenario:
    """A call is appended and then answered; with the bug a stop leaves it unanswered."""

    async def scenario(scene: Scene) -> None:
        messages: list[Message] = [user_message("Go.")]
        scene.afterwards(lambda: assert_transcript_settled(messages))
        await trio.sleep(1)
        messages.append(assistant_message(None, [tool_call("book", id="a")]))
        answer = "interrupted"
        try:
            await trio.sleep(1)
            answer = "booked"
        finally:
            if closes or answer == "booked":
                messages.append(tool_message("a", answer))

    return scenario


def _permit(*, in_a_finally: bool) -> Scenario:
    async def scenario(scene: Scene) -> None:
        limiter = trio.CapacityLimiter(1)
        scene.afterwards(lambda: assert_no_permit_held(limiter))
        await limiter.acquire()
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            if in_a_finally:
                limiter.release()
            raise
        limiter.release()

    return scenario


def _model_then_tool(*, swallows: bool) -> Scenario:
    async def scenario(scene: Scene) -> None:
        try:
            await trio.sleep(1)
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:  # noqa: ASYNC103  # the bug
            if not swallows:
                raise
        scene.started("the tool")
        await trio.sleep(1)

    return scenario


async def _lost_at_the_wake_up(scene: Scene) -> None:
    """Nothing goes wrong unless the cut comes when the wait is over and its task has not run."""
    done: list[str] = []
    scene.afterwards(lambda: _equal(len(done) % 2, 0))
    paid = trio.Event()

    async def pay() -> None:
        await trio.sleep(1)
        paid.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pay)
        await paid.wait()
        done.append("paid")
        await trio.lowlevel.checkpoint_if_cancelled()
        done.append("booked")


def _equal(seen: object, expected: object) -> None:
    assert seen == expected


_PLANTED = [
    pytest.param(_delivery(checkpoint_first=True), "assert", id="lost item"),
    pytest.param(_batch(closes=False), "unanswered_call", id="call left unanswered"),
    pytest.param(_permit(in_a_finally=False), "has 1 permits taken", id="leaked permit"),
    pytest.param(
        _model_then_tool(swallows=True), "started after the stop", id="swallowed cancellation"
    ),
]
_SOUND = [
    pytest.param(_delivery(checkpoint_first=False), id="nothing lost"),
    pytest.param(_batch(closes=True), id="every call answered"),
    pytest.param(_permit(in_a_finally=True), id="permit given back"),
    pytest.param(_model_then_tool(swallows=False), id="cancellation let through"),
]


@pytest.mark.rule("R-KIT-08", "R-KIT-13")
@pytest.mark.parametrize(("scenario", "complaint"), _PLANTED)
def test_a_planted_bug_is_found(scenario: Scenario, complaint: str) -> None:
    failure = _failure_of(scenario)
    assert complaint in str(failure)
    assert failure.cut is not None
    assert isinstance(failure.__cause__, AssertionError)


@pytest.mark.rule("R-KIT-13")
@pytest.mark.parametrize("scenario", _SOUND)
def test_the_same_without_the_bug_passes(scenario: Scenario) -> None:
    report = cancel_everywhere(
        scenario, invariants=[nothing_started_after_stop], seeds=range(3), minimum=3
    )
    assert report.cancelled > 0


@pytest.mark.rule("R-KIT-12")
def test_what_goes_wrong_only_at_a_wake_up_is_found() -> None:
    failure = _failure_of(_lost_at_the_wake_up)
    assert "pay#1, ended" in failure.trace[-1]
    assert failure.cut is not None
    with pytest.raises(ScenarioFailedError) as caught:
        cancel_everywhere(_lost_at_the_wake_up, only=failure.cut + 1)
    assert caught.value.trace[-1].startswith("resume scenario")
    for cut in {*range(-1, 7)} - {failure.cut, failure.cut + 1}:
        cancel_everywhere(_lost_at_the_wake_up, only=cut)


@pytest.mark.rule("R-KIT-15")
def test_a_generator_left_behind_at_one_cut_only_is_found() -> None:
    async def scenario(scene: Scene) -> None:
        async for _ in numbers():
            await trio.sleep(1)

    failure = _failure_of(scenario)
    assert isinstance(failure.__cause__, LeftoverError)
    assert "numbers" in str(failure)


@pytest.mark.rule("R-KIT-15")
def test_an_expected_error_excuses_nothing_that_is_left_behind() -> None:
    async def scenario(scene: Scene) -> None:
        await trio.sleep(1)
        trio.lowlevel.spawn_system_task(trio.sleep_forever)
        raise OSError("could not be done")

    with pytest.raises(ScenarioFailedError) as caught:
        cancel_everywhere(scenario, raises=OSError)
    assert isinstance(caught.value.__cause__, LeftoverError)


@pytest.mark.rule("R-KIT-14")
def test_a_deadlock_at_one_cut_only_is_found() -> None:
    async def scenario(scene: Scene) -> None:
        done = trio.Event()

        async def work() -> None:
            await trio.sleep(1)
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            with trio.CancelScope(shield=True):
                await done.wait()

    failure = _failure_of(scenario)
    assert "every task waits and nothing can wake one" in str(failure)
    assert failure.cut is not None


# -- what is told of a failure -----------------------------------------------------------------


@pytest.mark.rule("R-KIT-13")
def test_the_smallest_failing_cut_is_told_and_can_be_played_alone() -> None:
    async def goes_wrong_late(scene: Scene) -> None:
        log: list[int] = []
        scene.afterwards(lambda: _equal("the third" if len(log) == 2 else "fine", "fine"))
        for number in range(5):
            await trio.sleep(1)
            log.append(number)

    failure = _failure_of(goes_wrong_late)
    # Park and resume of two sleeps, then the park of the third one.
    assert failure.cut == 4
    assert failure.seed == 0
    assert len(failure.trace) == 5
    text = str(failure)
    assert text.startswith("cut 4, seed 0: AssertionError")
    assert "(to play it alone: only=4, seeds=[0])" in text
    assert re.search(r"park scenario, \S*test_cut\.py:\d+ in goes_wrong_late", failure.trace[-1])
    with pytest.raises(ScenarioFailedError, match="cut 4, seed 0"):
        cancel_everywhere(goes_wrong_late, only=4, seeds=[0])
    report = cancel_everywhere(goes_wrong_late, only=3)
    assert report.cuts == (1,)


@pytest.mark.rule("R-KIT-13")
def test_a_claim_that_fails_without_a_cut_is_told_as_such() -> None:
    async def never_right(scene: Scene) -> None:
        scene.afterwards(lambda: _equal(1, 2))
        await trio.sleep(1)

    failure = _failure_of(never_right)
    assert failure.cut is None
    assert str(failure).startswith("uncut, seed 0: AssertionError")


def test_an_invariant_fails_by_raising_whatever_it_likes() -> None:
    def complain(scene: Scene) -> None:
        if scene.stopped:
            raise LookupError("not what was expected")

    with pytest.raises(ScenarioFailedError, match="cut -1, seed 0: LookupError: not what was"):
        cancel_everywhere(_sleep_once, invariants=[complain])


def test_a_finding_is_an_assertion_and_survives_pickling() -> None:
    failure = _failure_of(_lost_at_the_wake_up)
    copy = pickle.loads(pickle.dumps(failure))
    assert isinstance(copy, ScenarioFailedError)
    assert isinstance(copy, AssertionError)
    assert (str(copy), copy.cut, copy.trace) == (str(failure), failure.cut, failure.trace)


# -- nothing was shown -------------------------------------------------------------------------


@pytest.mark.rule("R-KIT-16")
def test_a_scenario_without_a_wait_shows_nothing() -> None:
    async def at_once(scene: Scene) -> None:
        pass

    with pytest.raises(VacuousError, match="none of 1 cuts had an effect"):
        cancel_everywhere(at_once)


@pytest.mark.rule("R-KIT-16")
def test_a_scenario_that_no_cut_reaches_shows_nothing() -> None:
    async def behind_a_shield(scene: Scene) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)

    with pytest.raises(VacuousError, match="none of 3 cuts had an effect"):
        cancel_everywhere(behind_a_shield)


@pytest.mark.rule("R-KIT-16")
def test_fewer_cuts_than_were_asked_for_are_a_failure() -> None:
    assert cancel_everywhere(_sleep_once, minimum=3).cuts == (3,)
    with pytest.raises(VacuousError, match="3 cut points, expected at least 4"):
        cancel_everywhere(_sleep_once, minimum=4)


@pytest.mark.rule("R-KIT-16")
def test_no_schedule_shows_nothing() -> None:
    with pytest.raises(VacuousError, match="none of 0 cuts"):
        cancel_everywhere(_sleep_once, seeds=())


@pytest.mark.rule("R-KIT-16")
@pytest.mark.parametrize("only", [-2, 2])
def test_a_cut_that_is_not_there_cannot_be_played_alone(only: int) -> None:
    with pytest.raises(VacuousError, match=f"only is {only}, expected a cut from -1 to 1"):
        cancel_everywhere(_sleep_once, only=only)


@pytest.mark.parametrize("minimum", [0, -1, True, 1.5])
def test_a_minimum_is_a_count(minimum: object) -> None:
    with pytest.raises((TypeError, ValueError), match="minimum is"):
        cancel_everywhere(_sleep_once, minimum=minimum)  # type: ignore[arg-type]


# -- the same course each time -----------------------------------------------------------------


@pytest.mark.rule("R-KIT-11")
def test_a_scenario_that_changes_from_playing_to_playing_is_refused() -> None:
    played: list[Scene] = []

    async def longer_each_time(scene: Scene) -> None:
        played.append(scene)
        for _ in played:
            await trio.sleep(1)

    with pytest.raises(UnrepeatableError, match="step 2 was park scenario, expected the end"):
        cancel_everywhere(longer_each_time)


@pytest.mark.rule("R-KIT-11")
def test_a_scenario_that_waits_only_when_it_is_played_again_is_refused() -> None:
    played: list[Scene] = []

    async def at_once_at_first(scene: Scene) -> None:
        played.append(scene)
        if len(played) > 1:
            await trio.sleep(1)

    with pytest.raises(UnrepeatableError, match="step 0 was park scenario, expected the end"):
        cancel_everywhere(at_once_at_first)


@pytest.mark.rule("R-KIT-11")
def test_a_scenario_whose_tasks_change_is_refused() -> None:
    names = iter("abcdefgh")

    async def another_name_each_time(scene: Scene) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1, name=next(names))
            nursery.start_soon(trio.sleep, 2)

    with pytest.raises(UnrepeatableError, match="was resume b#1, expected resume a#1 as before"):
        cancel_everywhere(another_name_each_time)


def test_addresses_in_names_make_no_difference() -> None:
    class Work:
        async def __call__(self) -> None:
            await trio.sleep(1)

    async def scenario(scene: Scene) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Work())
            nursery.start_soon(Work())

    assert cancel_everywhere(scenario).cancelled > 0


# -- other acts than a cancellation ------------------------------------------------------------


@pytest.mark.rule("R-KIT-12")
def test_a_scenario_may_say_what_the_cut_does() -> None:
    async def with_a_scope_of_its_own(scene: Scene) -> None:
        stopped = False
        with trio.CancelScope() as work:
            scene.on_cut(work.cancel)
            await trio.sleep(1)
            await trio.sleep(1)
        stopped = work.cancelled_caught
        scene.keep([stopped])

    seen: list[tuple[bool, list[bool] | None]] = []
    report = cancel_everywhere(
        with_a_scope_of_its_own,
        invariants=[lambda scene: seen.append((scene.act is not None, scene.kept(list)))],
    )
    assert report.cuts == (5,)
    # Only the cut before the start cancels the scenario itself.
    assert (report.cancelled, report.completed) == (1, 4)
    assert seen[2:] == [(False, None), *[(True, [True])] * 4]


@pytest.mark.rule("R-KIT-12")
def test_a_cut_may_move_a_deadline() -> None:
    ends: list[float] = []

    async def with_a_deadline(scene: Scene) -> None:
        started = trio.current_time()
        with trio.CancelScope() as work:

            def now() -> None:
                work.deadline = trio.current_time()

            scene.on_cut(now)
            await trio.sleep(10)
        ends.append(trio.current_time() - started)

    report = cancel_everywhere(with_a_deadline)
    assert report.completed == 2
    assert ends == [10, 10, 0, 10]


@pytest.mark.rule("R-KIT-13")
def test_an_act_that_raises_is_not_lost() -> None:
    async def scenario(scene: Scene) -> None:
        def act() -> None:
            raise RuntimeError("the act is broken")

        scene.on_cut(act)
        await trio.sleep(1)

    failure = _failure_of(scenario)
    assert isinstance(failure.__cause__, RuntimeError)
    assert failure.cut == 0


# -- errors of the scenario --------------------------------------------------------------------


async def _fails_when_cancelled(scene: Scene) -> None:
    try:
        await trio.sleep(1)
    except trio.Cancelled:
        raise OSError("could not be undone") from None  # noqa: ASYNC104  # the point


async def _fails_in_a_group(scene: Scene) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_fails_when_cancelled, scene)
        nursery.start_soon(_fails_when_cancelled, scene)


@pytest.mark.rule("R-KIT-13")
@pytest.mark.parametrize("scenario", [_fails_when_cancelled, _fails_in_a_group])
def test_an_error_of_the_scenario_fails_unless_it_was_expected(scenario: Scenario) -> None:
    failure = _failure_of(scenario)
    assert failure.cut == -1
    report = cancel_everywhere(scenario, raises=(LookupError, OSError))
    assert report.raised > 0
    with pytest.raises(ScenarioFailedError):
        cancel_everywhere(scenario, raises=LookupError)


def test_an_interrupt_of_the_user_is_nobodys_finding() -> None:
    async def scenario(scene: Scene) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cancel_everywhere(scenario)
    assert cancel_everywhere(scenario, raises=KeyboardInterrupt).raised == 3


def test_every_finding_is_one_kind_of_error() -> None:
    assert issubclass(ScenarioFailedError, FindingError)
    assert issubclass(FindingError, AssertionError)
