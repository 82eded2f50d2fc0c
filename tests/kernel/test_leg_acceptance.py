"""What enters a transcript: discarded turns, the journal, and what it refuses."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from harness import (
    Assembly,
    Batch,
    CallContext,
    Halt,
    Journal,
    Limits,
    Message,
    ModelTurn,
    Outcome,
    SettledTurn,
    StepDecision,
    Supervisor,
    Suspend,
    Usage,
    assistant_message,
    tool,
    user_message,
)
from harness.errors import JournalTimeoutError
from harness.events import AssistantMessage, CallRejected
from harness.testing import (
    RUN_INVARIANTS,
    Scene,
    assert_provider_valid,
    assert_transcript_settled,
    cancel_everywhere,
    failing_tool,
    final_answer,
    run_harness,
    slow_tool,
    streamed,
    timed,
    tool_call,
    tool_call_turn,
)
from tests.kernel.reading import DONE, answers, kinds, named

SPENT = Usage(input=7, output=2)


class _Log(Journal):
    """Takes *seconds* and a few steps for each message, and refuses one of them, once."""

    def __init__(self, seconds: float = 0.0, *, refuses: str | None = None) -> None:
        self.seconds = seconds
        self.refuses = refuses
        self.taken: list[Message] = []
        self.ordinals: list[tuple[str, int]] = []

    async def accept_assistant(self, message: Message) -> None:
        await self._take("assistant", message)

    async def accept_result(self, message: Message, ordinal: int) -> None:
        await self._take(message["tool_call_id"], message)
        self.ordinals.append((message["tool_call_id"], ordinal))

    async def _take(self, name: str, message: Message) -> None:
        await trio.sleep(self.seconds)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        if name == self.refuses:
            self.refuses = None
            raise OSError("the log is full")
        self.taken.append(message)


def logged(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that go through a journal."""
    return [message for message in messages if message["role"] in ("assistant", "tool")]


class _Nudging(Supervisor):
    """Pushes a run on once; hands something in at the first settled point if it is told to."""

    def __init__(self, *delivered: Message) -> None:
        self.nudges = [[user_message("Say something.")]]
        self.decisions = [StepDecision(messages=delivered)] if delivered else []

    async def settled(self, step: SettledTurn) -> StepDecision:
        return self.decisions.pop() if self.decisions else StepDecision()

    async def nudge(self, step: SettledTurn) -> Sequence[Message]:
        return self.nudges.pop() if self.nudges else ()


# -- discarding --------------------------------------------------------------------------------


def discarded(text: str = "") -> ModelTurn:
    return ModelTurn(message=assistant_message(text), usage=SPENT, accept=False)


@pytest.mark.rule("R-LOOP-31")
@pytest.mark.parametrize("text", ["", "Something that is not kept."])
async def test_a_discarded_turn_costs_what_it_cost_and_leaves_no_message(text: str) -> None:
    log = _Log()
    kit = run_harness([discarded(text)], journal=log)
    result = await kit.run("Go.")
    assert result.stop_reason == "done"
    assert result.state.messages == [user_message("Go.")]
    assert (result.stats.turns, result.stats.usage, result.state.turn) == (1, SPENT, 1)
    assert (log.taken, result.text) == ([], None)


@pytest.mark.rule("R-LOOP-31")
@pytest.mark.parametrize("stream", [False, True])
async def test_an_empty_reply_that_the_host_accepts_is_discarded(stream: bool) -> None:
    empty = final_answer("", usage=SPENT)
    kit = run_harness([streamed(empty) if stream else empty], assembly=Assembly(empty="accept"))
    result = await kit.run("Go.")
    assert result.state.messages == [user_message("Go.")]
    assert (result.stats.turns, result.stats.usage) == (1, SPENT)


@pytest.mark.rule("R-LOOP-32")
async def test_a_turn_with_calls_is_kept_though_it_was_to_be_discarded() -> None:
    asking = tool_call_turn([tool_call("look", id="look-0")], "Looking.")
    kit = run_harness([ModelTurn(message=asking.message, accept=False), DONE])
    result = await kit.run()
    assert kinds(result.state.messages) == {"look-0": "completed"}
    (report,) = [event for event in kit.events if isinstance(event, CallRejected)]
    assert (report.call_id, report.failure.code) == (None, "turn.discarded-with-calls")
    assert_provider_valid(result.state.messages)


@pytest.mark.rule("R-LOOP-33")
async def test_a_discarded_turn_is_not_told_and_can_be_pushed_on() -> None:
    kit = run_harness([discarded("Hm."), final_answer("Done.")], supervisor=_Nudging())
    result = await kit.run()
    assert (result.stop_reason, result.stats.turns) == ("done", 2)
    told = [event.text for event in kit.events if isinstance(event, AssistantMessage)]
    assert told == ["Done."]
    assert [message["role"] for message in result.state.messages] == ["user", "user", "assistant"]


