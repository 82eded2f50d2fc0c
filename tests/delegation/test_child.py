"""An agent as a tool of another: what its calls are, and what the child is given."""

import math
from collections.abc import Sequence
from typing import TypeVar, cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness import (
    JSON,
    Budget,
    CallContext,
    CallPolicy,
    Compaction,
    Compactor,
    Halt,
    Limiters,
    Limits,
    Message,
    ModelRequest,
    ModelTurn,
    Outcome,
    RunState,
    Tool,
    ToolCall,
    Toolset,
    TurnStream,
    Usage,
    run,
    system_message,
    tool,
    user_message,
)
from harness.delegation import (
    UNNAMED_ROOT,
    ChainRef,
    ChainRule,
    Delegate,
    as_tool,
    root_chain,
)
from harness.errors import StoreError, ToolDefinitionError
from harness.events import (
    AssistantMessage,
    CallRejected,
    ChildEvent,
    RunFinished,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from harness.models import Output, StructuredModel
from harness.testing import (
    RunHarness,
    ScriptItem,
    assert_events_balance,
    counting_tool,
    failing_tool,
    final_answer,
    run_harness,
    scripted_model,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList
from tests.delegation.trees import Plays, told
from tests.kernel.reading import answers

HostT = TypeVar("HostT")

EACH = Usage(input=3, output=2)


def clerk(
    turns: Sequence[ScriptItem], tools: Toolset | Sequence[Tool] = (), **fields: object
) -> Delegate:
    """An agent that plays *turns* in every run of it."""
    delegate = Delegate(name="clerk", description="Does a task.", model=Plays(turns), tools=tools)
    return attrs.evolve(delegate, **fields)  # type: ignore[arg-type]  # fields by name


def calling(
    delegate: Delegate, *batches: Sequence[str], tools: Sequence[Tool] = ()
) -> tuple[list[ModelTurn], list[Tool]]:
    """A caller's turns, a batch of tasks in each, and its tools."""
    turns = [
        tool_call_turn([tool_call(delegate.name, {"task": task}) for task in batch], usage=EACH)
        for batch in batches
    ]
    return [*turns, final_answer("Done.", usage=EACH)], [as_tool(delegate), *tools]


def caller(delegate: Delegate, *batches: Sequence[str], budget: Budget | None = None) -> RunHarness:
    turns, tools = calling(delegate, *batches)
    return run_harness(turns, tools=tools, budget=budget)


def results(kit: RunHarness) -> list[dict[str, JSON]]:
    return [*answers(kit.states[0].messages).values()]


# -- the tool ----------------------------------------------------------------------------------


@pytest.mark.rule("R-CHILD-13")
def test_what_the_calling_model_is_told() -> None:
    made = as_tool(clerk([]))
    assert made.definition["function"] == {
        "name": "clerk",
        "description": "Does a task.",
        "parameters": {
            "type": "object",
            "properties": {
                "task": {
                    "type": "string",
                    "pattern": r"\S",
                    "description": "What to do. The agent knows nothing of this conversation but "
                    "this text.",
                }
            },
            "required": ["task"],
            "additionalProperties": False,
        },
    }


@pytest.mark.rule("R-CHILD-13")
def test_a_call_waits_for_calls_so_it_takes_no_permit_and_no_shield() -> None:
    made = as_tool(clerk([]))
    policy = made.policy
    assert (policy.pool, policy.effect, policy.shielded) == (None, "resumable", False)
    assert made.resumes


@pytest.mark.rule("R-CHILD-13")
def test_an_agent_that_cannot_be_a_tool_is_refused_at_once() -> None:
    with pytest.raises(ToolDefinitionError, match=r"its name is 'the clerk', expected letters"):
        as_tool(clerk([], name="the clerk"))
    with pytest.raises(TypeError, match=r"^model is 7, expected a Model or an async function$"):
        as_tool(clerk([], model=7))
    with pytest.raises(ToolDefinitionError, match=r"expected a list of tools or a toolset$"):
        as_tool(clerk([], tools=7))  # type: ignore[arg-type]  # what is being tested


@pytest.mark.rule("R-CHILD-13")
@pytest.mark.parametrize(
    "arguments", ["{}", '{"task": " "}', '{"task": 3}', '{"task": "x", "y": 1}']
)
async def test_a_call_without_a_task_starts_nobody(arguments: str) -> None:
    delegate = clerk([final_answer("never")])
    kit = run_harness(
        [tool_call_turn([tool_call("clerk", arguments)]), final_answer("Done.")],
        tools=[as_tool(delegate)],
    )
    await kit.run()
    assert [each["kind"] for each in results(kit)] == ["validation"]
    assert cast(Plays, delegate.model).scripts == {}


# -- the child ---------------------------------------------------------------------------------


@pytest.mark.rule("R-CHILD-09", "R-CHILD-13")
async def test_a_childs_answer_is_the_result_and_its_transcript_its_own() -> None:
    delegate = clerk(
        [tool_call_turn([tool_call("count")]), final_answer("42")],
        [counting_tool()],
        instructions="You count.",
    )
    kit = caller(delegate, ["Count."])
    await kit.run()
    assert results(kit) == [{"success": True, "data": "42"}]
    [transcript] = cast(Plays, delegate.model).transcripts.values()
    assert transcript[:2] == [system_message("You count."), user_message("Count.")]
    assert [each["role"] for each in transcript[2:]] == ["assistant", "tool", "assistant"]
    assert [each["role"] for each in kit.states[0].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.rule("R-CHILD-13")
async def test_a_structured_answer_is_the_result_as_an_object() -> None:
    @attrs.frozen
    class Count:
        number: int

    inner = Plays([final_answer('{"number": 42}')])
    delegate = clerk([], model=StructuredModel(inner, Output(Count)))
    kit = caller(delegate, ["Count."])
    await kit.run()
    assert results(kit) == [{"success": True, "data": {"number": 42}}]


@pytest.mark.rule("R-CHILD-13")
async def test_a_childs_tools_have_the_hosts_object_and_the_childs_own_place() -> None:
    seen: list[CallContext[object]] = []

    @tool
    async def look(context: CallContext[object]) -> None:
        """Look."""
        seen.append(context)

    delegate = clerk([tool_call_turn([tool_call("look")]), final_answer("ok")], [look])
    turns, tools = calling(delegate, ["a"])
    state = RunState(run_id="top", messages=[user_message("Go.")])
    kit = run_harness(turns, tools=tools, context="host", chain=root_chain("top", "planner"))
    await kit.run(state)
    [context] = seen
    assert context.host == "host"
    [run_id] = cast(Plays, delegate.model).transcripts
    assert context.batch.run_id == run_id
    assert context.chain == ChainRef(
        root_run_id="top", run_id=run_id, parent_run_id="top", depth=1, path=("planner", "clerk")
    )


@pytest.mark.rule("R-CHILD-12")
async def test_a_childs_run_id_is_that_of_its_call() -> None:
    delegate = clerk([final_answer("ok")])
    kit = caller(delegate, ["a", "b", "a"], ["a"])
    await kit.run()
    ids = list(cast(Plays, delegate.model).transcripts)
    assert len(set(ids)) == 4
    again = clerk([final_answer("ok")])
    await caller(again, ["b", "a", "a"], ["a"]).run()
    assert set(cast(Plays, again.model).transcripts) == set(ids)


@pytest.mark.rule("R-CHILD-13")
async def test_a_run_without_a_chain_is_a_root_without_a_name() -> None:
    chains: list[ChainRef | None] = []

    @tool
    async def look(context: CallContext[object]) -> None:
        """Look."""
        chains.append(context.chain)

    delegate = clerk([tool_call_turn([tool_call("look")]), final_answer("ok")], [look])
    await caller(delegate, ["a"]).run()
    [chain] = chains
    assert chain is not None
    assert (chain.root_run_id, chain.path) == ("run_1", (UNNAMED_ROOT, "clerk"))


@pytest.mark.rule("R-CHILD-13")
async def test_a_chain_of_another_run_starts_nobody() -> None:
    delegate = clerk([final_answer("never")])
    turns, tools = calling(delegate, ["a"])
    kit = run_harness(turns, tools=tools, chain=root_chain("other", "planner"))
    await kit.run()
    [answer] = results(kit)
    assert answer["error"] == "the chain of run 'run_1' is that of 'other', expected its own"


@pytest.mark.rule("R-CHILD-13")
async def test_a_call_outside_of_a_run_starts_nobody() -> None:
    delegate = clerk([final_answer("never")])

    class Outside(ToolList):
        async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
            return await super().execute(call, attrs.evolve(context, budget=None))

    turns, tools = calling(delegate, ["a"])
    kit = run_harness(turns, tools=Outside(tools))
    await kit.run()
    [answer] = results(kit)
    assert answer["error"] == "the call's budget is None, expected the ledger of a run"


@pytest.mark.rule("R-CHILD-13")
async def test_a_childs_calls_take_the_permits_that_it_is_given(autojump_clock: MockClock) -> None:
    asks = tool_call_turn([tool_call("slow"), tool_call("slow")])
    for limiters, seconds in ((Limiters(1), 4.0), (None, 1.0)):
        delegate = clerk([asks, final_answer("ok")], [slow_tool(1)], limiters=limiters)
        started = trio.current_time()
        await caller(delegate, ["a", "b"]).run()
        assert trio.current_time() - started == seconds


@pytest.mark.rule("R-CHILD-13")
async def test_a_childs_transcript_may_be_compacted() -> None:
    class Forgetful(Compactor):
        def needed(self, state: RunState) -> bool:
            return state.turn == 1

        async def compact(self, messages: Sequence[Message]) -> Compaction:
            return Compaction(messages=[user_message("So far, so good.")])

    asks = tool_call_turn([tool_call("count")])
    delegate = clerk([asks, final_answer("ok")], [counting_tool()], compactor=Forgetful())
    await caller(delegate, ["a"]).run()
    [transcript] = cast(Plays, delegate.model).transcripts.values()
    assert transcript[0] == user_message("So far, so good.")


# -- admission ---------------------------------------------------------------------------------


def refusals(kit: RunHarness) -> list[str]:
    return [each.failure.code for each in told(kit) if isinstance(each, CallRejected)]


@pytest.mark.rule("R-CHILD-03", "R-CHILD-05")
async def test_a_batch_starts_no_more_children_than_may_live(autojump_clock: MockClock) -> None:
    delegate = clerk([timed(1, final_answer("ok"))], rule=ChainRule(max_live_children=2))
    kit = caller(delegate, ["a", "b", "c"], ["d"])
    await kit.run()
    assert [each["success"] for each in results(kit)] == [True, True, False, True]
    refused = results(kit)[2]
    assert refused["kind"] == "conflict"
    assert str(refused["error"]).startswith("The agent 'clerk' was not started: 2 agents of this")
    assert refusals(kit) == ["live_children"]


@pytest.mark.rule("R-CHILD-03")
async def test_a_tree_has_no_more_runs_than_it_may() -> None:
    delegate = clerk([final_answer("ok")], rule=ChainRule(max_runs_in_tree=4))
    kit = caller(delegate, ["a", "b"], ["c", "d"])
    await kit.run()
    assert [each["success"] for each in results(kit)] == [True, True, True, False]
    assert refusals(kit) == ["tree_size"]


@pytest.mark.rule("R-CHILD-03")
async def test_a_tree_counts_the_runs_of_every_level_and_none_of_its_host() -> None:
    rule = ChainRule(max_runs_in_tree=4)
    leaf = clerk([final_answer("leaf")], name="leaf", rule=rule)
    middle = clerk(
        [
            tool_call_turn([tool_call("leaf", {"task": "1"}), tool_call("leaf", {"task": "2"})]),
            final_answer("ok"),
        ],
        [as_tool(leaf)],
        rule=rule,
    )
    host = Budget(Limits(turns=None))
    host.begin_leg(first=True)
    for _ in range(9):
        Budget(Limits(), parent=host).begin_leg(first=True)
    kit = caller(middle, ["a", "b"], budget=host)
    await kit.run()
    assert refusals(kit) == ["tree_size"] * 3
    assert (
        len(cast(Plays, leaf.model).transcripts) + len(cast(Plays, middle.model).transcripts) == 3
    )


@pytest.mark.rule("R-CHILD-03")
async def test_agents_do_not_stand_below_themselves_unless_they_may() -> None:
    for allowed, runs, codes in ((False, 1, ["recursion"]), (True, 3, ["depth"])):
        tools: list[Tool] = []
        delegate = clerk(
            [tool_call_turn([tool_call("clerk", {"task": "again"})]), final_answer("ok")],
            rule=ChainRule(allow_recursion=allowed),
        )
        delegate = attrs.evolve(delegate, tools=_Late(tools))
        tools.append(as_tool(delegate))
        kit = caller(delegate, ["a"])
        await kit.run()
        assert len(cast(Plays, delegate.model).transcripts) == runs
        assert refusals(kit) == codes


class _Late(ToolList):
    """Tools that are there once somebody asks: an agent that is its own tool."""

    def __init__(self, tools: list[Tool]) -> None:
        super().__init__()
        self._late = tools

    def definitions(self) -> tuple[dict[str, JSON], ...]:
        return ToolList(self._late).definitions()

    def policy(self, call: ToolCall) -> CallPolicy:
        return ToolList(self._late).policy(call)

    async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
        return await ToolList(self._late).execute(call, context)


# -- how a child ends --------------------------------------------------------------------------


@pytest.mark.rule("R-CHILD-14", "R-LIMIT-04")
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(turns=1), "used up its turns"),
        (Limits(tokens=5), "used up its budget"),
        (Limits(tool_calls=0), "used up its budget"),
    ],
)
async def test_a_child_at_its_limit_has_failed_and_its_caller_goes_on(
    limits: Limits, words: str
) -> None:
    asks = tool_call_turn([tool_call("count")], "Let me see.", usage=EACH)
    delegate = clerk([asks, final_answer("never")], [counting_tool()], limits=limits)
    kit = caller(delegate, ["a"])
    assert (await kit.run()).stop_reason == "done"
    assert results(kit) == [
        {
            "success": False,
            "kind": "system",
            "error": f"The agent 'clerk' {words} before it was done. What it did by then stands. "
            "Its last words were: Let me see.",
        }
    ]


