"""What a run may use: its limits at their edges, and ledgers of trees of runs."""

import math

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from harness import (
    Budget,
    CallContext,
    Halt,
    HarnessError,
    Journal,
    Limits,
    Message,
    ModelRequest,
    ModelTurn,
    RunResult,
    Supervisor,
    Suspend,
    TurnStream,
    Usage,
    tool,
    user_message,
)
from harness._messages import NOT_RUN_TEXT
from harness.events import ToolStarted
from harness.testing import (
    RunHarness,
    assert_provider_valid,
    final_answer,
    run_harness,
    run_virtual,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from tests.kernel.carrying import carried
from tests.kernel.reading import answers
from tests.kernel.recorder import Recorder

NOT_RUN = {"success": False, "kind": "not_run", "error": NOT_RUN_TEXT}


NO_USAGE = Usage()


def asking(calls: int = 1, usage: Usage = NO_USAGE) -> ModelTurn:
    return tool_call_turn([tool_call("look") for _ in range(calls)], usage=usage)


# -- the bounds themselves ---------------------------------------------------------------------


@pytest.mark.rule("R-LIMIT-01")
def test_thirty_turns_are_the_only_limit_by_default() -> None:
    assert attrs.astuple(Limits()) == (30, None, None, None)


@pytest.mark.rule("R-LIMIT-01")
@pytest.mark.parametrize("field", ["turns", "tool_calls", "tokens"])
@pytest.mark.parametrize("value", [True, False, -1, 1.0, math.nan, math.inf, "3", b"3", object()])
def test_a_count_that_is_none_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^Limits\.{field} is .*, expected "):
        Limits(**{field: value})  # type: ignore[arg-type]  # what is being tested


@pytest.mark.rule("R-LIMIT-01")
@pytest.mark.parametrize("value", [True, -1, -0.5, math.nan, math.inf, -math.inf, "3", object()])
def test_a_cost_that_is_no_amount_is_refused_by_its_name(value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^Limits\.cost_cents is .*, expected "):
        Limits(cost_cents=value)  # type: ignore[arg-type]  # what is being tested


@pytest.mark.rule("R-LIMIT-01")
def test_none_and_nought_are_limits() -> None:
    assert Limits(turns=None, tool_calls=None, tokens=None, cost_cents=None).turns is None
    assert Limits(turns=0, tool_calls=0, tokens=0, cost_cents=0).cost_cents == 0


@pytest.mark.rule("R-LIMIT-01")
async def test_the_thirty_first_turn_does_not_begin() -> None:
    kit = run_harness([asking() for _ in range(31)])
    result = await kit.run()
    assert (result.stop_reason, result.stats.turns) == ("turn_limit", 30)


@pytest.mark.rule("R-LIMIT-01")
@pytest.mark.parametrize("limits", [None, 7, {"turns": 3}])
def test_a_ledger_has_limits(limits: object) -> None:
    with pytest.raises(TypeError, match=r"^Budget\.limits is .*, expected Limits$"):
        Budget(limits)  # type: ignore[arg-type]  # what is being tested


@pytest.mark.rule("R-LIMIT-01")
@pytest.mark.parametrize("parent", [7, Limits(), "budget"])
def test_a_ledger_hangs_below_a_ledger_or_nothing(parent: object) -> None:
    with pytest.raises(TypeError, match=r"^Budget\.parent is .*, expected a Budget or None$"):
        Budget(Limits(), parent=parent)  # type: ignore[arg-type]  # what is being tested


# -- each limit at its edge --------------------------------------------------------------------

EACH = Usage(input=8, cached_input=6, output=2, cost_cents=2.5)
"""Ten tokens: what was cached is a part of the input and counts once."""


@pytest.mark.rule("R-LIMIT-02")
@pytest.mark.parametrize(
    ("limits", "reason", "turns"),
    [
        (Limits(turns=3), "done", 3),
        (Limits(turns=2), "turn_limit", 2),
        (Limits(turns=1), "turn_limit", 1),
        (Limits(turns=0), "turn_limit", 0),
        (Limits(tokens=21), "done", 3),
        (Limits(tokens=20), "budget", 2),
        (Limits(tokens=19), "budget", 2),
        (Limits(tokens=11), "budget", 2),
        (Limits(tokens=0), "budget", 0),
        (Limits(cost_cents=5.01), "done", 3),
        (Limits(cost_cents=5.0), "budget", 2),
        (Limits(cost_cents=2.51), "budget", 2),
        (Limits(cost_cents=0), "budget", 0),
        (Limits(tool_calls=2), "done", 3),
        (Limits(tool_calls=1), "budget", 2),
        (Limits(tool_calls=0), "budget", 1),
        (Limits(turns=2, tokens=20), "budget", 2),
        (Limits(turns=3, tokens=20), "budget", 2),
        (Limits(turns=2, tokens=21), "turn_limit", 2),
        (Limits(turns=0, tokens=0, cost_cents=0, tool_calls=0), "turn_limit", 0),
    ],
)
async def test_a_run_ends_at_the_edge_of_its_first_limit(
    limits: Limits, reason: str, turns: int
) -> None:
    answer = final_answer("Done.", usage=EACH)
    kit = run_harness([asking(usage=EACH), asking(usage=EACH), answer], limits=limits)
    result = await kit.run()
    assert (result.stop_reason, result.stats.turns) == (reason, turns)
    assert kit.script.remaining == 3 - turns
    assert_provider_valid(result.state.messages)


@pytest.mark.rule("R-LIMIT-02")
async def test_a_run_that_is_done_at_the_edge_is_done() -> None:
    kit = run_harness([final_answer("Done.", usage=EACH)], limits=Limits(turns=1, tokens=10))
    assert (await kit.run()).stop_reason == "done"


class _Pushing(Supervisor):
    def __init__(self) -> None:
        self.nudged = 0

    async def nudge(self, step: object) -> list[Message]:
        self.nudged += 1
        return [user_message("Go on.")]


@pytest.mark.rule("R-LIMIT-02")
@pytest.mark.parametrize("limits", [Limits(tokens=10), Limits(cost_cents=2.5), Limits(turns=1)])
async def test_nobody_is_asked_for_more_when_there_is_no_room_for_it(limits: Limits) -> None:
    supervisor = _Pushing()
    kit = run_harness([final_answer("Done.", usage=EACH)], limits=limits, supervisor=supervisor)
    result = await kit.run()
    assert (result.stop_reason, supervisor.nudged) == ("done", 0)


@pytest.mark.rule("R-LIMIT-02")
async def test_a_stop_comes_before_every_limit() -> None:
    kit = run_harness([], limits=Limits(turns=0, tokens=0))
    async with kit.open() as run:
        run.request_stop()
        await run.wait()
    assert run.result.stop_reason == "aborted"


@pytest.mark.rule("R-LIMIT-02")
async def test_spend_that_is_no_turn_counts_against_the_limits() -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        stream.spend(Usage(input=100))
        return await kit.script.complete(request, stream)

    kit = run_harness([asking(), asking()], model=model, limits=Limits(tokens=101))
    result = await kit.run()
    assert (result.stop_reason, result.stats.turns) == ("budget", 2)
    assert result.stats.usage.tokens == 200


@pytest.mark.rule("R-LIMIT-02")
async def test_a_completion_that_raises_takes_no_turn() -> None:
    budget = Budget(Limits())
    kit = run_harness([asking(usage=EACH), OSError("gone")], budget=budget)
    with pytest.raises(OSError, match=r"^gone$"):
        await kit.run()
    assert (budget.turns, budget.usage) == (1, EACH)


@pytest.mark.rule("R-LIMIT-02", "R-MODEL-03")
@pytest.mark.parametrize(
    "unusable", [final_answer("", usage=EACH), ModelTurn(message=user_message("I?"), usage=EACH)]
)
async def test_a_completion_that_is_unusable_takes_no_turn_and_has_cost_what_it_cost(
    unusable: ModelTurn,
) -> None:
    budget = Budget(Limits())
    kit = run_harness([unusable], budget=budget)
    with pytest.raises(HarnessError):
        await kit.run()
    assert (budget.turns, budget.usage) == (0, EACH)
    assert kit.states[0].usage.tokens == 10


@pytest.mark.rule("R-LIMIT-02")
async def test_a_completion_that_is_cut_gives_its_turn_back(autojump_clock: MockClock) -> None:
    budget = Budget(Limits(turns=1))
    for _ in range(2):
        kit = run_harness([timed(60, final_answer("Never."))], budget=budget)
        result = await kit.run(deadline=trio.current_time() + 1)
        assert (result.stop_reason, budget.turns) == ("deadline", 0)


# -- a batch -----------------------------------------------------------------------------------


class _Counting(Journal):
    def __init__(self) -> None:
        self.ordinals: list[int] = []

    async def accept_result(self, message: Message, ordinal: int) -> None:
        self.ordinals.append(ordinal)


@pytest.mark.rule("R-LIMIT-03")
@pytest.mark.parametrize(
    ("limits", "calls", "usage"),
    [
        (Limits(tool_calls=3), 4, Usage()),
        (Limits(tool_calls=0), 1, Usage()),
        (Limits(tokens=10), 2, EACH),
        (Limits(cost_cents=2.5), 2, EACH),
    ],
)
async def test_a_batch_that_there_is_no_room_for_is_answered_and_not_run(
    limits: Limits, calls: int, usage: Usage
) -> None:
    journal = _Counting()
    kit = run_harness([asking(calls, usage)], limits=limits, journal=journal)
    result = await kit.run()
    assert result.stop_reason == "budget"
    assert [*answers(result.state.messages).values()] == [NOT_RUN] * calls
    assert journal.ordinals == list(range(calls))
    assert not kit.ran
    assert not [event for event in kit.events if isinstance(event, ToolStarted)]
    assert (result.stats.tool_calls, result.state.tool_calls) == (0, calls)
    assert_provider_valid(result.state.messages)


@pytest.mark.rule("R-LIMIT-03")
async def test_a_batch_that_just_fits_runs_and_the_next_call_does_not() -> None:
    kit = run_harness([asking(2), asking(1), asking(1)], limits=Limits(tool_calls=3))
    result = await kit.run()
    assert result.stop_reason == "budget"
    assert len(kit.ran) == 3
    assert [*answers(result.state.messages).values()][3:] == [NOT_RUN]


@pytest.mark.rule("R-LIMIT-03")
async def test_a_limit_is_looked_at_before_anybody_is_asked_to_admit_a_batch() -> None:
    recorder = Recorder.make([], [slow_tool(0, "look")])
    kit = run_harness([asking(2)], tools=recorder.tools, limits=Limits(tool_calls=1))
    assert (await kit.run()).stop_reason == "budget"
    questions = {line.partition(" ")[0] for line in recorder.finish()}
    assert questions == {"definitions", "render"}


@pytest.mark.rule("R-LIMIT-03")
async def test_a_limit_that_is_reached_while_a_batch_runs_lets_it_run_to_its_end(
    autojump_clock: MockClock,
) -> None:
    @tool
    async def spend(context: CallContext[object]) -> str:
        budget = context.budget
        assert isinstance(budget, Budget)
        budget.post(Usage(input=100))
        return "spent"

    calls = [tool_call("spend"), tool_call("slow"), tool_call("spend")]
    kit = run_harness(
        [tool_call_turn(calls), final_answer("Never.")],
        tools=[spend, slow_tool(3)],
        limits=Limits(tokens=100),
    )
    result = await kit.run()
    assert (result.stop_reason, result.stats.turns) == ("budget", 1)
    assert len(kit.side_effects) == 3
    assert trio.current_time() == 3.0


# -- over legs and over trees ------------------------------------------------------------------


@pytest.mark.rule("R-LIMIT-01")
async def test_limits_hold_over_the_legs_of_a_run_and_ledgers_above_are_charged_once() -> None:
    budget = Budget(Limits())
    kit = run_harness([asking(usage=EACH) for _ in range(5)], budget=budget)
    limits = Limits(turns=4, tool_calls=4, tokens=41)
    first = await kit.run(limits=Limits(turns=3))
    second = await kit.run(carried(first.state), limits=limits)
    assert (second.stop_reason, second.stats.turns) == ("turn_limit", 1)
    assert (budget.turns, budget.tool_calls) == (4, 4)
    assert budget.usage == Usage(input=32, cached_input=24, output=8, cost_cents=10.0)


@st.composite
def trees(draw: st.DrawFn) -> list[Budget]:
    """Ledgers, each below an earlier one or below none."""
    bound = st.none() | st.integers(0, 12)
    ledgers: list[Budget] = []
    for _ in range(draw(st.integers(1, 6))):
        limits = Limits(
            turns=draw(bound), tool_calls=draw(bound), tokens=draw(bound), cost_cents=draw(bound)
        )
        ledgers.append(Budget(limits, parent=draw(st.sampled_from([None, *ledgers]))))
    return ledgers


deeds = st.tuples(
    st.integers(0, 5),
    st.one_of(
        st.just("turn"),
        st.integers(0, 5),
        st.builds(Usage, input=st.integers(0, 4), output=st.integers(0, 4)),
        st.builds(Usage, cost_cents=st.integers(0, 4).map(float)),
    ),
)
"""Who, and what: a turn, so many calls, or some spend."""


class _Book:
    """What one ledger should say, kept by adding up what happened at it and below it."""

    def __init__(self, ledger: Budget) -> None:
        self.limits = ledger.limits
        self.turns = 0
        self.calls = 0
        self.tokens = 0
        self.cost = 0.0

    def spent(self) -> bool:
        tokens, cost = self.limits.tokens, self.limits.cost_cents
        return (tokens is not None and self.tokens >= tokens) or (
            cost is not None and self.cost >= cost
        )


@pytest.mark.rule("R-LIMIT-04")
@settings(deadline=None)
@given(trees(), st.lists(deeds, max_size=40))
def test_every_ledger_of_a_tree_has_what_happened_at_it_and_below(
    ledgers: list[Budget], happened: list[tuple[int, object]]
) -> None:
    books = {id(ledger): _Book(ledger) for ledger in ledgers}
    for who, what in happened:
        ledger = ledgers[who % len(ledgers)]
        line = [books[id(each)] for each in above(ledger)]
        if isinstance(what, Usage):
            ledger.post(what)
            for book in line:
                book.tokens += what.input + what.output
                book.cost += what.cost_cents
        elif isinstance(what, int):
            fits = not any(
                book.spent()
                or (
                    book.limits.tool_calls is not None
                    and book.calls + what > book.limits.tool_calls
                )
                for book in line
            )
            assert ledger.take_calls(what) == fits
            for book in line:
                book.calls += what if fits else 0
        elif ledger.lack() is None:
            ledger.take_turn()
            for book in line:
                book.turns += 1
        for each in ledgers:
            book = books[id(each)]
            assert (each.turns, each.tool_calls) == (book.turns, book.calls)
            assert (each.usage.tokens, each.usage.cost_cents) == (book.tokens, book.cost)
            assert book.limits.turns is None or book.turns <= book.limits.turns
            assert book.limits.tool_calls is None or book.calls <= book.limits.tool_calls
            assert each.lack() == expected_lack([books[id(up)] for up in above(each)])


def above(ledger: Budget) -> list[Budget]:
    """Return the ledger and those above it."""
    return [ledger, *(above(ledger.parent) if ledger.parent is not None else [])]


def expected_lack(line: list[_Book]) -> str | None:
    own, *_ = line
    if own.limits.turns is not None and own.turns >= own.limits.turns:
        return "no_turns"
    full = any(book.limits.turns is not None and book.turns >= book.limits.turns for book in line)
    return "no_budget" if full or any(book.spent() for book in line) else None


@pytest.mark.rule("R-LIMIT-04")
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=6), min_size=1),
    st.integers(1, 40),
    st.integers(1, 12),
)
def test_runs_side_by_side_pass_a_shared_limit_by_what_was_in_progress_and_no_more(
    runs: list[list[tuple[int, int]]], tokens: int, turns: int
) -> None:
    async def main() -> None:
        budget = Budget(Limits(turns=turns, tokens=tokens))
        ended: list[RunResult] = []

        async def one(script: list[tuple[int, int]]) -> None:
            kit = run_harness(
                [
                    *(
                        timed(seconds, asking(usage=Usage(output=spend)))
                        for seconds, spend in script
                    ),
                    final_answer("Done."),
                ],
                budget=budget,
            )
            ended.append(await kit.run())

        async with trio.open_nursery() as nursery:
            for script in runs:
                nursery.start_soon(one, script)
        assert budget.usage.tokens == sum(each.stats.usage.tokens for each in ended)
        assert budget.turns == sum(each.stats.turns for each in ended) <= turns
        assert budget.usage.tokens < tokens + 9 * len(runs)
        assert {each.stop_reason for each in ended} <= {"done", "budget"}
        if budget.turns < turns and budget.usage.tokens < tokens:
            assert {each.stop_reason for each in ended} == {"done"}

    run_virtual(main)


