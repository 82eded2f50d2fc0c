"""Runs: the block, its result, its events, and the promises."""

import math
from collections.abc import Callable
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

from harness import (
    CallPiece,
    Chunk,
    Emitter,
    HarnessError,
    Journal,
    Message,
    ModelRequest,
    ModelTurn,
    Run,
    SettledTurn,
    Supervisor,
    TurnStream,
    open_run,
    user_message,
)
from harness.errors import RunUseError
from harness.events import RunFinished, RunStarted, ToolFinished, ToolStarted, TurnFinished
from harness.kernel import RunOptions
from harness.testing import (
    assert_no_tasks_left,
    assert_provider_valid,
    assert_transcript_settled,
    counting_tool,
    failing_tool,
    final_answer,
    held_tool,
    record_events,
    run_harness,
    scripted_model,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from tests.kernel.reading import one_batch, results


class BodyError(Exception):
    """What a body raises."""


BODY_ERRORS: list[Callable[[], BaseException]] = [
    lambda: BodyError("plain"),
    lambda: ExceptionGroup("its own", [BodyError("in a group")]),
    KeyboardInterrupt,
    lambda: BaseExceptionGroup("mixed", [SystemExit(1)]),
]


@pytest.mark.rule("R-STOP-04", "R-PROM-01")
@pytest.mark.parametrize("make", BODY_ERRORS)
async def test_what_the_body_raises_leaves_as_the_same_object(
    make: Callable[[], BaseException], autojump_clock: MockClock
) -> None:
    error = make()
    kit = run_harness(one_batch("held"), tools=[held_tool(grace=2)])
    with pytest.raises(type(error)) as caught:
        async with kit.open() as opened:
            await trio.sleep(1)
            raise error
    assert caught.value is error
    assert opened.result.stop_reason == "aborted"
    assert results(opened.state) == ["interrupted"]
    assert trio.current_time() == 3
    assert_no_tasks_left()


@pytest.mark.rule("R-STOP-04", "R-PROM-01")
async def test_leaving_early_aborts_and_waits(autojump_clock: MockClock) -> None:
    kit = run_harness(one_batch("held"), tools=[held_tool(grace=2)])
    async with kit.open() as opened:
        await trio.sleep(1)
    assert trio.current_time() == 3
    assert opened.result.stop_reason == "aborted"


@pytest.mark.rule("R-STOP-04", "R-STOP-05")
async def test_a_body_left_under_an_outer_cancellation_is_cancelled_not_aborted(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness(one_batch("held"), tools=[held_tool()])
    with trio.CancelScope() as scope:
        async with kit.open() as opened:
            await trio.sleep(1)
            scope.cancel()
    assert opened.result.stop_reason == "cancelled"
    assert scope.cancelled_caught


@pytest.mark.rule("R-STOP-04", "R-LOOP-11")
async def test_a_run_that_fails_does_not_cancel_the_body(autojump_clock: MockClock) -> None:
    error = ValueError("the model broke")
    kit = run_harness([error])
    with pytest.raises(ValueError, match="^the model broke$") as caught:
        async with kit.open() as opened:
            await opened.wait()
            assert opened.result.stop_reason == "failed"
            assert opened.result.error is error
            await trio.sleep(5)
    assert caught.value is error
    assert trio.current_time() == 5


@pytest.mark.rule("R-STOP-04")
async def test_if_both_fail_both_leave_in_one_group(autojump_clock: MockClock) -> None:
    failure, error = ValueError("the run"), BodyError("the body")
    kit = run_harness([failure])
    with pytest.raises(ExceptionGroup) as caught:  # noqa: ASYNC401  # the very objects
        async with kit.open() as opened:
            await opened.wait()
            raise error
    assert caught.value.exceptions == (error, failure)


@pytest.mark.rule("R-STOP-04")
async def test_a_body_may_raise_the_runs_own_error(autojump_clock: MockClock) -> None:
    failure = ValueError("the run")
    kit = run_harness([failure])
    with pytest.raises(ValueError, match="^the run$") as caught:
        async with kit.open() as opened:
            await opened.wait()
            assert opened.result.error is not None
            raise opened.result.error
    assert caught.value is failure


@pytest.mark.rule("R-STOP-05", "R-TRIO-02")
async def test_the_result_is_there_in_the_step_that_tells_of_the_end(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness([timed(1, final_answer("x"))])
    async with open_run(kit.model, "Go.") as opened:
        with pytest.raises(RunUseError, match="^the run has not ended, so it has no result yet$"):
            _ = opened.result
        async for event in opened.events:
            if isinstance(event, RunFinished):
                assert opened.result.stop_reason == event.stop_reason == "done"
    with pytest.raises(trio.EndOfChannel):
        opened.events.receive_nowait()


@pytest.mark.rule("R-TRIO-02", "R-TRIO-19", "R-PROM-06")
@pytest.mark.parametrize("end", ["done", "aborted", "deadline", "cancelled", "failed"])
async def test_the_last_event_of_every_exit_is_run_finished(
    end: str, autojump_clock: MockClock
) -> None:
    turns = [ValueError("x")] if end == "failed" else [timed(5, final_answer("x"))]
    kit = run_harness(turns)
    deadline = 2.0 if end == "deadline" else math.inf
    caught = ValueError if end == "failed" else ()
    try:
        with trio.move_on_at(2 if end == "cancelled" else math.inf):
            async with kit.open(deadline=deadline) as opened:
                if end == "aborted":
                    await trio.sleep(2)
                    opened.abort()
                await opened.wait()
    except caught:
        pass
    first, *_, last = kit.events
    assert isinstance(first, RunStarted)
    assert isinstance(last, RunFinished)
    assert last.stop_reason == end
    assert (last.failure is not None) == (end == "failed")
    assert {(each.run_id, each.leg) for each in kit.events} == {(first.run_id, 1)}
    assert [each.at for each in kit.events] == sorted(each.at for each in kit.events)


@pytest.mark.rule("R-TRIO-01", "R-LOOP-10", "R-PROM-06")
@pytest.mark.parametrize("reader", ["nobody", "stops", "closes", "raises", "slow"])
async def test_no_reader_of_events_changes_a_run(reader: str, autojump_clock: MockClock) -> None:
    async def read(opened: Run) -> None:
        if reader == "nobody":
            return
        async for _ in opened.events:
            if reader == "slow":
                await trio.sleep(10)
                continue
            if reader == "closes":
                opened.events.close()
            if reader == "raises":
                raise BodyError("the reader")
            return

    kit = run_harness(
        one_batch("slow", "fail"), tools=[slow_tool(1), failing_tool(ValueError("x"))]
    )
    async with open_run(kit.model, "Go.", tools=kit.ports["tools"]) as opened:
        try:
            await read(opened)
        except BodyError:
            assert reader == "raises"
        await opened.wait()
    assert opened.result.stop_reason == "done"
    assert results(opened.state) == ["ok", "error"]
    assert opened.result.text == "Done."


@pytest.mark.rule("R-TRIO-01")
async def test_two_readers_of_which_one_stops(autojump_clock: MockClock) -> None:
    kit = run_harness([final_answer("x")])
    async with open_run(kit.model, "Go.") as opened, opened.tee() as quitter, opened.tee() as other:
        quitter.close()
        told = await record_events(opened.events)
        teed = await record_events(other)
    # A tee has everything from the moment it was made; the leg had not taken a step by then.
    assert teed == told[1:]
    assert isinstance(told[-1], RunFinished)
    assert await record_events(opened.tee()) == []


@pytest.mark.rule("R-STOP-05")
async def test_a_callers_emitter_is_told_and_left_open(autojump_clock: MockClock) -> None:
    emitter = Emitter()
    reader = emitter.open_reader()
    for _ in range(2):
        async with open_run(scripted_model([final_answer("x")]), "Go.", events=emitter) as opened:
            with pytest.raises(RunUseError, match="^this run tells its events to the emitter"):
                _ = opened.events
            await opened.wait()
    emitter.close()
    told = await record_events(reader)
    assert [isinstance(each, RunFinished) for each in told].count(True) == 2


# -- promises ----------------------------------------------------------------------------------


@pytest.mark.rule("R-PROM-01", "R-TRIO-19", "R-GEN-03")
@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 100])
async def test_no_task_outlives_a_run(seconds: float, autojump_clock: MockClock) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    kit = run_harness(
        [timed(1, one_batch("slow", "held")[0])], tools=[slow_tool(1), held_tool(time_limit=9)]
    )
    with trio.move_on_after(seconds):
        try:
            await kit.run()
        except HarnessError:
            assert seconds == 100  # the script has run out
    assert trio.lowlevel.current_statistics().tasks_living == before
    assert_no_tasks_left()


@pytest.mark.rule("R-PROM-07", "R-DEF-05")
async def test_no_call_of_a_stream_without_a_clean_end_is_run(autojump_clock: MockClock) -> None:
    async def cut_off(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        turn = tool_call_turn([tool_call("count", id="1")])
        async with stream.attempt() as attempt:
            for call in turn.message["tool_calls"]:
                function = call["function"]
                piece = CallPiece(
                    index=0,
                    id=call["id"],
                    name=function["name"],
                    arguments=function["arguments"],
                )
                attempt.send_nowait(Chunk(calls=(piece,)))
        return attempt.turn()

    count = counting_tool()
    kit = run_harness([], model=cut_off, tools=[count])
    with pytest.raises(HarnessError, match="^the completion is unfinished: "):
        await kit.run()
    assert count.started == 0
    assert kit.states[0].messages == [user_message("Go.")]
    assert_provider_valid(kit.states[0].messages)


@pytest.mark.rule("R-PROM-07")
@pytest.mark.parametrize("where", ["model", "journal", "supervisor", "boundary"])
async def test_a_failure_is_raised_and_never_a_result(
    where: str, autojump_clock: MockClock
) -> None:
    class Broken(Journal):
        async def accept_assistant(self, message: Message) -> None:
            raise OSError("no")

    class BrokenSupervisor(Supervisor):
        async def should_stop(self) -> bool:
            raise OSError("no")

    async def broken_boundary(step: SettledTurn) -> Literal["continue"]:
        raise OSError("no")

    options: dict[str, RunOptions] = {
        "model": {},
        "journal": {"journal": Broken()},
        "supervisor": {"supervisor": BrokenSupervisor()},
        "boundary": {"boundary": broken_boundary},
    }
    turn = OSError("no") if where == "model" else final_answer("x")
    kit = run_harness([turn], **options[where])
    with pytest.raises(OSError, match="^no$"):
        await kit.run()
    assert_transcript_settled(kit.states[0].messages)


@pytest.mark.rule("R-PROM-04", "R-TRIO-20")
def test_a_run_of_hours_takes_no_time_under_a_mock_clock() -> None:
    async def main() -> float:
        kit = run_harness(
            [timed(3_000, one_batch("slow")[0]), timed(3_000, final_answer("x"))],
            tools=[slow_tool(3_000)],
        )
        await kit.run(deadline=math.inf)
        return trio.current_time()

    assert trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)) == 9_000


@pytest.mark.rule("R-STOP-05")
async def test_figures_of_the_last_event_are_the_legs(autojump_clock: MockClock) -> None:
    kit = run_harness(one_batch("slow", "slow"), tools=[slow_tool(1)])
    result = await kit.run()
    last = kit.events[-1]
    assert isinstance(last, RunFinished)
    assert (last.turns, last.tool_calls) == (result.stats.turns, result.stats.tool_calls) == (2, 2)
    assert [type(each) for each in kit.events if isinstance(each, (ToolStarted, ToolFinished))]
    assert sum(isinstance(each, TurnFinished) for each in kit.events) == 2
