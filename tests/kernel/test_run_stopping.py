"""Runs: every way in which one is stopped."""

import math

import pytest
import trio
from trio.testing import MockClock

from harness import (
    CallContext,
    Journal,
    Limiters,
    Message,
    ModelRequest,
    ModelTurn,
    TurnStream,
    run,
    tool,
    user_message,
)
from harness.errors import JournalTimeoutError
from harness.testing import (
    counting_tool,
    final_answer,
    held_tool,
    run_harness,
    slow_tool,
    tool_call,
    tool_call_turn,
)
from tests.kernel.reading import one_batch, results


async def silent_model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
    """A model that never answers."""
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.rule("R-TRIO-04", "R-LOOP-58", "R-PROM-05")
async def test_three_stops_leave_one_transcript_and_three_ends(autojump_clock: MockClock) -> None:
    transcripts = []
    states = []
    for stop in ("abort", "deadline", "outer"):
        kit = run_harness(one_batch("slow", "held"), tools=[slow_tool(1), held_tool()])
        start = trio.current_time()
        deadline = start + 2 if stop == "deadline" else math.inf
        with trio.CancelScope(deadline=start + 2 if stop == "outer" else math.inf) as scope:
            async with kit.open(deadline=deadline) as opened:
                if stop == "abort":
                    await trio.sleep(2)
                    opened.abort()
                await opened.wait()
        transcripts.append(opened.state.messages)
        states.append(opened.state)
        assert scope.cancelled_caught == (stop == "outer")
        expected = {"abort": "aborted", "deadline": "deadline", "outer": "cancelled"}
        assert opened.result.stop_reason == expected[stop]
        assert trio.current_time() == start + 2
    assert transcripts[0] == transcripts[1] == transcripts[2]
    assert results(states[0]) == ["ok", "interrupted"]


@pytest.mark.rule("R-TRIO-05", "R-TRIO-06")
async def test_grace_lets_each_call_finish_by_its_own_clock(autojump_clock: MockClock) -> None:
    tools = [slow_tool(1, "one"), slow_tool(3, "three", grace=2), slow_tool(10, "ten", grace=2)]
    kit = run_harness(one_batch("one", "three", "ten"), tools=tools)
    result = await kit.run(deadline=trio.current_time() + 2)
    assert result.stop_reason == "deadline"
    assert results(result.state) == ["ok", "ok", "interrupted"]
    assert trio.current_time() == 4


@pytest.mark.rule("R-TRIO-05")
async def test_without_grace_a_call_is_cut_at_once(autojump_clock: MockClock) -> None:
    kit = run_harness(one_batch("slow"), tools=[slow_tool(3)])
    result = await kit.run(deadline=trio.current_time() + 2)
    assert results(result.state) == ["interrupted"]
    assert trio.current_time() == 2


@pytest.mark.rule("R-TRIO-05", "R-TOOL-11")
@pytest.mark.parametrize("stop", ["abort", "deadline", "outer"])
async def test_a_tool_may_watch_stopping_and_return_what_it_has(
    stop: str, autojump_clock: MockClock
) -> None:
    @tool(grace=5)
    async def collect(context: CallContext[object]) -> str:
        assert not context.stopping.is_set()
        await context.stopping.wait()
        await trio.sleep(1)
        return "a part"

    kit = run_harness(one_batch("collect"), tools=[collect])
    with trio.move_on_after(2 if stop == "outer" else math.inf):
        async with kit.open(deadline=2 if stop == "deadline" else math.inf) as opened:
            if stop == "abort":
                await trio.sleep(2)
                opened.abort()
            await opened.wait()
    assert opened.state.messages[-1]["content"] == '{"success":true,"data":"a part"}'
    assert trio.current_time() == 3


@pytest.mark.rule("R-TRIO-10")
@pytest.mark.parametrize(("second", "end"), [(0, 3), (1, 4), (60, 12)])
async def test_a_second_abort_only_shortens_the_grace(
    second: float, end: float, autojump_clock: MockClock
) -> None:
    kit = run_harness(one_batch("held"), tools=[held_tool(grace=30)])
    async with kit.open() as opened:
        await trio.sleep(2)
        opened.abort(grace=10)
        await trio.sleep(1)
        opened.abort(grace=second)
        await opened.wait()
    assert trio.current_time() == end
    assert results(opened.state) == ["interrupted"]


@pytest.mark.rule("R-TRIO-10")
async def test_an_abort_caps_a_grace_that_a_deadline_has_begun(autojump_clock: MockClock) -> None:
    kit = run_harness(one_batch("held"), tools=[held_tool(grace=30)])
    async with kit.open(deadline=2) as opened:
        await trio.sleep(5)
        opened.abort(grace=0)
        await opened.wait()
    assert trio.current_time() == 5
    assert opened.result.stop_reason == "deadline"


