"""A planner that hands a task to a clerk; the clerk asks a person before it pays."""

import json

import trio

import harness
from harness.delegation import Delegate, as_tool, asked_by
from harness.events import AssistantMessage, ChildEvent, ToolStarted
from harness.testing import final_answer, scripted_model, tool_call, tool_call_turn


@harness.tool
async def pay(amount: int) -> harness.Suspend:
    """Pay, once somebody has said yes."""
    return harness.Suspend.answer(f"Pay {amount}?", {"amount": amount})


clerk = Delegate(
    name="clerk",
    description="Pays bills.",
    model=scripted_model(
        [tool_call_turn([tool_call("pay", {"amount": 30})]), final_answer("Paid 30.")]
    ),
    tools=[pay],
    instructions="You pay what you are told to.",
    limits=harness.Limits(turns=5, cost_cents=10),
)

planner = scripted_model(
    [
        tool_call_turn([tool_call("clerk", {"task": "Pay the plumber, 30."})]),
        final_answer("The plumber has been paid."),
    ]
)


async def main() -> None:
    state: str | harness.RunState = "Settle the bills."
    while True:
        async with harness.open_run(planner, state, tools=[as_tool(clerk)]) as run:
            async for event in run.events:
                match event:
                    case ChildEvent(path=path, event=ToolStarted(name=name)):
                        print(f"{'/'.join(path)} calls {name}")
                    case ChildEvent(path=path, event=AssistantMessage(text=text)):
                        print(f"{'/'.join(path)} says: {text}")
        state = run.state
        if state.pause is None:
            break
        for call_id, question in state.pause.suspends.items():
            asker = asked_by(question)
            assert asker is not None
            print(f"{'/'.join(asker.path)} asks: {question.question} {json.dumps(asker.payload)}")
            state.reply(call_id, "yes")
    print(run.result.text)


trio.run(main)