async def delegated(child: RunHarness, limits: Limits, child_limits: Limits) -> "_Delegated":
    """Run a parent under *limits* that asks *child* for help once."""
    parent = Budget(limits)
    seen: list[tuple[str, int, int, int]] = []

    @tool(pool=None)
    async def delegate(context: CallContext[object]) -> str:
        budget = context.budget
        assert isinstance(budget, Budget)
        result = await child.run("Help.", budget=budget, limits=child_limits)
        seen.append((result.stop_reason, budget.usage.tokens, budget.turns, budget.tool_calls))
        return result.text or ""

    usage = Usage(input=5)
    script = [
        tool_call_turn([tool_call("delegate")], usage=usage),
        final_answer("Done.", usage=usage),
    ]
    kit = run_harness(script, tools=[delegate], budget=parent, limits=Limits(turns=None))
    result = await kit.run()
    return _Delegated(result=result, seen=seen, above=parent)


@attrs.frozen(kw_only=True)
class _Delegated:
    result: RunResult
    seen: list[tuple[str, int, int, int]]
    """How the child ended, and what its parent's ledger said in that moment."""
    above: Budget


@pytest.mark.rule("R-LIMIT-04")
async def test_what_a_child_used_is_in_every_ledger_above_before_its_result_is() -> None:
    usage = Usage(input=10)
    child = run_harness([asking(2, usage), final_answer("Helped.", usage=usage)])
    done = await delegated(child, Limits(), Limits())
    assert done.seen == [("done", 25, 3, 3)]
    assert (done.above.usage.tokens, done.above.turns, done.above.tool_calls) == (30, 4, 3)
    assert done.result.stats.usage.tokens == 10


