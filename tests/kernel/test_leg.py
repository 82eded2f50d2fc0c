"""The loop: the order of one iteration, and what may join it."""

import pytest
import trio
from trio.testing import MockClock

from harness import (
    JSON,
    CallContext,
    Compaction,
    Halt,
    Limits,
    Message,
    ModelRequest,
    ModelTurn,
    Outcome,
    SettledTurn,
    StepDecision,
    Supervisor,
    Suspend,
    Tool,
    TurnStream,
    Usage,
    open_run,
    tool,
    user_message,
)
from harness.events import (
    AssistantMessage,
    Event,
    Posted,
    Progress,
    ReasoningDelta,
    RunFinished,
    ToolStarted,
)
from harness.testing import (
    RUN_INVARIANTS,
    Scene,
    assert_provider_valid,
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
from harness.tools import ToolList
from tests.kernel.carrying import carried
from tests.kernel.reading import DONE
from tests.kernel.recorder import Recorder

ONE_RICH_RUN = """\
> [0] RunStarted

should_stop
> [0] Posted Cheaply. bob
> [0] TurnStarted
definitions
model turn=0 messages=2 tools=4
> [0] ReasoningDelta Where to?
accept_assistant messages=2 tokens=15 turns=1
> [0] AssistantMessage Looking.
admit 4 messages=3
policy look
policy load
policy fail
policy note

> [0] ToolStarted load
execute load
> [0] ToolFinished load completed 1.0
activate ['rail']

policy look
policy fail
policy note
> [0] ToolStarted look
execute look
> [0] ToolStarted fail
execute fail
> [0] ToolStarted note
execute note
> [0] CallRejected fail ValueError
fatal ValueError('no')
> [0] ToolFinished fail failed 1.0
> [0] ToolFinished note completed 2.0
> [0] ToolFinished look completed 3.0

activate ['maps']
render look completed
accept_result look ordinal=0 messages=3 tokens=15 turns=1
render load completed
accept_result load ordinal=1 messages=4 tokens=15 turns=1
render fail failed
accept_result fail ordinal=2 messages=5 tokens=15 turns=1
render note completed
accept_result note ordinal=3 messages=6 tokens=15 turns=1

> [0] Settled would_end=False
settled continue turn=0 would_end=False messages=7
> [0] FlushDue
> [0] CompactionStarted
compact messages=8
> [0] CompactionFinished applied=True
boundary continue turn=0 would_end=False messages=1
> [0] TurnFinished counted=True

should_stop
> [1] TurnStarted
definitions
model turn=1 messages=1 tools=4
accept_assistant messages=1 tokens=41 turns=2
> [1] AssistantMessage Half way.
> [1] Settled would_end=True
settled finished turn=1 would_end=True messages=2
> [1] Posted Quickly. ann
> [1] FlushDue
needed
boundary continue turn=1 would_end=True messages=3
> [1] TurnFinished counted=True

should_stop
> [2] TurnStarted
definitions
model turn=2 messages=3 tools=4
accept_assistant messages=3 tokens=41 turns=3
> [2] AssistantMessage Nearly.
> [2] Settled would_end=True
settled finished turn=2 would_end=True messages=4
nudge finished turn=2 would_end=True messages=4
> [2] FlushDue
needed
boundary continue turn=2 would_end=True messages=5
> [2] TurnFinished counted=True

should_stop
> [3] TurnStarted
definitions
model turn=3 messages=5 tools=4
accept_assistant messages=5 tokens=41 turns=4
> [3] AssistantMessage There.
> [3] Settled would_end=True
settled finished turn=3 would_end=True messages=6
nudge finished turn=3 would_end=True messages=6
boundary finished turn=3 would_end=True messages=6
> [3] TurnFinished counted=True
> [3] RunFinished done
"""
"""Events have a ``>`` and the number of their turn; every other line is a port being asked.

Turn 0 has a batch: ``load`` is serial; ``look``, ``fail`` and ``note`` end in the opposite order;
``note`` asks for a compaction. Turn 1 would end, and somebody has posted a message meanwhile. Turn
2 would end, and the supervisor has a nudge. Turn 3 ends.
"""


@pytest.mark.rule("R-LOOP-12")
async def test_every_port_and_event_of_a_rich_run_comes_in_its_place(
    autojump_clock: MockClock,
) -> None:
    shorter: list[Message] = [user_message("A trip, so far.")]
    recorder = Recorder.make(
        [
            tool_call_turn(
                [tool_call(name, id=name) for name in ("look", "load", "fail", "note")],
                "Looking.",
                usage=Usage(input=10, output=5),
                reasoning="Where to?",
            ),
            final_answer("Half way.", usage=Usage(input=20, output=5)),
            final_answer("Nearly."),
            final_answer("There."),
        ],
        [
            slow_tool(3, "look", result=Outcome.completed("far", activate_plugins=["maps"])),
            slow_tool(1, "load", result=Outcome.completed(activate_skills=["rail"]), serial=True),
            timed(1, failing_tool(ValueError("no"), "fail")),
            slow_tool(2, "note", result=Outcome.completed(compact=True)),
        ],
        settled=[StepDecision(messages=[user_message("By train.")])],
        nudges=[[user_message("Go on.")]],
        compactions=[Compaction(messages=shorter, usage=Usage(input=1))],
    )
    async with open_run(
        recorder.model,
        "A trip.",
        tools=recorder.tools,
        journal=recorder.journal,
        supervisor=recorder.supervisor,
        compactor=recorder.compactor,
        boundary=recorder.boundary,
        events=recorder.emitter,
    ) as run:
        recorder.journal.run = run
        recorder.model.acts[1] = lambda: run.post("Quickly.", user_id="ann")
        run.post("Cheaply.", user_id="bob")
        await run.wait()
    assert recorder.finish() == [line for line in ONE_RICH_RUN.splitlines() if line]
    assert_provider_valid(run.state.messages)


class _Stopping(Supervisor):
    def __init__(self, *answers: bool) -> None:
        self.answers = [*answers]

    async def should_stop(self) -> bool:
        return self.answers.pop(0)


# -- where a run ends between two turns --------------------------------------------------------


@pytest.mark.rule("R-LOOP-13")
async def test_a_stop_is_asked_for_before_the_room_that_is_left() -> None:
    kit = run_harness([tool_call_turn([tool_call("look")])], supervisor=_Stopping(False, True))
    result = await kit.run(limits=Limits(turns=1))
    assert (result.stop_reason, result.stats.turns) == ("aborted", 1)


@pytest.mark.rule("R-LOOP-13")
async def test_a_soft_stop_outranks_the_room_that_is_left() -> None:
    kit = run_harness([tool_call_turn([tool_call("look")])])
    async with kit.open(limits=Limits(turns=1)) as run:
        run.request_stop()
        await run.wait()
    assert run.result.stop_reason == "aborted"


class _Boundary:
    def __init__(self) -> None:
        self.steps: list[SettledTurn] = []

    async def __call__(self, step: SettledTurn) -> str:
        self.steps.append(step)
        return "continue"


@pytest.mark.rule("R-LOOP-14")
async def test_no_turns_at_all_end_a_run_with_no_completion() -> None:
    kit = run_harness([])
    boundary = _Boundary()
    result = await kit.run("Go.", limits=Limits(turns=0), boundary=boundary)  # type: ignore[arg-type]
    assert (result.stop_reason, result.stats.turns) == ("turn_limit", 0)
    assert result.state.messages == [user_message("Go.")]
    assert [(step.decision, step.would_end) for step in boundary.steps] == [("finished", False)]


async def test_a_boundary_without_a_turn_of_its_own_leg_names_the_last_one_of_the_run() -> None:
    kit = run_harness([tool_call_turn([tool_call("look")]) for _ in range(3)])
    boundary = _Boundary()
    first = await kit.run(limits=Limits(turns=3))
    await kit.run(first.state, limits=Limits(turns=3), boundary=boundary)  # type: ignore[arg-type]
    assert [step.turn for step in boundary.steps] == [2]


async def test_turns_are_numbered_through_the_legs_of_a_run() -> None:
    kit = run_harness([tool_call_turn([tool_call("look")]) for _ in range(4)])
    first = await kit.run(limits=Limits(turns=2))
    again = carried(first.state)
    await kit.run(again, limits=Limits(turns=4))
    assert [request.turn for request in kit.script.requests] == [0, 1, 2, 3]
    assert len({request.turn_id for request in kit.script.requests}) == 4
    assert {request.run_id for request in kit.script.requests} == {first.run_id}


@pytest.mark.rule("R-LOOP-57")
def test_an_abort_of_a_leg_that_came_back_withdraws_its_pause_wherever_it_comes() -> None:
    asks = slow_tool(0, "ask", result=Suspend.answer("Really?"))

    async def scenario(scene: Scene) -> None:
        kit = run_harness([tool_call_turn([tool_call("ask")]), DONE], tools=[asks], scene=scene)
        paused = await kit.run()
        paused.state.reply("call_1", "Yes.")

        @scene.afterwards
        def check() -> None:
            ends = [each for each in kit.events if isinstance(each, RunFinished)]
            if ends[-1].stop_reason == "aborted":
                assert paused.state.pause is None

        async with kit.open(paused.state) as run:
            scene.on_cut(run.abort)
            await run.wait()

    cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=10)


