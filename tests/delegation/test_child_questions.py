"""A child that asks: its parent waits, and the reply goes down to whoever asked."""

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness import (
    JSON,
    Admission,
    Batch,
    Budget,
    Limits,
    RunState,
    Suspend,
    Tool,
    Usage,
    tool,
)
from harness._messages import WITHDRAWN_TEXT
from harness.checkpoints import checkpoint_of, fork_checkpoint, state_of
from harness.delegation import ChainRule, ChildQuestion, Delegate, as_tool, asked_by
from harness.delegation._question import paused_child
from harness.events import RunStarted, SuspendWithdrawn
from harness.kernel import Used
from harness.testing import (
    RUN_INVARIANTS,
    RunHarness,
    Scene,
    ScriptItem,
    assert_provider_valid,
    cancel_everywhere,
    counting_tool,
    final_answer,
    run_harness,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList
from tests.delegation.trees import Level, Plays, check_tree, stored_and_loaded, told
from tests.kernel.reading import answers

EACH = Usage(input=3, output=2)
TOMORROW = datetime(2031, 1, 1, 6, tzinfo=UTC)


@tool
async def ask(about: str) -> Suspend:
    """Ask a person."""
    await trio.sleep(1)
    return Suspend.answer(f"Really {about}?", {"about": about})


@tool
async def nap() -> Suspend:
    """Sleep until tomorrow."""
    return Suspend.wake(TOMORROW)


def asking(*subjects: str) -> ScriptItem:
    return tool_call_turn([tool_call("ask", {"about": each}) for each in subjects], usage=EACH)


def clerk(
    turns: Sequence[ScriptItem], tools: Sequence[Tool] = (ask,), **fields: object
) -> Delegate:
    delegate = Delegate(name="clerk", description="Does a task.", model=Plays(turns), tools=tools)
    return attrs.evolve(delegate, **fields)  # type: ignore[arg-type]  # fields by name


def above(delegate: Delegate, name: str) -> Delegate:
    """An agent that passes its one task on to *delegate*, and says what it heard."""
    turns = [
        tool_call_turn([tool_call(delegate.name, {"task": "below"})], usage=EACH),
        final_answer(f"{name} is done", usage=EACH),
    ]
    return Delegate(name=name, description="Plans.", model=Plays(turns), tools=[as_tool(delegate)])


def caller(delegate: Delegate, tasks: int = 1, budget: Budget | None = None) -> RunHarness:
    calls = [tool_call(delegate.name, {"task": f"part {n}"}) for n in range(tasks)]
    turns = [tool_call_turn(calls, usage=EACH), final_answer("Done.", usage=EACH)]
    return run_harness([], model=Plays(turns), tools=[as_tool(delegate)], budget=budget)


def open_question(state: RunState, call_id: str = "call_1") -> Suspend:
    assert state.pause is not None
    return state.pause.suspends[call_id]


def results(state: RunState) -> list[JSON]:
    return [each.get("data", each.get("error")) for each in answers(state.messages).values()]


def run_ids(delegate: Delegate) -> list[str]:
    return list(cast(Plays, delegate.model).transcripts)


@pytest.mark.rule("R-CHILD-10")
async def test_a_childs_question_is_its_parents_and_the_reply_goes_down(
    autojump_clock: MockClock,
) -> None:
    delegate = clerk([asking("pay"), final_answer("paid")])
    kit = caller(delegate)
    result = await kit.run()
    assert result.stop_reason == "waiting_for_reply"
    state = result.state
    question = open_question(state)
    [run_id] = run_ids(delegate)
    assert question.question == "Really pay?"
    assert isinstance(question.payload, dict)
    assert question.payload["run_id"] == run_id
    assert question.payload["call_id"] == "call_1"
    assert asked_by(question) == ChildQuestion(
        path=("clerk",), run_id=run_id, call_id="call_1", payload={"about": "pay"}
    )
    state.reply("call_1", "yes")
    result = await kit.run(state)
    assert (result.stop_reason, results(state)) == ("done", ["paid"])
    [transcript] = cast(Plays, delegate.model).transcripts.values()
    assert [each["data"] for each in answers(transcript).values()] == ["yes"]
    assert_provider_valid(transcript)
    assert run_ids(delegate) == [run_id]


@pytest.mark.rule("R-CHILD-10", "R-CKPT-02")
@pytest.mark.parametrize("between", [lambda state: state, stored_and_loaded])
async def test_a_question_at_depth_three_is_answered_from_the_top(
    between: Callable[[RunState], RunState], autojump_clock: MockClock
) -> None:
    def tree() -> tuple[Delegate, Delegate, Delegate]:
        scribe = clerk([asking("one"), asking("two"), final_answer("written")], name="scribe")
        planner = above(scribe, "planner")
        return above(planner, "chief"), planner, scribe

    chief, planner, scribe = tree()
    kit = caller(chief)
    result = await kit.run()
    state = result.state
    for subject in ("one", "two"):
        question = open_question(state)
        assert question.question == f"Really {subject}?"
        asker = asked_by(question)
        assert asker is not None
        assert (asker.path, asker.payload) == (("chief", "planner", "scribe"), {"about": subject})
        assert asker.run_id == run_ids(scribe)[0]
        state = between(state)
        if between is stored_and_loaded:  # as in another process: nothing is left of this one
            chief, planner, scribe = tree()
            kit = caller(chief)
        state.reply("call_1", f"yes, {subject}")
        result = await kit.run(state)
    assert (result.stop_reason, results(state)) == ("done", ["chief is done"])
    for delegate, heard in (
        (chief, ["planner is done"]),
        (planner, ["written"]),
        (scribe, ["yes, one", "yes, two"]),
    ):
        [transcript] = cast(Plays, delegate.model).transcripts.values()
        assert [each["data"] for each in answers(transcript).values()] == heard


@pytest.mark.rule("R-CHILD-10")
async def test_nested_questions_do_not_escape_each_other(autojump_clock: MockClock) -> None:
    sizes = []
    delegate = clerk([asking('"quoted"'), final_answer("ok")])
    for name in ("a", "b", "c"):
        state = (await caller(delegate).run()).state
        payload = open_question(state).payload
        sizes.append(len(str(payload)))
        delegate = above(delegate, name)
    steps = [later - earlier for earlier, later in itertools.pairwise(sizes)]
    assert max(steps) - min(steps) < 20  # each level adds its own transcript and no more


@pytest.mark.rule("R-CHILD-10")
@pytest.mark.parametrize("order", [("call_1", "call_2"), ("call_2", "call_1")])
async def test_two_children_ask_side_by_side_and_are_answered_in_any_order(
    order: tuple[str, str], autojump_clock: MockClock
) -> None:
    delegate = clerk([asking("pay"), final_answer("paid")])
    kit = caller(delegate, tasks=2)
    result = await kit.run()
    state = result.state
    assert state.pause is not None
    assert state.pause.open == ("call_1", "call_2")
    for call_id in order:
        state.reply(call_id, f"yes to {call_id}")
        result = await kit.run(state)
    assert (result.stop_reason, results(state)) == ("done", ["paid", "paid"])
    heard = [
        [each["data"] for each in answers(transcript).values()]
        for transcript in cast(Plays, delegate.model).transcripts.values()
    ]
    assert heard == [["yes to call_1"], ["yes to call_2"]]


@pytest.mark.rule("R-CHILD-16")
async def test_questions_of_one_child_are_asked_one_after_the_other(
    autojump_clock: MockClock,
) -> None:
    delegate = clerk([asking("a", "b", "c"), final_answer("ok")])
    kit = caller(delegate)
    state = (await kit.run()).state
    heard = []
    while state.pause is not None:
        heard.append(open_question(state).question)
        state.reply("call_1", f"yes {len(heard)}")
        state = (await kit.run(state)).state
    assert heard == ["Really a?", "Really b?", "Really c?"]
    [transcript] = cast(Plays, delegate.model).transcripts.values()
    assert [each["data"] for each in answers(transcript).values()] == ["yes 1", "yes 2", "yes 3"]


@pytest.mark.rule("R-CHILD-16")
async def test_an_approval_that_a_childs_toolset_asks_for_is_asked_too() -> None:
    class Approved(ToolList):
        async def admit(self, batch: Batch) -> Admission:
            asked = {
                call.id: Suspend.answer(f"Run {call.id}?")
                for call in batch.calls
                if call.id not in batch.replies
            }
            return Admission(decisions=asked)

    counting = counting_tool()
    delegate = clerk(
        [tool_call_turn([tool_call("count"), tool_call("count")]), final_answer("ok")],
        tools=cast("Sequence[Tool]", Approved([counting])),
    )
    kit = caller(delegate)
    result = await kit.run()
    state = result.state
    for call_id in ("call_1", "call_2"):
        assert open_question(state).question == f"Run {call_id}?"
        assert not counting.visits
        state.reply("call_1", True)
        result = await kit.run(state)
    assert (result.stop_reason, counting.started) == ("done", 2)


@pytest.mark.rule("R-CHILD-16")
async def test_a_child_that_sleeps_asks_to_be_woken() -> None:
    delegate = clerk([tool_call_turn([tool_call("nap")]), final_answer("rested")], [nap])
    kit = caller(delegate)
    result = await kit.run()
    assert result.stop_reason == "waiting_for_reply"
    question = open_question(result.state)
    assert question.question == (
        "The agent 'clerk' sleeps until 2031-01-01T06:00:00+00:00. Any reply wakes it."
    )
    [run_id] = run_ids(delegate)
    assert asked_by(question) == ChildQuestion(
        path=("clerk",), run_id=run_id, call_id=None, at=TOMORROW
    )
    result.state.reply("call_1", None)
    assert (await kit.run(result.state)).stop_reason == "done"
    assert results(result.state) == ["rested"]


@pytest.mark.rule("R-CHILD-10")
async def test_a_child_that_goes_on_is_the_same_run_within_the_same_limits(
    autojump_clock: MockClock,
) -> None:
    budget = Budget(Limits(turns=None))
    turns = [asking("a"), asking("b"), final_answer("never", usage=EACH)]
    delegate = clerk(turns, limits=Limits(turns=2))
    kit = caller(delegate, budget=budget)
    result = await kit.run()
    state = result.state
    for leg in (1, 2):
        assert (budget.runs, budget.live_children) == (3, 0)
        head = paused_child(open_question(state).payload).checkpoint.head
        assert (head.stats.turns, head.limits) == (leg, delegate.limits)
        state.reply("call_1", "yes")
        result = await kit.run(state)
    assert result.stop_reason == "done"
    assert str(results(state)[0]).startswith("The agent 'clerk' used up its turns")
    assert (budget.runs, budget.live_children) == (3, 0)
    assert (budget.turns, budget.usage.tokens) == (4, 20)
    legs = [
        each.leg for each in told(kit) if isinstance(each, RunStarted) and each.run_id != "run_1"
    ]
    assert legs == [1, 2, 3]


@pytest.mark.rule("R-CHILD-10")
async def test_a_child_was_admitted_when_it_began_and_is_not_asked_again(
    autojump_clock: MockClock,
) -> None:
    delegate = clerk([asking("a"), final_answer("ok")])
    kit = caller(delegate)
    state = (await kit.run()).state
    state.reply("call_1", "yes")
    stricter = attrs.evolve(delegate, rule=attrs.evolve(delegate.rule, max_runs_in_tree=0))
    result = await kit.run(state, tools=[as_tool(stricter)])
    assert (result.stop_reason, results(state)) == ("done", ["ok"])


@pytest.mark.rule("R-CHILD-12")
async def test_the_child_of_a_fork_is_a_run_of_its_own(autojump_clock: MockClock) -> None:
    delegate = clerk([asking("a"), final_answer("ok")])
    kit = caller(delegate)
    state = (await kit.run()).state
    fork = stored_and_loaded(state)
    fork.run_id = "fork"
    fork.reply("call_1", "yes")
    assert (await kit.run(fork)).stop_reason == "done"
    assert len(run_ids(delegate)) == 2


# -- withdrawn ---------------------------------------------------------------------------------


@pytest.mark.rule("R-CHILD-11")
async def test_a_parent_that_is_aborted_while_it_waits_takes_the_child_with_it(
    autojump_clock: MockClock,
) -> None:
    budget = Budget(Limits(turns=None))
    delegate = clerk([asking("a"), final_answer("never")])
    kit = caller(delegate, budget=budget)
    state = (await kit.run()).state
    async with kit.open(state) as opened:
        opened.abort()
    assert opened.result.stop_reason == "aborted"
    assert results(state) == [WITHDRAWN_TEXT]
    assert [each.call_id for each in kit.events if isinstance(each, SuspendWithdrawn)] == ["call_1"]
    assert len([each for each in told(kit) if isinstance(each, RunStarted)]) == 3
    assert budget.live_children == 0


@pytest.mark.rule("R-CHILD-10", "R-CHILD-11", "R-PROM-02", "R-PROM-03")
@pytest.mark.parametrize("stop", ["outer", "abort"])
def test_a_tree_that_asks_and_goes_on_can_be_stopped_everywhere(stop: str) -> None:
    async def scenario(scene: Scene) -> None:
        budget = Budget(Limits(turns=None))
        turns = [asking("a"), timed(1, final_answer("ok", usage=EACH))]
        low = Level("scribe", turns, [ask], scene)
        calls = [tool_call("scribe", {"task": "x"}), tool_call("slow")]
        turns = [tool_call_turn(calls, usage=EACH), final_answer("ok", usage=EACH)]
        high = Level("planner", turns, [low.as_tool(), slow_tool(2)], scene)
        kit = run_harness(
            [
                tool_call_turn([tool_call("planner", {"task": "y"})], usage=EACH),
                final_answer("Done.", usage=EACH),
            ],
            tools=[high.as_tool()],
            budget=budget,
            scene=scene,
        )

        @scene.afterwards
        def check() -> None:
            assert budget.live_children == 0
            check_tree(kit, [high, low])

        state: RunState | None = None
        for _ in range(2):
            async with kit.open("Go." if state is None else state) as opened:
                if stop == "abort":
                    scene.on_cut(opened.abort)
                await opened.wait()
            state = opened.state
            if state.pause is None or scene.stopped:
                return
            state.reply("call_1", "yes")

    report = cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=100)
    assert report.cancelled or stop == "abort"


