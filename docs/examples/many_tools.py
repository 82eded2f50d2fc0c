"""Three hundred tools: the model is shown one of them, finds another, and loads it."""

import trio

import harness
from harness import tool
from harness.testing import final_answer, scripted_model, tool_call, tool_call_turn
from harness.tools import define_tool, disclosed


@tool
async def today() -> str:
    """Return today's date."""
    return "2026-12-01"


@tool
async def exchange_rate(currency: str) -> float:
    """Return how many euros one unit of a currency is worth today."""
    return {"NOK": 0.085}[currency]


async def send(form: dict[str, harness.JSON], context: harness.CallContext[object]) -> str:
    return f"form {context.call.name[5:]} was sent"


forms = [
    define_tool(f"form_{number}", f"Send form {number}.", schema={"type": "object"}, execute=send)
    for number in range(1, 300)
]
tools = disclosed(core=[today], plugins=[*forms, exchange_rate])

# Stands in for a model, which would look for words like these by itself.
model = scripted_model(
    [
        tool_call_turn([tool_call("search_tools", {"query": "currency exchange", "limit": 3})]),
        tool_call_turn(
            [
                tool_call("load_tools", {"names": ["exchange_rate"]}),
                tool_call("exchange_rate", {"currency": "NOK"}),
            ]
        ),
        final_answer("A krone is eight and a half cents."),
    ]
)


async def main() -> None:
    result = await harness.run(model, "What is a Norwegian krone worth?", tools=tools)
    print("tools shown, turn by turn:", *(len(request.tools) for request in model.requests))
    for message in result.state.messages:
        if message["role"] == "tool":
            print("the model was told:", message["content"])
    print(result.text)
    print("to store:", tools.active)


trio.run(main)
