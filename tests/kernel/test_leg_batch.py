"""The batch of a turn, as the loop runs it: order, failures, fatal errors, activation."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from harness import (
    JSON,
    CallContext,
    CallPolicy,
    Limiters,
    Outcome,
    Tool,
    ToolCall,
)
from harness.errors import MissingPortError
from harness.testing import (
    assert_provider_valid,
    counting_tool,
    failing_tool,
    run_harness,
    run_virtual,
    slow_tool,
    timed,
)
from harness.tools import ToolList, tool
from tests.kernel.reading import DONE, answers, kinds, named, rejected, started

HostT = TypeVar("HostT")

# -- order -------------------------------------------------------------------------------------


@pytest.mark.rule("R-LOOP-18")
async def test_serial_calls_run_first_one_at_a_time_in_request_order(
    autojump_clock: MockClock,
) -> None:
    tools = [slow_tool(1, "x"), slow_tool(2, "load", serial=True), slow_tool(1, "y")]
    kit = run_harness([named("x", "load", "y", "load"), DONE], tools=tools)
    result = await kit.run()
    assert started(kit.events) == [("load-1", 0), ("load-3", 2), ("x-0", 4), ("y-2", 4)]
    assert list(answers(result.state.messages)) == ["x-0", "load-1", "y-2", "load-3"]


class _Loading(ToolList):
    """Tools of which some are hidden until a call has activated them."""

    def __init__(self, tools: Iterable[Tool], *hidden: str) -> None:
        super().__init__(tools)
        self.hidden = {*hidden}
        self.activated: list[str] = []
        self.error: BaseException | None = None
        self.fatally = False
        self.seconds = 0.0

    def definitions(self) -> tuple[dict[str, JSON], ...]:
        names = [tool.name for tool in self.tools]
        shown = zip(names, super().definitions(), strict=True)
        return tuple(each for name, each in shown if name not in self.hidden)

    async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
        if call.name in self.hidden:
            return Outcome.failed("it is hidden", "not_found")
        return await super().execute(call, context)

    async def activate(self, outcome: Outcome) -> None:
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        self.activated += outcome.activate_plugins
        self.hidden -= {*outcome.activate_plugins}

    def fatal(self, error: BaseException) -> bool:
        return self.fatally


def loading(seconds: float, name: str, *plugins: str, serial: bool = False) -> Tool:
    """Return a tool that asks for *plugins* after so many seconds."""
    asked = Outcome.completed("loaded", activate_plugins=plugins)
    return slow_tool(seconds, name, result=asked, serial=serial)


@pytest.mark.rule("R-LOOP-18")
async def test_what_a_serial_call_loads_is_there_for_the_calls_after_it() -> None:
    tools = _Loading(
        [counting_tool("maps"), counting_tool("rail"), loading(0, "load", "maps", serial=True)],
        *("maps", "rail"),
    )
    kit = run_harness([named("maps", "rail", "load"), DONE], tools=tools)
    found = answers((await kit.run()).state.messages)
    assert found["maps-0"] == {"success": True, "data": 1}
    assert found["rail-1"]["kind"] == "not_found"
    assert [len(request.tools) for request in kit.script.requests] == [1, 2]


@pytest.mark.rule("R-LOOP-18")
async def test_each_serial_call_is_activated_before_the_next_begins() -> None:
    order: list[str] = []

    class Noting(_Loading):
        async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
            order.append(f"execute {call.id}")
            return await super().execute(call, context)

        async def activate(self, outcome: Outcome) -> None:
            await super().activate(outcome)
            order.append("activated")

    tools = Noting([loading(0, "a", "x", serial=True), loading(0, "b", "y", serial=True)])
    await run_harness([named("b", "a"), DONE], tools=tools).run()
    assert order == ["execute b-0", "activated", "execute a-1", "activated"]


@pytest.mark.rule("R-LOOP-19")
async def test_calls_are_not_serial_unless_their_policy_says_so(autojump_clock: MockClock) -> None:
    kit = run_harness(
        [named("x", "load", "y", "load"), DONE],
        tools=[slow_tool(1, "x"), slow_tool(2, "load"), slow_tool(1, "y")],
    )
    result = await kit.run()
    assert started(kit.events) == [("x-0", 0), ("load-1", 0), ("y-2", 0), ("load-3", 0)]
    assert result.stats.tool_time == 2.0


@pytest.mark.rule("R-LOOP-20")
async def test_calls_run_side_by_side_in_the_pools_of_their_tools(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness(
        [named(*["many"] * 12, "other"), DONE],
        tools=[slow_tool(1, "many"), slow_tool(1, "other")],
    )
    await kit.run()
    times = dict(started(kit.events))
    assert sorted(times[f"many-{place}"] for place in range(12)) == [0] * 5 + [1] * 5 + [2] * 2
    assert times["other-12"] == 0


@pytest.mark.rule("R-LOOP-21")
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["fine", "fails", "serial"])), min_size=1)
)
def test_results_stand_in_request_order_whatever_ended_first(
    calls: list[tuple[int, str]],
) -> None:
    async def main() -> None:
        makers: dict[str, Callable[[int, str], Tool]] = {
            "fine": lambda seconds, name: slow_tool(seconds, name, result=name),
            "fails": lambda seconds, name: timed(seconds, failing_tool(ValueError(name), name)),
            "serial": lambda seconds, name: slow_tool(seconds, name, result=name, serial=True),
        }
        names = [f"tool{place}" for place in range(len(calls))]
        tools = [
            makers[kind](seconds, name) for (seconds, kind), name in zip(calls, names, strict=True)
        ]
        kit = run_harness([named(*names), DONE], tools=tools)
        result = await kit.run()
        found = answers(result.state.messages)
        assert list(found) == [f"{name}-{place}" for place, name in enumerate(names)]
        assert [each.get("data", each.get("error")) for each in found.values()] == names
        assert_provider_valid(result.state.messages)

    run_virtual(main)


# -- failures ----------------------------------------------------------------------------------


@pytest.mark.rule("R-LOOP-22", "R-LOOP-23")
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such city"), "no such city"),
        (ValueError(), "ValueError"),
        (KeyError("city"), "'city'"),
        (OSError(2, "gone"), "[Errno 2] gone"),
        (RuntimeError("x" * 5_000), "x" * 2_000),
        (AssertionError("\ud800"), "?"),
        (ExceptionGroup("two", [ValueError(), KeyError()]), "two (2 sub-exceptions)"),
    ],
)
async def test_a_failure_is_told_to_the_model_alike_from_both_phases(
    error: Exception, text: str
) -> None:
    tools = [failing_tool(error, "alone", serial=True), failing_tool(error, "beside")]
    kit = run_harness([named("beside", "alone"), DONE], tools=tools)
    result = await kit.run()
    assert result.stop_reason == "done"
    assert answers(result.state.messages) == {
        "beside-0": {"success": False, "error": text},
        "alone-1": {"success": False, "error": text},
    }
    kind = type(error).__name__
    assert rejected(kit.events) == [("alone-1", kind), ("beside-0", kind)]
    assert_provider_valid(result.state.messages)


async def test_a_failure_that_is_returned_is_told_to_the_model_as_it_says() -> None:
    refused = slow_tool(0, "book", result=Outcome.failed("sold out", "conflict"))
    kit = run_harness([named("book"), DONE], tools=[refused])
    result = await kit.run()
    expected = {"success": False, "kind": "conflict", "error": "sold out"}
    assert answers(result.state.messages)["book-0"] == expected


# -- fatal errors ------------------------------------------------------------------------------


class _LostError(Exception):
    """What the toolset calls fatal."""


class _Strict(ToolList):
    def fatal(self, error: BaseException) -> bool:
        return isinstance(error, _LostError)


def losing(seconds: float, name: str, *, serial: bool = False) -> Tool:
    return timed(seconds, failing_tool(_LostError(name), name, serial=serial))


@pytest.mark.rule("R-LOOP-24")
@pytest.mark.parametrize("serial", [False, True])
async def test_a_fatal_error_ends_the_run_and_its_call_is_answered_interrupted(
    serial: bool, autojump_clock: MockClock
) -> None:
    kit = run_harness([named("lose"), DONE], tools=_Strict([losing(1, "lose", serial=serial)]))
    with pytest.raises(_LostError, match=r"^lose$") as caught:
        async with kit.open() as run:
            await run.wait()
    assert run.result.error is caught.value
    assert run.result.stop_reason == "failed"
    assert answers(run.state.messages)["lose-0"]["kind"] == "interrupted"
    assert run.state.unanswered_call_ids() == ()
    assert kit.script.remaining == 1
    assert_provider_valid(run.state.messages)


@pytest.mark.rule("R-LOOP-25")
async def test_on_a_fatal_error_nothing_more_starts_and_calls_in_flight_get_their_grace(
    autojump_clock: MockClock,
) -> None:
    tools = _Strict(
        [
            slow_tool(1, "quick"),
            losing(2, "lose"),
            slow_tool(4, "polite", grace=3),
            slow_tool(9, "slow", grace=3),
            slow_tool(9, "rude"),
            slow_tool(3, "queue", pool="one"),
        ]
    )
    names = ["quick", "lose", "polite", "slow", "rude", "queue", "queue"]
    kit = run_harness([named(*names), DONE], tools=tools, limiters=Limiters(pools={"one": 1}))
    with pytest.raises(_LostError):
        await kit.run()
    (state,) = kit.states
    assert kinds(state.messages) == {
        "quick-0": "completed",
        "lose-1": "interrupted",
        "polite-2": "completed",
        "slow-3": "interrupted",
        "rude-4": "interrupted",
        "queue-5": "interrupted",
        "queue-6": "not_run",
    }
    assert trio.current_time() == 5.0
    assert_provider_valid(state.messages)


@pytest.mark.rule("R-LOOP-25")
async def test_a_fatal_serial_call_leaves_the_rest_of_its_batch_not_run(
    autojump_clock: MockClock,
) -> None:
    tools = _Strict([losing(1, "lose", serial=True), slow_tool(1, "next", serial=True)])
    kit = run_harness([named("other", "lose", "next"), DONE], tools=tools)
    with pytest.raises(_LostError):
        await kit.run()
    found = kinds(kit.states[0].messages)
    assert [*found.values()] == ["not_run", "interrupted", "not_run"]
    assert kit.ran == ["lose-1"]


@pytest.mark.rule("R-LOOP-26")
async def test_of_several_fatal_errors_the_first_in_request_order_is_raised(
    autojump_clock: MockClock,
) -> None:
    @tool(grace=5)
    async def late() -> str:
        await trio.sleep(3)
        raise _LostError("late")

    kit = run_harness(
        [named("late", "early", "late"), DONE], tools=_Strict([late, losing(1, "early")])
    )
    with pytest.raises(_LostError) as caught:
        await kit.run()
    assert str(caught.value) == "late"
    early, late_too = (note for note in caught.value.__notes__ if "fatal" in note)
    assert "early" in early
    assert "late" in late_too


@pytest.mark.rule("R-LOOP-24")
async def test_a_fatal_error_outranks_a_stop_that_came_before_it(
    autojump_clock: MockClock,
) -> None:
    @tool(grace=5)
    async def lose() -> str:
        await trio.sleep(2)
        raise _LostError("at the end")

    kit = run_harness([named("lose"), DONE], tools=_Strict([lose]))
    with pytest.raises(_LostError):
        async with kit.open() as run:
            await trio.sleep(1)
            run.abort()
            await run.wait()
    assert run.result.stop_reason == "failed"
    assert answers(run.state.messages)["lose-0"]["kind"] == "interrupted"


# -- activation --------------------------------------------------------------------------------


@pytest.mark.rule("R-LOOP-27")
@pytest.mark.parametrize("serial", [False, True])
async def test_to_ask_for_what_nobody_can_activate_is_reported_and_the_run_goes_on(
    serial: bool,
) -> None:
    kit = run_harness([named("load"), DONE], tools=[loading(0, "load", "maps", serial=serial)])
    result = await kit.run()
    assert result.stop_reason == "done"
    assert rejected(kit.events) == [("load-0", MissingPortError.__name__)]
    assert answers(result.state.messages)["load-0"] == {"success": True, "data": "loaded"}


@pytest.mark.rule("R-LOOP-28")
@pytest.mark.parametrize("serial", [False, True])
async def test_a_call_whose_activation_fails_has_failed(serial: bool) -> None:
    tools = _Loading([loading(0, "load", "maps", serial=serial)])
    tools.error = OSError("no such plugin")
    kit = run_harness([named("load"), DONE], tools=tools)
    result = await kit.run()
    assert result.stop_reason == "done"
    expected = {"success": False, "kind": "system", "error": "no such plugin"}
    assert answers(result.state.messages)["load-0"] == expected
    assert rejected(kit.events) == [("load-0", "OSError")]


@pytest.mark.rule("R-LOOP-28")
@pytest.mark.parametrize("serial", [False, True])
async def test_an_activation_that_fails_fatally_ends_the_run(serial: bool) -> None:
    tools = _Loading([loading(0, "load", "maps", serial=serial), counting_tool("count")])
    tools.error = OSError("no such plugin")
    tools.fatally = True
    kit = run_harness([named("load", "count"), DONE], tools=tools)
    with pytest.raises(OSError, match="no such plugin"):
        await kit.run()
    found = answers(kit.states[0].messages)
    assert found["load-0"]["kind"] == "system"
    assert found["count-1"].get("kind") == ("not_run" if serial else None)


@pytest.mark.rule("R-LOOP-28")
async def test_a_call_is_no_success_if_a_stop_came_before_what_it_loaded_was_live(
    autojump_clock: MockClock,
) -> None:
    async def stopped(tools: _Loading, at: float) -> dict[str, JSON]:
        kit = run_harness([named("load", "slow"), DONE], tools=tools)
        async with kit.open() as run:
            await trio.sleep(at)
            run.abort()
            await run.wait()
        return answers(run.state.messages)["load-0"]

    tools = [loading(1, "load", "maps"), slow_tool(3)]
    while_another_runs = _Loading(tools)
    assert (await stopped(while_another_runs, 2))["kind"] == "interrupted"
    while_it_is_activated = _Loading(tools)
    while_it_is_activated.seconds = 5
    assert (await stopped(while_it_is_activated, 4))["kind"] == "interrupted"
    assert while_another_runs.activated == while_it_is_activated.activated == []


@pytest.mark.rule("R-LOOP-29")
async def test_side_by_side_calls_are_activated_in_request_order_each_before_its_result(
    autojump_clock: MockClock,
) -> None:
    class Counting(_Loading):
        async def activate(self, outcome: Outcome) -> None:
            await super().activate(outcome)
            results.append(len(answers(kit.states[0].messages)))

    results: list[int] = []
    loaders = [loading(3, "a", "maps"), loading(1, "b", "rail"), loading(2, "c")]
    tools = Counting([*loaders, counting_tool("maps")], "maps")
    kit = run_harness([named("a", "c", "b"), DONE], tools=tools)
    await kit.run()
    assert tools.activated == ["maps", "rail"]
    assert results == [0, 2]
    assert [len(request.tools) for request in kit.script.requests] == [3, 4]


@pytest.mark.rule("R-LOOP-18")
async def test_a_tool_that_a_serial_call_loads_runs_by_its_own_policy(
    autojump_clock: MockClock,
) -> None:
    class Growing(ToolList):
        loaded = False

        def policy(self, call: ToolCall) -> CallPolicy:
            policy = super().policy(call)
            if call.name == "slow" and not self.loaded:
                return CallPolicy.default(call)
            return policy

        async def activate(self, outcome: Outcome) -> None:
            self.loaded = True

    @tool(serial=True)
    async def load() -> Outcome:
        return Outcome.completed(activate_plugins=["slow"])

    tools = Growing([load, slow_tool(60, time_limit=1)])
    kit = run_harness([named("slow", "load"), DONE], tools=tools)
    await kit.run()
    assert trio.current_time() == 1