@pytest.mark.rule("R-CHILD-14")
async def test_a_child_that_is_halted_says_why() -> None:
    delegate = clerk([Halt(code="stop", message="No more of this.")])
    kit = caller(delegate, ["a"])
    await kit.run()
    [answer] = results(kit)
    assert str(answer["error"]).endswith("stands. It was told: No more of this.")


@pytest.mark.rule("R-CHILD-14")
async def test_a_child_that_runs_out_of_time_is_interrupted(autojump_clock: MockClock) -> None:
    delegate = clerk([timed(9, final_answer("never"))], time_limit=2)
    kit = caller(delegate, ["a"])
    await kit.run()
    assert trio.current_time() == 2
    [answer] = results(kit)
    assert answer["kind"] == "interrupted"
    assert str(answer["error"]).startswith("The agent 'clerk' ran out of time before it was done.")


@pytest.mark.rule("R-CHILD-14")
async def test_without_a_time_limit_a_child_has_as_long_as_its_caller(
    autojump_clock: MockClock,
) -> None:
    delegate = clerk([timed(10_000, final_answer("ok"))])
    kit = caller(delegate, ["a"])
    assert (await kit.run(deadline=math.inf)).stop_reason == "done"
    assert trio.current_time() == 10_000
    assert results(kit) == [{"success": True, "data": "ok"}]