async def test_a_halt_keeps_its_turn_unless_that_is_to_be_discarded() -> None:
    for turn, length in ((final_answer("So far.", usage=SPENT), 2), (discarded("So far."), 1)):
        kit = run_harness([Halt(code="tripped", message="enough", turn=turn)])
        result = await kit.run()
        assert (result.stop_reason, len(result.state.messages)) == ("halted", length)
        assert result.stats.usage == SPENT


# -- the journal -------------------------------------------------------------------------------


@pytest.mark.rule("R-LOOP-34")
@pytest.mark.parametrize(
    ("refuses", "kept", "open_calls"),
    [
        ("a-0", [], ["a-0", "b-1", "c-2"]),
        ("b-1", ["a-0"], ["b-1", "c-2"]),
        ("c-2", ["a-0", "b-1"], ["c-2"]),
    ],
)
async def test_a_result_that_the_journal_refuses_is_not_kept_and_ends_the_run(
    refuses: str, kept: list[str], open_calls: list[str]
) -> None:
    log = _Log(refuses=refuses)
    kit = run_harness([named("a", "b", "c"), DONE], journal=log)
    with pytest.raises(OSError, match="the log is full") as caught:
        await kit.run()
    (state,) = kit.states
    assert list(answers(state.messages)) == kept
    assert log.taken == logged(state.messages)
    assert state.unanswered_call_ids() == tuple(open_calls)
    assert any(str(open_calls) in note for note in caught.value.__notes__)
    assert kit.script.remaining == 1


@pytest.mark.rule("R-LOOP-34")
@pytest.mark.parametrize("turn", [named("a", "b"), DONE])
async def test_a_message_of_the_model_that_the_journal_refuses_is_not_kept_and_not_acted_on(
    turn: ModelTurn,
) -> None:
    kit = run_harness([turn, DONE], journal=_Log(refuses="assistant"))
    with pytest.raises(OSError, match="the log is full"):
        await kit.run("Go.")
    (state,) = kit.states
    assert state.messages == [user_message("Go.")]
    assert not kit.ran
    assert (state.turn, state.tool_calls) == (1, 0)
    assert not [event for event in kit.events if isinstance(event, AssistantMessage)]


@tool
async def ask(question: str) -> Suspend:
    """Ask somebody."""
    return Suspend.answer(question)


@pytest.mark.rule("R-LOOP-35", "R-LOOP-36")
async def test_ordinals_count_the_results_of_a_batch_and_a_late_answer_takes_the_next(
    autojump_clock: MockClock,
) -> None:
    log = _Log()
    asking = tool_call("ask", {"question": "Really?"}, id="ask")
    calls = [tool_call("look", id="a"), asking, tool_call("look", id="b")]
    kit = run_harness(
        [tool_call_turn(calls), named("look", "look"), DONE],
        tools=[slow_tool(1, "look"), ask],
        journal=log,
    )
    first = await kit.run()
    assert first.stop_reason == "waiting_for_reply"
    assert log.ordinals == [("a", 0), ("b", 1)]
    first.state.reply("ask", "Yes.")
    second = await kit.run(first.state)
    assert second.stop_reason == "done"
    assert log.ordinals[2:] == [("ask", 2), ("look-0", 0), ("look-1", 1)]
    assert list(answers(second.state.messages)) == ["a", "ask", "b", "look-0", "look-1"]


@pytest.mark.rule("R-LOOP-36")
async def test_the_journal_has_every_message_of_the_model_and_every_answer_and_no_input() -> None:
    log = _Log()
    kit = run_harness(
        [named("fine", "fails", "unknown"), final_answer("Half."), named("last", "last"), DONE],
        tools=[slow_tool(0, "fine"), failing_tool(ValueError(), "fails")],
        journal=log,
        supervisor=_Nudging(user_message("From the host.")),
        limits=Limits(tool_calls=3),
    )
    async with kit.open() as run:
        run.post("From somebody.")
        await run.wait()
    assert run.result.stop_reason == "budget"
    assert log.taken == logged(run.state.messages)
    users = [each["content"] for each in run.state.messages if each["role"] == "user"]
    assert users == ["Go.", "From somebody.", "From the host.", "Say something."]
    # The last batch was refused: its answers are the run's own, and numbered like any other.
    assert log.ordinals[3:] == [("last-0", 0), ("last-1", 1)]
    assert list(kinds(run.state.messages).values())[-2:] == ["not_run", "not_run"]


# -- a stop while the journal writes -----------------------------------------------------------


