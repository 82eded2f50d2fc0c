"""Runs put together at random, stopped at random: what must hold of every one of them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import (
    Compaction,
    Compactor,
    Journal,
    Limits,
    Message,
    Outcome,
    Run,
    RunResult,
    RunState,
    Suspend,
    Tool,
    Usage,
    user_message,
)
from harness.events import (
    CompactionFinished,
    CompactionStarted,
    Event,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from harness.testing import (
    RunHarness,
    ScriptItem,
    assert_answers_truthful,
    assert_calls_answered_once,
    assert_events_balance,
    assert_no_permit_held,
    assert_provider_valid,
    assert_transcript_settled,
    failing_tool,
    final_answer,
    run_harness,
    run_virtual,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList
from tests.kernel.carrying import carried

KindT = TypeVar("KindT")

EACH = Usage(input=3, cached_input=1, output=2, cost_cents=0.5)
WAKE = Suspend.wake(datetime(2030, 1, 1, tzinfo=UTC))


class _LostError(Exception):
    """What the toolset calls fatal."""


class _Tools(ToolList):
    async def activate(self, outcome: Outcome) -> None:
        await trio.sleep(1)

    def fatal(self, error: BaseException) -> bool:
        return isinstance(error, _LostError)


def tools() -> list[Tool]:
    """Return one tool of each kind."""
    return [
        slow_tool(1, "fine", result="yes"),
        slow_tool(1, "serial", serial=True),
        slow_tool(3, "polite", grace=2),
        slow_tool(9, "rude", grace=2),
        slow_tool(3, "late", time_limit=2),
        timed(1, failing_tool(ValueError("no"), "fails")),
        timed(2, failing_tool(_LostError("lost"), "fatal")),
        slow_tool(1, "asks", result=Suspend.answer("Really?")),
        slow_tool(2, "wakes", result=WAKE),
        slow_tool(1, "loads", result=Outcome.completed(activate_plugins=["maps"])),
        slow_tool(1, "loads_first", result=Outcome.completed(activate_skills=["x"]), serial=True),
        slow_tool(1, "shrinks", result=Outcome.completed(compact=True)),
    ]


KINDS = [each.name for each in tools()] + ["unknown"]


class _Log(Journal):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def accept_assistant(self, message: Message) -> None:
        await trio.sleep(self.seconds)

    async def accept_result(self, message: Message, ordinal: int) -> None:
        await trio.sleep(self.seconds)


class _Shrinking(Compactor):
    async def compact(self, messages: Sequence[Message]) -> Compaction:
        await trio.sleep(1)
        return Compaction(messages=[user_message("So far.")], usage=Usage(input=1))


@attrs.frozen(kw_only=True)
class _Plan:
    """A run: the calls of its turns, its limits, and how each of its legs is stopped."""

    turns: list[list[str]]
    limits: Limits
    journal: float
    stops: list[tuple[str, float]]
    """How and when; one for each leg, and none for those after."""
    seed: int


plans = st.builds(
    _Plan,
    turns=st.lists(st.lists(st.sampled_from(KINDS), max_size=5), min_size=1, max_size=4),
    limits=st.builds(
        Limits,
        turns=st.sampled_from([30, 2]),
        tool_calls=st.sampled_from([None, None, 4]),
        tokens=st.sampled_from([None, None, 11]),
    ),
    journal=st.sampled_from([0.0, 0.5]),
    stops=st.lists(
        st.tuples(
            st.sampled_from(["none", "abort", "cancel", "deadline", "soft", "leave"]),
            st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]),
        ),
        max_size=4,
    ),
    seed=st.integers(0, 9),
)


def script(plan: _Plan) -> list[ScriptItem]:
    """Return the turns of the plan; one without calls would end, and is pushed on from there."""
    turns: list[ScriptItem] = []
    for kinds in plan.turns:
        calls = [tool_call(kind) for kind in kinds]
        turns.append(timed(1, tool_call_turn(calls, "Hm.", usage=EACH)))
    return [*turns, *(final_answer("Done.", usage=EACH) for _ in range(12))]


async def one_leg(kit: RunHarness, state: RunState, stop: tuple[str, float]) -> RunResult:
    """Run one leg on *state*, stopped as *stop* says, and return its result."""
    how, at = stop
    run: Run | None = None
    lost: _LostError | None = None
    deadline = trio.current_time() + (at if how == "deadline" else 1_000)
    # ASYNC912: with "leave" the only cancel points are those of the leg that is being left
    with trio.move_on_after(at if how == "cancel" else 1_000):  # noqa: ASYNC912
        try:
            async with kit.open(state, deadline=deadline) as run:
                if how in ("abort", "soft", "leave"):
                    await trio.sleep(at)
                if how == "abort":
                    run.abort()
                elif how == "soft":
                    run.request_stop()
                if how != "leave":
                    await run.wait()
        except _LostError as error:
            lost = error
    assert run is not None
    assert run.result.error is lost
    return run.result


ENDS = {
    "none": frozenset[str](),
    "abort": frozenset(["aborted"]),
    "leave": frozenset(["aborted"]),
    "soft": frozenset(["aborted"]),
    "deadline": frozenset(["deadline"]),
    "cancel": frozenset(["cancelled"]),
}
UNSTOPPED = {"done", "waiting_for_reply", "resuming_later", "turn_limit", "budget", "failed"}


def check(kit: RunHarness, result: RunResult, events: Sequence[Event], limits: Limits) -> None:
    state, stats = result.state, result.stats
    opened = () if state.pause is None else state.pause.open
    assert_transcript_settled(state.messages, opened)
    assert_calls_answered_once(state.messages, opened)
    assert_answers_truthful(state.messages, kit.ran)
    if not opened:
        assert_provider_valid(state.messages)
    assert_events_balance(events)
    assert_no_permit_held(kit.limiters)
    assert state.unanswered_call_ids() == ()
    assert limits.turns is None or state.turn <= limits.turns
    assert stats.tool_calls == len(of(events, ToolStarted))
    begun = {event.turn_id for event in of(events, TurnStarted) if not event.resumed}
    ended = [event for event in of(events, TurnFinished) if event.turn_id in begun]
    assert stats.turns == sum(event.counted for event in ended)
    spent = [event.usage for event in ended]
    spent += [event.usage for event in of(events, CompactionFinished)]
    assert stats.usage == sum(spent, start=Usage())
    assert (result.stop_reason == "failed") == (result.error is not None)
    assert bool(opened) <= (result.stop_reason in ("waiting_for_reply", "cancelled", "deadline"))


STOPPING = ("abort", "leave", "cancel", "deadline")


def check_stopped(at: float, events: Sequence[Event]) -> None:
    """Fail if anything began after a stop, or it took longer than was declared."""
    begun = [*of(events, ToolStarted), *of(events, TurnStarted), *of(events, CompactionStarted)]
    assert all(event.at <= at for event in begun)
    # The longest grace there is, and then the journal: a message of the model and five results.
    assert events[-1].at <= at + 2 + 6 * 0.5


def of(events: Iterable[Event], kind: type[KindT]) -> list[KindT]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.rule("R-PROM-02", "R-PROM-03")
@settings(max_examples=60, deadline=None)
@given(plans)
def test_a_run_is_settled_and_its_books_are_right_after_every_leg(plan: _Plan) -> None:
    async def main() -> None:
        kit = run_harness(
            script(plan),
            tools=_Tools(tools()),
            journal=_Log(plan.journal),
            compactor=_Shrinking(),
            limits=plan.limits,
        )
        state, told = RunState(run_id="run", messages=[user_message("Go.")]), 0
        for leg in range(len(plan.stops) + 10):
            stop = plan.stops[leg] if leg < len(plan.stops) else ("none", 0.0)
            begun = trio.current_time()
            result = await one_leg(kit, state, stop)
            assert result.stop_reason in ENDS[stop[0]] | UNSTOPPED, stop
            check(kit, result, kit.events[told:], plan.limits)
            if stop[0] in STOPPING:
                check_stopped(begun + stop[1], kit.events[told:])
            told = len(kit.events)
            state = carried(state)
            if state.pause is not None:
                asked = {id for id, each in state.pause.suspends.items() if each.kind == "answer"}
                for call_id in sorted(asked - {*state.pause.replies}):
                    state.reply(call_id, "Yes.")
            elif leg < len(plan.stops):
                state.messages.append(user_message("Go on."))
            else:
                return
        raise AssertionError("the run did not come to an end")

    run_virtual(main, seed=plan.seed)
