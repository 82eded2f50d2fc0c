"""A run from start to end, with no model and no network."""

import trio

import harness
from harness.events import TextDelta, ToolFinished, ToolStarted
from harness.testing import final_answer, scripted_model, streamed, tool_call, tool_call_turn


@harness.tool
async def weather(city: str) -> str:
    """Say what the weather is like in a city."""
    await trio.sleep(0.2)  # a real one would ask a service
    return {"Oslo": "rain", "Rome": "sun"}[city]


# Stands in for a model: it asks for the tool twice at once, and then it answers.
model = scripted_model(
    [
        tool_call_turn([tool_call("weather", {"city": city}) for city in ("Oslo", "Rome")]),
        streamed(final_answer("An umbrella for Oslo, and a hat for Rome.")),
    ]
)


async def main() -> None:
    question, deadline = "What shall I pack for Oslo and Rome?", trio.current_time() + 60
    async with harness.open_run(model, question, tools=[weather], deadline=deadline) as run:
        async for event in run.events:
            match event:
                case ToolStarted(name=name):
                    print(f"{name} started")
                case ToolFinished(name=name, outcome=outcome):
                    print(f"{name} {outcome}")
                case TextDelta(text=text):
                    print(text, end="", flush=True)
    print(f"\n{run.result.stop_reason} after {run.result.stats.turns} turns")


trio.run(main)