# -- what comes back ---------------------------------------------------------------------------


@pytest.mark.rule("R-CHILD-16")
@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "the record does not load at its root: Expected `object`, got `null`"),
        ({"type": "child"}, "missing required field `agent`"),
    ],
)
async def test_a_reply_whose_payload_is_no_child_fails_the_call(
    payload: JSON, reason: str, autojump_clock: MockClock
) -> None:
    delegate = clerk([asking("a"), final_answer("never")])
    kit = caller(delegate)
    state = (await kit.run()).state
    assert state.pause is not None
    state.pause.suspends["call_1"] = Suspend.answer("?", payload)
    state.reply("call_1", "yes")
    await kit.run(state)
    [answer] = results(state)
    assert reason in str(answer)


@pytest.mark.rule("R-CHILD-16")
async def test_a_child_goes_on_as_the_agent_that_it_is(autojump_clock: MockClock) -> None:
    delegate = clerk([asking("a"), final_answer("never")])
    kit = caller(delegate)
    state = (await kit.run()).state
    payload = open_question(state).payload
    assert isinstance(payload, dict)
    payload["agent"] = "scribe"
    state.reply("call_1", "yes")
    await kit.run(state)
    [answer] = results(state)
    assert str(answer).endswith("it is a child of 'scribe', expected 'clerk'")


