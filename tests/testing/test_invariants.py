import inspect
import re
import textwrap
from collections.abc import Callable

import pytest
import trio

import harness.testing
from harness import Journal, Suspend, tool
from harness._messages import Message
from harness.testing import (
    RUN_INVARIANTS,
    Invariant,
    RunHarness,
    Scenario,
    ScenarioFailedError,
    Scene,
    answers_truthful,
    calls_answered_once,
    cancel_everywhere,
    counting_tool,
    events_balance,
    explore_schedules,
    failing_tool,
    final_answer,
    no_permit_held,
    nothing_started_after_stop,
    run_harness,
    slow_tool,
    streamed,
    stubborn_tool,
    timed,
    tool_call,
    tool_call_turn,
    transcript_settled,
)


def _kit(scene: Scene) -> RunHarness:
    """A run with serial, pooled, slow, graceful, stubborn and failing calls."""
    return run_harness(
        [
            timed(1, tool_call_turn([tool_call("first"), *(tool_call("slow") for _ in range(3))])),
            tool_call_turn([tool_call("graceful"), tool_call("fails"), tool_call("stubborn")]),
            streamed(final_answer("Done.")),
        ],
        tools=[
            slow_tool(1, "first", serial=True),
            slow_tool(2, "slow", pool="few"),
            slow_tool(2, "graceful", grace=1.5),
            failing_tool(ValueError("no"), "fails"),
            stubborn_tool(1, "stubborn"),
        ],
        scene=scene,
    )


async def _run(scene: Scene) -> None:
    await _kit(scene).run()


async def _run_and_abort(scene: Scene) -> None:
    async with _kit(scene).open() as run:
        scene.on_cut(run.abort)
        await run.wait()
    # An abort that comes after the last turn comes too late.
    assert run.result.stop_reason in ({"aborted", "done"} if scene.stopped else {"done"})


@pytest.mark.rule("R-KIT-19")
@pytest.mark.parametrize("scenario", [_run, _run_and_abort])
def test_a_run_holds_every_invariant_at_every_cut(
    scenario: Scenario,
) -> None:
    report = cancel_everywhere(scenario, invariants=RUN_INVARIANTS, seeds=[0, 1], minimum=90)
    assert report.cancelled + report.completed == sum(report.cuts)


async def _ask_and_go_on(scene: Scene) -> None:
    @tool
    async def ask() -> Suspend:
        """Ask somebody."""
        await trio.sleep(1)
        return Suspend.answer("May I?")

    calls = [tool_call("ask", id="a"), tool_call("slow")]
    kit = run_harness(
        [tool_call_turn(calls), final_answer("Done.")], tools=[ask, slow_tool(2)], scene=scene
    )
    result = await kit.run()
    assert result.stop_reason == "waiting_for_reply"
    await trio.sleep(60)
    result.state.reply("a", "You may.")
    assert (await kit.run(result.state)).stop_reason == "done"


@pytest.mark.rule("R-KIT-19")
def test_a_run_that_pauses_holds_every_invariant_at_every_cut() -> None:
    report = cancel_everywhere(_ask_and_go_on, invariants=RUN_INVARIANTS, minimum=30)
    assert report.completed < report.cancelled


@pytest.mark.rule("R-KIT-19", "R-TRIO-21")
def test_a_run_holds_every_invariant_under_every_schedule() -> None:
    def what_stands(scene: Scene) -> object:
        kit = scene.kept(RunHarness)
        assert kit is not None
        return kit.states[0].messages

    explore_schedules(_run, invariants=RUN_INVARIANTS, same=what_stands)


# -- each of them can fail ---------------------------------------------------------------------


def _spoiled(spoil: Callable[[RunHarness], object]) -> Scenario:
    """A run whose harness is tampered with when it is over."""

    async def scenario(scene: Scene) -> None:
        kit = run_harness(
            [tool_call_turn([tool_call("a"), tool_call("b")]), final_answer("Done.")], scene=scene
        )
        scene.afterwards(lambda: spoil(kit) if not scene.stopped else None)
        await kit.run()

    return scenario


def _drop_an_answer(kit: RunHarness) -> None:
    del kit.states[0].messages[2]


