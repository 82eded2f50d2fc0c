"""Hosts, tools and models that misbehave in ways that were found by trying."""

import copy
import pickle
from collections.abc import Sequence
from typing import Any, Literal, NoReturn, TypeVar

import pytest
import trio
from trio.testing import MockClock

from harness import (
    Admission,
    Assembly,
    Batch,
    CallContext,
    Chunk,
    Compaction,
    Compactor,
    Emitter,
    Journal,
    Limiters,
    Limits,
    Message,
    ModelRequest,
    ModelTurn,
    Outcome,
    RunState,
    SettledTurn,
    StepDecision,
    Supervisor,
    Suspend,
    ToolCall,
    TurnStream,
    open_run,
    run,
    tool,
    user_message,
)
from harness.errors import (
    AbortedToolCallError,
    InvalidCompactionError,
    RunUseError,
    TranscriptError,
)
from harness.events import CallRejected, RunFinished, TextReset
from harness.testing import (
    RunHarness,
    assert_provider_valid,
    assert_transcript_settled,
    counting_tool,
    failing_tool,
    final_answer,
    held_tool,
    run_harness,
    slow_tool,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList

HostT = TypeVar("HostT")
KEEP = Assembly(ids="keep")


def asks(*names: str, ids: Sequence[str] | None = None) -> ModelTurn:
    named = zip(names, ids or [f"c{n}" for n in range(len(names))], strict=True)
    return tool_call_turn([tool_call(name, id=id) for name, id in named])


def model_of(*turns: ModelTurn) -> Any:
    left = iter(turns)

    async def model(request: object, stream: object) -> ModelTurn:
        return next(left)

    return model


def answers(state: RunState) -> list[str]:
    return [str(each["content"]) for each in state.messages if each["role"] == "tool"]


# -- outcomes ----------------------------------------------------------------------------------


@pytest.mark.rule("R-PROM-02", "R-BATCH-11", "R-BATCH-12")
@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "failed", "error": ValueError("boom")},
        {"kind": "failed", "error": None},
        {"kind": "completed", "suspend": "x"},
        {"kind": "banana"},
    ],
)
async def test_an_outcome_that_is_none_is_that_calls_failure(
    fields: dict[str, Any], autojump_clock: MockClock
) -> None:
    @tool
    async def odd() -> Outcome:
        return Outcome(**fields)

    kit = run_harness([asks("odd", "count"), final_answer("x")], tools=[odd, counting_tool()])
    result = await kit.run()
    assert result.stop_reason == "done"
    assert ['"success":true' in each for each in answers(result.state)] == [False, True]


@pytest.mark.rule("R-PROM-02", "R-TRIO-07", "R-TRIO-17")
async def test_nothing_that_a_toolset_returns_or_raises_unsays_that_the_call_ran(
    autojump_clock: MockClock,
) -> None:
    class Unspeakable:
        def __repr__(self) -> str:
            raise RuntimeError("detached")

    deep: Exception = ValueError("the cause")
    for _ in range(3_000):
        deep = ExceptionGroup("deeper", [deep])

    class Odd(ToolList):
        async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
            if call.name == "deep":
                raise deep
            return Unspeakable()  # type: ignore[return-value]  # what the test is about

    tools = Odd([counting_tool("deep"), counting_tool("odd")])
    kit = run_harness([asks("deep", "odd"), final_answer("x")], tools=tools)
    result = await kit.run()
    assert result.stop_reason == "done"
    assert "not_run" not in "".join(answers(result.state))


@pytest.mark.rule("R-BATCH-12")
async def test_the_verdict_of_a_test_framework_leaves_a_tool_as_itself(
    autojump_clock: MockClock,
) -> None:
    @tool
    async def checks() -> NoReturn:
        pytest.fail("wrong argument")

    kit = run_harness([asks("checks", "count")], tools=[checks, counting_tool()])
    with pytest.raises(pytest.fail.Exception, match="^wrong argument$"):
        await kit.run()
    assert_transcript_settled(kit.states[0].messages)


