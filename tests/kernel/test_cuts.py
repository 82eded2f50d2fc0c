"""One rich run, stopped at every cut point in three ways."""

import math
from collections.abc import Sequence

import pytest
import trio

from harness import (
    Compaction,
    Compactor,
    Journal,
    Message,
    ModelTurn,
    Run,
    RunState,
    SettledTurn,
    StepDecision,
    Supervisor,
    Suspend,
    Usage,
    tool,
    user_message,
)
from harness.events import RunFinished
from harness.testing import (
    RUN_INVARIANTS,
    RunHarness,
    Scene,
    ScriptItem,
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


class SlowJournal(Journal):
    """A log whose every commit takes time, and may be cut anywhere in it."""

    def __init__(self) -> None:
        self.taken: list[Message] = []

    async def accept_assistant(self, message: Message) -> None:
        await trio.sleep(0.1)
        self.taken.append(message)

    async def accept_result(self, message: Message, ordinal: int) -> None:
        await trio.sleep(0.1)
        self.taken.append(message)
        await trio.lowlevel.cancel_shielded_checkpoint()


class SlowCompactor(Compactor):
    """Takes its time to change nothing but the first message."""

    def needed(self, state: RunState) -> bool:
        return state.turn == 2

    async def compact(self, messages: Sequence[Message]) -> Compaction:
        await trio.sleep(0.1)
        return Compaction(messages=[user_message("Shorter."), *messages[1:]], usage=Usage(input=9))


class SlowSupervisor(Supervisor):
    """Delivers one message, and takes its time to say so."""

    async def settled(self, step: SettledTurn) -> StepDecision:
        await trio.sleep(0.1)
        return StepDecision(messages=[user_message("And?")] if step.turn == 0 else [])


def rich_turns() -> list[ScriptItem]:
    names = ["slow", "first", "slow", "graceful", "fail", "slow", "cut"]
    spend = Usage(input=10, output=5)
    asks = tool_call_turn([tool_call(name) for name in names], "Let me see.", usage=spend)
    return [
        streamed(asks, size=6),
        timed(1, tool_call_turn([tool_call("slow")], usage=spend)),
        streamed(final_answer("Done.", usage=spend), size=3),
    ]


def rich_run(scene: Scene) -> tuple[RunHarness, SlowJournal]:
    journal = SlowJournal()
    kit = run_harness(
        rich_turns(),
        tools=[
            slow_tool(1),
            slow_tool(1, "first", serial=True),
            slow_tool(2, "graceful", grace=1.5),
            failing_tool(ValueError("no")),
            slow_tool(9, "cut", time_limit=1),
        ],
        journal=journal,
        compactor=SlowCompactor(),
        supervisor=SlowSupervisor(),
        scene=scene,
    )
    return kit, journal


def check_books(kit: RunHarness, journal: SlowJournal) -> None:
    """The log equals the transcript, and the totals equal what was told turn by turn."""
    for state in kit.states:
        said = [each for each in state.messages if each["role"] in ("assistant", "tool")]
        assert said == journal.taken
        last = kit.events[-1]
        assert isinstance(last, RunFinished)
        assert state.usage.tokens == last.usage.tokens
        assert state.turn == last.turns


@pytest.mark.rule(
    *("R-TRIO-04", "R-TRIO-07", "R-TRIO-12", "R-TRIO-13", "R-TRIO-14", "R-TRIO-16", "R-TRIO-18"),
    *("R-LOOP-37", "R-GEN-02", "R-GEN-03", "R-PROM-01", "R-PROM-02", "R-PROM-03", "R-PROM-05"),
)
@pytest.mark.parametrize("stop", ["outer", "abort", "deadline"])
def test_a_rich_run_can_be_stopped_everywhere(stop: str) -> None:
    own_reason = "aborted" if stop == "abort" else "deadline"

    async def scenario(scene: Scene) -> None:
        kit, journal = rich_run(scene)

        @scene.afterwards
        def check() -> None:
            check_books(kit, journal)
            if kit.states:
                last = kit.events[-1]
                assert isinstance(last, RunFinished)
                stopped = "cancelled" if scene.act is None else own_reason
                assert last.stop_reason in (("done", stopped) if scene.stopped else ("done",))

        async with kit.open() as opened:
            if stop != "outer":
                scene.on_cut(opened.abort if stop == "abort" else lambda: expire(opened))
            await opened.wait()

    report = cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=180)
    assert report.completed if stop != "outer" else report.cancelled


def expire(opened: Run) -> None:
    """Let the run's deadline come now."""
    opened._stop.deadline = opened._work.deadline = trio.current_time()


@pytest.mark.rule("R-TRIO-12", "R-LOOP-57", "R-PROM-02")
@pytest.mark.parametrize("stop", ["outer", "abort"])
def test_a_pausing_run_can_be_stopped_everywhere_and_its_leg_resumed(stop: str) -> None:
    @tool
    async def ask() -> Suspend:
        await trio.sleep(1)
        return Suspend.answer("Really?")

    def turns() -> list[ModelTurn]:
        return [tool_call_turn([tool_call("ask"), tool_call("slow")]), final_answer("Done.")]

    async def scenario(scene: Scene) -> None:
        kit = run_harness(turns(), tools=[ask, slow_tool(2)], scene=scene)
        state: RunState | None = None

        @scene.afterwards
        def check() -> None:
            pauses = [each.pause for each in kit.states if each.pause is not None]
            assert all(pause.open == ("call_1",) for pause in pauses)

        for _ in range(2):
            async with kit.open("Go." if state is None else state, deadline=math.inf) as opened:
                if stop == "abort":
                    scene.on_cut(opened.abort)
                await opened.wait()
            state = opened.state
            if state.pause is None or (scene.stopped and scene.act is not None):
                return
            state.reply("call_1", "yes")

    report = cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=35)
    assert report.cuts
