"""Every port that a run asks and every event that it tells, in one list of lines.

Events are read from their channel just before a port notes that it was asked, so the list has
both in the order in which they happened.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

import attrs
import trio

from harness import (
    JSON,
    Admission,
    Batch,
    CallContext,
    CallPolicy,
    Compaction,
    Compactor,
    Emitter,
    Halt,
    Journal,
    Message,
    ModelRequest,
    ModelTurn,
    Outcome,
    Run,
    RunState,
    SettledTurn,
    StepDecision,
    Supervisor,
    Tool,
    ToolCall,
    TurnStream,
)
from harness.events import (
    AssistantMessage,
    CallRejected,
    CompactionFinished,
    Event,
    Posted,
    Progress,
    ReasoningDelta,
    RunFinished,
    Settled,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from harness.testing import ScriptedModel, ScriptItem, scripted_model
from harness.tools import ToolList

__all__ = ["Recorder"]

HostT = TypeVar("HostT")


@attrs.define(eq=False)
class Recorder:
    """The list, and ports that write to it. Give each port its answers before the run."""

    tools: "RecordingTools"
    model: "RecordingModel"
    journal: "RecordingJournal"
    supervisor: "RecordingSupervisor"
    compactor: "RecordingCompactor"
    emitter: Emitter
    lines: list[str]
    _reader: trio.MemoryReceiveChannel[Event]

    @classmethod
    def make(
        cls,
        turns: Sequence[ScriptItem],
        tools: Iterable[Tool] = (),
        *,
        settled: Iterable[StepDecision] = (),
        nudges: Iterable[Sequence[Message]] = (),
        compactions: Iterable[Compaction | None] = (),
    ) -> "Recorder":
        """Return a recorder; each port gives its answers in turn, and then its default."""
        lines: list[str] = []
        emitter = Emitter()
        reader = emitter.open_reader()

        def note(line: str) -> None:
            lines.extend(_unread(reader))
            lines.append(line)

        return cls(
            RecordingTools(tools, note),
            RecordingModel(scripted_model(turns), note),
            RecordingJournal(note),
            RecordingSupervisor(note, iter(settled), iter(nudges)),
            RecordingCompactor(note, iter(compactions)),
            emitter,
            lines,
            reader,
        )

    async def boundary(self, step: SettledTurn) -> Literal["continue", "checkpoint"]:
        """Note the boundary, and go on."""
        self.supervisor.note(f"boundary {step.decision} {_where(step)}")
        return "continue"

    def finish(self) -> list[str]:
        """Return all lines, once the run has ended."""
        self.lines.extend(_unread(self._reader))
        return self.lines


@attrs.define(eq=False)
class RecordingModel:
    """A scripted model that notes what it is asked, and may act before it answers."""

    script: ScriptedModel
    note: Callable[[str], None]
    acts: dict[int, Callable[[], object]] = attrs.field(factory=dict, init=False)
    """By turn."""

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        self.note(
            f"model turn={request.turn} messages={len(request.messages)} tools={len(request.tools)}"
        )
        answer = await self.script.complete(request, stream)
        if request.turn in self.acts:
            self.acts[request.turn]()
        return answer


class RecordingTools(ToolList):
    """A list of tools that notes each question, and has something to activate."""

    def __init__(self, tools: Iterable[Tool], note: Callable[[str], None]) -> None:
        super().__init__(tools)
        self._note = note

    def definitions(self) -> tuple[dict[str, JSON], ...]:
        self._note("definitions")
        return super().definitions()

    def policy(self, call: ToolCall) -> CallPolicy:
        self._note(f"policy {call.id}")
        return super().policy(call)

    async def admit(self, batch: Batch) -> Admission:
        self._note(f"admit {len(batch.calls)} messages={len(batch.messages)}")
        return await super().admit(batch)

    async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
        self._note(f"execute {call.id}")
        return await super().execute(call, context)

    async def activate(self, outcome: Outcome) -> None:
        self._note(f"activate {[*outcome.activate_plugins, *outcome.activate_skills]}")

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        self._note(f"render {call.id} {outcome.kind}")
        return super().render(call, outcome)

    def fatal(self, error: BaseException) -> bool:
        self._note(f"fatal {error!r}")
        return super().fatal(error)


class RecordingJournal(Journal):
    """A journal that notes each message, and how long the transcript is by then."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note
        self.run: Run | None = None

    async def accept_assistant(self, message: Message) -> None:
        self.note(f"accept_assistant {self._totals()}")
        await trio.lowlevel.checkpoint()

    async def accept_result(self, message: Message, ordinal: int) -> None:
        self.note(f"accept_result {message['tool_call_id']} ordinal={ordinal} {self._totals()}")
        await trio.lowlevel.checkpoint()

    def _totals(self) -> str:
        assert self.run is not None
        state: RunState = self.run.state
        return f"messages={len(state.messages)} tokens={state.usage.tokens} turns={state.turn}"


