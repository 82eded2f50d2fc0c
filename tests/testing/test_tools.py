from collections.abc import Callable

import pytest
import trio

from harness.kernel import Limiters
from harness.testing import (
    FakeTool,
    blocking_tool,
    counting_tool,
    failing_tool,
    final_answer,
    held_tool,
    run_harness,
    slow_tool,
    stubborn_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from harness.tools import Tool, tool


@tool
async def add(a: int, b: int = 1) -> int:
    """Adds two numbers.

    Args:
        a: the first.
    """
    return a + b


async def _run(*tools: Tool, arguments: str = "{}") -> dict[str, object]:
    """Return what each tool answered to one call, by its name."""
    calls = [tool_call(each.name, arguments, id=each.name) for each in tools]
    kit = run_harness([tool_call_turn(calls), final_answer("Done.")], tools=list(tools))
    result = await kit.run()
    return {
        message["tool_call_id"]: message["content"]
        for message in result.state.messages
        if message["role"] == "tool"
    }


def _ends(fake: FakeTool) -> list[str]:
    return [visit.end for visit in fake.visits]


@pytest.mark.rule("R-KIT-18")
async def test_a_fake_is_a_real_tool_that_takes_any_arguments() -> None:
    fake = counting_tool("count", serial=True, pool=None)
    assert isinstance(fake, Tool)
    assert (fake.policy.serial, fake.policy.pool) == (True, None)
    await _run(fake, arguments='{"anything": ["at", "all"]}')
    assert fake.visits[0].arguments == {"anything": ["at", "all"]}
    assert (fake.visits[0].call_id, fake.visits[0].end) == ("count", "returned")


@pytest.mark.rule("R-KIT-18")
async def test_a_counting_tool_counts() -> None:
    fake = counting_tool()
    calls = [tool_call("count") for _ in range(3)]
    kit = run_harness([tool_call_turn(calls), final_answer("Done.")], tools=[fake])
    result = await kit.run()
    contents = [each["content"] for each in result.state.messages if each["role"] == "tool"]
    assert contents == [f'{{"success":true,"data":{number}}}' for number in (1, 2, 3)]
    assert (fake.started, fake.returned) == (3, 3)


@pytest.mark.rule("R-KIT-18", "R-KIT-07")
async def test_a_slow_tool_takes_its_time(autojump_clock: trio.testing.MockClock) -> None:
    started = trio.current_time()
    assert await _run(slow_tool(7, result="at last")) == {
        "slow": '{"success":true,"data":"at last"}'
    }
    assert trio.current_time() - started == 7


@pytest.mark.rule("R-KIT-18")
async def test_a_failing_tool_raises_what_it_was_given() -> None:
    fake = failing_tool(ValueError("out of rooms"))
    answers = await _run(fake)
    assert "out of rooms" in str(answers["fail"])
    assert fake.visits[0].end == "raised"


@pytest.mark.rule("R-KIT-18")
async def test_a_held_tool_waits_until_it_is_released() -> None:
    fake = held_tool(result=5)
    async with trio.open_nursery() as nursery:

        async def call() -> None:
            assert await _run(fake) == {"held": '{"success":true,"data":5}'}

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        assert _ends(fake) == ["running"]
        fake.release()
    assert _ends(fake) == ["returned"]
    assert await _run(fake)


@pytest.mark.rule("R-KIT-18")
@pytest.mark.parametrize(
    ("make", "end", "seconds"),
    [
        (lambda: slow_tool(9), "cancelled", 2),
        (held_tool, "cancelled", 2),
        (lambda: stubborn_tool(9), "returned", 9),
    ],
    ids=["slow", "held", "stubborn"],
)
async def test_a_stop_ends_all_but_a_stubborn_tool(
    autojump_clock: trio.testing.MockClock,
    make: Callable[[], FakeTool],
    end: str,
    seconds: float,
) -> None:
    fake = make()
    kit = run_harness([tool_call_turn([tool_call(fake.name)])], tools=[fake])
    started = trio.current_time()
    async with kit.open() as run:
        await trio.sleep(2)
        run.abort()
    assert trio.current_time() - started == seconds
    assert fake.visits[0].end == end
    assert (fake.started, fake.returned) == (1, int(end == "returned"))


@pytest.mark.rule("R-KIT-18")
async def test_a_blocking_tool_blocks_a_thread_until_it_is_released() -> None:
    fake = blocking_tool(result="free")
    async with trio.open_nursery() as nursery:

        async def call() -> None:
            assert await _run(fake) == {"block": '{"success":true,"data":"free"}'}

        nursery.start_soon(call)
        try:
            await fake.wait_entered()
            assert _ends(fake) == ["running"]
        finally:
            fake.release()
    assert _ends(fake) == ["returned"]


async def test_a_thread_that_nobody_releases_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.testing._tools._PATIENCE", 0.01)
    answers = await _run(blocking_tool())
    assert "'block' was not released" in str(answers["block"])


@pytest.mark.rule("R-KIT-18")
async def test_an_abandoned_blocking_tool_is_left_in_its_thread() -> None:
    fake = blocking_tool(abandon=True)
    limiters = Limiters(1)
    kit = run_harness([tool_call_turn([tool_call("block")])], tools=[fake], limiters=limiters)
    try:
        async with kit.open() as run:
            await fake.wait_entered()
            run.abort()
        assert limiters.borrowed == 1
        assert _ends(fake) == ["running"]
    finally:
        fake.release()
    # Its permit comes back when its thread has ended.
    permit = limiters.permit("block")
    await permit.take()
    permit.release()
    assert _ends(fake) == ["returned"]


@pytest.mark.rule("R-KIT-07")
async def test_a_timed_tool_takes_the_time_and_is_the_same_otherwise(
    autojump_clock: trio.testing.MockClock,
) -> None:
    plain = tool(serial=True, grace=3.0, time_limit=60.0, effect="none")(add.function)
    late = timed(4, plain)
    assert late.definition == plain.definition
    assert late.policy == plain.policy
    started = trio.current_time()
    assert await _run(late, arguments='{"a": 2}') == {"add": '{"success":true,"data":3}'}
    assert trio.current_time() - started == 4
    refused = await _run(late, arguments='{"b": 2}')
    assert "a: required" in str(refused["add"])


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, None])
@pytest.mark.parametrize("make", [slow_tool, stubborn_tool, lambda seconds: timed(seconds, add)])
def test_a_duration_is_in_finite_seconds(make: Callable[[object], Tool], seconds: object) -> None:
    with pytest.raises((TypeError, ValueError), match="seconds is"):
        make(seconds)


def test_a_policy_out_of_bounds_is_refused_where_the_fake_is_made() -> None:
    with pytest.raises(ValueError, match="grace"):
        counting_tool(grace=-1)