@pytest.mark.rule("R-BATCH-12", "R-LOOP-24")
async def test_a_refusing_journal_does_not_hide_an_interrupt(autojump_clock: MockClock) -> None:
    class Down(Journal):
        async def accept_result(self, message: Message, ordinal: int) -> None:
            raise OSError("down")

    kit = run_harness([asks("fail")], tools=[failing_tool(KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt) as caught:
        await kit.run(journal=Down())
    assert isinstance(caught.value.__context__, OSError)


@pytest.mark.rule("R-BATCH-01", "R-PROM-01")
async def test_a_permit_that_is_kept_twice_is_given_back_once(autojump_clock: MockClock) -> None:
    releases = []

    @tool(pool="k")
    async def keep(context: CallContext[object]) -> None:
        releases.extend([context.keep_permit(), context.keep_permit()])

    limiters = Limiters(1)
    kit = run_harness([asks("keep"), final_answer("x")], tools=[keep], limiters=limiters)
    await kit.run()
    assert limiters.borrowed == 1
    releases[0]()
    other = run_harness([asks("o"), final_answer("x")], tools=[slow_tool(5, "o", pool="k")])
    async with other.open(limiters=limiters) as opened:
        await trio.sleep(1)
        releases[1]()
        assert limiters.borrowed == 1
        await opened.wait()
    assert limiters.borrowed == 0


# -- ids that are used twice -------------------------------------------------------------------


@pytest.mark.rule("R-PAUSE-02")
async def test_a_decision_covers_every_call_of_its_id(autojump_clock: MockClock) -> None:
    class Gate(ToolList):
        async def admit(self, batch: Batch) -> Admission:
            refused = Outcome.failed("denied", "authz")
            return Admission(decisions={call.id: refused for call in batch.calls})

    wipe = counting_tool("wipe")
    turns = model_of(asks("wipe", "wipe", ids=["s", "s"]), final_answer("x"))
    result = await run(turns, "Go.", tools=Gate([wipe]), assembly=KEEP)
    assert wipe.started == 0
    assert len(answers(result.state)) == 2


@pytest.mark.rule("R-LOOP-56", "R-PROM-02")
async def test_a_call_whose_id_is_not_its_own_cannot_ask(autojump_clock: MockClock) -> None:
    paid: list[int] = []

    @tool
    async def pay() -> object:
        paid.append(1)
        return "paid" if len(paid) == 1 else Suspend.answer("Sure?")

    turns = model_of(asks("pay", "pay", ids=["s", "s"]), final_answer("x"))
    result = await run(turns, "Go.", tools=[pay], assembly=KEEP)
    assert result.stop_reason == "done"
    assert len(paid) == 2
    assert answers(result.state)[0] == '{"success":true,"data":"paid"}'
    assert '"kind":"conflict"' in answers(result.state)[1]


# -- what a provider would refuse --------------------------------------------------------------


@pytest.mark.rule("R-PROM-02", "R-VALID-30")
async def test_a_made_up_name_is_answered_and_not_shown_to_a_provider_again(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness([asks("multi_tool_use.parallel"), final_answer("x")], tools=[])
    result = await kit.run()
    assert "'multi_tool_use.parallel'" in answers(result.state)[0]
    [call] = result.state.messages[1]["tool_calls"]
    assert call["function"]["name"] == "multi_tool_use_parallel"
    assert_provider_valid(result.state.messages)


@pytest.mark.rule("R-PROM-02", "R-ANSWER-01")
async def test_an_answer_that_no_provider_takes_is_replaced(autojump_clock: MockClock) -> None:
    @tool
    async def blank() -> Outcome:
        return Outcome.completed("x", parts=[{"type": "text", "text": ""}])

    class Empty(ToolList):
        def render(self, call: ToolCall, outcome: Outcome) -> Message:
            if call.name == "blank":
                return super().render(call, outcome)
            return {"role": "tool", "tool_call_id": call.id, "content": None}

    tools = Empty([blank, counting_tool()])
    kit = run_harness([asks("blank", "count"), final_answer("x")], tools=tools)
    result = await kit.run()
    assert_provider_valid(result.state.messages)
    assert answers(result.state) == ['{"success":true,"data":"x"}', '{"success":true,"data":1}']


@pytest.mark.rule("R-PROM-02", "R-LOOP-71")
async def test_a_compaction_to_nothing_is_refused(autojump_clock: MockClock) -> None:
    class Shrinks(Compactor):
        def needed(self, state: RunState) -> bool:
            return True

        async def compact(self, messages: Sequence[Message]) -> Compaction:
            return Compaction(messages=[])

    kit = run_harness([asks("count")], compactor=Shrinks())
    with pytest.raises(InvalidCompactionError, match="there are no messages"):
        await kit.run()


@pytest.mark.rule("R-PROM-02", "R-PORT-01")
@pytest.mark.parametrize(
    "message",
    [{"role": "user", "content": ""}, {"role": "owner", "content": "x"}, asks("x").message],
)
async def test_input_that_no_provider_takes_is_refused(
    message: Message, autojump_clock: MockClock
) -> None:
    class Delivers(Supervisor):
        async def settled(self, step: SettledTurn) -> StepDecision:
            return StepDecision(messages=[message])

    kit = run_harness([asks("count")], supervisor=Delivers())
    with pytest.raises(TranscriptError, match="answered a message that cannot join"):
        await kit.run()


@pytest.mark.rule("R-MODEL-04")
async def test_a_model_cannot_put_words_into_our_own_key(autojump_clock: MockClock) -> None:
    got: list[int] = []

    @tool
    async def send(amount: int) -> None:
        got.append(amount)

    turn = tool_call_turn([tool_call("send", {"amount": 1}, id="c")])
    turn.message["x-harness"] = {"raw_arguments": {"0": '{"amount":1000000}'}, "other": 1}
    result = await run(model_of(turn, final_answer("x")), "Go.", tools=[send])
    assert got == [1]
    assert result.state.messages[1]["x-harness"] == {"other": 1}


# -- ports -------------------------------------------------------------------------------------


@pytest.mark.rule("R-TRIO-18", "R-LOOP-75")
async def test_a_stop_in_the_tick_of_a_ports_answer_asks_no_further_port(
    autojump_clock: MockClock,
) -> None:
    asked: list[str] = []
    wake = trio.Event()

    class Watching(Supervisor):
        async def settled(self, step: SettledTurn) -> StepDecision:
            asked.append("settled")
            await wake.wait()
            return StepDecision()

        async def nudge(self, step: SettledTurn) -> Sequence[Message]:
            asked.append("nudge")
            return ()

    async def boundary(step: SettledTurn) -> Literal["continue"]:
        asked.append("boundary")
        return "continue"

    kit = run_harness([final_answer("x")], supervisor=Watching(), boundary=boundary)
    async with kit.open() as opened:
        await trio.sleep(1)
        wake.set()
        opened.abort()
        await opened.wait()
    assert (opened.result.stop_reason, asked) == ("aborted", ["settled"])


class _SaysNo(Supervisor):
    async def should_stop(self) -> bool:
        return "no"  # type: ignore[return-value]  # what the test is about


class _Spells(ToolList):
    def definitions(self) -> Any:
        return "abc"


class _Waves(ToolList):
    async def admit(self, batch: Batch) -> Admission:
        return Admission(decisions={"c0": True})  # type: ignore[dict-item]  # what it is about


@pytest.mark.rule("R-PORT-01")
@pytest.mark.parametrize(
    ("ports", "said"),
    [
        ({"supervisor": _SaysNo()}, r"^Supervisor\.should_stop answered 'no'"),
        ({"tools": _Spells([])}, r"^Toolset\.definitions answered 'a'"),
        ({"tools": _Waves([])}, "^the decision on 'c0' is True"),
    ],
)
async def test_an_answer_of_a_wrong_type_is_no_consent(
    ports: dict[str, Any], said: str, autojump_clock: MockClock
) -> None:
    kit = run_harness([asks("x"), final_answer("x")])
    with pytest.raises((TypeError, ValueError), match=said):
        await kit.run(**ports)


@pytest.mark.rule("R-STATE-03")
async def test_a_state_is_locked_by_a_running_leg_and_by_nothing_else(
    autojump_clock: MockClock,
) -> None:
    copies: list[RunState] = []

    async def boundary(step: SettledTurn) -> Literal["continue"]:
        copies.extend([copy.deepcopy(step.state), pickle.loads(pickle.dumps(step.state))])
        return "continue"

    kit = run_harness([asks("count"), final_answer("x")])
    await kit.run(boundary=boundary)
    for each in copies:
        each.messages.append(user_message("More."))
        assert (await run(model_of(final_answer("y")), each)).text == "y"

    state = RunState(run_id="r", messages=[user_message("Go.")])
    with pytest.raises(TypeError, match="^events is 'x', expected an Emitter or None$"):
        await run(model_of(), state, events="x")  # type: ignore[arg-type]  # what it is about
    assert (await run(model_of(final_answer("z")), state)).text == "z"


@pytest.mark.rule("R-LIMIT-03", "R-LIMIT-04")
async def test_refused_calls_are_not_charged_to_the_next_leg(autojump_clock: MockClock) -> None:
    kit = run_harness(
        [asks(*["count"] * 4), asks(*["count"] * 3, ids=["d", "e", "f"]), asks("count", ids=["z"])],
        limits=Limits(tool_calls=5),
        tools=[counting_tool()],
    )
    result = await kit.run()
    assert result.stop_reason == "budget"
    result.state.messages.append(user_message("Just one."))
    result = await kit.run(result.state, limits=Limits(tool_calls=5, turns=3))
    assert result.stop_reason == "turn_limit"
    assert result.stats.tool_calls == 1


@pytest.mark.rule("R-LOOP-65", "R-PAUSE-07")
async def test_a_withdrawn_pause_may_be_fatal(autojump_clock: MockClock) -> None:
    class Strict(ToolList):
        def fatal(self, error: BaseException) -> bool:
            return isinstance(error, AbortedToolCallError)

        async def admit(self, batch: Batch) -> Admission:
            return Admission(decisions={"c0": Suspend.answer("ok?")})

    kit = run_harness([asks("count", "count")], tools=Strict([counting_tool()]))
    state = (await kit.run()).state
    with pytest.raises(AbortedToolCallError):
        async with kit.open(state) as opened:
            opened.abort()
            await opened.wait()
    assert_transcript_settled(state.messages)


@pytest.mark.rule("R-TRIO-02")
async def test_nothing_is_told_after_the_last_event(autojump_clock: MockClock) -> None:
    contexts: list[CallContext[object]] = []

    @tool
    async def leak(context: CallContext[object]) -> None:
        contexts.append(context)

    kit: RunHarness = run_harness([asks("leak"), final_answer("x")], tools=[leak])
    await kit.run()
    told = kit.events[-1]
    contexts[0].tell(told)
    assert kit.events[-1] is told
    assert isinstance(told, RunFinished)


@pytest.mark.rule("R-LOOP-26")
async def test_fatal_errors_that_cannot_be_shown_or_noted_do_not_hide_the_first(
    autojump_clock: MockClock,
) -> None:
    class UnspeakableError(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

        __str__ = __repr__

        def add_note(self, note: str) -> None:
            raise RuntimeError("no notes")

    class Fatal(ToolList):
        def fatal(self, error: BaseException) -> bool:
            return True

    first = UnspeakableError()
    tools = Fatal([failing_tool(first, "a"), failing_tool(UnspeakableError(), "b"), held_tool()])
    kit = run_harness([asks("a", "b", "held")], tools=tools)
    with pytest.raises(UnspeakableError) as caught:
        await kit.run()
    assert caught.value is first
    failures = [each.failure.message for each in kit.events if isinstance(each, CallRejected)]
    assert "UnspeakableError" in failures


# -- errors that must not be lost --------------------------------------------------------------


@pytest.mark.rule("R-STOP-04")
@pytest.mark.parametrize("grouped", [False, True])
async def test_an_interrupt_in_a_run_does_not_wait_for_the_body(
    grouped: bool, autojump_clock: MockClock
) -> None:
    raised = BaseExceptionGroup("g", [KeyboardInterrupt()]) if grouped else KeyboardInterrupt()
    kit = run_harness([raised])
    with pytest.raises(type(raised)) as caught:
        async with kit.open():
            await trio.sleep(1_000)
    assert caught.value is raised
    assert trio.current_time() == 0


@pytest.mark.rule("R-LOOP-26", "R-BATCH-12")
async def test_an_interrupt_comes_before_a_fatal_error(autojump_clock: MockClock) -> None:
    class Fatal(ToolList):
        def fatal(self, error: BaseException) -> bool:
            return True

    @tool
    async def b() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyboardInterrupt

    @tool
    async def a() -> None:
        await trio.sleep(1)
        raise ValueError("no")

    tools = Fatal([a, b])
    with pytest.raises(KeyboardInterrupt) as caught:
        await run_harness([asks("a", "b")], tools=tools).run()
    assert caught.value.__notes__ == ["call 'c0' failed fatally too: ValueError: no"]


@pytest.mark.rule("R-LOOP-11", "R-PROM-07")
@pytest.mark.parametrize("journal", [False, True])
async def test_a_ports_error_is_not_lost_in_a_stop(
    journal: bool, autojump_clock: MockClock
) -> None:
    class Lost(ToolList):
        async def admit(self, batch: Batch) -> Admission:
            opened.abort()
            raise RuntimeError("database gone")

    class Slow(Journal):
        async def accept_result(self, message: Message, ordinal: int) -> None:
            await trio.sleep(1)

    kit = run_harness([asks("count")], tools=Lost([counting_tool()]))
    ports: Any = {"journal": Slow()} if journal else {}
    with pytest.raises(RuntimeError, match="^database gone$"):
        async with kit.open(**ports) as opened:
            await opened.wait()
    assert_transcript_settled(kit.states[0].messages)


@pytest.mark.rule("R-GEN-02", "R-LOOP-11")
async def test_a_cancellation_that_nobody_asked_for_is_a_failure(autojump_clock: MockClock) -> None:
    stale: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            stale.append(cancelled)
            raise

    async def model(request: object, stream: object) -> ModelTurn:
        raise stale[0]

    kit = run_harness([], model=model)
    with pytest.raises(RunUseError, match="^a port raised a cancellation, and nothing had been"):
        await kit.run()
    assert kit.events[-1].stop_reason == "failed"  # type: ignore[union-attr]  # the last event


@pytest.mark.rule("R-LOOP-77")
async def test_what_abort_was_given_is_told(autojump_clock: MockClock) -> None:
    kit = run_harness([asks("held")], tools=[held_tool()])
    async with kit.open() as opened:
        await trio.sleep(1)
        opened.abort("the user left")
        opened.abort("something else")
    assert opened.result.reason == "the user left"
    last = kit.events[-1]
    assert isinstance(last, RunFinished)
    assert last.reason == "the user left"


@pytest.mark.rule("R-GEN-06")
@pytest.mark.parametrize("grace", [True, float("nan"), float("inf"), -1, "1"])
async def test_the_grace_of_an_abort_is_checked(grace: Any, autojump_clock: MockClock) -> None:
    kit = run_harness([asks("held")], tools=[held_tool()])
    async with kit.open() as opened:
        with pytest.raises((TypeError, ValueError), match="^grace is "):
            opened.abort(grace=grace)
        opened.abort()


@pytest.mark.rule("R-EVENT-01")
async def test_telling_from_a_thread_is_refused_whether_or_not_anybody_reads() -> None:
    @tool
    def threaded(context: CallContext[object]) -> None:
        context.tell(RunFinished(stop_reason="done"))

    for events in (Emitter(), None):
        model = model_of(asks("threaded"), final_answer("x"))
        async with open_run(model, "Go.", tools=[threaded], events=events) as opened:
            await opened.wait()
        assert "must be called from async context" in answers(opened.state)[0]


@pytest.mark.rule("R-DEF-02", "R-LOOP-31")
async def test_a_refusal_in_a_part_is_no_empty_reply(autojump_clock: MockClock) -> None:
    turn = final_answer("x")
    turn.message["content"] = [{"type": "refusal", "refusal": "No."}]
    result = await run(model_of(turn), "Go.", assembly=Assembly(empty="accept"))
    assert result.state.messages[-1]["role"] == "assistant"


@pytest.mark.rule("R-STREAM-22")
async def test_a_turn_that_failed_keeps_its_half_answer(autojump_clock: MockClock) -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        for text in ("half", ""):
            async with stream.attempt() as attempt:
                attempt.send_nowait(Chunk(text=text))
        raise OSError("gone")

    kit = run_harness([], model=model)
    with pytest.raises(OSError, match="^gone$"):
        await kit.run()
    assert not any(isinstance(each, TextReset) for each in kit.events)
