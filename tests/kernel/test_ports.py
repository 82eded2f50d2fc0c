"""What a host may leave out, and what happens when a port raises or answers nonsense."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

import pytest
from trio.testing import MockClock

from harness import (
    JSON,
    Admission,
    Batch,
    Boundary,
    CallContext,
    CallPolicy,
    Compaction,
    Compactor,
    Halt,
    Journal,
    Message,
    ModelRequest,
    ModelTurn,
    Outcome,
    RunState,
    RunStats,
    SettledTurn,
    StepDecision,
    Supervisor,
    Tool,
    ToolCall,
    TurnStream,
    assistant_message,
    run,
    user_message,
)
from harness.errors import MissingPortError, TranscriptError
from harness.events import CallRejected
from harness.kernel import RunOptions
from harness.kernel._ports import NO_COMPACTOR, NO_JOURNAL, NO_SUPERVISOR, go_on
from harness.testing import (
    assert_events_balance,
    assert_provider_valid,
    failing_tool,
    final_answer,
    run_harness,
    slow_tool,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList
from tests.kernel.reading import DONE, kinds, named

HostT = TypeVar("HostT")


async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
    return final_answer("Done.")


# -- leaving out -------------------------------------------------------------------------------


@pytest.mark.rule("R-LOOP-08")
async def test_a_model_and_an_input_are_all_that_a_run_needs() -> None:
    result = await run(model, "Go.")
    assert (result.stop_reason, result.text) == ("done", "Done.")


class _Journal(Journal):
    """Overrides nothing, as every port here."""


class _Supervisor(Supervisor):
    pass


class _Compactor(Compactor):
    pass


async def going_on(step: SettledTurn) -> Literal["continue"]:
    return "continue"


@pytest.mark.rule("R-LOOP-08")
@pytest.mark.parametrize(
    "ports",
    [
        RunOptions(journal=_Journal()),
        RunOptions(supervisor=_Supervisor()),
        RunOptions(compactor=_Compactor()),
        RunOptions(boundary=going_on),
    ],
)
async def test_a_port_that_is_left_out_is_one_that_overrides_nothing(
    ports: RunOptions, autojump_clock: MockClock
) -> None:
    calls = [tool_call("look"), tool_call("unknown")]
    script = [tool_call_turn(calls, "Hm."), final_answer("Done.")]
    without, with_it = (run_harness(script, tools=[slow_tool(1, "look")]) for _ in range(2))
    assert await without.run() == await with_it.run(**ports)
    told = [[type(event).__name__ for event in kit.events] for kit in (without, with_it)]
    assert told[0] == told[1]


@pytest.mark.rule("R-LOOP-08")
async def test_the_defaults_say_yes_to_everything_and_have_nothing_to_say() -> None:
    state, stats = RunState(run_id="a"), RunStats()
    step = SettledTurn(turn=0, decision="finished", would_end=True, state=state, stats=stats)
    await NO_JOURNAL.accept_assistant(user_message("any"))
    await NO_JOURNAL.accept_result(user_message("any"), 0)
    assert await NO_SUPERVISOR.should_stop() is False
    assert await NO_SUPERVISOR.settled(step) == StepDecision(messages=(), stop=False)
    assert list(await NO_SUPERVISOR.nudge(step)) == []
    assert NO_COMPACTOR.needed(step.state) is False
    assert await go_on(step) == "continue"
    with pytest.raises(MissingPortError, match="compactor"):
        await NO_COMPACTOR.compact([])


# -- raising -----------------------------------------------------------------------------------


class _BoomError(Exception):
    """What a port raises."""


class _Ports:
    """All ports of a run, of which the one called *where* raises *error*."""

    def __init__(self, where: str, error: BaseException) -> None:
        self.where = where
        self.error = error
        self.asked: list[str] = []
        look = slow_tool(0, "look", result=Outcome.completed("far", activate_plugins=["maps"]))
        load = slow_tool(0, "load", result=Outcome.completed(compact=True), serial=True)
        fail = failing_tool(LookupError("no"), "fail")
        self.options = RunOptions(
            tools=_Tools([look, load, fail], self),
            journal=_RaisingJournal(self),
            supervisor=_RaisingSupervisor(self),
            compactor=_RaisingCompactor(self),
            boundary=self.boundary,
        )
        calls = [tool_call(name, id=name) for name in ("look", "load", "fail")]
        self.kit = run_harness(
            [tool_call_turn(calls, "Hm."), final_answer("Done.")], model=self.complete
        )

    def ask(self, where: str) -> None:
        self.asked.append(where)
        if where == self.where:
            raise self.error

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        self.ask("complete")
        return await self.kit.script.complete(request, stream)

    async def boundary(self, step: SettledTurn) -> Literal["continue"]:
        self.ask("boundary")
        return "continue"


class _Tools(ToolList):
    def __init__(self, tools: Iterable[Tool], ports: _Ports) -> None:
        super().__init__(tools)
        self._ports = ports

    def definitions(self) -> tuple[dict[str, JSON], ...]:
        self._ports.ask("definitions")
        return super().definitions()

    def policy(self, call: ToolCall) -> CallPolicy:
        self._ports.ask("policy")
        return super().policy(call)

    async def admit(self, batch: Batch) -> Admission:
        self._ports.ask("admit")
        return await super().admit(batch)

    async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
        self._ports.ask("execute")
        return await super().execute(call, context)

    async def activate(self, outcome: Outcome) -> None:
        self._ports.ask("activate")

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        self._ports.ask("render")
        return super().render(call, outcome)

    def fatal(self, error: BaseException) -> bool:
        self._ports.ask("fatal")
        return super().fatal(error)


class _RaisingJournal(Journal):
    def __init__(self, ports: _Ports) -> None:
        self._ports = ports

    async def accept_assistant(self, message: Message) -> None:
        self._ports.ask("accept_assistant")

    async def accept_result(self, message: Message, ordinal: int) -> None:
        self._ports.ask("accept_result")


class _RaisingSupervisor(Supervisor):
    def __init__(self, ports: _Ports) -> None:
        self._ports = ports

    async def should_stop(self) -> bool:
        self._ports.ask("should_stop")
        return False

    async def settled(self, step: SettledTurn) -> StepDecision:
        self._ports.ask("settled")
        return StepDecision()

    async def nudge(self, step: SettledTurn) -> Sequence[Message]:
        self._ports.ask("nudge")
        return ()


class _RaisingCompactor(Compactor):
    def __init__(self, ports: _Ports) -> None:
        self._ports = ports

    def needed(self, state: RunState) -> bool:
        self._ports.ask("needed")
        return False

    async def compact(self, messages: Sequence[Message]) -> Compaction | None:
        self._ports.ask("compact")
        return None


ENDING = {
    "complete": [],
    "definitions": [],
    "should_stop": [],
    "accept_assistant": [],
    "admit": ["not_run"] * 3,
    "policy": ["not_run"] * 3,
    "fatal": ["interrupted", "completed", "interrupted"],  # the first had still to be activated
    "settled": ["completed", "completed", "failed"],
    "compact": ["completed", "completed", "failed"],
    "boundary": ["completed", "completed", "failed"],
    "nudge": ["completed", "completed", "failed"],
}
"""Each port that ends the run by raising, and how the calls are answered then."""

CONVERTED = {
    "execute": ["failed"] * 3,
    "activate": ["failed", "completed", "failed"],
    "render": ["completed", "completed", "failed"],
}
"""Each port that a rule turns into something else."""


@pytest.mark.rule("R-LOOP-11")
@pytest.mark.parametrize("where", ENDING)
async def test_what_a_port_raises_ends_the_run_and_leaves_it_bare(where: str) -> None:
    ports = _Ports(where, _BoomError(where))
    with pytest.raises(_BoomError) as caught:
        async with ports.kit.open(**ports.options) as run:
            await run.wait()
    assert caught.value is ports.error is run.result.error
    assert run.result.stop_reason == "failed"
    assert ports.asked[-1] == where or where in ("admit", "policy", "fatal")
    assert [*kinds(run.state.messages).values()] == ENDING[where]
    assert_provider_valid(run.state.messages)
    assert_events_balance(ports.kit.events)


@pytest.mark.rule("R-LOOP-11")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
@pytest.mark.parametrize("where", ["complete", "admit", "settled", "definitions"])
async def test_what_is_no_exception_leaves_a_port_just_the_same(
    where: str, error: BaseException
) -> None:
    ports = _Ports(where, error)
    with pytest.raises(type(error)) as caught:
        await ports.kit.run(**ports.options)
    assert caught.value is error


@pytest.mark.rule("R-LOOP-11")
async def test_a_group_that_a_port_raises_is_the_ports_own() -> None:
    group = ExceptionGroup("mine", [_BoomError("a"), _BoomError("b")])
    ports = _Ports("settled", group)
    with pytest.RaisesGroup(_BoomError, _BoomError) as caught:
        await ports.kit.run(**ports.options)
    assert caught.value is group


@pytest.mark.parametrize("where", CONVERTED)
async def test_what_a_rule_converts_does_not_end_the_run(where: str) -> None:
    ports = _Ports(where, _BoomError(where))
    result = await ports.kit.run(**ports.options)
    assert result.stop_reason == "done"
    assert [*kinds(result.state.messages).values()] == CONVERTED[where]
    rejected = [event for event in ports.kit.events if isinstance(event, CallRejected)]
    assert "_BoomError" in {event.failure.kind for event in rejected}
    assert_provider_valid(result.state.messages)


async def test_a_compactor_that_says_it_is_needed_may_raise_too() -> None:
    ports = _Ports("needed", _BoomError("needed"))
    kit = run_harness([final_answer("Half."), final_answer("Done.")], supervisor=_Nudging())
    with pytest.raises(_BoomError):
        await kit.run(compactor=ports.options["compactor"])


class _Nudging(Supervisor):
    async def nudge(self, step: SettledTurn) -> Sequence[Message]:
        return [user_message("Go on.")] if step.turn == 0 else []


# -- answering nonsense ------------------------------------------------------------------------


def boundary(value: object) -> Boundary:
    async def answer(step: SettledTurn) -> Literal["continue"]:
        return value  # type: ignore[return-value]  # what is being tested

    return answer


class _SettledAnswers(Supervisor):
    def __init__(self, value: object) -> None:
        self._value = value

    async def settled(self, step: SettledTurn) -> StepDecision:
        return self._value  # type: ignore[return-value]  # what is being tested


class _NudgeAnswers(Supervisor):
    def __init__(self, value: object) -> None:
        self._value = value

    async def nudge(self, step: SettledTurn) -> Sequence[Message]:
        return self._value  # type: ignore[return-value]  # what is being tested


class _CompactAnswers(Compactor):
    def __init__(self, value: object) -> None:
        self._value = value

    def needed(self, state: RunState) -> bool:
        return True

    async def compact(self, messages: Sequence[Message]) -> Compaction | None:
        return self._value  # type: ignore[return-value]  # what is being tested


class _AdmitAnswers(ToolList):
    def __init__(self, value: object) -> None:
        super().__init__([slow_tool(0, "look")])
        self._value = value

    async def admit(self, batch: Batch) -> Admission:
        return self._value  # type: ignore[return-value]  # what is being tested


class _PolicyAnswers(_AdmitAnswers):
    async def admit(self, batch: Batch) -> Admission:
        return Admission()

    def policy(self, call: ToolCall) -> CallPolicy:
        return self._value  # type: ignore[return-value]  # what is being tested


class _ExecuteAnswers(_AdmitAnswers):
    async def admit(self, batch: Batch) -> Admission:
        return Admission()

    async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
        return self._value  # type: ignore[return-value]  # what is being tested


NONSENSE: tuple[object, ...] = (None, True, "continue ", "yes", 7, {"stop": True}, object())


ANSWERING: dict[str, Callable[[object], RunOptions]] = {
    "Supervisor.settled": lambda value: RunOptions(supervisor=_SettledAnswers(value)),
    "Supervisor.nudge": lambda value: RunOptions(supervisor=_NudgeAnswers(value)),
    "Compactor.compact": lambda value: RunOptions(compactor=_CompactAnswers(value)),
    "the boundary": lambda value: RunOptions(boundary=boundary(value)),
    "Toolset.admit": lambda value: RunOptions(tools=_AdmitAnswers(value)),
    "Toolset.policy": lambda value: RunOptions(tools=_PolicyAnswers(value)),
}


@pytest.mark.rule("R-PORT-01")
@pytest.mark.parametrize(
    ("port", "value"),
    [
        (port, value)
        for port in ANSWERING
        for value in NONSENSE
        # None declines a compaction; a text is a sequence, of what is no message: see below.
        if not (port == "Compactor.compact" and value is None)
        and not (port == "Supervisor.nudge" and isinstance(value, str))
    ],
)
async def test_an_answer_of_a_wrong_type_ends_the_run_and_names_the_port(
    port: str, value: object
) -> None:
    kit = run_harness([named("look"), DONE])
    with pytest.raises(TypeError) as caught:
        await kit.run(**ANSWERING[port](value))
    assert str(caught.value).startswith(f"{port} answered {value!r}, expected ")
    assert_provider_valid(kit.states[0].messages)


@pytest.mark.parametrize("value", NONSENSE)
async def test_a_toolset_that_returns_no_outcome_fails_that_call(value: object) -> None:
    kit = run_harness([named("look"), DONE])
    result = await kit.run(tools=_ExecuteAnswers(value))
    assert result.stop_reason == "done"
    (answer,) = [each for each in result.state.messages if each["role"] == "tool"]
    assert f"the toolset returned {value!r}, expected an Outcome" in str(answer["content"])


@pytest.mark.rule("R-PORT-01")
@pytest.mark.parametrize(
    "message",
    [
        "Go on.",
        None,
        {},
        {"role": "user", "content": 7},
        {"role": "user", "content": float("nan")},
        {"role": "user", "content": "Go.", "x-note": {1, 2}},
        assistant_message(None, [tool_call("look", id="a")]),
    ],
)
@pytest.mark.parametrize("supervisor", [_SettledAnswers, _NudgeAnswers])
async def test_input_that_would_spoil_the_transcript_ends_the_run(
    message: object, supervisor: Callable[[object], Supervisor]
) -> None:
    kit = run_harness([final_answer("Done.")])
    messages = [user_message("First."), message]
    answer = StepDecision(messages=messages) if supervisor is _SettledAnswers else messages  # type: ignore[arg-type]  # what is being tested
    with pytest.raises(TranscriptError):
        await kit.run(supervisor=supervisor(answer))
    assert_provider_valid(kit.states[0].messages)