@pytest.mark.rule("R-CHILD-14")
async def test_what_a_child_raises_fails_its_call_and_no_other(autojump_clock: MockClock) -> None:
    calls = [tool_call("clerk", {"task": "a"}), tool_call("slow")]
    delegate = clerk([OSError("gone")])
    kit = run_harness(
        [tool_call_turn(calls), final_answer("Done.")],
        tools=[as_tool(delegate), slow_tool(3, result="fine")],
    )
    assert (await kit.run()).stop_reason == "done"
    assert results(kit) == [
        {"success": False, "error": "gone"},
        {"success": True, "data": "fine"},
    ]


class _Fatal(ToolList):
    def fatal(self, error: BaseException) -> bool:
        return isinstance(error, OSError)


@pytest.mark.rule("R-CHILD-11", "R-CHILD-14")
async def test_a_fatal_error_in_a_grandchild_ends_just_that_run(autojump_clock: MockClock) -> None:
    budget = Budget(Limits(turns=None))
    leaf_model = Plays(
        [tool_call_turn([tool_call("fail"), tool_call("slow")], usage=EACH), final_answer("never")]
    )
    tools = _Fatal([timed(1, failing_tool(OSError("disk"))), slow_tool(9)])
    leaf = clerk([], name="leaf", model=leaf_model, tools=tools)
    middle = clerk(
        [tool_call_turn([tool_call("leaf", {"task": "x"})], usage=EACH), final_answer("lost it")],
        [as_tool(leaf)],
    )
    kit = caller(middle, ["a"], budget=budget)
    assert (await kit.run()).stop_reason == "done"
    assert trio.current_time() == 1
    assert results(kit) == [{"success": True, "data": "lost it"}]
    [transcript] = leaf_model.transcripts.values()
    assert [each["kind"] for each in answers(transcript).values()] == ["interrupted"] * 2
    assert (budget.turns, budget.live_children) == (5, 0)


