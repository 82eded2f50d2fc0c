"""Pausing a run, and going on: in this process or another."""

import copy
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock

from harness import (
    JSON,
    Admission,
    Batch,
    CallContext,
    Journal,
    Message,
    ModelTurn,
    Outcome,
    Pause,
    Reply,
    RunState,
    SettledTurn,
    StepDecision,
    Supervisor,
    Suspend,
    Tool,
    ToolCall,
    assistant_message,
    define_tool,
    run,
    tool,
    tool_message,
    user_message,
)
from harness.errors import NotJSONError, ReplyError, RunUseError
from harness.events import CallRejected, SuspendWithdrawn, ToolStarted, TurnStarted
from harness.testing import (
    assert_provider_valid,
    assert_transcript_settled,
    counting_tool,
    final_answer,
    held_tool,
    run_harness,
    slow_tool,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList
from tests.kernel.carrying import dumped, loaded

HostT = TypeVar("HostT")
TOMORROW = datetime(2031, 1, 1, tzinfo=UTC)


@tool
async def ask() -> Suspend:
    """Ask a question."""
    return Suspend.answer("Really?", {"for": "ask"})


@tool
async def nap() -> Outcome:
    """Sleep until tomorrow."""
    return Outcome.completed("good night", suspend=Suspend.wake(TOMORROW))


def batch_of(*names: str) -> list[ModelTurn]:
    return [tool_call_turn([tool_call(name) for name in names]), final_answer("Done.")]


def answers(state: RunState) -> dict[str, str]:
    return {
        str(each["tool_call_id"]): str(each["content"])
        for each in state.messages
        if each["role"] == "tool"
    }


def open_calls(state: RunState) -> tuple[str, ...] | None:
    return None if state.pause is None else state.pause.open


class Approvals(ToolList):
    """Asks for each call whose name says so, one after another, and remembers in its memo."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self.batches: list[Batch] = []

    async def admit(self, batch: Batch) -> Admission:
        self.batches.append(batch)
        known: dict[str, JSON] = dict(batch.memo) if isinstance(batch.memo, dict) else {}
        known.update({call_id: reply.value for call_id, reply in batch.replies.items()})
        for call in batch.calls:
            if call.name == "pay" and call.id not in known:
                question = Suspend.answer(f"Pay {call.id}?")
                return Admission(decisions={call.id: question}, memo=known)
        refused = {
            call_id: Outcome.failed("refused", "authz")
            for call_id, verdict in known.items()
            if verdict is False
        }
        return Admission(decisions=refused, memo=known)


class Questions(ToolList):
    """A toolset whose one tool goes on asking out of `execute` until it hears ``enough``."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self.heard: list[JSON] = []

    async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
        if call.name != "ask":
            return await super().execute(call, context)
        if context.reply is None:
            return Outcome.completed(suspend=Suspend.answer("First?"))
        self.heard.append(context.reply.value)
        if context.reply.value == "enough":
            return Outcome.completed("heard enough")
        return Outcome.completed(suspend=Suspend.answer("And then?"))


@pytest.mark.rule("R-LOOP-49", "R-LOOP-50", "R-LOOP-52")
async def test_a_question_withholds_its_result_until_the_reply(autojump_clock: MockClock) -> None:
    kit = run_harness(batch_of("ask", "slow"), tools=[ask, slow_tool(1, result="other")])
    result = await kit.run()
    state = result.state
    assert result.stop_reason == "waiting_for_reply"
    assert answers(state) == {"call_2": '{"success":true,"data":"other"}'}
    assert state.pause == Pause(
        open=("call_1",), suspends={"call_1": Suspend.answer("Really?", {"for": "ask"})}
    )
    assert_transcript_settled(state.messages, ("call_1",))
    assert state.unanswered_call_ids() == ()

    state.reply("call_1", "yes")
    result = await kit.run(state)
    assert result.stop_reason == "done"
    assert list(answers(state).items()) == [
        ("call_1", '{"success":true,"data":"yes"}'),
        ("call_2", '{"success":true,"data":"other"}'),
    ]
    assert (state.leg, state.turn, open_calls(state)) == (2, 2, None)
    assert_provider_valid(state.messages)
    assert len(kit.script.requests) == 2
    resumed = [each for each in kit.events if isinstance(each, TurnStarted) and each.resumed]
    assert [(each.leg, each.turn) for each in resumed] == [(2, 0)]


@pytest.mark.rule("R-LOOP-49", "R-PAUSE-09")
async def test_a_wake_has_its_result_and_the_next_leg_asks_the_model(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness(batch_of("nap"), tools=[nap])
    result = await kit.run()
    assert result.stop_reason == "resuming_later"
    assert answers(result.state) == {"call_1": '{"success":true,"data":"good night"}'}
    assert result.state.pause == Pause(suspends={"call_1": Suspend.wake(TOMORROW)})
    result = await kit.run(result.state)
    assert result.stop_reason == "done"
    assert result.state.pause is None


@pytest.mark.rule("R-LOOP-51", "R-LOOP-53")
async def test_a_question_beside_a_wake_waits_first_and_wakes_after(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness(batch_of("nap", "ask", "ask"), tools=[ask, nap])
    result = await kit.run()
    state = result.state
    assert result.stop_reason == "waiting_for_reply"
    assert open_calls(state) == ("call_2", "call_3")
    state.reply("call_3", 3)
    assert (await kit.run(state)).stop_reason == "waiting_for_reply"
    assert open_calls(state) == ("call_2",)
    state.reply("call_2", 2)
    assert (await kit.run(state)).stop_reason == "resuming_later"
    assert list(answers(state)) == ["call_1", "call_2", "call_3"]
    assert (await kit.run(state)).stop_reason == "done"


@pytest.mark.rule("R-LOOP-54", "R-POST-01")
async def test_nothing_joins_while_a_call_is_open(autojump_clock: MockClock) -> None:
    class Eager(Supervisor):
        async def settled(self, step: SettledTurn) -> StepDecision:
            return StepDecision(messages=[user_message(f"settled {step.turn}")])

    kit = run_harness(batch_of("ask", "slow"), tools=[ask, slow_tool(5)], supervisor=Eager())
    async with kit.open() as opened:
        opened.post("Hello?")
        await trio.sleep(1)
        opened.post("Are you there?")
        await opened.wait()
    # The first post was there before the first turn; the second came when a call was open.
    assert [each["content"] for each in opened.state.messages if each["role"] == "user"] == [
        "Go.",
        "Hello?",
    ]
    assert opened.result.undelivered == (user_message("Are you there?"),)
    assert opened.result.stop_reason == "waiting_for_reply"


@pytest.mark.rule("R-LOOP-54")
async def test_a_reply_must_name_an_open_question(autojump_clock: MockClock) -> None:
    kit = run_harness(batch_of("ask", "nap"), tools=[ask, nap])
    state = (await kit.run()).state
    for call_id in ("call_2", "other"):
        with pytest.raises(ReplyError, match=rf"^call '{call_id}' waits for no answer, expected"):
            state.reply(call_id, 1)
    with pytest.raises(NotJSONError):
        state.reply("call_1", {1})  # type: ignore[arg-type]  # what the test is about
    state.reply("call_1", 1)
    with pytest.raises(ReplyError, match=r"expected one of \[\]$"):
        state.reply("call_1", 2)
    with pytest.raises(ReplyError):
        RunState(run_id="r").reply("call_1", 1)


@pytest.mark.rule("R-LOOP-55")
async def test_input_beside_a_wake_is_kept_and_the_leg_pauses_all_the_same(
    autojump_clock: MockClock,
) -> None:
    class Delivers(Supervisor):
        async def settled(self, step: SettledTurn) -> StepDecision:
            return StepDecision(messages=[user_message("By the way.")])

    kit = run_harness(batch_of("nap"), tools=[nap], supervisor=Delivers())
    result = await kit.run()
    assert result.stop_reason == "resuming_later"
    assert result.state.messages[-1] == user_message("By the way.")


@pytest.mark.rule("R-LOOP-56")
async def test_a_suspend_on_a_failure_is_ignored_and_reported(autojump_clock: MockClock) -> None:
    @tool
    async def confused() -> Outcome:
        return Outcome(kind="failed", error="no", suspend=Suspend.answer("Or yes?"))

    kit = run_harness(batch_of("confused"), tools=[confused])
    result = await kit.run()
    assert result.stop_reason == "done"
    [rejected] = [each for each in kit.events if isinstance(each, CallRejected)]
    assert (rejected.call_id, rejected.failure.code) == ("call_1", "suspend.on-failure")
    assert answers(result.state) == {"call_1": '{"success":false,"error":"no"}'}


@pytest.mark.rule("R-LOOP-57")
@pytest.mark.parametrize("stop", ["abort", "deadline"])
async def test_a_stop_in_the_batch_withdraws_its_question(
    stop: str, autojump_clock: MockClock
) -> None:
    kit = run_harness(batch_of("ask", "held"), tools=[ask, held_tool()])
    async with kit.open(deadline=2 if stop == "deadline" else 100) as opened:
        if stop == "abort":
            await trio.sleep(2)
            opened.abort()
        await opened.wait()
    withdrawn = [each.call_id for each in kit.events if isinstance(each, SuspendWithdrawn)]
    assert withdrawn == ["call_1"]
    assert "was withdrawn" in answers(opened.state)["call_1"]
    assert '"kind":"interrupted"' in answers(opened.state)["call_1"]
    assert opened.state.pause is None
    assert_provider_valid(opened.state.messages)


@pytest.mark.rule("R-PAUSE-01", "R-PAUSE-02", "R-PAUSE-03")
async def test_two_approvals_one_after_another_before_anything_starts(
    autojump_clock: MockClock,
) -> None:
    toolset = Approvals([counting_tool("pay"), counting_tool("look")])
    kit = run_harness(batch_of("pay", "look", "pay"), tools=toolset)
    result = await kit.run()
    state = result.state
    assert result.stop_reason == "waiting_for_reply"
    assert state.pause is not None
    assert state.pause.open == ("call_1", "call_2", "call_3")
    assert not state.pause.admitted
    assert kit.ran == []

    state.reply("call_1", True)
    result = await kit.run(state)
    assert result.stop_reason == "waiting_for_reply"
    assert list(state.pause.suspends) == ["call_3"]
    assert kit.ran == []

    state.reply("call_3", False)
    result = await kit.run(state)
    assert result.stop_reason == "done"
    assert kit.ran == ["call_1", "call_2"]
    assert list(answers(state)) == ["call_1", "call_2", "call_3"]
    assert answers(state)["call_3"] == '{"success":false,"kind":"authz","error":"refused"}'
    assert [len(batch.replies) for batch in toolset.batches] == [0, 1, 2]
    assert len(kit.script.requests) == 2
    assert (state.turn, state.leg) == (2, 3)


@pytest.mark.rule("R-PAUSE-01")
async def test_a_batch_that_asks_first_shows_its_message_and_no_more(
    autojump_clock: MockClock,
) -> None:
    toolset = Approvals([counting_tool("pay")])
    kit = run_harness(batch_of("pay"), tools=toolset)
    state = (await kit.run()).state
    state.reply("call_1", True)
    await kit.run(state)
    assert [len(batch.messages) for batch in toolset.batches] == [2, 2]
    assert toolset.batches[1].messages[-1]["role"] == "assistant"


@pytest.mark.rule("R-PAUSE-02")
@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ({"other": Outcome.not_run()}, "names 'other'"),
        ({"call_1": Suspend.wake(TOMORROW)}, "expected an outcome or a question"),
    ],
)
async def test_a_decision_that_makes_no_sense_fails_the_run_and_answers_its_calls(
    decision: dict[str, Outcome | Suspend], said: str, autojump_clock: MockClock
) -> None:
    class Odd(ToolList):
        async def admit(self, batch: Batch) -> Admission:
            return Admission(decisions=decision)

    kit = run_harness(batch_of("count"), tools=Odd([counting_tool()]))
    with pytest.raises(ValueError, match=said):
        await kit.run()
    assert '"kind":"not_run"' in answers(kit.states[0])["call_1"]


@pytest.mark.rule("R-PAUSE-04", "R-LOOP-52")
async def test_a_call_may_ask_again_when_it_is_resumed(autojump_clock: MockClock) -> None:
    toolset = Questions([counting_tool("ask"), counting_tool("look")])
    kit = run_harness(batch_of("look", "ask"), tools=toolset)
    state = (await kit.run()).state
    for said, reason in [("go on", "waiting_for_reply"), ("enough", "done")]:
        state.reply("call_2", said)
        assert (await kit.run(state)).stop_reason == reason
    assert toolset.heard == ["go on", "enough"]
    assert kit.ran == ["call_1", "call_2", "call_2", "call_2"]
    assert answers(state)["call_2"] == '{"success":true,"data":"heard enough"}'


@pytest.mark.rule("R-PAUSE-03", "R-LOOP-35")
async def test_late_answers_stand_in_call_order_and_take_the_next_ordinal(
    autojump_clock: MockClock,
) -> None:
    class Ordinals(Journal):
        def __init__(self) -> None:
            self.taken: list[tuple[str, int]] = []

        async def accept_result(self, message: Message, ordinal: int) -> None:
            self.taken.append((message["tool_call_id"], ordinal))

        async def accept_assistant(self, message: Message) -> None:
            self.taken.clear()

    journal = Ordinals()
    kit = run_harness(
        batch_of("ask", "count", "ask"), tools=[ask, counting_tool()], journal=journal
    )
    state = (await kit.run()).state
    state.reply("call_3", 3)
    await kit.run(state)
    assert list(answers(state)) == ["call_2", "call_3"]
    state.reply("call_1", 1)
    async with kit.open(state) as opened:
        async for event in opened.tee():
            if isinstance(event, ToolStarted):
                break
        opened.abort()
    assert list(answers(state)) == ["call_1", "call_2", "call_3"]
    assert journal.taken == [("call_2", 0), ("call_3", 1), ("call_1", 2)]


@pytest.mark.rule("R-PAUSE-05")
async def test_a_leg_without_a_reply_ends_at_once_as_it_was(autojump_clock: MockClock) -> None:
    kit = run_harness(batch_of("ask"), tools=[ask])
    state = (await kit.run()).state
    before = copy.deepcopy(state)
    result = await kit.run(state)
    assert result.stop_reason == "waiting_for_reply"
    state.leg -= 1
    assert state == before
    assert kit.ran == ["call_1"]
    assert len(kit.script.requests) == 1


@pytest.mark.rule("R-PAUSE-06")
@pytest.mark.parametrize("stop", ["deadline", "outer"])
async def test_a_stop_before_the_batch_is_entered_leaves_the_pause(
    stop: str, autojump_clock: MockClock
) -> None:
    kit = run_harness(batch_of("ask", "nap"), tools=[ask, nap])
    state = (await kit.run()).state
    state.reply("call_1", "yes")
    before = copy.deepcopy(state)
    with trio.CancelScope() as scope:
        if stop == "outer":
            scope.cancel()
        await kit.run(state, deadline=0.0)
    state.leg -= 1
    assert state == before


@pytest.mark.rule("R-PAUSE-07", "R-LOOP-57")
@pytest.mark.parametrize(("asks_first", "kind"), [(True, "not_run"), (False, "interrupted")])
@pytest.mark.parametrize("answered", [True, False])
async def test_an_abort_before_the_start_withdraws_a_pause(
    asks_first: bool, kind: str, answered: bool, autojump_clock: MockClock
) -> None:
    tools = [counting_tool("pay"), counting_tool("look")]
    toolset = Approvals(tools) if asks_first else [tool(name="pay")(ask.function), tools[1]]
    kit = run_harness(batch_of("look", "pay"), tools=toolset)
    state = (await kit.run()).state
    if answered:
        state.reply("call_2", True)
    ran = list(kit.ran)
    async with kit.open(state) as opened:
        opened.abort("never mind")
        await opened.wait()
    assert opened.result.stop_reason == "aborted"
    assert state.pause is None
    assert f'"kind":"{kind}"' in answers(state)["call_2"]
    assert kit.ran == ran
    if not answered:
        assert [e.call_id for e in kit.events if isinstance(e, SuspendWithdrawn)] == ["call_2"]
    assert_provider_valid(state.messages)


@pytest.mark.rule("R-STATE-03")
async def test_one_leg_at_a_time_runs_on_a_state(autojump_clock: MockClock) -> None:
    kit = run_harness([final_answer("x"), final_answer("y")])
    async with kit.open() as opened:
        with pytest.raises(RunUseError, match="has a leg running, expected one that waits$"):
            await run(kit.model, opened.state)
        await opened.wait()
    opened.state.messages.append(user_message("More."))
    assert (await kit.run(opened.state)).text == "y"


OTHER_PROCESS = """
import sys
from harness import run
from harness.testing import final_answer, run_virtual, scripted_model
from tests.kernel.carrying import dumped, loaded
from tests.kernel.test_pausing import Approvals, counting_tool

async def main():
    state = loaded(sys.stdin.buffer.read())
    state.reply("call_1", True)
    result = await run(
        scripted_model([final_answer("Paid.")]), state, tools=Approvals([counting_tool("pay")])
    )
    assert result.stop_reason == "done", result
    sys.stdout.buffer.write(dumped(state))

run_virtual(main)
"""


@pytest.mark.rule("R-PAUSE-08", "R-STATE-01")
async def test_a_question_is_answered_in_another_process(autojump_clock: MockClock) -> None:
    kit = run_harness(batch_of("pay"), tools=Approvals([counting_tool("pay")]))
    state = (await kit.run()).state
    done = subprocess.run(  # noqa: ASYNC221  # nothing else runs meanwhile
        [sys.executable, "-c", OTHER_PROCESS],
        input=dumped(state),
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr.decode()
    ended = loaded(done.stdout)
    assert ended.run_id == state.run_id
    assert ended.messages == [
        *state.messages,
        tool_message("call_1", '{"success":true,"data":1}'),
        assistant_message("Paid."),
    ]
    assert (ended.leg, ended.turn) == (2, 2)


@pytest.mark.rule("R-LOOP-52")
async def test_a_tool_that_resumes_is_called_again_with_its_reply_and_what_it_noted(
    autojump_clock: MockClock,
) -> None:
    seen: list[object] = []

    async def execute(arguments: dict[str, JSON], context: CallContext[object]) -> object:
        seen.append(context.reply)
        if context.reply is None:
            return Suspend.answer("Which?", payload={"step": 1})
        return {"chosen": context.reply.value}

    schema: dict[str, JSON] = {"type": "object", "properties": {}}
    choose = define_tool("choose", "Choose.", schema=schema, execute=execute, resumes=True)
    kit = run_harness([tool_call_turn([tool_call("choose")]), final_answer("ok")], tools=[choose])
    paused = await kit.run()
    paused.state.reply("call_1", "left")
    result = await kit.run(paused.state)
    assert result.stop_reason == "done"
    assert seen == [None, Reply(value="left", payload={"step": 1})]
    content = result.state.messages[2]["content"]
    assert content == '{"success":true,"data":{"chosen":"left"}}'
