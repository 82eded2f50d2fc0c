from collections.abc import Sequence

import pytest

from harness._errors import MissingPortError, ToolDefinitionError
from harness._json import JSON
from harness._messages import Message
from harness._toolset import (
    Admission,
    Batch,
    CallContext,
    CallPolicy,
    NormalizedCall,
    Outcome,
    Reply,
    Suspend,
    ToolCall,
    Toolset,
    normalized,
)
from harness.skills import FoundSkills, with_skills
from harness.tools import (
    JoinedToolset,
    Plugin,
    RegistryToolset,
    ToolList,
    ToolRegistry,
    define_tool,
    definition_name,
    disclosed,
    join_toolsets,
    plugin_from_tools,
    tool,
)
from tests.tools.contexts import ask, context_for


@tool(pool="one")
async def one() -> str:
    """Be the first."""
    return "1"


@tool(pool="two")
async def two() -> str:
    """Be the second."""
    return "2"


class Whole(ToolList):
    """A toolset with opinions on everything."""

    shown: Sequence[dict[str, JSON]] | None = None
    decides: Outcome | Suspend | None = None
    memo: JSON = None
    batches: list[Batch]
    activated: list[Outcome]

    def __init__(self, *tools: object) -> None:
        super().__init__(tools)  # type: ignore[arg-type]  # tools, by the tests below
        self.batches, self.activated = [], []

    def definitions(self) -> tuple[dict[str, JSON], ...]:
        return super().definitions() if self.shown is None else self.shown  # type: ignore[return-value]  # a list too

    async def admit(self, batch: Batch) -> Admission:
        self.batches.append(batch)
        decided = {} if self.decides is None else {each.id: self.decides for each in batch.calls}
        return Admission(decisions=decided, memo=self.memo)

    async def activate(self, outcome: Outcome) -> None:
        self.activated.append(outcome)

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        return {"role": "tool", "tool_call_id": call.id, "content": "whole"}

    def fatal(self, error: BaseException) -> bool:
        return isinstance(error, KeyError)


def batch(*names: str, memo: JSON = None, replies: dict[str, Reply] | None = None) -> Batch:
    calls = tuple(
        ToolCall(id=f"c{index}", name=name, index=index) for index, name in enumerate(names)
    )
    return Batch(
        run_id="r", turn_id="t", turn=1, calls=calls, messages=(), memo=memo, replies=replies or {}
    )


def names(toolset: Toolset) -> list[JSON]:
    return [each["function"]["name"] for each in toolset.definitions()]  # type: ignore[call-overload, index]


@pytest.mark.rule("R-MCP-19")
async def test_each_call_goes_to_the_toolset_that_defines_it() -> None:
    joined = join_toolsets([one], Whole(two))
    assert names(joined) == ["one", "two"]
    assert joined.definitions() is joined.definitions()
    context: CallContext[object] = context_for(ask("one"), None)
    assert (await joined.execute(ask("one"), context)).data == "1"
    assert (await joined.execute(ask("two"), context)).data == "2"
    assert [joined.policy(ask(name)).pool for name in ("one", "two", "made_up")] == [
        "one",
        "two",
        CallPolicy.default(ask("made_up")).pool,
    ]
    assert joined.render(ask("two"), Outcome.completed())["content"] == "whole"
    assert joined.render(ask("one"), Outcome.completed())["content"] != "whole"
    unknown = await joined.execute(ask("made_up"), context)
    assert unknown.error.endswith("expected one of one")
    assert repr(joined) == "<JoinedToolset of [<ToolList of ['one']>, <Whole of ['two']>]>"


@pytest.mark.rule("R-MCP-19")
def test_names_that_clash_are_refused_when_joined() -> None:
    with pytest.raises(ToolDefinitionError, match="^'one' cannot be a tool: two toolsets define"):
        join_toolsets([one], [two], ToolList([one]))


@pytest.mark.rule("R-MCP-19")
@pytest.mark.parametrize("kind", [tuple, list])
def test_a_name_that_comes_to_clash_stays_with_the_first(kind: type) -> None:
    first, second = Whole(one), Whole(two)
    joined = join_toolsets(first, second)
    second.shown = kind([two.definition, one.definition])
    assert names(joined) == ["one", "two"]
    assert joined.policy(ask("one")).pool == "one"
    first.shown = kind([])
    assert names(joined) == ["two", "one"]