@pytest.mark.rule("R-CHILD-14")
async def test_an_interrupt_in_a_child_goes_all_the_way_up() -> None:
    leaf = clerk(
        [tool_call_turn([tool_call("fail")])], [failing_tool(KeyboardInterrupt())], name="leaf"
    )
    middle = clerk([tool_call_turn([tool_call("leaf", {"task": "x"})])], [as_tool(leaf)])
    kit = caller(middle, ["a"])
    with pytest.raises(KeyboardInterrupt):
        await kit.run()
    assert [each["kind"] for each in results(kit)] == ["interrupted"]


# -- events ------------------------------------------------------------------------------------


@pytest.mark.rule("R-CHILD-15")
async def test_a_childs_events_are_told_in_their_order_with_its_path(
    autojump_clock: MockClock,
) -> None:
    leaf = clerk([timed(1, final_answer("leaf"))], name="leaf")
    middle = clerk(
        [tool_call_turn([tool_call("leaf", {"task": "x"}, id="down")]), final_answer("ok")],
        [as_tool(leaf)],
    )
    kit = caller(middle, ["a", "b"])
    await kit.run()
    children = [each for each in kit.events if isinstance(each, ChildEvent)]
    assert {each.run_id for each in kit.events} == {"run_1"}
    assert {(each.path, each.call_id) for each in children} == {
        (path, call) for path in (("clerk",), ("clerk", "leaf")) for call in ("call_1", "call_2")
    }
    assert not any(isinstance(each.event, ChildEvent) for each in children)
    # Within the call, and as the child told it: its own run, its own turn, its own time.
    for call_id in ("call_1", "call_2"):
        mine = [each for each in kit.events if getattr(each, "call_id", None) == call_id]
        assert isinstance(mine[0], ToolStarted)
        assert isinstance(mine[-1], ToolFinished)
        inner = [each.event for each in mine[1:-1] if isinstance(each, ChildEvent)]
        assert len(inner) == len(mine) - 2
        assert isinstance(inner[0], RunStarted)
        assert isinstance(inner[-1], RunFinished)
        assert len({each.run_id for each in inner}) == 2
        assert [each.at for each in inner] == sorted(each.at for each in inner)
        said = [(each.text, each.at) for each in inner if isinstance(each, AssistantMessage)]
        assert said == [("leaf", 1.0), ("ok", 1.0)]
    assert_events_balance(told(kit))


