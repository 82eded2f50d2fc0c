"""What the loop hands to the toolset as a call, and what it takes as its answer."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from harness import (
    JSON,
    Batch,
    CallContext,
    CallPolicy,
    Message,
    Outcome,
    ToolCall,
    assistant_message,
)
from harness._messages import CallMessage
from harness.testing import (
    assert_provider_valid,
    counting_tool,
    final_answer,
    run_harness,
    slow_tool,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList
from harness.transcript import raw_arguments
from tests.kernel.carrying import carried
from tests.kernel.reading import DONE, answers, named, rejected

HostT = TypeVar("HostT")

# -- every call reaches the toolset ------------------------------------------------------------


class _Catching(ToolList):
    """A toolset that keeps the calls it is given, whatever they are."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[ToolCall] = []

    async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
        self.calls.append(call)
        assert context.call is call
        return Outcome.completed()


@pytest.mark.rule("R-LOOP-30", "R-MODEL-04")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("unknown", "{}"),
        ("look", ""),
        ("look", "  "),
        ("look", "[1, 2]"),
        ("look", "null"),
        ("look", '"text"'),
        ("look", '{"a": 1, "a": 2}'),
        ("a name with spaces \u00e4", "{}"),
    ],
)
async def test_a_call_reaches_the_toolset_whatever_it_names_and_holds(
    name: str, arguments: str
) -> None:
    tools = _Catching()
    kit = run_harness(
        [tool_call_turn([tool_call(name, arguments, id="a")]), final_answer("Done.")], tools=tools
    )
    result = await kit.run()
    (call,) = tools.calls
    assert (call.id, call.name, call.type, call.index) == ("a", name, "function", 0)
    # As the model wrote it, but for nothing at all, which is stored as no arguments.
    assert call.arguments == (arguments if arguments.strip() else "{}")
    assert result.stop_reason == "done"


@pytest.mark.rule("R-LOOP-30")
@pytest.mark.parametrize("key", ["function", "custom"])
async def test_a_call_that_is_no_function_call_reaches_the_toolset(key: str) -> None:
    body = {"name": "shell", "arguments" if key == "function" else "input": "ls -l"}
    asked: CallMessage = {"id": "a", "type": "custom", key: body}  # type: ignore[misc]  # as sent
    tools = _Catching()
    kit = run_harness([tool_call_turn([asked]), final_answer("Done.")], tools=tools)
    result = await kit.run()
    (call,) = tools.calls
    assert (call.type, call.name, call.arguments) == ("custom", "shell", "ls -l")
    assert result.state.messages[1]["tool_calls"] == [asked]


@pytest.mark.rule("R-LOOP-30")
async def test_a_batch_has_every_call_and_the_transcript_up_to_its_message() -> None:
    batches: list[tuple[Batch, int]] = []

    class Looking(_Catching):
        async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
            batches.append((context.batch, len(context.batch.messages)))
            return await super().execute(call, context)

        def policy(self, call: ToolCall) -> CallPolicy:
            return CallPolicy(pool=None, serial=call.name == "first")

    tools = Looking()
    kit = run_harness([named("second", "first"), DONE], tools=tools)
    result = await kit.run()
    assert [call.name for call in tools.calls] == ["first", "second"]
    for batch, length in batches:
        assert [call.name for call in batch.calls] == ["second", "first"]
        assert (batch.run_id, batch.turn, length) == (result.run_id, 0, 2)
        assert batch.messages[-1] is result.state.messages[1]


@pytest.mark.rule("R-MODEL-04")
async def test_arguments_that_are_no_object_are_refused_before_anything_is_run() -> None:
    count = counting_tool("count")
    asked = tool_call("count", "[1, 2]", id="a")
    kit = run_harness([tool_call_turn([asked]), final_answer("Done.")], tools=[count])
    result = await kit.run()
    assert count.started == 0
    envelope = answers(result.state.messages)["a"]
    assert (envelope["kind"], envelope["success"]) == ("validation", False)
    # And the text is neither replayed to a provider nor lost.
    stored = carried(result.state).messages[1]
    assert stored["tool_calls"][0]["function"]["arguments"] == "{}"
    assert raw_arguments(stored, 0) == "[1, 2]"
    assert_provider_valid(result.state.messages)


@pytest.mark.rule("R-ANSWER-01")
async def test_an_answer_that_no_transcript_can_hold_is_written_without_its_parts() -> None:
    parts: list[dict[str, JSON]] = [{"type": "image", "pixels": b"\x00"}]  # type: ignore[dict-item]
    picture = slow_tool(0, "draw", result=Outcome.completed("drawn", parts=parts))
    kit = run_harness([named("draw"), DONE], tools=[picture])
    result = await kit.run()
    assert answers(result.state.messages)["draw-0"] == {"success": True, "data": "drawn"}
    assert rejected(kit.events) == [("draw-0", "ValueError")]
    assert carried(result.state).messages == result.state.messages


class _Rendering(ToolList):
    """A toolset that writes answers of its own."""

    def __init__(self, render: Callable[[ToolCall, Outcome], object]) -> None:
        super().__init__([counting_tool("look")])
        self._render = render

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        return self._render(call, outcome)  # type: ignore[return-value]  # foreign code


@pytest.mark.rule("R-ANSWER-01")
@pytest.mark.parametrize(
    "written",
    [
        None,
        "look",
        {"role": "tool", "content": "no id"},
        {"role": "tool", "tool_call_id": "another", "content": "1"},
        {"role": "user", "tool_call_id": "look-0", "content": "1"},
        {"role": "tool", "tool_call_id": "look-0", "content": 1},
        {"role": "tool", "tool_call_id": "look-0", "content": float("inf")},
        assistant_message("look-0"),
    ],
)
async def test_an_answer_that_is_none_is_written_as_the_plain_envelope(written: object) -> None:
    kit = run_harness([named("look"), DONE], tools=_Rendering(lambda call, outcome: written))
    result = await kit.run()
    assert result.stop_reason == "done"
    assert answers(result.state.messages) == {"look-0": {"success": True, "data": 1}}
    assert [call for call, _ in rejected(kit.events)] == ["look-0"]
    assert_provider_valid(result.state.messages)