@pytest.mark.rule("R-LOOP-37")
@pytest.mark.parametrize(("how", "seconds"), [("cancel", 0.0), ("cancel", 1.0), ("abort", 1.0)])
def test_wherever_a_run_is_stopped_the_transcript_has_what_the_journal_has(
    how: str, seconds: float
) -> None:
    async def scenario(scene: Scene) -> None:
        log = _Log(seconds)
        kit = run_harness(
            [named("serial", "slow", "fails"), DONE],
            scene=scene,
            journal=log,
            tools=[
                slow_tool(1, "serial", serial=True),
                slow_tool(2, "slow", grace=0.5),
                timed(1, failing_tool(ValueError(), "fails")),
            ],
        )

        @scene.afterwards
        def check() -> None:
            for state in kit.states:
                assert log.taken == logged(state.messages)
                assert state.unanswered_call_ids() == ()

        async with kit.open() as run:
            if how == "abort":
                scene.on_cut(run.abort)
            await run.wait()

    cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=40)


@pytest.mark.rule("R-LOOP-37", "R-LOOP-38")
@pytest.mark.parametrize("settle_timeout", [0.0, 6.0])
def test_wherever_a_slow_journal_is_cut_off_the_transcript_has_what_it_has(
    settle_timeout: float,
) -> None:
    async def scenario(scene: Scene) -> None:
        log = _Log(4.0)
        script = [named("a", "b", "c"), DONE]
        kit = run_harness(script, journal=log, settle_timeout=settle_timeout)

        @scene.afterwards
        def check() -> None:
            for state in kit.states:
                assert log.taken == logged(state.messages)
                assert_transcript_settled(state.messages, state.unanswered_call_ids())
                unanswered = state.unanswered_call_ids()
                if isinstance(scene.error, JournalTimeoutError):
                    assert scene.error.unanswered == unanswered != ()
                else:
                    assert unanswered == ()

        await kit.run()

    report = cancel_everywhere(scenario, minimum=20, raises=JournalTimeoutError)
    assert report.raised
    assert report.cancelled


@pytest.mark.rule("R-LOOP-38")
@pytest.mark.parametrize("refuses", ["a-0", "b-1"])
async def test_a_journal_that_refuses_while_a_run_is_closed_stops_the_closing(
    refuses: str, autojump_clock: MockClock
) -> None:
    log = _Log(refuses=refuses)
    kit = run_harness([named("a", "b", "c")], tools=[slow_tool(60, each) for each in "abc"])
    with pytest.raises(OSError, match="the log is full") as caught:
        async with kit.open(journal=log) as run:
            await trio.sleep(1)
            run.abort()
            await run.wait()
    assert run.result.stop_reason == "failed"
    unanswered = {"a-0": ("a-0", "b-1", "c-2"), "b-1": ("b-1", "c-2")}[refuses]
    assert run.state.unanswered_call_ids() == unanswered
    assert any(str(list(unanswered)) in note for note in caught.value.__notes__)
    assert log.taken == logged(run.state.messages)


@pytest.mark.rule("R-LOOP-38")
async def test_a_journal_that_hangs_while_a_run_is_closed_is_cut_off_and_what_is_open_is_listed(
    autojump_clock: MockClock,
) -> None:
    log = _Log(4)
    kit = run_harness([named("a", "b", "c")], tools=[slow_tool(60, each) for each in "abc"])
    with pytest.raises(JournalTimeoutError) as caught:
        async with kit.open(journal=log, settle_timeout=10.0) as run:
            await trio.sleep(5)
            run.abort()
            await run.wait()
    # The message was committed at 4; the stop came at 5, and two results fit before 15.
    assert trio.current_time() == 15.0
    assert caught.value.unanswered == run.state.unanswered_call_ids() == ("c-2",)
    assert kinds(run.state.messages) == {"a-0": "interrupted", "b-1": "interrupted"}
    assert log.taken == logged(run.state.messages)


@pytest.mark.rule("R-LOOP-38")
async def test_a_journal_error_after_an_outer_cancellation_is_raised_and_not_lost(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness([named("a")], tools=[slow_tool(60, "a")], journal=_Log(refuses="a-0"))
    with trio.move_on_after(1), pytest.raises(OSError, match="the log is full"):
        await kit.run()
    assert kit.states[0].unanswered_call_ids() == ("a-0",)


async def test_a_call_sees_the_batch_that_the_journal_took() -> None:
    seen: list[Batch] = []

    @tool
    async def look(context: CallContext[object]) -> Outcome:
        seen.append(context.batch)
        assert context.batch.messages[-1] is log.taken[-1]
        return Outcome.completed()

    log = _Log()
    result = await run_harness([named("look"), DONE], tools=[look], journal=log).run()
    assert (result.stop_reason, len(seen)) == ("done", 1)
    assert kinds(result.state.messages) == {"look-0": "completed"}