def test_a_list_of_definitions_that_is_changed_in_place_is_read_again() -> None:
    first = Whole(one)
    shown = first.shown = [one.definition]
    joined = join_toolsets(first, [])
    assert names(joined) == ["one"]
    shown.append(two.definition)
    assert names(joined) == ["one", "two"]


@pytest.mark.rule("R-MCP-19")
async def test_each_toolset_judges_its_own_calls_and_keeps_its_own_memo() -> None:
    first, second = Whole(one), Whole(two)
    first.decides, first.memo = Outcome.completed("known"), {"a": 1}
    second.decides = Suspend.answer("may I?")
    joined = join_toolsets(first, second)
    asked = batch("two", "one", "two", "made_up", replies={"c1": Reply(value=5)})
    admission = await joined.admit(asked)
    assert admission.decisions == {
        "c0": second.decides,
        "c1": first.decides,
        "c2": second.decides,
        "c3": first.decides,
    }
    assert [each.id for each in first.batches[0].calls] == ["c1", "c3"]
    assert first.batches[0].replies == {"c1": Reply(value=5)}
    assert second.batches[0].replies == {}
    assert admission.memo == [{"a": 1}, None]
    await joined.admit(batch("one", "two", memo=admission.memo))
    assert first.batches[1].memo == {"a": 1}
    assert second.batches[1].memo is None


async def test_toolsets_that_have_nothing_to_say_say_nothing() -> None:
    first, second = Whole(one), Whole(two)
    joined = join_toolsets(first, second)
    assert await joined.admit(batch("two")) == Admission()
    assert first.batches == []


async def test_whoever_activates_is_asked_and_any_may_call_an_error_fatal() -> None:
    whole = Whole(two)
    joined = join_toolsets([one], whole)
    outcome = Outcome.completed(activate_skills=["x"])
    with pytest.raises(MissingPortError):  # nobody has asked for it, so it is the first one's
        await joined.activate(outcome)
    joined = join_toolsets(whole, [one])
    await joined.activate(outcome)
    assert whole.activated == [outcome]
    assert joined.fatal(KeyError())
    assert not joined.fatal(ValueError())
    with pytest.raises(MissingPortError):
        await join_toolsets([one], [two]).activate(outcome)


def test_one_toolset_is_itself_and_none_is_empty() -> None:
    alone = ToolList([one])
    assert join_toolsets(alone) is alone
    assert join_toolsets().definitions() == ()
    assert isinstance(join_toolsets(alone, []), JoinedToolset)


@pytest.mark.rule("R-TOOL-09")
def test_a_call_is_normalized_by_its_own_toolset() -> None:
    def lower(raw: dict[str, JSON]) -> dict[str, JSON]:
        return {key: str(value).lower() for key, value in raw.items()}

    def say(arguments: dict[str, JSON], context: object) -> str:
        return ""

    schema: dict[str, JSON] = {"type": "object", "properties": {"word": {"type": "string"}}}
    loud = define_tool("loud", "Say it.", schema=schema, execute=say, normalize=lower)
    joined = join_toolsets([one], with_skills([loud], FoundSkills()))
    call = ToolCall(id="c", name="loud", arguments='{"word": "HI"}')
    assert isinstance(normal := normalized(joined, call), NormalizedCall)
    assert normal.arguments == '{"word":"hi"}'
    assert normalized(joined, normal) is normal
    other = ToolCall(id="c", name="one", arguments="{}")
    assert normalized(joined, other) is other
    assert normalized(object(), call) is call


async def test_each_toolset_loads_what_calls_of_its_own_have_asked_for() -> None:
    @tool
    def far() -> str:
        """Look far."""
        return "far"

    registry: ToolRegistry[Plugin] = ToolRegistry(["a"])
    registry.register(plugin_from_tools("a", "A.", [one]))
    first = RegistryToolset(registry)
    second = disclosed(plugins=[plugin_from_tools("c", "C.", [far])])
    joined = join_toolsets(first, second)
    before = joined.definitions()
    assert joined.definitions() is before
    call = ToolCall(id="c", name="load_tools", arguments='{"names": ["c"]}')
    outcome = await joined.execute(call, context_for(call, None))
    await joined.activate(outcome)
    after = [definition_name(each) for each in joined.definitions()]
    assert after == [*(definition_name(each) for each in before), "far"]