class RecordingSupervisor(Supervisor):
    """A supervisor that never stops a run, and gives prepared answers."""

    def __init__(
        self,
        note: Callable[[str], None],
        settled: Iterable[StepDecision],
        nudges: Iterable[Sequence[Message]],
    ) -> None:
        self.note = note
        self._settled = iter(settled)
        self._nudges = iter(nudges)

    async def should_stop(self) -> bool:
        self.note("should_stop")
        return False

    async def settled(self, step: SettledTurn) -> StepDecision:
        self.note(f"settled {step.decision} {_where(step)}")
        return next(self._settled, StepDecision())

    async def nudge(self, step: SettledTurn) -> Sequence[Message]:
        self.note(f"nudge {step.decision} {_where(step)}")
        return next(self._nudges, ())


class RecordingCompactor(Compactor):
    """A compactor that is never needed, and gives prepared answers."""

    def __init__(
        self, note: Callable[[str], None], compactions: Iterable[Compaction | None]
    ) -> None:
        self.note = note
        self._compactions = iter(compactions)

    def needed(self, state: RunState) -> bool:
        self.note("needed")
        return False

    async def compact(self, messages: Sequence[Message]) -> Compaction | None:
        self.note(f"compact messages={len(messages)}")
        return next(self._compactions, None)


def _where(step: SettledTurn) -> str:
    return f"turn={step.turn} would_end={step.would_end} messages={len(step.state.messages)}"


def _unread(reader: trio.MemoryReceiveChannel[Event]) -> Iterable[str]:
    while True:
        try:
            yield f"> {_told(reader.receive_nowait())}"
        except (trio.WouldBlock, trio.EndOfChannel):
            return


def _told(event: Event) -> str:
    """Return one line for *event*: its turn, its class, and what tells it from others."""
    parts: tuple[object, ...] = ()
    match event:
        case Posted(text=text, user_id=user_id):
            parts = (text, user_id)
        case ReasoningDelta(text=text) | TextDelta(text=text) | AssistantMessage(text=text):
            parts = (text,)
        case ToolCallDelta(call_id=call_id, arguments=arguments):
            parts = (call_id, arguments)
        case Progress(output_tokens=tokens, tool_calls=calls):
            parts = (tokens, calls)
        case ToolStarted(call_id=call_id):
            parts = (call_id,)
        case ToolFinished(call_id=call_id, outcome=outcome, duration=duration):
            parts = (call_id, outcome, duration)
        case CallRejected(call_id=call_id, failure=failure):
            parts = (call_id, failure.kind)
        case Settled(would_end=would_end):
            parts = (f"would_end={would_end}",)
        case CompactionFinished(applied=applied):
            parts = (f"applied={applied}",)
        case TurnFinished(counted=counted):
            parts = (f"counted={counted}",)
        case RunFinished(stop_reason=reason):
            parts = (reason,)
        case _:
            pass
    words = [f"[{event.turn}]", type(event).__name__, *(str(part) for part in parts)]
    return " ".join(words)