# -- posts -------------------------------------------------------------------------------------


def roles(messages: list[Message]) -> list[str]:
    return [message["role"] for message in messages]


@pytest.mark.rule("R-LOOP-15")
async def test_a_message_posted_while_a_batch_runs_joins_after_its_results() -> None:
    posted: list[int] = []

    @tool
    async def talk(context: CallContext[object]) -> str:
        run.post("And hurry.", user_id="ann")
        await trio.lowlevel.checkpoint()
        posted.append(len(run.state.messages))
        return "told"

    kit = run_harness(
        [tool_call_turn([tool_call("talk"), tool_call("talk")]), final_answer("Yes.")],
        tools=[talk],
    )
    async with kit.open("Go.") as run:
        await run.wait()
    assert roles(run.state.messages) == [
        *("user", "assistant", "tool", "tool"),
        *("user", "user", "assistant"),
    ]
    assert posted == [2, 2]
    told = [event for event in kit.events if isinstance(event, Posted)]
    assert [(event.text, event.user_id) for event in told] == [("And hurry.", "ann")] * 2
    assert run.result.undelivered == ()


@pytest.mark.rule("R-LOOP-15")
async def test_a_message_posted_while_the_model_answers_makes_the_run_go_on() -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        if request.turn == 0:
            run.post("One more thing.")
        return await kit.script.complete(request, stream)

    kit = run_harness([final_answer("Done."), final_answer("Done too.")], model=model)
    async with kit.open("Go.") as run:
        await run.wait()
    assert run.result.stop_reason == "done"
    assert roles(run.state.messages) == ["user", "assistant", "user", "assistant"]


