"""Trees of runs, with what is needed to look into every run of them."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import attrs

from harness import (
    CallContext,
    Halt,
    Message,
    ModelRequest,
    ModelTurn,
    Outcome,
    RunState,
    Tool,
    ToolCall,
    TurnStream,
)
from harness.checkpoints import checkpoint_of, dump_checkpoint, load_checkpoint, state_of
from harness.delegation import Delegate, as_tool
from harness.events import ChildEvent, Event, RunFinished
from harness.testing import (
    RunHarness,
    Scene,
    ScriptedModel,
    ScriptItem,
    assert_answers_truthful,
    assert_calls_answered_once,
    assert_events_balance,
    assert_provider_valid,
    assert_transcript_settled,
    scripted_model,
)
from harness.tools import ToolList
from harness.transcript import unanswered_call_ids

HostT = TypeVar("HostT")


@attrs.define(eq=False)
class Plays:
    """A model that plays the same turns to every run that asks it, and keeps the transcripts."""

    turns: Sequence[ScriptItem]
    scripts: dict[str, ScriptedModel] = attrs.field(factory=dict, init=False)
    """By run id."""
    transcripts: dict[str, list[Message]] = attrs.field(factory=dict, init=False)
    """By run id: that of the last leg that was seen, live."""
    legs: dict[str, int] = attrs.field(factory=dict, init=False)
    """By run id: which leg that was."""

    def see(self, turn_id: str, messages: Sequence[Message]) -> None:
        """Keep the transcript that *messages* is a view of."""
        run_id, leg, _ = turn_id.split(":")
        self.transcripts[run_id] = messages._messages  # type: ignore[attr-defined]  # a view
        self.legs[run_id] = int(leg)

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        run_id = request.run_id
        self.see(request.turn_id, request.messages)
        if run_id not in self.scripts:
            self.scripts[run_id] = scripted_model(self.turns)
            # A run that comes from another process has had its first turns there.
            self.scripts[run_id].requests.extend([request] * request.turn)
        return await self.scripts[run_id].complete(request, stream)


class NotedTools(ToolList):
    """Tools of a child that say in a scene what starts, and note it by run."""

    def __init__(self, tools: Sequence[Tool], model: Plays, scene: Scene | None = None) -> None:
        super().__init__(tools)
        self._model = model
        self._scene = scene
        self.ran: dict[str, list[str]] = {}

    async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
        run_id = context.batch.run_id
        self._model.see(context.batch.turn_id, context.batch.messages)
        self.ran.setdefault(run_id, []).append(call.id)
        if self._scene is not None:
            self._scene.started(f"{call.name} of {run_id}")
        return await super().execute(call, context)


@attrs.define(eq=False)
class Level:
    """An agent, with the runs of it."""

    name: str
    turns: Sequence[ScriptItem]
    tools: Sequence[Tool]
    scene: Scene | None = None
    model: Plays = attrs.field(init=False)
    noted: NotedTools = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.model = Plays(self.turns)
        self.noted = NotedTools(self.tools, self.model, self.scene)

    def as_tool(self) -> Tool:
        """Return the agent as a tool."""
        return as_tool(
            Delegate(name=self.name, description="An agent.", model=self.model, tools=self.noted)
        )

    def check(self, ended: Mapping[str, RunFinished]) -> None:
        """Check that the transcript of each of its runs is settled, and true."""
        for run_id, messages in self.model.transcripts.items():
            last = ended[run_id]
            # A leg that was cut before it came to anything left no trace here.
            waits = last.stop_reason == "waiting_for_reply" or last.leg > self.model.legs[run_id]
            open_calls = unanswered_call_ids(messages) if waits else ()
            assert_transcript_settled(messages, open_calls)
            assert_calls_answered_once(messages, open_calls)
            assert_answers_truthful(messages, self.noted.ran.get(run_id, []))
            if not open_calls:
                assert_provider_valid(messages)


def told(kit: RunHarness) -> list[Event]:
    """Everything that was told by every run of a tree, each as its own run told it."""
    return [each.event if isinstance(each, ChildEvent) else each for each in kit.events]


def check_tree(kit: RunHarness, levels: Sequence[Level]) -> None:
    """Check every run of a tree that goes on no more: its transcript, and its events."""
    events = told(kit)
    ended = {each.run_id: each for each in events if isinstance(each, RunFinished)}
    for level in levels:
        level.check(ended)
    assert_events_balance(events)


def stored_and_loaded(state: RunState) -> RunState:
    """Return *state* as another process would have it."""
    return state_of(load_checkpoint(dump_checkpoint(checkpoint_of(state))))
