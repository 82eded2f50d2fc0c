"""Settled points: input, nudges, compaction and boundaries."""

from collections.abc import Sequence
from typing import Literal

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness import (
    Admission,
    Batch,
    Compaction,
    Compactor,
    Limits,
    Message,
    ModelTurn,
    Outcome,
    RunState,
    SettledTurn,
    StepDecision,
    Supervisor,
    Suspend,
    ToolCall,
    Usage,
    assistant_message,
    tool,
    tool_message,
    user_message,
)
from harness._arguments import call_digest
from harness.errors import AbortedToolCallError, InvalidCompactionError, RunUseError
from harness.events import (
    CallRejected,
    CompactionFinished,
    CompactionStarted,
    FlushDue,
    Posted,
    Settled,
)
from harness.testing import (
    RunHarness,
    ScriptItem,
    assert_transcript_settled,
    counting_tool,
    final_answer,
    held_tool,
    run_harness,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList


class Hands(Supervisor):
    """A supervisor that hands out what a test says, and notes what it was asked."""

    def __init__(
        self,
        *settled: StepDecision,
        nudges: Sequence[Sequence[Message]] = (),
        stop_after: int | None = None,
    ) -> None:
        self.decisions = list(settled)
        self.nudges = list(nudges)
        self.stop_after = stop_after
        self.asked: list[tuple[str, bool | None]] = []
        self.steps: list[SettledTurn] = []

    async def should_stop(self) -> bool:
        self.asked.append(("should_stop", None))
        turns = len([each for each in self.asked if each[0] == "settled"])
        return self.stop_after is not None and turns >= self.stop_after

    async def settled(self, step: SettledTurn) -> StepDecision:
        assert_transcript_settled(step.state.messages)
        self.asked.append(("settled", step.would_end))
        self.steps.append(step)
        return self.decisions.pop(0) if self.decisions else StepDecision()

    async def nudge(self, step: SettledTurn) -> Sequence[Message]:
        self.asked.append(("nudge", step.would_end))
        return self.nudges.pop(0) if self.nudges else ()


def said(*texts: str) -> StepDecision:
    return StepDecision(messages=[user_message(text) for text in texts])


def asks(*names: str) -> ModelTurn:
    return tool_call_turn([tool_call(name) for name in names])


def user_texts(state: RunState) -> Sequence[object]:
    return [each["content"] for each in state.messages if each["role"] == "user"][1:]


def codes(kit: RunHarness) -> list[str]:
    return [each.failure.code for each in kit.events if isinstance(each, CallRejected)]


# -- input -------------------------------------------------------------------------------------


@pytest.mark.rule("R-LOOP-39")
async def test_settled_is_asked_once_per_turn_when_the_transcript_is_settled(
    autojump_clock: MockClock,
) -> None:
    hands = Hands()
    kit = run_harness([asks("count"), asks("count", "count"), final_answer("x")], supervisor=hands)
    await kit.run()
    assert [each for each in hands.asked if each[0] == "settled"] == [
        ("settled", False),
        ("settled", False),
        ("settled", True),
    ]
    told = [each.would_end for each in kit.events if isinstance(each, Settled)]
    assert told == [False, False, True]


@pytest.mark.rule("R-LOOP-40")
@pytest.mark.parametrize("first", [asks("count"), final_answer("one")])
async def test_delivered_input_is_appended_in_order_and_the_model_sees_it_last(
    first: ModelTurn, autojump_clock: MockClock
) -> None:
    kit = run_harness([first, final_answer("two")], supervisor=Hands(said("a", "b")))
    result = await kit.run()
    assert result.text == "two"
    assert user_texts(result.state) == ["a", "b"]
    assert kit.script.requests[1].messages[-1]["content"] == "b"


@pytest.mark.rule("R-LOOP-41")
@pytest.mark.parametrize("first", [asks("count"), final_answer("one")])
async def test_stop_ends_aborted_with_the_messages_kept(
    first: ModelTurn, autojump_clock: MockClock
) -> None:
    hands = Hands(StepDecision(messages=[user_message("kept")], stop=True))
    kit = run_harness([first], supervisor=hands)
    result = await kit.run()
    assert result.stop_reason == "aborted"
    assert user_texts(result.state) == ["kept"]


@pytest.mark.rule("R-LOOP-42")
async def test_an_error_of_a_supervisor_leaves_as_it_is(autojump_clock: MockClock) -> None:
    class OurError(Exception):
        pass

    error = OurError("no")

    class Broken(Supervisor):
        async def settled(self, step: SettledTurn) -> StepDecision:
            raise error

    kit = run_harness([final_answer("x")], supervisor=Broken())
    with pytest.raises(OurError) as caught:
        await kit.run()
    assert caught.value is error


@pytest.mark.rule("R-LOOP-43", "R-POST-01")
async def test_input_outranks_posts_and_posts_outrank_a_nudge(autojump_clock: MockClock) -> None:
    hands = Hands(said("input"), nudges=[[user_message("nudge")]])
    kit = run_harness(
        [final_answer("1"), timed(2, final_answer("2")), final_answer("3"), final_answer("4")],
        supervisor=hands,
    )
    async with kit.open() as opened:
        await trio.sleep(1)
        opened.post("post", "ann")
        await opened.wait()
    assert user_texts(opened.state) == ["input", "post", "nudge"]
    assert [each[0] for each in hands.asked if each[0] != "should_stop"] == [
        "settled",
        "settled",
        "settled",
        "nudge",
        "settled",
        "nudge",
    ]
    [posted] = [each for each in kit.events if isinstance(each, Posted)]
    assert (posted.text, posted.user_id) == ("post", "ann")


@pytest.mark.rule("R-LOOP-44")
async def test_a_requested_stop_beats_delivered_input(autojump_clock: MockClock) -> None:
    hands = Hands(said("input"), stop_after=1)
    kit = run_harness([final_answer("1")], supervisor=hands)
    result = await kit.run()
    assert result.stop_reason == "aborted"
    assert user_texts(result.state) == ["input"]
    assert result.state.turn == 1


@pytest.mark.rule("R-LOOP-44", "R-LOOP-77")
async def test_a_requested_stop_with_nothing_delivered_is_done(autojump_clock: MockClock) -> None:
    hands = Hands(nudges=[[user_message("nudge")]])
    kit = run_harness([timed(2, final_answer("1"))], supervisor=hands)
    async with kit.open() as opened:
        await trio.sleep(1)
        opened.request_stop()
        await opened.wait()
    assert opened.result.stop_reason == "done"
    assert "nudge" not in [each[0] for each in hands.asked]


@pytest.mark.rule("R-LOOP-44", "R-LOOP-77")
async def test_a_requested_stop_lets_the_turn_finish(autojump_clock: MockClock) -> None:
    kit = run_harness([asks("slow")], tools=[slow_tool(5)])
    async with kit.open() as opened:
        await trio.sleep(1)
        opened.request_stop()
        await opened.wait()
    assert opened.result.stop_reason == "aborted"
    assert trio.current_time() == 5
    assert kit.side_effects == ["call_1"]


@pytest.mark.rule("R-LOOP-45", "R-LOOP-64", "R-LOOP-75", "R-TRIO-18")
@pytest.mark.parametrize("stop", ["abort", "deadline", "outer"])
async def test_after_a_stop_no_port_is_asked_and_nothing_is_built_on_refusals(
    stop: str, autojump_clock: MockClock
) -> None:
    @tool
    async def wishes() -> Outcome:
        return Outcome(
            kind="completed", compact=True, suspend=Suspend.answer("?"), activate_plugins=("p",)
        )

    asked: list[str] = []

    class Watching(ToolList):
        async def activate(self, outcome: Outcome) -> None:
            asked.append("activate")

    class Shrinks(Compactor):
        async def compact(self, messages: Sequence[Message]) -> None:
            asked.append("compact")

    async def boundary(step: SettledTurn) -> Literal["continue"]:
        asked.append("boundary")
        return "continue"

    hands = Hands()
    kit = run_harness(
        [asks("wishes", "held")],
        tools=Watching([wishes, held_tool()]),
        supervisor=hands,
        boundary=boundary,
        compactor=Shrinks(),
    )
    with trio.move_on_at(2 if stop == "outer" else 99):
        async with kit.open(deadline=2 if stop == "deadline" else 99) as opened:
            if stop == "abort":
                await trio.sleep(2)
                opened.abort()
            await opened.wait()
    assert asked == []
    assert [each[0] for each in hands.asked] == ["should_stop"]
    assert opened.state.pause is None
    assert len(kit.script.requests) == 1


@pytest.mark.rule("R-LOOP-46")
async def test_a_nudge_goes_on_until_it_has_nothing_more(autojump_clock: MockClock) -> None:
    hands = Hands(nudges=[[user_message("n1")], [user_message("n2"), user_message("n3")]])
    kit = run_harness([final_answer(str(n)) for n in range(3)], supervisor=hands)
    result = await kit.run()
    assert (result.stop_reason, result.state.turn) == ("done", 3)
    assert user_texts(result.state) == ["n1", "n2", "n3"]


@pytest.mark.rule("R-LOOP-46", "R-LOOP-47")
async def test_at_the_ceiling_no_nudge_is_asked_and_input_makes_it_the_reason(
    autojump_clock: MockClock,
) -> None:
    hands = Hands(nudges=[[user_message("n")]])
    kit = run_harness([final_answer("x")], supervisor=hands, limits=Limits(turns=1))
    assert (await kit.run()).stop_reason == "done"
    assert "nudge" not in [each[0] for each in hands.asked]

    kit = run_harness([final_answer("x")], supervisor=Hands(said("i")), limits=Limits(turns=1))
    assert (await kit.run()).stop_reason == "turn_limit"


@pytest.mark.rule("R-LOOP-48")
async def test_a_delivered_result_is_refused_and_reported(autojump_clock: MockClock) -> None:
    stray = StepDecision(messages=[tool_message("call_1", "{}"), user_message("a")])
    kit = run_harness([asks("count"), final_answer("x")], supervisor=Hands(stray))
    result = await kit.run()
    assert user_texts(result.state) == ["a"]
    assert codes(kit) == ["input.unmatched-result"]
    assert_transcript_settled(result.state.messages)


# -- fatal refusals ----------------------------------------------------------------------------


@pytest.mark.rule("R-LOOP-65", "R-LOOP-66")
@pytest.mark.parametrize(("stop", "raised"), [("abort", True), ("deadline", False)])
async def test_a_refusal_may_be_fatal_after_an_abort(
    stop: str, raised: bool, autojump_clock: MockClock
) -> None:
    class Strict(ToolList):
        def fatal(self, error: BaseException) -> bool:
            return isinstance(error, AbortedToolCallError)

    tools = Strict([slow_tool(9, "first", serial=True), counting_tool()])
    kit = run_harness([asks("count", "first", "count")], tools=tools)
    error: AbortedToolCallError | None = None
    try:
        async with kit.open(deadline=2 if stop == "deadline" else 99) as opened:
            if stop == "abort":
                await trio.sleep(2)
                opened.abort()
            await opened.wait()
    except AbortedToolCallError as refused:
        error = refused
    contents = [str(each["content"]) for each in kit.states[0].messages if each["role"] == "tool"]
    assert ['"not_run"' in each for each in contents] == [True, False, True]
    assert '"interrupted"' in contents[1]
    if raised:
        assert error is not None
        assert error.tool_call_id == "call_1"
        assert error.__notes__[0].startswith("call 'call_3' failed fatally too: ")
    else:
        assert error is None


# -- compaction --------------------------------------------------------------------------------


class Shortens(Compactor):
    """Keeps the last messages from the last user's on, behind a summary."""

    def __init__(self, *, needed: bool = False, declines: bool = False) -> None:
        self.is_needed, self.declines = needed, declines
        self.asked: list[tuple[int, int]] = []
        self.seen: list[int] = []

    def needed(self, state: RunState) -> bool:
        self.asked.append((state.usage.last_prompt, state.usage.last_output))
        return self.is_needed

    async def compact(self, messages: Sequence[Message]) -> Compaction | None:
        await trio.sleep(3)
        self.seen.append(len(messages))
        if self.declines:
            return None
        usage = Usage(input=100, cached_input=40, output=10, cost_cents=2)
        return Compaction(messages=[user_message("Summary.")], usage=usage)


@tool
async def shrink() -> Outcome:
    """Ask for a compaction."""
    return Outcome(kind="completed", compact=True)


def spent(turn: ModelTurn, input: int, output: int) -> ScriptItem:
    return attrs.evolve(turn, usage=Usage(input=input, output=output))


@pytest.mark.rule("R-LOOP-68", "R-LOOP-70", "R-LOOP-71")
@pytest.mark.parametrize("trigger", ["call", "needed"])
async def test_a_compaction_replaces_the_messages_in_place(
    trigger: str, autojump_clock: MockClock
) -> None:
    compactor = Shortens(needed=trigger == "needed")
    name = "shrink" if trigger == "call" else "count"
    kit = run_harness(
        [spent(asks(name), 7, 3), final_answer("x")],
        tools=[shrink, counting_tool()],
        compactor=compactor,
    )
    async with kit.open() as opened:
        messages = opened.state.messages
        await opened.wait()
    assert opened.state.messages is messages
    assert messages == [user_message("Summary."), assistant_message("x")]
    assert opened.stats.turns == opened.state.turn == 2
    assert opened.stats.usage == Usage(input=107, cached_input=40, output=13, cost_cents=2)
    assert opened.stats.model_time == 3
    [finished] = [each for each in kit.events if isinstance(each, CompactionFinished)]
    assert (finished.applied, finished.usage.input) == (True, 100)


@pytest.mark.rule("R-LOOP-69")
async def test_needed_is_asked_while_the_counts_are_fresh(autojump_clock: MockClock) -> None:
    compactor = Shortens(needed=True)
    kit = run_harness(
        [spent(asks("count"), 7, 3), spent(asks("count"), 8, 4), final_answer("x")],
        compactor=compactor,
    )
    result = await kit.run()
    assert compactor.asked == [(7, 3), (8, 4)]
    assert result.state.usage.fresh

    compactor = Shortens(needed=True)
    kit = run_harness([spent(asks("count"), 7, 3)], compactor=compactor)
    result = await kit.run(boundary=lambda step: checkpoint())
    assert not result.state.usage.fresh


async def checkpoint() -> Literal["checkpoint"]:
    return "checkpoint"


@pytest.mark.rule("R-LOOP-71")
async def test_a_compaction_may_decline(autojump_clock: MockClock) -> None:
    kit = run_harness(
        [asks("shrink"), final_answer("x")], tools=[shrink], compactor=Shortens(declines=True)
    )
    result = await kit.run()
    assert len(result.state.messages) == 4
    [finished] = [each for each in kit.events if isinstance(each, CompactionFinished)]
    assert not finished.applied


@pytest.mark.rule("R-LOOP-71")
async def test_a_compaction_that_breaks_the_transcript_is_refused(
    autojump_clock: MockClock,
) -> None:
    class Drops(Compactor):
        async def compact(self, messages: Sequence[Message]) -> Compaction:
            return Compaction(messages=messages[:-1], usage=Usage(input=5))

    kit = run_harness([asks("shrink")], tools=[shrink], compactor=Drops())
    with pytest.raises(InvalidCompactionError):
        await kit.run()
    state = kit.states[0]
    assert len(state.messages) == 3
    assert state.usage.input == 5
    told = [each for each in kit.events if isinstance(each, CompactionStarted | CompactionFinished)]
    assert [type(each) for each in told] == [CompactionStarted, CompactionFinished]


@pytest.mark.rule("R-LOOP-72")
async def test_compaction_is_only_for_a_call_that_will_follow(autojump_clock: MockClock) -> None:
    @tool
    async def wake() -> Outcome:
        return Outcome(kind="completed", compact=True, suspend=Suspend.answer("?"))

    compactor = Shortens(needed=True)
    await run_harness([asks("wake")], tools=[wake], compactor=compactor).run()
    await run_harness([final_answer("x")], compactor=compactor).run()
    await run_harness([asks("count")], compactor=compactor, limits=Limits(turns=1)).run()
    assert compactor.seen == []


@pytest.mark.rule("R-LOOP-72")
async def test_a_request_without_a_compactor_is_reported(autojump_clock: MockClock) -> None:
    kit = run_harness([asks("shrink"), final_answer("x")], tools=[shrink])
    result = await kit.run()
    assert result.stop_reason == "done"
    assert codes(kit) == ["port.missing"]


# -- boundaries --------------------------------------------------------------------------------


class Boundaries:
    """Notes each boundary, and checkpoints at one of them."""

    def __init__(self, checkpoint_at: int | None = None) -> None:
        self.checkpoint_at = checkpoint_at
        self.steps: list[SettledTurn] = []
        self.lengths: list[int] = []

    async def __call__(self, step: SettledTurn) -> Literal["continue", "checkpoint"]:
        self.steps.append(step)
        self.lengths.append(len(step.state.messages))
        at = len(self.steps) - 1
        return "checkpoint" if at == self.checkpoint_at else "continue"


@pytest.mark.rule("R-LOOP-73")
async def test_a_checkpoint_ends_the_run_after_everything_else_was_decided(
    autojump_clock: MockClock,
) -> None:
    boundaries = Boundaries(checkpoint_at=1)
    hands = Hands(nudges=[[user_message("nudge")]])
    kit = run_harness([asks("count"), final_answer("a")], supervisor=hands, boundary=boundaries)
    result = await kit.run()
    assert result.stop_reason == "checkpointed"
    assert result.state.turn == 2
    assert boundaries.lengths == [3, 5]
    assert result.state.messages[-1] == user_message("nudge")
    assert sum(isinstance(each, FlushDue) for each in kit.events) == 2


@pytest.mark.rule("R-LOOP-74")
@pytest.mark.parametrize(
    ("turns", "limits", "decisions", "reason"),
    [
        ([final_answer("x")], Limits(), ["finished"], "done"),
        ([asks("count")], Limits(turns=1), ["finished"], "turn_limit"),
        ([spent(asks("count"), 9, 9)], Limits(tokens=5), ["finished"], "budget"),
        ([asks("ask")], Limits(), ["waiting"], "waiting_for_reply"),
        ([asks("count"), final_answer("x")], Limits(), ["continue", "finished"], "done"),
    ],
)
async def test_a_boundary_is_told_what_was_decided_and_cannot_change_an_end(
    turns: list[ScriptItem],
    limits: Limits,
    decisions: list[str],
    reason: str,
    autojump_clock: MockClock,
) -> None:
    @tool
    async def ask() -> Suspend:
        return Suspend.answer("?")

    boundaries = Boundaries(checkpoint_at=len(decisions) - 1)
    kit = run_harness(turns, tools=[ask, counting_tool()], limits=limits, boundary=boundaries)
    result = await kit.run()
    assert result.stop_reason == reason
    assert [step.decision for step in boundaries.steps] == decisions
    last = boundaries.steps[-1]
    assert last.open == (("call_1",) if reason == "waiting_for_reply" else ())
    assert last.stats.turns == result.state.turn == len(turns)


@pytest.mark.rule("R-LOOP-76")
async def test_a_boundary_that_always_continues_changes_nothing(autojump_clock: MockClock) -> None:
    results = []
    for boundary in (None, Boundaries()):
        kit = run_harness([asks("count"), final_answer("x")])
        result = await (kit.run() if boundary is None else kit.run(boundary=boundary))
        results.append((result.stop_reason, result.text, result.state, result.stats))
    assert results[0] == results[1]


@pytest.mark.rule("R-LOOP-77")
async def test_a_post_after_the_end_is_refused_and_so_is_what_is_no_users_message(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness([final_answer("x")])
    async with kit.open() as opened:
        for message in ("", assistant_message("no"), tool_message("c", "{}")):
            with pytest.raises(ValueError, match="^the posted message is "):
                opened.post(message)
        await opened.wait()
        with pytest.raises(RunUseError, match="^the run has ended, so it takes no messages$"):
            opened.post("late")


UNLIMITED = Limits()


@pytest.mark.rule("R-LOOP-74")
async def test_a_boundary_is_told_what_the_leg_is_about_to_end_with(
    autojump_clock: MockClock,
) -> None:
    told: list[tuple[str, str | None]] = []

    async def boundary(step: SettledTurn) -> Literal["continue"]:
        told.append((step.decision, step.stop_reason))
        return "continue"

    async def reasons(*turns: ScriptItem, limits: Limits = UNLIMITED) -> str:
        kit = run_harness(
            list(turns), tools=[counting_tool(), asking], boundary=boundary, limits=limits
        )
        return (await kit.run()).stop_reason

    asks = tool_call_turn([tool_call("asking")])
    counts = tool_call_turn([tool_call("count")])
    assert await reasons(counts, final_answer("Done.")) == "done"
    assert await reasons(asks) == "waiting_for_reply"
    assert await reasons(counts, limits=Limits(turns=1)) == "turn_limit"
    assert await reasons(counts, limits=Limits(tool_calls=0)) == "budget"
    assert told == [
        ("continue", None),
        ("finished", "done"),
        ("waiting", "waiting_for_reply"),
        ("finished", "turn_limit"),
        ("finished", "budget"),
    ]


@tool
async def asking() -> Suspend:
    """Ask a question."""
    return Suspend.answer("Go on?")


@pytest.mark.rule("R-FORGET-01")
async def test_a_compaction_counts_the_calls_that_it_dropped_and_later_batches_see_them(
    autojump_clock: MockClock,
) -> None:
    seen: list[dict[str, int]] = []

    class Watching(ToolList):
        async def admit(self, batch: Batch) -> Admission:
            seen.append(dict(batch.forgotten))
            return Admission()

    class DropsTheFirst(Compactor):
        def needed(self, state: RunState) -> bool:
            return state.turn in (2, 4)

        async def compact(self, messages: Sequence[Message]) -> Compaction:
            return Compaction(messages=[messages[0], *messages[-2:]])

    def same(id: str, arguments: str = '{"n": 1}') -> ModelTurn:
        return tool_call_turn([tool_call("note", arguments, id=id)])

    @tool
    async def note(n: int) -> str:
        """Note a number."""
        return "noted"

    kit = run_harness(
        [same("a"), same("b"), same("c", '{"n":1}'), same("d", '{"n": 2}'), same("e"),
         final_answer("Done.")],
        tools=Watching([note]),
        compactor=DropsTheFirst(),
    )  # fmt: skip
    state = (await kit.run()).state
    one, two = (
        call_digest(ToolCall(id="", name="note", arguments='{ "n" : 1 }')),
        call_digest(ToolCall(id="", name="note", arguments='{"n":2}')),
    )
    assert state.compactions == 2
    assert seen == [{}, {}, {one: 1}, {one: 1}, {one: 3}]
    assert state.forgotten == {one: 3}
    assert two not in state.forgotten