@pytest.mark.rule("R-CHILD-15")
async def test_nobody_has_to_read_a_childs_events() -> None:
    delegate = clerk([final_answer("ok")])
    turns, tools = calling(delegate, ["a"])
    result = await run(scripted_model(turns), "Go.", tools=tools)
    assert result.text == "Done."


# -- the ledger --------------------------------------------------------------------------------


@pytest.mark.rule("R-LIMIT-04", "R-CHILD-09")
async def test_what_a_tree_used_is_on_one_ledger_and_the_callers_own_figures_its_own() -> None:
    budget = Budget(Limits(turns=None))
    asks = tool_call_turn([tool_call("count")], usage=EACH)
    delegate = clerk([asks, final_answer("ok", usage=EACH)], [counting_tool()])
    kit = caller(delegate, ["a", "b"], budget=budget)
    result = await kit.run()
    assert (budget.turns, budget.tool_calls, budget.usage.tokens) == (6, 4, 30)
    assert (budget.runs, budget.live_children) == (4, 0)
    assert (result.stats.turns, result.stats.usage.tokens) == (2, 10)


class _Slow:
    """A model whose answers take a second and cost five tokens."""

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn:
        await trio.sleep(1)
        return tool_call_turn([tool_call("count", id=f"c{request.turn}")], usage=EACH)