@pytest.mark.rule("R-LOOP-59", "R-STOP-02")
@pytest.mark.parametrize(("abort_at", "reason"), [(4, "aborted"), (5, "aborted"), (6, "deadline")])
async def test_the_first_stop_names_the_reason(
    abort_at: float, reason: str, autojump_clock: MockClock
) -> None:
    kit = run_harness(one_batch("held"), tools=[held_tool(grace=10)])
    async with trio.open_nursery() as nursery, kit.open(deadline=5) as opened:

        async def abort() -> None:
            await trio.sleep_until(abort_at)
            opened.abort()

        nursery.start_soon(abort)
        await opened.wait()
    assert opened.result.stop_reason == reason


@pytest.mark.rule("R-TRIO-11", "R-STOP-02", "R-PROM-05")
@pytest.mark.parametrize("own_stop", ["abort", "deadline"])
async def test_an_outer_cancellation_in_the_same_tick_wins(
    own_stop: str, autojump_clock: MockClock
) -> None:
    kit = run_harness(one_batch("held"), tools=[held_tool()])
    deadline = 5 if own_stop == "deadline" else math.inf
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery, kit.open(deadline=deadline) as opened:

            async def stop() -> None:
                await trio.sleep_until(5)
                if own_stop == "abort":
                    opened.abort()
                scope.cancel()

            nursery.start_soon(stop)
            await opened.wait()
    assert scope.cancelled_caught
    assert opened.result.stop_reason == "cancelled"
    assert results(opened.state) == ["interrupted"]


@pytest.mark.rule("R-STOP-01", "R-TRIO-11")
async def test_a_deadline_equal_to_an_outer_one_settles_the_same(autojump_clock: MockClock) -> None:
    kit = run_harness(one_batch("slow", "held"), tools=[slow_tool(1), held_tool()])
    with trio.move_on_at(3) as scope:
        async with kit.open(deadline=3) as opened:
            await opened.wait()
    assert scope.cancelled_caught
    assert opened.result.stop_reason == "cancelled"
    assert results(opened.state) == ["ok", "interrupted"]


@pytest.mark.rule("R-STOP-01")
@pytest.mark.parametrize("deadline", [-math.inf, -1.0, 0.0])
async def test_a_deadline_that_has_passed_ends_the_leg_before_its_first_turn(
    deadline: float, autojump_clock: MockClock
) -> None:
    kit = run_harness([final_answer("never")])
    result = await kit.run(deadline=deadline)
    assert result.stop_reason == "deadline"
    assert kit.script.requests == []