@pytest.mark.rule("R-LIMIT-04", "R-CHILD-03")
async def test_what_children_used_counts_in_the_next_leg_and_in_another_process(
    autojump_clock: MockClock,
) -> None:
    turns = [asking("a"), asking("b"), asking("c"), final_answer("never")]
    kit = caller(clerk(turns, rule=ChainRule(max_runs_in_tree=2)))
    limits = Limits(tokens=16)
    state = stored_and_loaded((await kit.run(limits=limits)).state)  # 5 of its own, 5 below
    assert (state.below.turns, state.below.usage.tokens, state.below.runs) == (1, 5, 1)
    state.reply("call_1", "yes")
    state = stored_and_loaded((await kit.run(state, limits=limits)).state)  # 10 below
    state.reply("call_1", "yes")
    result = await kit.run(state, limits=limits)
    assert result.stop_reason == "budget"
    assert "used up its budget" in str(results(result.state)[0])


async def test_a_fork_and_a_new_run_have_nothing_below_them(autojump_clock: MockClock) -> None:
    kit = caller(clerk([asking("a"), final_answer("never")]))
    state = (await kit.run()).state
    forked = fork_checkpoint(checkpoint_of(state), "other", limits=Limits(), bindings=None)
    assert state_of(forked).below == Used()
    assert RunState(run_id="new").below == Used()
