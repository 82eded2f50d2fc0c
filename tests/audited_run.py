"""A run with tools, a limit and a deadline, for `audited` to watch."""

import trio
import trio.testing

import harness
from harness.testing import final_answer, scripted_model, tool_call, tool_call_turn


@harness.tool
async def search(query: str) -> str:
    """Search for *query*."""
    await trio.sleep(1)
    return f"found {query}"


@harness.tool
def count(text: str) -> int:
    """Count the letters of *text*, in a thread."""
    return len(text)


def main() -> None:
    """Run it to its end, in virtual time but for the thread."""

    async def scenario() -> None:
        calls = [tool_call("search", {"query": "x"}), tool_call("count", {"text": "xyz"})]
        model = scripted_model([tool_call_turn(calls), final_answer("done")])
        result = await harness.run(model, "look", tools=[search, count])
        assert result.stop_reason == "done", result
        assert result.state.tool_calls == 2, result

    trio.run(scenario, clock=trio.testing.MockClock(rate=100))
