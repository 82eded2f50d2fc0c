"""Children under receipts: a process that dies in the middle of one, and its turn made again."""

import pytest
import trio

from harness import CallContext, RunState, Tool, Usage, tool, user_message
from harness.delegation import Delegate, as_tool
from harness.events import ReceiptAmbiguous
from harness.receipts import with_receipts
from harness.stores import MemoryStore
from harness.testing import (
    RunHarness,
    Scene,
    cancel_everywhere,
    final_answer,
    run_harness,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from tests.delegation.trees import Plays, told

EACH = Usage(input=3, output=2)


def paying(effects: list[str]) -> Tool:
    @tool
    async def pay(to: str, context: CallContext[object]) -> str:
        """Pay somebody."""
        await trio.sleep(1)
        effects.append(to)
        await trio.sleep(1)
        return f"paid {to} as {context.batch.run_id}"

    return pay


def tree(store: MemoryStore, effects: list[str], *, around_all: bool = False) -> RunHarness:
    """As one process makes it: a planner, a clerk below it, and a clerk's tool that pays twice."""
    pays = [tool_call("pay", {"to": "plumber"}), tool_call("pay", {"to": "plumber"})]
    clerk = Delegate(
        name="clerk",
        description="Pays.",
        model=Plays([tool_call_turn(pays), timed(3, final_answer("paid"))]),
        tools=with_receipts([paying(effects)], store, tenant="t"),
    )
    below = [as_tool(clerk), slow_tool(2, effect="none")]
    planner = Delegate(
        name="planner",
        description="Plans.",
        model=Plays(
            [
                tool_call_turn([tool_call("clerk", {"task": "the bill"}), tool_call("slow")]),
                final_answer("planned"),
            ]
        ),
        tools=with_receipts(below, store, tenant="t") if around_all else below,
    )
    tools = [as_tool(planner)]
    turns = [tool_call_turn([tool_call("planner", {"task": "the bills"})]), final_answer("Done.")]
    return run_harness(
        [],
        model=Plays(turns),
        tools=with_receipts(tools, store, tenant="t") if around_all else tools,
    )


def start() -> RunState:
    """The run as it was stored before its first turn."""
    return RunState(run_id="top", messages=[user_message("Pay the bills.")])


@pytest.mark.rule("R-CHILD-12", "R-RCPT-16")
@pytest.mark.parametrize("around_all", [False, True])
async def test_what_a_grandchild_did_before_a_crash_is_not_done_again(
    around_all: bool, autojump_clock: object
) -> None:
    store, effects = MemoryStore(), list[str]()
    with trio.move_on_after(4):  # both payments are through; the clerk's next turn is in progress
        await tree(store, effects, around_all=around_all).run(start())
    assert effects == ["plumber"] * 2
    await trio.sleep(60)
    kit = tree(store, effects, around_all=around_all)
    result = await kit.run(start())
    assert (result.stop_reason, result.text) == ("done", "Done.")
    assert effects == ["plumber"] * 2
    assert not [each for each in told(kit) if isinstance(each, ReceiptAmbiguous)]


@pytest.mark.rule("R-CHILD-11", "R-CHILD-12", "R-RCPT-14")
@pytest.mark.parametrize("around_all", [False, True])
def test_wherever_a_process_dies_no_grandchild_pays_more_than_it_was_asked_to(
    around_all: bool,
) -> None:
    async def scenario(scene: Scene) -> None:
        store, effects = MemoryStore(), list[str]()
        with trio.CancelScope() as process:
            scene.on_cut(process.cancel)
            await tree(store, effects, around_all=around_all).run(start())
        await trio.sleep(60)
        kit = tree(store, effects, around_all=around_all)
        assert (await kit.run(start())).stop_reason == "done"
        doubtful = [each for each in told(kit) if isinstance(each, ReceiptAmbiguous)]
        # Every payment was made once, or it is in doubt and somebody has been told.
        assert len(effects) <= 2 <= len(effects) + len(doubtful)

    report = cancel_everywhere(scenario, minimum=60)
    assert report.completed