@pytest.mark.rule("R-STOP-01")
async def test_a_scope_cancelled_on_entry_is_raised_and_asks_nobody(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness([final_answer("never")])
    with trio.CancelScope() as scope:
        scope.cancel()
        await kit.run()
    assert scope.cancelled_caught
    assert kit.script.requests == []
    assert kit.states[0].messages == [user_message("Go.")]


@pytest.mark.rule("R-STOP-03", "R-LOOP-77")
async def test_abort_before_the_start_asks_nobody(autojump_clock: MockClock) -> None:
    kit = run_harness([final_answer("never")])
    async with kit.open() as opened:
        opened.abort("changed my mind")
        await opened.wait()
    assert opened.result.stop_reason == "aborted"
    assert kit.script.requests == []


@pytest.mark.rule("R-STOP-03", "R-LOOP-77")
async def test_abort_after_the_end_does_nothing_and_twice_is_once(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness([final_answer("x")])
    async with kit.open() as opened:
        await opened.wait()
        opened.abort()
        opened.request_stop()
    assert opened.result.stop_reason == "done"

    kit = run_harness(one_batch("held"), tools=[held_tool()])
    async with kit.open() as opened:
        await trio.sleep(1)
        opened.abort("first")
        opened.abort("second")
    assert opened.result.stop_reason == "aborted"
    assert results(opened.state) == ["interrupted"]


@pytest.mark.rule("R-STOP-03", "R-PROM-03")
@pytest.mark.parametrize("serial", [False, True])
async def test_abort_from_inside_a_tool_lets_it_return_and_starts_nothing_more(
    serial: bool, autojump_clock: MockClock
) -> None:
    @tool(serial=serial)
    async def stop() -> str:
        opened.abort()
        return "stopped it"

    kit = run_harness(one_batch("stop", "count"), tools=[stop, counting_tool()])
    async with kit.open(limiters=Limiters(total=1)) as opened:
        await opened.wait()
    assert opened.result.stop_reason == "aborted"
    assert results(opened.state) == ["ok", "not_run"]
    assert len(kit.script.requests) == 1


@pytest.mark.rule("R-PROM-03", "R-LOOP-67")
async def test_a_model_call_is_cut_at_once_and_counts_no_turn(autojump_clock: MockClock) -> None:
    kit = run_harness([], model=silent_model)
    async with kit.open() as opened:
        await trio.sleep(2)
        opened.abort(grace=100)
        await opened.wait()
    assert trio.current_time() == 2
    assert opened.result.stop_reason == "aborted"
    assert opened.state.messages == [user_message("Go.")]
    assert (opened.state.turn, opened.stats.turns, opened.stats.model_time) == (0, 0, 2)


@pytest.mark.rule("R-PROM-03")
async def test_a_model_that_swallows_its_cancellation_starts_nothing(
    autojump_clock: MockClock,
) -> None:
    async def swallows(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        return tool_call_turn([tool_call("count", id="1")])

    kit = run_harness([], model=swallows, tools=[counting_tool()])
    result = await kit.run(deadline=1)
    assert result.stop_reason == "deadline"
    assert results(result.state) == ["not_run"]
    assert kit.ran == []


@pytest.mark.rule("R-LOOP-60")
async def test_a_run_without_a_deadline_has_an_hour_and_inf_opts_out(
    autojump_clock: MockClock,
) -> None:
    result = await run(silent_model, "Go.")
    assert result.stop_reason == "deadline"
    assert trio.current_time() == 3_600
    with trio.move_on_at(100_000):
        await run(silent_model, "Go.", deadline=math.inf)
    assert trio.current_time() == 100_000


# -- the journal while closing -----------------------------------------------------------------


class SlowJournal(Journal):
    """Takes so many seconds for each message, and notes what it took."""

    def __init__(self, assistant: float = 0, result: float = 0) -> None:
        self.seconds = (assistant, result)
        self.taken: list[Message] = []

    async def accept_assistant(self, message: Message) -> None:
        await trio.sleep(self.seconds[0])
        self.taken.append(message)

    async def accept_result(self, message: Message, ordinal: int) -> None:
        await trio.sleep(self.seconds[1])
        self.taken.append(message)


@pytest.mark.rule("R-TRIO-09", "R-TRIO-15", "R-LOOP-38", "R-PROM-02")
@pytest.mark.parametrize("hangs_from", [0, 1])
async def test_one_settle_deadline_bounds_all_of_closing(
    hangs_from: int, autojump_clock: MockClock
) -> None:
    class Hanging(SlowJournal):
        async def accept_result(self, message: Message, ordinal: int) -> None:
            await trio.sleep(3 if ordinal < hangs_from else math.inf)
            self.taken.append(message)

    kit = run_harness(one_batch("held", "held", "held"), tools=[held_tool(grace=1)])
    with pytest.raises(JournalTimeoutError) as caught:
        await kit.run(deadline=2, journal=Hanging(), settle_timeout=4)
    assert trio.current_time() == 2 + 1 + 4
    unanswered = tuple(f"call_{n + 1}" for n in range(hangs_from, 3))
    assert caught.value.unanswered == unanswered
    assert kit.states[0].unanswered_call_ids() == unanswered
    assert results(kit.states[0]) == ["interrupted"] * hangs_from


@pytest.mark.rule("R-TRIO-15", "R-TRIO-16", "R-LOOP-37")
async def test_a_commit_may_finish_within_its_allowance_and_the_stop_still_comes(
    autojump_clock: MockClock,
) -> None:
    journal = SlowJournal(result=3)
    kit = run_harness(one_batch("count"), tools=[counting_tool()])
    with trio.move_on_at(2) as scope:
        await kit.run(journal=journal, settle_timeout=4)
    assert scope.cancelled_caught
    assert trio.current_time() == 3
    assert results(kit.states[0]) == ["ok"]
    assert journal.taken == kit.states[0].messages[1:]


@pytest.mark.rule("R-TRIO-15", "R-LOOP-37")
async def test_an_assistant_message_committed_during_a_stop_has_its_calls_answered(
    autojump_clock: MockClock,
) -> None:
    journal = SlowJournal(assistant=3)
    kit = run_harness(one_batch("count", "count"), tools=[counting_tool()])
    result = await kit.run(journal=journal, deadline=2)
    assert result.stop_reason == "deadline"
    assert results(result.state) == ["not_run", "not_run"]
    assert journal.taken == result.state.messages[1:]
    assert kit.ran == []


@pytest.mark.rule("R-LOOP-38", "R-PROM-02")
@pytest.mark.parametrize("stop", ["abort", "outer"])
async def test_a_journal_that_raises_while_closing_stops_it_and_lists_the_rest(
    stop: str, autojump_clock: MockClock
) -> None:
    class Full(SlowJournal):
        async def accept_result(self, message: Message, ordinal: int) -> None:
            if ordinal == 1:
                raise OSError("disk full")

    kit = run_harness(one_batch("held", "held", "held"), tools=[held_tool()])
    with pytest.raises(OSError, match=r"^disk full\n") as caught, trio.CancelScope() as scope:
        async with kit.open(journal=Full()) as opened:
            await trio.sleep(1)
            opened.abort() if stop == "abort" else scope.cancel()
            await opened.wait()
    assert caught.value.__notes__ == ["calls left unanswered: ['call_2', 'call_3']"]
    assert kit.states[0].unanswered_call_ids() == ("call_2", "call_3")
    assert opened.result.stop_reason == "failed"
