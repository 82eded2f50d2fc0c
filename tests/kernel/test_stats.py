"""What a leg did and spent, and how that differs from the totals of its run."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from harness import (
    Compaction,
    Compactor,
    Limiters,
    Message,
    ModelRequest,
    ModelTurn,
    Outcome,
    RunState,
    RunStats,
    TurnStream,
    Usage,
    run,
    user_message,
)
from harness.events import ToolStarted
from harness.kernel import RunUsage, ToolStats
from harness.testing import (
    failing_tool,
    final_answer,
    held_tool,
    run_harness,
    run_virtual,
    slow_tool,
    stubborn_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from tests.kernel.carrying import carried

usages = st.builds(
    Usage,
    input=st.integers(0, 1000),
    cached_input=st.integers(0, 1000),
    output=st.integers(0, 1000),
    cost_cents=st.integers(0, 1000).map(lambda cents: cents / 4),
)


@pytest.mark.rule("R-LOOP-01")
async def test_another_task_sees_the_totals_grow_turn_by_turn(autojump_clock: MockClock) -> None:
    turns = [
        timed(1, tool_call_turn([tool_call("look")], usage=Usage(input=10, output=1)))
        for _ in range(3)
    ]
    kit = run_harness([*turns, timed(1, final_answer("Done.", usage=Usage(input=5)))])
    seen: list[tuple[int, int, int]] = []
    async with kit.open() as run:
        state = run.state
        for _ in range(5):
            seen.append((state.usage.input, state.turn, state.tool_calls))
            await trio.sleep(1)
            await trio.testing.wait_all_tasks_blocked()
    assert seen == [(0, 0, 0), (10, 1, 1), (20, 2, 2), (30, 3, 3), (35, 4, 3)]
    assert run.result.state is state


@pytest.mark.rule("R-LOOP-02")
async def test_figures_are_the_legs_share_and_the_state_has_the_runs_totals() -> None:
    state = RunState(
        run_id="run",
        messages=[user_message("Go.")],
        turn=4,
        usage=RunUsage(input=100, cached_input=3, output=10, cost_cents=50.0),
        tool_calls=9,
    )
    usage = Usage(input=6, cached_input=2, output=1, cost_cents=7.0)
    kit = run_harness([tool_call_turn([tool_call("look")], usage=usage), final_answer("Done.")])
    stats = (await kit.run(state)).stats
    assert (stats.turns, stats.tool_calls, stats.usage) == (2, 1, usage)
    assert (state.turn, state.tool_calls) == (6, 10)
    assert (state.usage.input, state.usage.cached_input) == (106, 5)
    assert (state.usage.output, state.usage.cost_cents) == (11, 57.0)


@pytest.mark.rule("R-LOOP-02")
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(usages, min_size=1, max_size=3), min_size=1, max_size=3))
def test_the_shares_of_all_legs_add_up_to_the_totals_of_their_run(legs: list[list[Usage]]) -> None:
    async def main() -> None:
        shares = Usage()
        turns = 0
        state = RunState(run_id="run", messages=[user_message("Go.")])
        for leg in legs:
            *asking, last = leg
            script = [tool_call_turn([tool_call("look")], usage=each) for each in asking]
            kit = run_harness([*script, final_answer("Done.", usage=last)])
            state.messages.append(user_message("Go on."))
            stats = (await kit.run(carried(state))).stats
            (state,) = kit.states
            assert stats.usage == sum(leg, start=Usage())
            shares += stats.usage
            turns += stats.turns
        assert state.turn == turns == sum(map(len, legs))
        assert (state.usage.input, state.usage.output) == (shares.input, shares.output)
        assert state.usage.cost_cents == shares.cost_cents

    run_virtual(main)


@pytest.mark.rule("R-LOOP-03")
async def test_calls_that_an_abort_prevented_were_asked_for_and_did_not_run(
    autojump_clock: MockClock,
) -> None:
    first, rest = held_tool("first", pool="two"), held_tool("rest", pool="two")
    calls = [tool_call("first"), tool_call("first"), *[tool_call("rest") for _ in range(3)]]
    kit = run_harness([tool_call_turn(calls)], tools=[first, rest])
    async with kit.open(limiters=Limiters(pools={"two": 2})) as run:
        await trio.testing.wait_all_tasks_blocked()
        assert run.stats.tool_calls == 2
        run.abort()
        await run.wait()
    assert (run.stats.tool_calls, run.state.tool_calls) == (2, 5)


@pytest.mark.rule("R-LOOP-04", "R-LOOP-05")
async def test_time_is_that_of_the_model_of_the_tools_together_and_of_each_tool(
    autojump_clock: MockClock,
) -> None:
    usage = Usage(input=7, cached_input=5, output=2, cost_cents=1.5)
    kit = run_harness(
        [
            timed(2, tool_call_turn([tool_call("long"), tool_call("short")], usage=usage)),
            final_answer("Done."),
        ],
        tools=[slow_tool(3, "long"), slow_tool(1, "short")],
    )
    stats = (await kit.run()).stats
    assert (stats.turns, stats.tool_calls, stats.usage) == (2, 2, usage)
    assert (stats.model_time, stats.tool_time) == (2.0, 3.0)
    assert stats.per_tool == {
        "long": ToolStats(calls=1, failures=0, time=3.0),
        "short": ToolStats(calls=1, failures=0, time=1.0),
    }


@pytest.mark.rule("R-LOOP-05")
async def test_calls_of_one_tool_side_by_side_add_up_and_count_once_for_the_batch(
    autojump_clock: MockClock,
) -> None:
    calls = [tool_call("alone"), tool_call("both"), tool_call("both")]
    kit = run_harness(
        [tool_call_turn(calls), final_answer("Done.")],
        tools=[slow_tool(2, "both"), slow_tool(1, "alone", serial=True)],
    )
    stats = (await kit.run()).stats
    assert stats.tool_time == 3.0
    assert stats.per_tool["both"] == ToolStats(calls=2, failures=0, time=4.0)
    assert stats.per_tool["alone"] == ToolStats(calls=1, failures=0, time=1.0)


@pytest.mark.rule("R-LOOP-05")
async def test_a_call_counts_from_the_moment_its_function_is_entered() -> None:
    held = held_tool()
    kit = run_harness([tool_call_turn([tool_call("held")]), final_answer("Done.")], tools=[held])
    async with kit.open() as run:
        await trio.testing.wait_all_tasks_blocked()
        assert (run.stats.tool_calls, run.stats.per_tool) == (1, {})
        held.release()
        await run.wait()
    assert run.stats.per_tool["held"].calls == 1


async def test_every_end_but_completed_is_a_failure_of_its_tool(autojump_clock: MockClock) -> None:
    tools = [
        slow_tool(0, "fine"),
        slow_tool(0, "says_so", result=Outcome.failed("no", "conflict")),
        failing_tool(OSError(), "raises"),
        slow_tool(5, "late", time_limit=1),
    ]
    names = ["fine", "says_so", "raises", "late", "unknown"]
    kit = run_harness(
        [tool_call_turn([tool_call(name) for name in names]), final_answer("Done.")], tools=tools
    )
    per_tool = (await kit.run()).stats.per_tool
    failures = {name: share.failures for name, share in per_tool.items()}
    assert failures == {"fine": 0, "says_so": 1, "raises": 1, "late": 1, "unknown": 1}


@pytest.mark.rule("R-LOOP-06")
async def test_the_figures_survive_a_cancellation_that_raises(autojump_clock: MockClock) -> None:
    turn = tool_call_turn([tool_call("look")], usage=Usage(input=10))
    kit = run_harness([turn, timed(60, final_answer("Never."))])
    with trio.move_on_after(1) as scope:
        async with kit.open() as run:
            stats = run.stats
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert run.stats is stats is run.result.stats
    assert (stats.turns, stats.tool_calls, stats.usage.input) == (1, 1, 10)
    assert stats.model_time == 1.0


@pytest.mark.rule("R-LOOP-06")
async def test_the_figures_survive_an_error() -> None:
    turn = tool_call_turn([tool_call("look")], usage=Usage(input=10))
    kit = run_harness([turn, OSError("gone")])
    with pytest.raises(OSError, match=r"^gone$"):
        async with kit.open() as run:
            await run.wait()
    assert (run.stats.turns, run.stats.usage.input) == (1, 10)


# -- by hand -----------------------------------------------------------------------------------


class _Shrinking(Compactor):
    def __init__(self, usage: Usage) -> None:
        self.usage = usage

    def needed(self, state: RunState) -> bool:
        return True

    async def compact(self, messages: object) -> Compaction:
        await trio.sleep(4)
        shorter: list[Message] = [user_message("So far.")]
        return Compaction(messages=shorter, usage=self.usage)


@pytest.mark.rule("R-LOOP-07")
@settings(max_examples=25, deadline=None)
@given(st.lists(usages, min_size=2, max_size=4), usages, usages)
def test_folding_the_same_by_hand_gives_the_figures_of_the_loop(
    spent: list[Usage], lost: Usage, compaction: Usage
) -> None:
    *asking, last = spent

    async def main() -> None:
        async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
            answer = await kit.script.complete(request, stream)
            stream.spend(lost)
            assert isinstance(answer, ModelTurn)
            return answer

        kit = run_harness(
            [
                *(timed(2, tool_call_turn([tool_call("look")], usage=each)) for each in asking),
                timed(2, final_answer("Done.", usage=last)),
            ],
            model=model,
            tools=[timed(3, failing_tool(ValueError(), "look"))],
            compactor=_Shrinking(compaction),
        )
        looped = (await kit.run()).stats
        by_hand = RunStats()
        for each in spent:
            by_hand.fold_spend(lost, model_time=2.0)
            by_hand.fold_turn(each)
        for _ in asking:
            by_hand.tool_calls += 1
            by_hand.fold_call("look", failed=True, duration=3.0)
            by_hand.tool_time += 3.0
            by_hand.fold_spend(compaction, model_time=4.0)
        assert looped == by_hand

    run_virtual(main)


@pytest.mark.rule("R-LOOP-07")
async def test_a_completion_that_was_cut_or_failed_is_no_turn_and_took_its_time(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness([timed(3, OSError("gone"))])
    with pytest.raises(OSError, match="gone"):
        async with kit.open() as run:
            await run.wait()
    assert (run.stats.turns, run.stats.model_time, run.state.turn) == (0, 3.0, 0)


def test_a_fresh_figure_is_zero_and_two_of_them_share_nothing() -> None:
    one, other = RunStats(), RunStats()
    one.fold_call("look", failed=False, duration=1.0)
    assert other == RunStats()
    assert other.usage == Usage()


async def test_a_run_on_plain_functions_has_figures_too(autojump_clock: MockClock) -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        await trio.sleep(1.5)
        return final_answer("Done.")

    result = await run(model, "Go.")
    assert result.stats == RunStats(turns=1, model_time=1.5)


async def test_the_time_of_a_call_that_was_stopped_counts(autojump_clock: MockClock) -> None:
    kit = run_harness(
        [tool_call_turn([tool_call("slow"), tool_call("stubborn")])],
        tools=[slow_tool(60), stubborn_tool(3)],
    )
    async with kit.open() as run:
        await trio.sleep(1)
        run.abort()
        await run.wait()
    assert run.stats.per_tool == {
        "slow": ToolStats(calls=1, failures=1, time=1.0),
        "stubborn": ToolStats(calls=1, failures=0, time=3.0),
    }
    assert run.stats.tool_time == 3.0
    assert len([event for event in kit.events if isinstance(event, ToolStarted)]) == 2


def test_the_figures_of_legs_add_up() -> None:
    total, leg = RunStats(), RunStats(turns=1, tool_calls=2, model_time=3.0, abandoned=1)
    leg.tool_time = 4.0
    leg.fold_spend(Usage(input=5, output=6, cost_cents=0.5))
    leg.fold_call("look", failed=True, duration=2.0)
    total.fold_leg(leg)
    total.fold_leg(leg)
    assert total == RunStats(
        turns=2,
        tool_calls=4,
        usage=Usage(input=10, output=12, cost_cents=1.0),
        model_time=6.0,
        tool_time=8.0,
        per_tool={"look": ToolStats(calls=2, failures=2, time=4.0)},
        abandoned=2,
    )
    assert leg.per_tool["look"].calls == 1
