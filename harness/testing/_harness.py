"""A run with everything ready, for tests of what is around it.

`RunHarness` has a scripted model, tools for the names in the script, ids that count, an emitter
whose events are kept, and limiters that can be looked at. Each of these can be replaced. What the
run does with tools is noted at the edge of the toolset, whatever toolset it is: ``ran`` has the
calls whose function was entered, ``side_effects`` those that completed. The difference is what a
stop cut, and what its answers have to admit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Unpack

import attrs
import trio

from harness._events import Event
from harness._ids import counting_ids
from harness._json import JSON
from harness._messages import Message
from harness._model import ModelLike
from harness._toolset import Admission, Batch, CallContext, CallPolicy, Outcome, ToolCall, Toolset
from harness.kernel import (
    Emitter,
    Limiters,
    Run,
    RunInput,
    RunOptions,
    RunResult,
    RunState,
    open_run,
)
from harness.testing._models import ScriptedModel, scripted_model
from harness.testing._scene import Scene
from harness.testing._script import ScriptItem, called_names
from harness.testing._tools import counting_tool
from harness.tools import as_toolset

__all__ = ["RunHarness", "run_harness"]


def run_harness(
    turns: Sequence[ScriptItem],
    *,
    model: ModelLike | None = None,
    scene: Scene | None = None,
    **ports: Unpack[RunOptions],
) -> RunHarness:
    """Return a run's ports, ready, with what is needed to look at the run from outside.

    Args:
        turns: the script of the model, see `scripted_model`.
        model: who is asked instead of the script; it may ask `RunHarness.script` in turn.
        scene: the scene of a scenario; it keeps the harness for the ready invariants and is told
            of every call that starts.
        ports: options of `harness.open_run`, instead of the ready ones. Without *tools*, every
            name that the script calls is a `counting_tool`.

    Raises:
        ScriptError: a call id stands twice in the script.
    """
    script = scripted_model(turns)
    if "tools" not in ports:
        ports["tools"] = [counting_tool(name) for name in called_names(turns)]
    ports.setdefault("ids", counting_ids())
    limiters = ports.get("limiters") or Limiters()
    ports["limiters"] = limiters
    emitter = ports.get("events") or Emitter()
    ports["events"] = emitter
    kit = RunHarness(
        script=script,
        model=script if model is None else model,
        ports=ports,
        limiters=limiters,
        reader=emitter.open_reader(),
    )
    on_start = kit.ran.append if scene is None else _both(kit.ran.append, scene.started)
    ports["tools"] = _NotingTools(as_toolset(ports["tools"]), on_start, kit.side_effects.append)
    if scene is not None:
        scene.keep(kit)
    return kit


def _both(*functions: Callable[[str], None]) -> Callable[[str], None]:
    def call(name: str) -> None:
        for function in functions:
            function(name)

    return call


@attrs.define(kw_only=True, eq=False)
class RunHarness:
    """Ready ports, and what a run did with them. Made by `run_harness`."""

    script: ScriptedModel
    """The scripted model, with the requests it got."""
    model: ModelLike
    """Who is asked: the script, unless it was replaced."""
    ports: RunOptions
    """The options that `open` gives the run."""
    limiters: Limiters
    ran: list[str] = attrs.field(factory=list, init=False)
    """Ids of the calls whose function was entered, in that order."""
    side_effects: list[str] = attrs.field(factory=list, init=False)
    """Ids of the calls that completed, in that order."""
    states: list[RunState] = attrs.field(factory=list, init=False)
    """The state of each run that was opened; once, for the legs of one run."""
    _reader: trio.MemoryReceiveChannel[Event] = attrs.field(alias="reader")
    _events: list[Event] = attrs.field(factory=list, init=False)

    @asynccontextmanager
    async def open(
        self, input: RunInput = "Go.", **changes: Unpack[RunOptions]
    ) -> AsyncIterator[Run]:
        """Open a run with the ready ports, but for *changes*: see `harness.open_run`."""
        options = self.ports.copy()
        options.update(changes)
        async with open_run(self.model, input, **options) as run:
            if not any(state is run.state for state in self.states):
                self.states.append(run.state)
            yield run

    async def run(self, input: RunInput = "Go.", **changes: Unpack[RunOptions]) -> RunResult:
        """Run to the end and return the result: see `harness.run`. A checkpoint."""
        async with self.open(input, **changes) as run:
            await run.wait()
        return run.result

    @property
    def events(self) -> list[Event]:
        """Everything that was told so far, in order. Usable after the run, outside of trio."""
        while True:
            try:
                self._events.append(self._reader.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                return self._events


@attrs.frozen(eq=False)
class _NotingTools:
    """A toolset that passes everything on, and notes what starts and what completes."""

    _toolset: Toolset
    _starts: Callable[[str], None]
    _completed: Callable[[str], None]

    def definitions(self) -> Sequence[dict[str, JSON]]:
        return self._toolset.definitions()

    def policy(self, call: ToolCall) -> CallPolicy:
        return self._toolset.policy(call)

    async def admit(self, batch: Batch) -> Admission:
        return await self._toolset.admit(batch)

    async def execute(self, call: ToolCall, context: CallContext[object]) -> Outcome:
        self._starts(call.id)
        outcome = await self._toolset.execute(call, context)
        if outcome.kind == "completed":
            self._completed(call.id)
        return outcome

    async def activate(self, outcome: Outcome) -> None:
        await self._toolset.activate(outcome)

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        return self._toolset.render(call, outcome)

    def fatal(self, error: BaseException) -> bool:
        return self._toolset.fatal(error)