@pytest.mark.rule("R-LIMIT-04")
async def test_a_limit_of_the_caller_ends_its_children(autojump_clock: MockClock) -> None:
    delegate = clerk([], [counting_tool()], model=_Slow(), limits=Limits(turns=None))
    turns, tools = calling(delegate, ["a", "b", "c"])
    kit = run_harness(turns, tools=tools, limits=Limits(tokens=60))
    result = await kit.run()
    assert result.stop_reason == "budget"
    assert all("used up its budget" in str(each["error"]) for each in results(kit))
    last = kit.events[-1]
    assert isinstance(last, RunFinished)
    spent = sum(
        each.event.usage.tokens
        for each in kit.events
        if isinstance(each, ChildEvent) and isinstance(each.event, RunFinished)
    )
    assert 60 <= spent + 5 < 60 + 3 * 5


@pytest.mark.rule("R-LOOP-24", "R-CHILD-14")
async def test_a_store_that_fails_far_below_ends_every_run_above(
    autojump_clock: MockClock,
) -> None:
    @tool
    async def pay() -> str:
        """Pay, and lose track of it."""
        raise StoreError("store.unreachable", "gone")

    inner = clerk([tool_call_turn([tool_call("pay")]), final_answer("never")], [pay])
    middle = attrs.evolve(
        clerk([tool_call_turn([tool_call("clerk", {"task": "x"})]), final_answer("never")]),
        name="middle",
        tools=[as_tool(inner)],
    )
    kit = run_harness(
        [tool_call_turn([tool_call("middle", {"task": "x"})]), final_answer("never")],
        tools=[as_tool(middle)],
    )
    with pytest.raises(StoreError, match=r"^gone$"):
        await kit.run()
    (answer,) = answers(kit.states[0].messages).values()
    assert answer["kind"] == "interrupted"
