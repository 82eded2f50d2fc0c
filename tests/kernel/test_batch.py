"""Running the calls of a batch."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from harness import (
    CallContext,
    CallPolicy,
    Emitter,
    Limiters,
    ModelRequest,
    ModelTurn,
    Outcome,
    ToolCall,
    TurnStream,
    open_run,
    run,
    tool,
)
from harness._messages import INTERRUPTED_TEXT, NOT_RUN_TEXT
from harness.events import CallRejected, ToolFinished, ToolStarted
from harness.testing import (
    RUN_INVARIANTS,
    RunHarness,
    Scene,
    assert_transcript_settled,
    blocking_tool,
    cancel_everywhere,
    counting_ids,
    counting_tool,
    explore_schedules,
    failing_tool,
    final_answer,
    held_tool,
    run_harness,
    run_virtual,
    scripted_model,
    slow_tool,
    stubborn_tool,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList

HostT = TypeVar("HostT")


def batch_of(*names: str) -> list[ModelTurn]:
    return [tool_call_turn([tool_call(name) for name in names]), final_answer("Done.")]


def answers(kit: RunHarness) -> list[str]:
    """The content of each answer of the last run, in order."""
    return [str(each["content"]) for each in kit.states[-1].messages if each["role"] == "tool"]


def started_at(kit: RunHarness) -> list[tuple[str, float]]:
    return [(each.call_id, each.at) for each in kit.events if isinstance(each, ToolStarted)]


def outcomes(kit: RunHarness) -> dict[str, str]:
    return {each.call_id: each.outcome for each in kit.events if isinstance(each, ToolFinished)}


@pytest.mark.rule("R-BATCH-01")
async def test_a_pool_runs_five_calls_at_a_time_and_no_other_pool_waits(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness(batch_of(*["a"] * 12, "b"), tools=[slow_tool(1, "a"), slow_tool(1, "b")])
    await kit.run()
    times = dict(started_at(kit))
    assert [times[f"call_{n}"] for n in range(1, 13)] == [0] * 5 + [1] * 5 + [2] * 2
    assert times["call_13"] == 0


@pytest.mark.rule("R-BATCH-01")
async def test_a_total_caps_all_pools_together_and_no_pool_takes_no_permit(
    autojump_clock: MockClock,
) -> None:
    tools = [slow_tool(1, "a"), slow_tool(1, "b"), slow_tool(1, "free", pool=None)]
    kit = run_harness(
        batch_of("a", "b", "a", "b", *["free"] * 7), tools=tools, limiters=Limiters(total=2)
    )
    await kit.run()
    assert [at for _, at in started_at(kit)].count(0) == 2 + 7
    assert [at for _, at in started_at(kit)].count(1) == 2
    assert kit.limiters.borrowed == 0


@pytest.mark.rule("R-BATCH-01")
async def test_a_pool_may_be_configured_by_number_or_by_a_limiter(
    autojump_clock: MockClock,
) -> None:
    limiters = Limiters(pools={"a": 1, "b": trio.CapacityLimiter(2)})
    kit = run_harness(
        batch_of("a", "a", "b", "b", "b"),
        tools=[slow_tool(1, "a"), slow_tool(1, "b")],
        limiters=limiters,
    )
    await kit.run()
    assert [at for _, at in sorted(started_at(kit))] == [0, 1, 0, 0, 1]


@pytest.mark.rule("R-BATCH-02", "R-BATCH-11")
@given(
    durations=st.lists(st.tuples(st.floats(0, 3), st.booleans()), min_size=1, max_size=12),
    limit=st.integers(1, 4),
)
@settings(max_examples=60)
def test_each_call_has_one_outcome_and_answers_stand_in_call_order(
    durations: list[tuple[float, bool]], limit: int
) -> None:
    @tool(name="work")
    async def work(index: int) -> int:
        seconds, fails = durations[index]
        await trio.sleep(seconds)
        if fails:
            raise ValueError(f"no {index}")
        return index

    async def main() -> None:
        calls = [tool_call("work", {"index": index}) for index in range(len(durations))]
        kit = run_harness(
            [tool_call_turn(calls), final_answer("x")], tools=[work], limiters=Limiters(limit)
        )
        await kit.run()
        expected = [
            f'{{"success":false,"error":"no {index}"}}'
            if fails
            else f'{{"success":true,"data":{index}}}'
            for index, (_, fails) in enumerate(durations)
        ]
        assert answers(kit) == expected
        assert len(outcomes(kit)) == len(durations)

    run_virtual(main)


@pytest.mark.rule("R-BATCH-03")
async def test_no_calls_no_batch(autojump_clock: MockClock) -> None:
    kit = run_harness([final_answer("x")], tools=[counting_tool()])
    result = await kit.run()
    assert result.stop_reason == "done"
    assert result.stats.tool_time == 0
    assert not any(isinstance(each, ToolStarted) for each in kit.events)


@pytest.mark.rule("R-BATCH-04")
def test_function_calls_share_a_pool_per_name_and_other_calls_one_per_type() -> None:
    assert CallPolicy.default(ToolCall(id="1", name="read")).pool == "read"
    custom = [ToolCall(id=name, name=name, type="custom") for name in ("x", "y")]
    assert {CallPolicy.default(call).pool for call in custom} == {"type:custom"}


@pytest.mark.rule("R-BATCH-05")
async def test_calls_of_a_pool_are_claimed_in_request_order(autojump_clock: MockClock) -> None:
    kit = run_harness(batch_of(*["a"] * 12), tools=[slow_tool(1, "a")], limiters=Limiters(3))
    await kit.run()
    assert kit.ran == [f"call_{n}" for n in range(1, 13)]


@pytest.mark.rule("R-BATCH-05")
async def test_a_large_batch_does_not_crowd_out_a_small_one(autojump_clock: MockClock) -> None:
    limiters = Limiters(1)
    large = run_harness(batch_of(*["a"] * 50), tools=[slow_tool(1, "a")], limiters=limiters)
    small = run_harness(batch_of("a"), tools=[slow_tool(1, "a")], limiters=limiters)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(large.run)
        await trio.sleep(0.5)
        nursery.start_soon(small.run)
    # Its turn comes after the call in flight and the one claim that stood in line before it.
    assert dict(started_at(small))["call_1"] <= 2


@pytest.mark.rule("R-BATCH-06", "R-KIT-05", "R-TRIO-21")
def test_first_starts_are_in_request_order_under_every_schedule() -> None:
    async def scenario(scene: Scene) -> None:
        names = ["a", "b", "a", "c"]
        kit = run_harness(batch_of(*names), tools=[counting_tool(name) for name in "abc"])
        scene.keep(kit)

        @scene.afterwards
        def in_order() -> None:
            assert kit.ran == ["call_1", "call_2", "call_3", "call_4"]

        await kit.run()

    report = explore_schedules(scenario, seeds=range(100))
    assert report.schedules == 100


@pytest.mark.rule("R-BATCH-07", "R-LOOP-61")
async def test_a_stop_refuses_what_waited_for_a_permit(autojump_clock: MockClock) -> None:
    kit = run_harness(batch_of(*["a"] * 12), tools=[slow_tool(5, "a")])
    async with kit.open() as opened:
        await trio.sleep(1)
        opened.abort()
    assert list(outcomes(kit).values()) == ["interrupted"] * 5
    assert [NOT_RUN_TEXT in each for each in answers(kit)] == [False] * 5 + [True] * 7


@pytest.mark.rule("R-BATCH-07")
async def test_a_permit_that_comes_free_in_the_instant_of_a_stop_starts_nothing(
    autojump_clock: MockClock,
) -> None:
    limiters = Limiters(1)
    kit = run_harness(batch_of("a", "a"), tools=[slow_tool(1, "a")], limiters=limiters)
    result = await kit.run(deadline=trio.current_time() + 1)
    assert result.stop_reason == "deadline"
    assert kit.ran == ["call_1"]
    assert limiters.borrowed == 0


@pytest.mark.rule("R-BATCH-08")
async def test_a_batch_opened_in_a_cancelled_scope_starts_nothing(
    autojump_clock: MockClock,
) -> None:
    with trio.CancelScope() as scope:

        async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
            scope.cancel()
            return tool_call_turn([tool_call("a", id="1"), tool_call("a", id="2")])

        kit = run_harness([], model=model, tools=[counting_tool("a")])
        await kit.run()
    assert scope.cancelled_caught
    assert kit.ran == []
    assert all(NOT_RUN_TEXT in each for each in answers(kit))
    assert len(answers(kit)) == 2


@pytest.mark.rule("R-BATCH-09", "R-LOOP-62", "R-LOOP-63")
async def test_a_refusal_names_its_call_in_a_field_and_has_the_shared_text(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness(batch_of("a", "a"), tools=[held_tool("a")], limiters=Limiters(1))
    async with kit.open() as opened:
        await trio.sleep(1)
        opened.abort()
    [rejected] = [each for each in kit.events if isinstance(each, CallRejected)]
    assert rejected.call_id == "call_2"
    assert rejected.failure.code == "tool.not_run"
    assert rejected.failure.message == NOT_RUN_TEXT
    assert "call_2" not in NOT_RUN_TEXT
    assert NOT_RUN_TEXT == (
        "Nothing was done: the run was stopped before this call began. "
        "There is no need to call it again, and it is not an error to report."
    )
    assert INTERRUPTED_TEXT == (
        "Outcome unknown: the run was stopped while this call was being carried out. "
        "Its effects may be complete, partial or absent; check before doing it again."
    )


@pytest.mark.rule("R-BATCH-10")
async def test_with_no_stop_every_call_runs(autojump_clock: MockClock) -> None:
    kit = run_harness(batch_of(*"abcabc"), tools=[counting_tool(name) for name in "abc"])
    await kit.run()
    assert len(kit.side_effects) == 6


# -- what leaves a tool ------------------------------------------------------------------------


async def leak_a_cancellation() -> None:
    """Raise a cancellation that belongs to no scope that is still there."""
    kept: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as stale:
            kept.append(stale)
            raise
    raise kept[0]


async def cancel_own_scope() -> str:
    with trio.CancelScope() as scope:
        scope.cancel()
        await trio.sleep_forever()
    return "went on"


async def raise_group() -> None:
    raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])


async def raise_mixed_group() -> None:
    raise BaseExceptionGroup("mixed", [ValueError("a"), asyncio.CancelledError()])


async def raise_foreign_cancellation() -> None:
    raise asyncio.CancelledError


async def raise_foreign_timeout() -> None:
    raise TimeoutError("too slow")


async def raise_trio_timeout() -> None:
    with trio.fail_after(1):
        await trio.sleep_forever()


async def raise_silently() -> None:
    raise RuntimeError


def returns_coroutine() -> Awaitable[str]:
    async def later() -> str:
        return "later"

    return later()


STRAY = (
    '{"success":false,"kind":"system","error":"The tool was cancelled by something else than '
    'this run, and did not finish."}'
)
LEAVINGS: list[tuple[Callable[[], object], str, str]] = [
    (cancel_own_scope, "completed", '{"success":true,"data":"went on"}'),
    (raise_group, "failed", '{"success":false,"error":"two (2 sub-exceptions)"}'),
    (raise_mixed_group, "failed", '{"success":false,"error":"mixed (2 sub-exceptions)"}'),
    (raise_foreign_timeout, "failed", '{"success":false,"error":"too slow"}'),
    (raise_trio_timeout, "failed", '{"success":false,"error":"TooSlowError"}'),
    (raise_silently, "failed", '{"success":false,"error":"RuntimeError"}'),
    (leak_a_cancellation, "failed", STRAY),
    (raise_foreign_cancellation, "failed", STRAY),
]


@pytest.mark.rule("R-BATCH-12", "R-TRIO-17", "R-GEN-02")
@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize(("function", "outcome", "answer"), LEAVINGS)
async def test_what_leaves_a_tool_is_its_outcome_and_touches_no_sibling(
    function: Callable[[], object],
    outcome: str,
    answer: str,
    serial: bool,
    autojump_clock: MockClock,
) -> None:
    odd = tool(name="odd", serial=serial)(function)
    kit = run_harness(
        batch_of("before", "odd", "after"),
        tools=[slow_tool(2, "before"), odd, slow_tool(2, "after")],
    )
    result = await kit.run()
    assert result.stop_reason == "done"
    assert answers(kit)[1] == answer
    assert outcomes(kit) == {"call_1": "completed", "call_2": outcome, "call_3": "completed"}


@pytest.mark.rule("R-BATCH-12")
async def test_a_time_limit_interrupts_one_call_and_its_text_says_so(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness(
        batch_of("slow", "fine"), tools=[slow_tool(60, "slow", time_limit=2), slow_tool(3, "fine")]
    )
    result = await kit.run()
    assert result.stop_reason == "done"
    assert trio.current_time() == 3
    assert "past its deadline (its time limit of 2 s)" in answers(kit)[0]
    assert outcomes(kit) == {"call_1": "interrupted", "call_2": "completed"}


@pytest.mark.rule("R-BATCH-12")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("grouped", [False, True])
async def test_an_exit_request_settles_the_batch_and_is_raised(
    error: BaseException, grouped: bool, autojump_clock: MockClock
) -> None:
    raised = BaseExceptionGroup("wrapped", [ValueError("x"), error]) if grouped else error
    kit = run_harness(
        batch_of("held", "fail", "held"),
        tools=[held_tool("held"), failing_tool(raised, "fail")],
        limiters=Limiters(1),
    )
    with pytest.raises(type(raised)) as caught:
        await kit.run()
    assert caught.value is raised
    assert [("interrupted" in each, "not_run" in each) for each in answers(kit)] == [
        (True, False),
        (True, False),
        (False, True),
    ]


@pytest.mark.rule("R-BATCH-12", "R-TRIO-07")
async def test_cleanup_that_raises_while_being_stopped_is_that_calls_failure(
    autojump_clock: MockClock,
) -> None:
    @tool
    async def messy() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cleanup broke")

    kit = run_harness(batch_of("messy", "held"), tools=[messy, held_tool("held")])
    result = await kit.run(deadline=trio.current_time() + 1)
    assert result.stop_reason == "deadline"
    assert outcomes(kit) == {"call_1": "failed", "call_2": "interrupted"}
    assert "cleanup broke" in answers(kit)[0]


@pytest.mark.rule("R-BATCH-12", "R-TRIO-07")
async def test_a_tool_that_ignores_its_cancellation_is_waited_for_and_completes(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness(batch_of("stubborn"), tools=[stubborn_tool(5, result="anyway")])
    result = await kit.run(deadline=trio.current_time() + 1)
    assert result.stop_reason == "deadline"
    assert trio.current_time() == 5
    assert outcomes(kit) == {"call_1": "completed"}


@pytest.mark.rule("R-BATCH-12")
async def test_a_toolset_that_returns_no_outcome_has_failed_that_call(
    autojump_clock: MockClock,
) -> None:
    class Odd(ToolList):
        async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
            return "just a text"  # type: ignore[return-value]  # what the test is about

    toolset = Odd([counting_tool("x")])
    result = await run(scripted_model(batch_of("x")), "Go.", tools=toolset)
    assert result.state.messages[2]["content"] == (
        '{"success":false,"error":"the toolset returned \'just a text\', expected an Outcome"}'
    )


# -- threads -----------------------------------------------------------------------------------


@pytest.mark.rule("R-BATCH-12")
async def test_a_synchronous_tool_may_return_a_coroutine() -> None:
    kit = run_harness(batch_of("later"), tools=[tool(name="later")(returns_coroutine)])
    await kit.run()
    assert answers(kit) == ['{"success":true,"data":"later"}']


async def until(condition: Callable[[], bool]) -> None:
    """Return once a real thread has made *condition* true."""
    while not condition():  # noqa: ASYNC110  # a thread has no event to set
        await trio.sleep(0.001)


@pytest.mark.rule("R-BATCH-12", "R-PROM-01")
@pytest.mark.parametrize("cut_by", ["abort", "time_limit"])
async def test_an_abandoned_thread_is_answered_at_once_and_keeps_its_permit(cut_by: str) -> None:
    block = blocking_tool(abandon=True, time_limit=0.01 if cut_by == "time_limit" else None)
    kit = run_harness(batch_of("block"), tools=[block])
    try:
        async with kit.open() as opened:
            await block.wait_entered()
            if cut_by == "abort":
                opened.abort()
            await opened.wait()
        [finished] = [each for each in kit.events if isinstance(each, ToolFinished)]
        assert (finished.outcome, finished.abandoned) == ("interrupted", True)
        assert opened.stats.abandoned == 1
        assert opened.result.stop_reason == ("aborted" if cut_by == "abort" else "done")
        assert kit.limiters.borrowed == 1
    finally:
        block.release()
    with trio.fail_after(5):
        await until(lambda: not kit.limiters.borrowed)


@pytest.mark.rule("R-BATCH-12", "R-TRIO-09", "R-PROM-01")
async def test_a_thread_that_may_not_be_abandoned_is_waited_for() -> None:
    block = blocking_tool()
    kit = run_harness(batch_of("block"), tools=[block])
    async with kit.open() as opened, trio.open_nursery() as nursery:
        await block.wait_entered()
        opened.abort()

        async def release_later() -> None:
            with trio.move_on_after(0.05):
                await opened.wait()
            assert kit.limiters.borrowed == 1, "the leg ended before the thread did"
            block.release()

        nursery.start_soon(release_later)
        await opened.wait()
    assert outcomes(kit) == {"call_1": "completed"}
    assert kit.limiters.borrowed == 0


@pytest.mark.rule("R-BATCH-12")
async def test_a_thread_that_is_withdrawn_before_it_begins_gives_its_permit_back() -> None:
    entered: list[str] = []

    @tool(abandon=True)
    def write() -> None:
        entered.append("write")

    block = blocking_tool()
    kit = run_harness(batch_of("write"), tools=[write])
    slots = trio.to_thread.current_default_thread_limiter()
    tokens = slots.total_tokens
    slots.total_tokens = 1
    try:
        async with trio.open_nursery() as nursery:
            other = run_harness(batch_of("block"), tools=[block])
            nursery.start_soon(other.run)
            await until(lambda: not slots.available_tokens)
            async with kit.open() as opened:
                await until(lambda: bool(kit.ran))
                opened.abort()
            assert outcomes(kit) == {"call_1": "interrupted"}
            assert kit.limiters.borrowed == 0
            block.release()
    finally:
        block.release()
        slots.total_tokens = tokens
    assert entered == []


# -- scale -------------------------------------------------------------------------------------


@pytest.mark.rule("R-BATCH-13", "R-PROM-03")
async def test_a_queued_call_costs_an_abort_no_task_step() -> None:
    """Steps of the run loop between an abort and the end of the calls in flight."""

    async def steps(queued: int) -> int:
        calls = [tool_call("held", id=f"c{n}") for n in range(5 + queued)]
        model = scripted_model([tool_call_turn(calls)])
        counter = _Steps()
        tools = [held_tool("held")]
        async with open_run(model, "Go.", tools=tools, events=Emitter()) as opened:
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.add_instrument(counter)
            opened.abort()
            await opened.wait()
            trio.lowlevel.remove_instrument(counter)
        assert opened.stats.tool_calls == 5
        assert_transcript_settled(opened.state.messages)
        return counter.steps

    assert await steps(10) == await steps(100_000)


class _Steps(trio.abc.Instrument):
    def __init__(self) -> None:
        self.steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1


@pytest.mark.rule("R-BATCH-02", "R-PROM-02")
async def test_a_thousand_calls_in_flight_have_one_outcome_each(autojump_clock: MockClock) -> None:
    calls = [tool_call("held", id=f"c{n}") for n in range(1_000)]
    kit = run_harness([tool_call_turn(calls)], tools=[held_tool("held", pool=None)])
    async with kit.open() as opened:
        await trio.testing.wait_all_tasks_blocked()
        opened.abort()
    assert list(outcomes(kit).values()) == ["interrupted"] * 1_000
    assert len(answers(kit)) == 1_000


@pytest.mark.rule("R-BATCH-14")
async def test_a_shared_limiters_forgets_pools_that_nobody_uses(autojump_clock: MockClock) -> None:
    limiters = Limiters(pools={"kept": 2})
    kit = run_harness(
        batch_of(*[f"made_up_{n}" for n in range(50)], "kept"), tools=[], limiters=limiters
    )
    await kit.run()
    assert list(limiters._pools) == ["kept"]


# -- delegation --------------------------------------------------------------------------------


@pytest.mark.rule("R-BATCH-01", "R-PROM-01")
async def test_a_call_that_waits_for_calls_needs_no_pool_to_share_a_limiter(
    autojump_clock: MockClock,
) -> None:
    limiters = Limiters(5)

    @tool(pool=None)
    async def delegate(depth: int) -> str:
        async def child(request: ModelRequest, stream: TurnStream) -> ModelTurn:
            if request.turn or not depth:
                return final_answer("leaf")
            call = tool_call("delegate", {"depth": depth - 1}, id="1")
            return tool_call_turn([call, tool_call("work", id="2")])

        result = await run(child, "go", tools=[delegate, slow_tool(1, "work")], limiters=limiters)
        return str(result.text)

    calls = [tool_call("delegate", {"depth": 2}) for _ in range(5)]
    kit = run_harness(
        [tool_call_turn(calls), final_answer("x")], tools=[delegate], limiters=limiters
    )
    result = await kit.run(deadline=trio.current_time() + 100)
    assert result.stop_reason == "done"
    assert limiters.borrowed == 0


# -- every cut ---------------------------------------------------------------------------------


@pytest.mark.rule("R-TRIO-08", "R-TRIO-12", "R-PROM-01", "R-PROM-02")
def test_a_batch_can_be_cancelled_everywhere() -> None:
    async def scenario(scene: Scene) -> None:
        names = ["a", "first", "a", "graceful", "fail", "a"]
        kit = run_harness(
            batch_of(*names),
            tools=[
                slow_tool(1, "a"),
                slow_tool(1, "first", serial=True),
                slow_tool(2, "graceful", grace=1),
                failing_tool(ValueError("no")),
            ],
            limiters=Limiters(2, total=3),
            scene=scene,
        )
        await kit.run()

    report = cancel_everywhere(scenario, invariants=RUN_INVARIANTS, seeds=range(3), minimum=70)
    assert report.cancelled


@pytest.mark.rule("R-BATCH-15", "R-PROM-03")
@pytest.mark.parametrize("stop", ["outer", "abort"])
def test_nothing_starts_in_the_runs_of_an_unshielded_call_after_a_stop(stop: str) -> None:
    async def scenario(scene: Scene) -> None:
        ids = counting_ids()

        @tool(pool=None, shielded=False)
        async def delegate(depth: int) -> str:
            async def child(request: ModelRequest, stream: TurnStream) -> ModelTurn:
                if request.turn:
                    return final_answer("ok")
                below = tool_call("delegate", {"depth": depth - 1}, id="1")
                return tool_call_turn([tool_call("work", id="2"), *([below] if depth else [])])

            return str((await run(child, "go", tools=[delegate, work], ids=ids)).text)

        @tool
        async def work() -> None:
            scene.started("work")
            await trio.sleep(1)

        calls = [tool_call("delegate", {"depth": 2}) for _ in range(2)]
        kit = run_harness([tool_call_turn(calls), final_answer("x")], tools=[delegate], scene=scene)
        async with kit.open() as opened:
            if stop == "abort":
                scene.on_cut(opened.abort)
            await opened.wait()

    report = cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=100)
    assert report.cuts