def _answer_twice(kit: RunHarness) -> None:
    kit.states[0].messages.insert(3, kit.states[0].messages[2])


def _deny_a_call(kit: RunHarness) -> None:
    kit.ran.remove("call_1")
    kit.states[0].messages[2]["content"] = '{"success":false,"kind":"interrupted","error":"?"}'


def _hide_an_event(kit: RunHarness) -> None:
    del kit.events[-1]


def _start_with_a_hello(kit: RunHarness) -> None:
    kit.states[0].messages[0] = {"role": "assistant", "content": "Hello."}


@pytest.mark.rule("R-KIT-19")
@pytest.mark.parametrize(
    ("invariant", "spoil", "complaint"),
    [
        (transcript_settled, _drop_an_answer, "not settled"),
        (transcript_settled, _start_with_a_hello, "not valid for the messages interface"),
        (calls_answered_once, _answer_twice, "'call_1' asked 1 times, answered 2"),
        (answers_truthful, _deny_a_call, "never started"),
        (events_balance, _hide_an_event, "never finished"),
    ],
)
def test_an_invariant_fails_when_its_claim_does_not_hold(
    invariant: Invariant, spoil: Callable[[RunHarness], object], complaint: str
) -> None:
    scenario = _spoiled(spoil)
    with pytest.raises(ScenarioFailedError, match=re.escape(complaint)):
        cancel_everywhere(scenario, invariants=[invariant])


@pytest.mark.rule("R-KIT-19")
def test_a_permit_that_is_kept_fails() -> None:
    async def scenario(scene: Scene) -> None:
        kit = run_harness([final_answer("Done.")], scene=scene)
        permit = kit.limiters.permit("pool")
        assert permit.take_nowait()
        await kit.run()
        permit.release()

    with pytest.raises(ScenarioFailedError, match="has 1 permits taken"):
        cancel_everywhere(scenario, invariants=[no_permit_held])


@pytest.mark.rule("R-KIT-13", "R-KIT-19")
def test_work_that_starts_when_a_stop_was_swallowed_is_found() -> None:
    async def scenario(scene: Scene) -> None:
        try:
            await trio.sleep(1)
        except trio.Cancelled:  # noqa: ASYNC103  # the bug
            scene.started("compensation")

    with pytest.raises(ScenarioFailedError, match=r"\['compensation'\] started after the stop"):
        cancel_everywhere(scenario, invariants=[nothing_started_after_stop])


@pytest.mark.rule("R-KIT-19")
def test_a_journal_that_refuses_an_answer_leaves_it_open_and_that_is_seen() -> None:
    class Refusing(Journal):
        async def accept_result(self, message: Message, ordinal: int) -> None:
            raise OSError("the log is full")

    async def scenario(scene: Scene) -> None:
        kit = run_harness(
            [tool_call_turn([tool_call("a")])],
            tools=[counting_tool("a")],
            journal=Refusing(),
            scene=scene,
        )
        await kit.run()

    with pytest.raises(ScenarioFailedError, match="OSError: the log is full"):
        cancel_everywhere(scenario)
    with pytest.raises(ScenarioFailedError, match="unanswered_call"):
        cancel_everywhere(scenario, raises=OSError, invariants=[transcript_settled])


def test_a_scenario_without_a_harness_is_told_to_keep_one() -> None:
    async def scenario(scene: Scene) -> None:
        await trio.sleep(1)

    with pytest.raises(ScenarioFailedError, match="no RunHarness was kept, expected scene.keep"):
        cancel_everywhere(scenario, invariants=[transcript_settled])


def test_before_there_is_a_harness_every_invariant_holds() -> None:
    scene = Scene()
    scene.outcome = "cancelled"
    for invariant in RUN_INVARIANTS:
        assert invariant(scene) is None


@pytest.mark.rule("R-KIT-08")
def test_the_example_of_the_package_runs_as_it_is_printed() -> None:
    text = inspect.getdoc(harness.testing) or ""
    example = re.search(r"::\n\n((?:    .*\n|\n)+)", text)
    assert example
    names: dict[str, Callable[[], None]] = {}
    exec(f"from harness.testing import *\n{textwrap.dedent(example[1])}", names)
    names["test_booking_can_be_cancelled_anywhere"]()
