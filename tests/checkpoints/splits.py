"""Runs of every kind, played whole or in pieces, so that tests can compare the two."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, Literal

import attrs
import trio
from hypothesis import strategies as st

from harness import (
    Admission,
    Batch,
    CallContext,
    Compaction,
    Compactor,
    Halt,
    Limits,
    Message,
    ModelRequest,
    Outcome,
    Run,
    RunState,
    RunStats,
    SettledTurn,
    StepDecision,
    Supervisor,
    Suspend,
    Tool,
    ToolCall,
    Usage,
    define_tool,
    user_message,
)
from harness.checkpoints import (
    Checkpoint,
    CheckpointInput,
    Commit,
    MessageInput,
    Position,
    ReplyInput,
    Restored,
    WakeInput,
    apply_checkpoint_input,
    create_checkpoint,
    dump_checkpoint,
    load_checkpoint,
    open_from_checkpoint,
)
from harness.checkpoints._operations import position_of
from harness.events import StopReason
from harness.testing import (
    RunHarness,
    ScriptItem,
    failing_tool,
    final_answer,
    run_harness,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList

__all__ = ["PLAIN", "End", "Plan", "plans", "play_in_pieces", "play_whole"]

_EACH: Final = Usage(input=3, cached_input=1, output=2, cost_cents=0.5)
_NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
_LONGEST: Final = 60
"""Legs that no run here comes near."""


async def _count(_: object, context: CallContext[object]) -> object:
    """Ask, then answer what the reply and the question say together."""
    await trio.sleep(1)
    if context.reply is None:
        return Suspend.answer("How many?", {"of": "plates"})
    return [context.reply.value, context.reply.payload]


def _tools() -> list[Tool]:
    """Return one tool of each kind."""
    return [
        slow_tool(1, "fine", result="yes"),
        slow_tool(2, "slow"),
        slow_tool(1, "serial", serial=True),
        timed(1, failing_tool(ValueError("no"), "fails")),
        slow_tool(1, "asks", result=Suspend.answer("Really?", {"how": "much"})),
        slow_tool(2, "asks_late", result=Suspend.answer("Still?")),
        slow_tool(1, "wakes", result=Suspend.wake(_NOON)),
        slow_tool(1, "shrinks", result=Outcome.completed(compact=True)),
        define_tool("counts", "Counts.", schema={"type": "object"}, execute=_count, resumes=True),
        slow_tool(1, "posts"),
        slow_tool(1, "vetted"),
        slow_tool(1, "vetted_twice"),
        slow_tool(1, "denied"),
    ]


_KINDS: Final = (*(each.name for each in _tools()), "unknown")


class _Tools(ToolList):
    """Tools whose batches are admitted after up to two rounds of questions."""

    run: Run | None = None

    async def admit(self, batch: Batch) -> Admission:
        names = ("vetted", "vetted_twice", "")
        number = 0 if batch.memo is None else 1 + names.index(str(batch.memo))
        asked = [call.id for call in batch.calls if call.name in names[number:2]]
        if asked:
            # The last first: the order of decisions is nobody's business.
            questions = {each: Suspend.answer(f"May I, {number}?") for each in reversed(asked)}
            return Admission(decisions=questions, memo=names[number])
        denied = {call.id: Outcome.failed("No.") for call in batch.calls if call.name == "denied"}
        return Admission(decisions=denied, memo="")

    async def execute(self, call: ToolCall, context: CallContext[object]) -> Outcome:
        if call.name == "posts":
            assert self.run is not None
            self.run.post(f"By the way, {call.id}.")
        return await super().execute(call, context)


class _Pushing(Supervisor):
    """Pushes a run on that would end, so many times; has a word to say after each third turn."""

    def __init__(self, nudges: int) -> None:
        self.nudges = nudges

    async def settled(self, step: SettledTurn) -> StepDecision:
        return StepDecision(messages=[user_message("Mind the step.")] if step.turn % 3 == 2 else ())

    async def nudge(self, step: SettledTurn) -> Sequence[Message]:
        self.nudges -= 1
        return [user_message("Is that all?")] if self.nudges >= 0 else ()


class _Shrinking(Compactor):
    def __init__(self, longest: int) -> None:
        self.longest = longest

    def needed(self, state: RunState) -> bool:
        return len(state.messages) > self.longest

    async def compact(self, messages: Sequence[Message]) -> Compaction:
        return Compaction(messages=[user_message("So far.")], usage=Usage(input=1))


@attrs.frozen(kw_only=True)
class Plan:
    """A run: the calls of its turns, its limits, and who joins in."""

    turns: list[list[str] | Literal["says", "halts"]]
    limits: Limits = attrs.field(factory=Limits)
    longest: int = 1_000
    """Messages beyond which the transcript is compacted."""
    nudges: int = 0
    more: int = 0
    """How often the user says something after its end."""


PLAIN: Final = Plan(turns=[["fine"], ["asks", "fine"], ["wakes"], ["shrinks"]], nudges=1, more=1)

plans = st.builds(
    Plan,
    turns=st.lists(
        st.lists(st.sampled_from(_KINDS), min_size=1, max_size=4)
        | st.sampled_from(["says", "halts"]),
        min_size=1,
        max_size=5,
    ),
    limits=st.builds(
        Limits,
        turns=st.sampled_from([30, 30, 3]),
        tool_calls=st.sampled_from([None, None, 5]),
        tokens=st.sampled_from([None, None, 16]),
        cost_cents=st.sampled_from([None, None, 2.0]),
    ),
    longest=st.sampled_from([1_000, 6, 3]),
    nudges=st.integers(0, 2),
    more=st.integers(0, 2),
)


@attrs.frozen(kw_only=True)
class End:
    """What must be the same of a run, into however many pieces it was split."""

    messages: Sequence[Message]
    position: Position
    stats: RunStats
    reasons: list[StopReason]
    """What its legs ended with, but for those that were checkpointed."""
    ran: list[str]
    asked: list[list[Message]]
    """The transcripts that the model was asked with."""
    boundaries: int = attrs.field(eq=False)


def _kit(plan: Plan) -> tuple[RunHarness, _Tools]:
    turns: list[ScriptItem] = []
    for kinds in plan.turns:
        if kinds == "says":
            turns.append(timed(1, final_answer("Hm.", usage=_EACH)))
        elif kinds == "halts":
            turns.append(timed(1, Halt(code="enough", message="Enough.")))
        else:
            turn = tool_call_turn([tool_call(kind) for kind in kinds], "Hm.", usage=_EACH)
            turns.append(timed(1, turn))
    turns += [timed(1, final_answer("Done.", usage=_EACH)) for _ in range(12)]
    tools = _Tools(_tools())
    compactor, supervisor = _Shrinking(plan.longest), _Pushing(plan.nudges)
    return run_harness(turns, tools=tools, compactor=compactor, supervisor=supervisor), tools


def _asking(state: RunState | Checkpoint) -> list[str]:
    """Return the calls that have no reply, the last first."""
    pause = state.pause if isinstance(state, RunState) else state.head.pause
    if pause is None:
        return []
    ids = [id for id, each in pause.suspends.items() if each.kind == "answer"]
    return [id for id in reversed(ids) if id not in pause.replies]


def _transcripts(requests: Sequence[ModelRequest]) -> list[list[Message]]:
    return [list(each.messages) for each in requests]


async def play_whole(plan: Plan) -> End:
    """Play a run of the kernel alone, on one state, with as few legs as can be."""
    kit, tools = _kit(plan)
    state, total = RunState(run_id="run", messages=[user_message("Go.")]), RunStats()
    reasons: list[StopReason] = []
    boundaries, more = 0, plan.more
    undelivered: Sequence[Message] = ()

    async def boundary(_: SettledTurn) -> Literal["continue"]:
        nonlocal boundaries
        boundaries += 1
        return "continue"

    for _ in range(_LONGEST):
        async with kit.open(state, limits=plan.limits, boundary=boundary) as tools.run:
            for message in undelivered:
                tools.run.post(message)
            await tools.run.wait()
        undelivered = tools.run.result.undelivered
        total.fold_leg(tools.run.stats)
        reasons.append(tools.run.result.stop_reason)
        for call_id in _asking(state):
            state.reply(call_id, {"yes": call_id})
        if state.pause is None:
            if not more:
                position = attrs.evolve(position_of(state), leg=0)
                return End(
                    messages=state.messages,
                    position=position,
                    stats=total,
                    reasons=reasons,
                    ran=kit.ran,
                    asked=_transcripts(kit.script.requests),
                    boundaries=boundaries,
                )
            more -= 1
            state.messages.append(user_message("And then?"))
    raise AssertionError("the run did not come to an end")


async def play_in_pieces(plan: Plan, splits: Collection[int] | None) -> End:
    """Play the same from checkpoint to checkpoint, split at the boundaries of these numbers.

    None splits at every boundary. At each split, and after each input, the checkpoint goes
    through its text.
    """
    kit, tools = _kit(plan)
    checkpoint = create_checkpoint("run", "Go.", limits=plan.limits, bindings=0)
    reasons: list[StopReason] = []
    boundaries, more = 0, plan.more
    undelivered: Sequence[Message] = ()

    @asynccontextmanager
    async def restore(restored: Checkpoint) -> AsyncIterator[Restored]:
        assert restored.head.bindings == boundaries
        yield Restored(model=kit.model, options=kit.ports, capture_bindings=lambda: boundaries + 1)

    async def commit(each: Commit) -> Literal["continue", "checkpoint"]:
        nonlocal checkpoint, boundaries
        boundaries += 1
        assert tools.run is not None
        before, checkpoint = checkpoint, checkpoint.after(each)
        _check_commit(before, each, checkpoint, tools.run.state)
        return "checkpoint" if splits is None or boundaries in splits else "continue"

    for _ in range(_LONGEST):
        async with open_from_checkpoint(checkpoint, restore, commit) as tools.run:
            for message in undelivered:
                tools.run.post(message)
            await tools.run.wait()
        undelivered = tools.run.result.undelivered
        reason = tools.run.result.stop_reason
        checkpoint = _carried(checkpoint)
        if reason == "checkpointed":
            assert checkpoint.status == "ready"
            continue
        reasons.append(reason)
        given: list[CheckpointInput] = []
        if checkpoint.status == "waiting_for_reply":
            given = [ReplyInput(call_id=id, value={"yes": id}) for id in _asking(checkpoint)]
        elif checkpoint.status == "waiting_for_wake":
            given = [WakeInput()]
        elif more:
            more -= 1
            given = [MessageInput(message=user_message("And then?"))]
        assert checkpoint.head.stop_reason == (reason if checkpoint.status == "finished" else None)
        if not given:
            return End(
                messages=list(checkpoint.messages),
                position=attrs.evolve(checkpoint.head.position, leg=0),
                stats=checkpoint.head.stats,
                reasons=reasons,
                ran=kit.ran,
                asked=_transcripts(kit.script.requests),
                boundaries=boundaries,
            )
        for each in given:
            checkpoint = _carried(apply_checkpoint_input(checkpoint, each))
        # An input is a revision, and is no boundary.
        head = attrs.evolve(checkpoint.head, revision=boundaries)
        checkpoint = attrs.evolve(checkpoint, head=head)
    raise AssertionError("the run did not come to an end")


def _carried(checkpoint: Checkpoint) -> Checkpoint:
    """Return *checkpoint* as another process gets it, with its questions in the same order."""
    carried = load_checkpoint(dump_checkpoint(checkpoint))
    assert carried == checkpoint
    assert _asking(carried) == _asking(checkpoint)
    return carried


def _check_commit(before: Checkpoint, commit: Commit, after: Checkpoint, state: RunState) -> None:
    """Fail unless *commit* makes of the checkpoint before what the run is now."""
    assert after.revision == before.revision + 1
    assert list(after.messages) == state.messages
    assert after.head.position == position_of(state)
    assert after.head.pause == state.pause
    compacted = after.head.position.compactions != before.head.position.compactions
    assert commit.keep <= len(before.messages)
    if not compacted:
        # Not more than what is new, and the results of a batch behind the message that asked.
        late = 1 + len(before.head.open_call_ids)
        assert len(commit.tail) <= len(after.messages) - len(before.messages) + 4 * late
