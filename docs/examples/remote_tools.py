"""A run with the tools of a server, which is a process of its own, and one of ours."""

import sys
from pathlib import Path

import trio

import harness
from harness.events import ToolFinished
from harness.mcp import StdioServer, open_mcp_tools
from harness.testing import final_answer, scripted_model, tool_call, tool_call_turn
from harness.tools import join_toolsets

tides = StdioServer(
    name="tides",
    command=sys.executable,
    args=[str(Path(__file__).with_name("tide_server.py"))],
)


@harness.tool
async def walk(minutes: int) -> str:
    """Tell how far that is on foot."""
    return f"{minutes * 0.08:.1f} km"


# Stands in for a model that asks for one tool of each.
model = scripted_model(
    [
        tool_call_turn(
            [tool_call("high_tide", {"harbour": "Dover"}), tool_call("walk", {"minutes": 20})]
        ),
        final_answer("Be there by 11:42; it is 1.6 km."),
    ]
)


async def main() -> None:
    async with open_mcp_tools(tides) as remote:
        tools = join_toolsets([walk], remote)
        async with harness.open_run(model, "When is high tide?", tools=tools) as run:
            async for event in run.events:
                if isinstance(event, ToolFinished):
                    print(f"{event.name}: {event.outcome}")
        print(run.result.text)


trio.run(main)
