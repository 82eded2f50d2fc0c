"""Three levels of runs, stopped at every cut point: nothing of them goes on."""

import json
from collections.abc import Callable

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import JSON, Budget, Limits, ModelRequest, ModelTurn, Run, Tool, TurnStream, Usage
from harness.delegation import ChainRule, Delegate, as_tool
from harness.events import ChildEvent, RunFinished
from harness.testing import (
    RUN_INVARIANTS,
    RunHarness,
    Scene,
    assert_no_tasks_left,
    cancel_everywhere,
    final_answer,
    run_harness,
    run_virtual,
    slow_tool,
    streamed,
    timed,
    tool_call,
    tool_call_turn,
)
from tests.delegation.trees import Level, check_tree, told

EACH = Usage(input=3, output=1)


def three_levels(
    scene: Scene | None, budget: Budget, planners_at_once: int
) -> tuple[RunHarness, list[Level]]:
    """Planners side by side, two clerks below each, and tools in flight at every level."""
    reads = [tool_call("slow"), tool_call("polite")]
    clerks = Level(
        "clerk",
        [
            streamed(tool_call_turn(reads, "Let me look.", usage=EACH), size=4),
            timed(1, streamed(final_answer("Found.", usage=EACH), size=2)),
        ],
        [slow_tool(1), slow_tool(2, "polite", grace=1)],
        scene,
    )
    plans = [tool_call("clerk", {"task": task}) for task in "ab"]
    planners = Level(
        "planner",
        [
            tool_call_turn([*plans, tool_call("slow")], usage=EACH),
            streamed(final_answer("Planned.", usage=EACH)),
        ],
        [clerks.as_tool(), slow_tool(1)],
        scene,
    )
    asks = [tool_call("planner", {"task": f"part {n}"}) for n in range(planners_at_once)]
    kit = run_harness(
        [
            tool_call_turn([*asks, tool_call("slow")], usage=EACH),
            final_answer("Done.", usage=EACH),
        ],
        tools=[planners.as_tool(), slow_tool(1)],
        budget=budget,
        scene=scene,
    )
    return kit, [planners, clerks]


def check_ledger(kit: RunHarness, budget: Budget) -> None:
    """Whatever a turn took and did not use was given back; what was spent is there."""
    ended = [each for each in told(kit) if isinstance(each, RunFinished)]
    assert budget.live_children == 0
    assert budget.turns == sum(each.turns for each in ended)
    assert budget.usage.tokens == sum(each.usage.tokens for each in ended)


def end_deadline(opened: Run) -> None:
    """Let the run's deadline come now."""
    opened._stop.deadline = opened._work.deadline = trio.current_time()


STOPS: dict[str, Callable[[Run], None]] = {
    "abort": lambda opened: opened.abort(),
    "abort with grace": lambda opened: opened.abort(grace=0.5),
    "deadline": end_deadline,
}


@pytest.mark.rule("R-CHILD-09", "R-CHILD-11", "R-PROM-01", "R-PROM-02", "R-PROM-03")
@pytest.mark.parametrize(
    ("stop", "planners_at_once"),
    [*((stop, 1) for stop in ("outer", *STOPS)), pytest.param("outer", 2, marks=pytest.mark.slow)],
)
def test_a_tree_of_runs_can_be_stopped_everywhere(stop: str, planners_at_once: int) -> None:
    async def scenario(scene: Scene) -> None:
        budget = Budget(Limits(turns=None))
        kit, levels = three_levels(scene, budget, planners_at_once)

        @scene.afterwards
        def check() -> None:
            check_tree(kit, levels)
            check_ledger(kit, budget)

        async with kit.open() as opened:
            if stop != "outer":
                scene.on_cut(lambda: STOPS[stop](opened))
            await opened.wait()
        assert_no_tasks_left()

    report = cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=190 * planners_at_once)
    assert report.cancelled if stop == "outer" else report.completed


@pytest.mark.rule("R-CHILD-11", "R-TRIO-05")
@pytest.mark.parametrize("at", [0.5, 1.5])
async def test_a_stop_reaches_every_level_in_one_instant(at: float, autojump_clock: object) -> None:
    kit, _ = three_levels(None, Budget(Limits(turns=None)), 2)
    async with kit.open() as opened:
        await trio.sleep(at)
        opened.abort()
        await opened.wait()
    # A clerk's polite call has a second of grace, counted from the stop, not level by level.
    assert trio.current_time() == min(at + 1, 2)
    ends = [
        (each.path, each.event.stop_reason)
        for each in kit.events
        if isinstance(each, ChildEvent) and isinstance(each.event, RunFinished)
    ]
    assert sorted(ends) == [
        *[(("planner",), "cancelled")] * 2,
        *[(("planner", "clerk"), "cancelled")] * 4,
    ]


# -- limits of a tree --------------------------------------------------------------------------


@attrs.define(eq=False)
class _Grower:
    """A model that starts children as its task says, then answers; each turn takes and costs.

    A task is ``[seconds, cost, tasks of the children]`` as JSON.
    """

    budget: Budget
    now: int = 0
    most: int = 0
    """How many completions were in progress at a time."""

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn:
        limit = self.budget.limits.tokens
        assert limit is not None
        assert self.budget.usage.tokens < limit
        self.now += 1
        self.most = max(self.most, self.now)
        seconds, cost, children = json.loads(str(request.messages[0]["content"]))
        try:
            await trio.sleep(seconds)
        finally:
            self.now -= 1
        usage = Usage(output=cost)
        if request.turn or not children:
            return final_answer("ok", usage=usage)
        calls = [
            tool_call("grow", {"task": json.dumps(each)}, id=f"c{place}")
            for place, each in enumerate(children)
        ]
        return tool_call_turn(calls, usage=usage)


def grown(children: st.SearchStrategy[list[JSON]]) -> st.SearchStrategy[JSON]:
    return st.tuples(st.integers(0, 3), st.integers(0, 9), children).map(list)


leaves = grown(st.just([]))
lower = grown(st.lists(leaves, max_size=4))
trees = grown(st.lists(grown(st.lists(lower, max_size=3)), max_size=3))
"""Trees of at most three levels below the root."""


@pytest.mark.rule("R-LIMIT-04")
@settings(max_examples=60, deadline=None)
@given(trees, st.integers(1, 60), st.integers(1, 20), st.integers(0, 20))
def test_a_tree_passes_a_limit_by_what_was_in_progress_and_no_more(
    tree: JSON, tokens: int, turns: int, calls: int
) -> None:
    async def main() -> None:
        budget = Budget(Limits(turns=turns, tokens=tokens, tool_calls=calls))
        model = _Grower(budget)
        rule = ChainRule(allow_recursion=True, max_live_children=9, max_runs_in_tree=99)
        tools: list[Tool] = []
        for _ in range(3):
            delegate = Delegate(
                name="grow", description="Grows.", model=model, tools=tools, rule=rule
            )
            tools = [as_tool(delegate)]
        kit = run_harness([], model=model, tools=tools, budget=budget)
        await kit.run(json.dumps(tree))
        check_ledger(kit, budget)
        assert budget.turns <= turns
        assert budget.tool_calls <= calls
        # Every completion began while there was something left, so only those that were then in
        # progress can have passed the limit.
        assert budget.usage.tokens < tokens + 9 * max(model.most, 1)

    run_virtual(main)