@pytest.mark.rule("R-LOOP-15")
async def test_a_message_that_finds_no_turn_left_is_handed_back() -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        run.post("Too late.", user_id="ann")
        return await kit.script.complete(request, stream)

    kit = run_harness([final_answer("Done.")], model=model, limits=Limits(turns=1))
    async with kit.open("Go.") as run:
        await run.wait()
    assert run.result.stop_reason == "done"
    assert run.result.undelivered == (user_message("Too late."),)
    assert roles(run.state.messages) == ["user", "assistant"]
    assert not [event for event in kit.events if isinstance(event, Posted)]


@pytest.mark.rule("R-LOOP-15")
@pytest.mark.parametrize(
    "message",
    [
        *("", "  ", None, 7, "half of a pair \ud800"),
        *({}, {"content": "hi"}, {"role": "user"}, {"role": "user", "content": []}),
        {"role": "assistant", "content": "hi"},
        {"role": "system", "content": "hi"},
        {"role": "tool", "tool_call_id": "a", "content": "hi"},
        {"role": "user", "content": 7},
        {"role": "user", "content": [{"type": "text", "text": " "}]},
        {"role": "user", "content": "hi", "x-note": float("nan")},
    ],
)
async def test_what_no_user_could_have_said_cannot_be_posted(message: object) -> None:
    kit = run_harness([final_answer("Done.")])
    async with kit.open() as run:
        with pytest.raises(ValueError, match=r"^the posted message is .*, expected what a user"):
            run.post(message)  # type: ignore[arg-type]  # what is being tested
        await run.wait()
    assert run.result.undelivered == ()


@pytest.mark.rule("R-LOOP-15")
async def test_a_message_with_parts_and_keys_of_its_own_can_be_posted_as_it_is() -> None:
    message: Message = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": "data:"}, {"type": "text", "text": "This."}],
        "name": "ann",
    }
    kit = run_harness([final_answer("Done.")])
    async with kit.open() as run:
        run.post(message)
        await run.wait()
    assert run.state.messages[1] == message
    assert [event.text for event in kit.events if isinstance(event, Posted)] == ["This."]


# -- what is told of a message -----------------------------------------------------------------


def texts(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, AssistantMessage)]


