from __future__ import annotations

from typing import Any

import attrs
import pytest

from harness._errors import ToolDefinitionError
from harness._json import JSON, digest
from harness._toolset import CallContext, Outcome, ToolCall
from harness.tools import NormalizedCall, ToolList, define_tool, normalize_call, tool
from tests.tools.contexts import ask, context_for, run


def one_more(raw: dict[str, JSON]) -> dict[str, JSON]:
    """A normalizer that must not be applied to its own result."""
    return {**raw, "number": int(str(raw["number"])) + 1}


@tool(normalize=one_more)
async def count(number: int) -> int:
    """Count."""
    return number


TOOLS = ToolList([count])


async def dispatched(call: ToolCall) -> Outcome:
    return await TOOLS.execute(call, context_for(call, None))


@pytest.mark.rule("R-TOOL-09")
async def test_a_toolset_normalizes_once_before_the_check() -> None:
    # A text would not pass the check, so it was normalized before.
    assert await dispatched(ask("count", '{"number": "1"}')) == Outcome.completed(2)


@pytest.mark.rule("R-TOOL-09")
async def test_a_tool_itself_does_not_normalize() -> None:
    assert await run(count, '{"number": 1}') == Outcome.completed(1)
    assert (await run(count, '{"number": "1"}')).failure_kind == "validation"


class Remembering:
    """A toolset around another that knows calls by the digest of their arguments."""

    def __init__(self, inner: ToolList) -> None:
        self._inner = inner
        self.seen: list[str] = []

    async def execute(self, call: ToolCall, context: CallContext[None]) -> Outcome:
        normal = self._inner.normalize(call)
        if isinstance(normal, Outcome):
            return normal
        self.seen.append(normal.arguments)
        return await self._inner.execute(normal, context)


@pytest.mark.rule("R-TOOL-09")
async def test_who_needs_the_normal_form_first_gets_it_and_it_is_not_applied_again() -> None:
    outer = Remembering(TOOLS)
    call = ask("count", '{"number": "1"}')
    assert await outer.execute(call, context_for(call, None)) == Outcome.completed(2)
    assert outer.seen == ['{"number":2}']
    assert digest(outer.seen[0]) != digest(call.arguments)

    refused = ask("count", '{"number": "x"}')
    assert (await outer.execute(refused, context_for(refused, None))).failure_kind == "validation"
    assert len(outer.seen) == 1


@pytest.mark.rule("R-TOOL-09")
def test_a_normalized_call_is_the_call_with_other_arguments() -> None:
    call = ToolCall(id="c", name="count", arguments='{"number": 1}', index=3)
    normal = TOOLS.normalize(call)
    assert normal == NormalizedCall(id="c", name="count", arguments='{"number":2}', index=3)
    assert isinstance(normal, ToolCall)
    assert TOOLS.normalize(normal) is normal
    assert TOOLS.normalize(attrs.evolve(normal, index=4)) == attrs.evolve(normal, index=4)


@pytest.mark.parametrize(
    "call",
    [
        ask("nobody", "{}"),
        ask("count", '{"number": 1}', call_type="custom"),
        ask("count", '{"number'),
        ask("count", "[1]"),
    ],
)
async def test_what_cannot_be_normalized_is_left_to_whoever_refuses_it(call: ToolCall) -> None:
    assert TOOLS.normalize(call) is call
    assert (await dispatched(call)).kind == "failed"


def test_a_tool_without_a_normalizer_gets_the_call_as_it_is() -> None:
    call = ask("tool", "{}")
    assert normalize_call(call, None) is call


class LoudError(Exception):
    def __str__(self) -> str:
        return "!" * 3_000


def raises(error: Exception) -> Any:
    def normalize(raw: dict[str, JSON]) -> dict[str, JSON]:
        raise error

    return normalize


@pytest.mark.rule("R-TOOL-09")
@pytest.mark.parametrize(
    ("normalizer", "why"),
    [
        (raises(KeyError("path")), "KeyError: 'path'"),
        (raises(ValueError()), "ValueError"),
        (lambda raw: None, "they came out as a NoneType, expected an object"),
        (lambda raw: [raw], "they came out as a list, expected an object"),
        (
            lambda raw: {"a": {1, 2}},
            "they came out with a value that is no JSON: .*set is no JSON type.*",
        ),
    ],
)
async def test_what_a_normalizer_does_wrong_is_a_failure_that_the_model_reads(
    normalizer: Any, why: str
) -> None:
    tools = ToolList(
        [define_tool("it", "", schema={"type": "object"}, execute=never, normalize=normalizer)]
    )
    call = ask("it", "{}")
    outcome = await tools.execute(call, context_for(call, None))
    assert (outcome.kind, outcome.failure_kind) == ("failed", "validation")
    expected = f"^the arguments have no normal form: {why}$"
    assert pytest.RaisesExc(ValueError, match=expected).matches(ValueError(outcome.error))


def never(arguments: dict[str, JSON], context: CallContext[None]) -> None:
    raise AssertionError("called")


def test_what_a_normalizer_says_is_cut_to_a_length_that_can_be_read() -> None:
    refused = normalize_call(ask("it", "{}"), raises(LoudError()))
    assert isinstance(refused, Outcome)
    assert len(refused.error) == 2_000
    assert refused.error.endswith("!…")


def test_a_normalizer_gets_a_copy_and_may_change_it() -> None:
    def normalize(raw: dict[str, JSON]) -> dict[str, JSON]:
        raw["a"] = 1
        return raw

    call = ask("it", "")
    assert normalize_call(call, normalize) == NormalizedCall(
        id=call.id, name="it", arguments='{"a":1}'
    )


async def later(raw: dict[str, JSON]) -> dict[str, JSON]:
    return raw


@pytest.mark.parametrize("normalizer", [later, "strip", 3])
def test_a_normalizer_is_a_synchronous_function(normalizer: Any) -> None:
    with pytest.raises(
        ToolDefinitionError,
        match=r"^'count' .*: its normalizer is .*, expected a synchronous function$",
    ):
        tool(name="count", normalize=normalizer)(count.function)