@pytest.mark.rule("R-LIMIT-04")
async def test_a_child_may_have_a_smaller_limit_and_its_parent_goes_on() -> None:
    child = run_harness([asking(), asking(), asking()])
    done = await delegated(child, Limits(), Limits(turns=2))
    assert done.seen == [("turn_limit", 5, 3, 3)]
    assert done.result.stop_reason == "done"


@pytest.mark.rule("R-LIMIT-04")
@pytest.mark.parametrize("limits", [Limits(tokens=25), Limits(turns=3), Limits(tool_calls=3)])
async def test_a_limit_above_ends_the_child_and_then_its_parent(limits: Limits) -> None:
    usage = Usage(input=10)
    child = run_harness([asking(2, usage), asking(2, usage), asking(2, usage)])
    done = await delegated(child, limits, Limits())
    assert [reason for reason, *_ in done.seen] == ["budget"]
    expected = "done" if limits.tool_calls else "budget"
    assert done.result.stop_reason == expected


@pytest.mark.rule("R-LIMIT-04")
async def test_a_limit_above_ends_a_run_as_budget_and_its_own_as_turn_limit() -> None:
    above_it = await run_harness([], budget=Budget(Limits(turns=0))).run()
    its_own = await run_harness([], budget=Budget(Limits(turns=0)), limits=Limits(turns=0)).run()
    assert (above_it.stop_reason, its_own.stop_reason) == ("budget", "turn_limit")


@pytest.mark.rule("R-LIMIT-05")
async def test_a_ledger_counts_the_runs_at_it_and_below(autojump_clock: MockClock) -> None:
    root = Budget(Limits())
    middle = Budget(Limits(), parent=root)
    seen: list[tuple[int, int, int]] = []

    @tool
    async def look() -> Suspend:
        """Look at the ledgers, and ask."""
        seen.append((root.runs, middle.runs, middle.live_children))
        return Suspend.answer("Go on?")

    kit = run_harness(
        [tool_call_turn([tool_call("look")]), final_answer("ok")], tools=[look], budget=middle
    )
    state = (await kit.run()).state
    assert seen == [(2, 2, 1)]
    assert (root.runs, middle.runs, root.live_children, middle.live_children) == (2, 2, 0, 0)
    state.reply("call_1", "yes")
    await kit.run(state)
    assert (root.runs, middle.runs, middle.live_children) == (2, 2, 0)