@pytest.mark.rule("R-LOOP-16")
@pytest.mark.parametrize("stream", [False, True])
async def test_each_message_with_text_is_told_once_and_before_its_tools_run(stream: bool) -> None:
    asking = tool_call_turn([tool_call("look")], "Let me look.")
    kit = run_harness([streamed(asking) if stream else asking, final_answer("It is there.")])
    await kit.run()
    assert texts(kit.events) == ["Let me look.", "It is there."]
    told = [each for each in kit.events if isinstance(each, AssistantMessage | ToolStarted)]
    names = [type(each).__name__ for each in told]
    assert names == ["AssistantMessage", "ToolStarted", "AssistantMessage"]


@pytest.mark.rule("R-LOOP-16")
@pytest.mark.parametrize("text", [None, "", " \n"])
async def test_a_message_without_text_is_not_told(text: str | None) -> None:
    kit = run_harness([tool_call_turn([tool_call("look")], text), final_answer("There.")])
    result = await kit.run()
    assert texts(kit.events) == ["There."]
    assert result.text == "There."


@pytest.mark.rule("R-LOOP-16")
async def test_a_message_made_of_parts_is_told_as_one_text() -> None:
    parts: Message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    kit = run_harness([ModelTurn(message=parts)])
    result = await kit.run()
    assert texts(kit.events) == ["ab"]
    assert result.state.messages[-1] == parts


async def test_the_reasoning_of_a_turn_is_told_once_streamed_or_not() -> None:
    turn = final_answer("Yes.", reasoning="Hm, well.")
    for item in (turn, streamed(turn, size=100)):
        kit = run_harness([item])
        await kit.run()
        told = [event.text for event in kit.events if isinstance(event, ReasoningDelta)]
        assert told == ["Hm, well."]


@pytest.mark.rule("R-LOOP-17")
async def test_reports_of_progress_grow_with_time_and_not_with_tokens(
    autojump_clock: MockClock,
) -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        for count in range(10_000):
            stream.progress(count)
            if count % 100 == 0:
                await trio.sleep(0.01)
        return final_answer("Long.")

    kit = run_harness([], model=model)
    await kit.run()
    told = [event for event in kit.events if isinstance(event, Progress)]
    assert 4 <= len(told) <= 6
    assert told[-1].output_tokens == 9_999
    assert [event.output_tokens for event in told] == sorted(event.output_tokens for event in told)


@pytest.mark.rule("R-LOOP-17")
async def test_a_report_of_progress_counts_the_calls_that_the_run_asked_for() -> None:
    kit = run_harness(
        [
            tool_call_turn([tool_call("look"), tool_call("look")]),
            streamed(final_answer("There it is."), size=100),
        ]
    )
    await kit.run()
    told = [event for event in kit.events if isinstance(event, Progress)]
    assert [(event.output_tokens, event.tool_calls) for event in told] == [(1, 2)]


# -- what a model may do with what it gets -----------------------------------------------------


@pytest.mark.rule("R-LOOP-09")
async def test_a_model_reads_the_transcript_and_cannot_add_to_it() -> None:
    seen: list[list[str]] = []

    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        for change in ("append", "insert", "extend", "pop", "clear"):
            assert not hasattr(request.messages, change)
        with pytest.raises(TypeError):
            request.messages[0] = user_message("Something else.")  # type: ignore[index]
        with pytest.raises(TypeError):
            del request.messages[0]  # type: ignore[attr-defined]
        seen.append([message["role"] for message in request.messages])
        requests.append(request)
        if request.turn == 0:
            return tool_call_turn([tool_call("look", id="a")])
        return final_answer("Done.")

    requests: list[ModelRequest] = []
    kit = run_harness([], model=model, tools=[slow_tool(0, "look")])
    result = await kit.run("Go.")
    assert seen == [["user"], ["user", "assistant", "tool"]]
    # A view keeps the length it was made with, however long the transcript has become since.
    assert [len(request.messages) for request in requests] == [1, 3]
    assert len(result.state.messages) == 4


class _Growing(ToolList):
    """Tools of which there is one more each time they are looked at."""

    def __init__(self, *tools: Tool) -> None:
        super().__init__(tools)
        self.shown = 0

    def definitions(self) -> tuple[dict[str, JSON], ...]:
        self.shown += 1
        return super().definitions()[: self.shown]


async def test_a_request_has_the_definitions_that_there_are_in_its_turn() -> None:
    tools = _Growing(slow_tool(0, "load"), slow_tool(0, "look"))
    kit = run_harness([tool_call_turn([tool_call("load")]), final_answer("Done.")], tools=tools)
    await kit.run()
    assert [len(request.tools) for request in kit.script.requests] == [1, 2]
