"""A run whose tasks race each other, for a process of its own: prints what it tells.

``python -m tests.kernel.replay SEED`` writes one event per line, as JSON. Everything that could
differ from process to process has a part in it: sets and dictionaries of names, calls that end in
the same instant, lines for a shared limiter, identifiers.
"""

import sys
from collections.abc import Sequence

import trio

from harness import (
    CallContext,
    Compaction,
    Compactor,
    Emitter,
    Limiters,
    Message,
    Outcome,
    RunState,
    Supervisor,
    Tool,
    Usage,
    tool,
    user_message,
)
from harness._ids import counting_ids
from harness.events import FlushDue, encode_event
from harness.testing import (
    ScriptItem,
    failing_tool,
    final_answer,
    record_events,
    run_harness,
    run_virtual,
    slow_tool,
    streamed,
    timed,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList

__all__ = ["told"]

NAMES = ("ash", "birch", "cedar", "elm", "fir", "hazel")


class _Loading(ToolList):
    """Tools that load others, whose names are kept in a set."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self.loaded: set[str] = set()

    async def activate(self, outcome: Outcome) -> None:
        self.loaded |= {*outcome.activate_plugins}


class _Shrinking(Compactor):
    def needed(self, state: RunState) -> bool:
        return len(state.messages) > 20

    async def compact(self, messages: Sequence[Message]) -> Compaction:
        await trio.sleep(1)
        return Compaction(messages=[user_message("So far.")], usage=Usage(input=3))


class _Pushing(Supervisor):
    def __init__(self) -> None:
        self.pushes = [[user_message("Go on.")]]

    async def nudge(self, step: object) -> Sequence[Message]:
        return self.pushes.pop() if self.pushes else ()


async def told() -> list[bytes]:
    """Run it, and return what it told."""

    @tool
    async def birch(context: CallContext[object]) -> Outcome:
        await trio.sleep(1)
        context.tell(FlushDue())
        return Outcome.completed(sorted(NAMES), activate_plugins=NAMES)

    tools = [
        birch,
        timed(1, failing_tool(ValueError("rotten"), "ash")),
        *(slow_tool(1, name) for name in NAMES[2:]),
    ]
    asking = tool_call_turn(
        [tool_call(name, {"height": 7, "name": name}) for name in (*NAMES, *NAMES)],
        "Looking at the trees.",
        reasoning="Which ones?",
        usage=Usage(input=5),
    )
    script: list[ScriptItem] = [
        streamed(asking),
        timed(1, asking),
        streamed(final_answer("All.")),
        final_answer("So."),
    ]
    limiters, emitter, ids = Limiters(1, total=4), Emitter(), counting_ids()
    reader = emitter.open_reader()
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            kit = run_harness(
                script,
                tools=_Loading(tools),
                limiters=limiters,
                compactor=_Shrinking(),
                supervisor=_Pushing(),
                events=emitter,
                ids=ids,
            )
            nursery.start_soon(kit.run)
    emitter.close()
    return [encode_event(event) for event in await record_events(reader)]


if __name__ == "__main__":
    for line in run_virtual(told, seed=int(sys.argv[1])):
        print(line.decode())
