"""Runs whose calls leave receipts: crashed at every instant, and stopped at every cut."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence

import attrs
import pytest
import trio

import harness
from harness import (
    CallContext,
    Compaction,
    Compactor,
    Message,
    ModelRequest,
    ModelTurn,
    RunState,
    SettledTurn,
    StepDecision,
    Supervisor,
    Suspend,
    Toolset,
    TurnStream,
    user_message,
)
from harness._durable import ReceiptKey
from harness._errors import StoreError
from harness._ids import counting_ids
from harness._json import JSON, decode
from harness._toolset import Effect
from harness.events import Event, ReceiptAmbiguous
from harness.receipts import receipt_key_string, with_receipts
from harness.stores import MemoryStore
from harness.stores._rules import ReceiptRecord
from harness.testing import (
    RUN_INVARIANTS,
    Scene,
    cancel_everywhere,
    counting_tool,
    final_answer,
    run_harness,
    run_virtual,
    tool_call,
    tool_call_turn,
)
from harness.tools import Tool, define_tool
from tests.receipts.working import SlowStore

TENANT = "acme"
TURNS: tuple[tuple[int, ...], ...] = ((5, 5, 7), (5, 8))
"""The amounts that each turn pays."""
WANTED = Counter(amount for turn in TURNS for amount in turn)


@attrs.define(eq=False)
class World:
    """What outlives a worker: the receipts, the payments made, the transcript as last stored."""

    store: MemoryStore = attrs.field(factory=MemoryStore)
    paid: list[tuple[str, int]] = attrs.field(factory=list)
    """The key of its receipt, and the amount."""
    saved: list[Message] = attrs.field(factory=lambda: [user_message("Pay.")])

    def as_it_is(self) -> World:
        """Return what is left of it if every process dies now."""
        world = World(paid=list(self.paid), saved=copy.deepcopy(self.saved))
        world.store._receipts.update(self.store._receipts)
        return world

    @property
    def receipts(self) -> dict[ReceiptKey, ReceiptRecord]:
        return self.store._receipts


class Saving(Supervisor):
    """Stores the transcript whenever a turn is settled."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def settled(self, step: SettledTurn) -> StepDecision:
        await trio.lowlevel.checkpoint()
        self.world.saved = copy.deepcopy(list(step.state.messages))
        return StepDecision()


def pay_into(
    world: World, effect: Effect, *, serial: bool, entered: Callable[[str], object] = str
) -> Tool:
    """Return a tool that pays: one of an opaque effect just does, a resumable one looks first."""

    async def pay(arguments: dict[str, JSON], context: CallContext[object]) -> object:
        assert context.receipt is not None
        amount, key = arguments["amount"], receipt_key_string(context.receipt.key)
        assert isinstance(amount, int)
        entered(key)
        await trio.sleep(1)
        if effect == "opaque" or key not in dict(world.paid):
            world.paid.append((key, amount))
        await trio.sleep(1)
        return {"paid": amount}

    return define_tool(
        "pay", "Pays.", schema={"type": "object"}, execute=pay, effect=effect, serial=serial
    )


async def leg(world: World, tools: Tool, *, reverse: bool, saves: bool) -> list[Event]:
    """Go on from where the transcript was stored; the model may ask in another order."""

    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        await trio.lowlevel.checkpoint()
        turn = sum(message["role"] == "assistant" for message in request.messages)
        if turn >= len(TURNS):
            return final_answer("Paid.")
        amounts = reversed(TURNS[turn]) if reverse else TURNS[turn]
        calls = [
            tool_call("pay", {"amount": amount}, id=f"{request.turn_id}.{reverse}.{place}")
            for place, amount in enumerate(amounts)
        ]
        return tool_call_turn(calls)

    state = RunState(run_id="run_1", messages=copy.deepcopy(world.saved))
    told: list[Event] = []
    async with harness.open_run(
        model,
        state,
        tools=with_receipts([tools], world.store, tenant=TENANT, seconds=9.0, ids=counting_ids()),
        supervisor=Saving(world) if saves else Unsaving(),
    ) as run:
        told.extend([event async for event in run.events])
    assert run.result.stop_reason == "done"
    return told


class Unsaving(Supervisor):
    """Stores nothing, so that every retry begins at the beginning."""


class Crashes(trio.abc.Instrument):
    """Notes at each instant what a crash would leave."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.left: list[World] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left.append(self.world.as_it_is())


@pytest.mark.slow
@pytest.mark.rule("R-RCPT-12", "R-RCPT-16", "R-RCPT-01")
@pytest.mark.parametrize("saves", [True, False], ids=["saved each turn", "never saved"])
@pytest.mark.parametrize("serial", [True, False], ids=["serial", "parallel"])
@pytest.mark.parametrize("effect", ["opaque", "resumable"])
def test_after_a_crash_at_any_instant_no_effect_is_repeated(
    effect: Effect, serial: bool, saves: bool
) -> None:
    """Two equal calls in one batch and in two turns: both run, and neither a third time."""
    world = World()
    crashes = Crashes(world)

    async def first() -> None:
        await leg(world, pay_into(world, effect, serial=serial), reverse=False, saves=saves)

    run_virtual(first, instruments=[crashes])
    assert Counter(amount for _, amount in world.paid) == WANTED
    assert len(crashes.left) > 60
    doubtful = 0
    for left in crashes.left:
        before = list(left.paid)

        async def again(left: World = left) -> list[Event]:
            tools = pay_into(left, effect, serial=serial)
            return await leg(left, tools, reverse=True, saves=saves)

        told = run_virtual(again)
        after = Counter(amount for _, amount in left.paid)
        assert len({key for key, _ in left.paid}) == len(left.paid)
        assert left.paid[: len(before)] == before
        assert after <= WANTED
        ambiguous = [event for event in told if isinstance(event, ReceiptAmbiguous)]
        if effect == "resumable":
            assert (after, ambiguous) == (WANTED, [])
        else:
            # What may be missing is just what has been told.
            in_doubt = {each.receipt for each in ambiguous}
            assert in_doubt == {
                receipt_key_string(key)
                for key, record in left.receipts.items()
                if record.status == "ambiguous"
            }
            missing = WANTED - after
            assert missing.total() <= len(in_doubt)
            doubtful += len(in_doubt)
        assert {record.status for record in left.receipts.values()} <= {"completed", "ambiguous"}
        assert len(left.receipts) == WANTED.total()
        # Once more from there: nothing is left to do.
        paid = list(left.paid)
        run_virtual(again)
        assert left.paid == paid
    assert (doubtful > 0) is (effect == "opaque")


def answer_kinds(messages: Sequence[Message]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for message in messages:
        if message["role"] == "tool":
            content = message["content"]
            assert isinstance(content, str)
            envelope = decode(content)
            assert isinstance(envelope, dict)
            kinds["success" if envelope["success"] else str(envelope["kind"])] += 1
    return kinds


@pytest.mark.slow
@pytest.mark.rule("R-RCPT-14")
@pytest.mark.parametrize("stop", ["cancelled", "aborted"])
@pytest.mark.parametrize(("effect", "serial"), [("opaque", True), ("resumable", False)])
def test_a_run_with_receipts_can_be_stopped_anywhere(
    effect: Effect, serial: bool, stop: str
) -> None:
    async def scenario(scene: Scene) -> None:
        world = World(store=SlowStore(before=0.25, after=0.25))
        entered: list[str] = []

        def enter(key: str) -> None:
            entered.append(key)
            if stop == "aborted":
                # A cancellation from outside reaches a call a step later: its shield is the
                # batch's to open, and whoever is inside of it cannot see further.
                scene.started(key)

        kit = run_harness(
            [
                tool_call_turn([tool_call("pay", {"amount": 5}), tool_call("pay", {"amount": 5})]),
                tool_call_turn([tool_call("pay", {"amount": 5})]),
                final_answer("Paid."),
            ],
            tools=with_receipts(
                [pay_into(world, effect, serial=serial, entered=enter)],
                world.store,
                tenant=TENANT,
                seconds=3.0,
                ids=counting_ids(),
            ),
            scene=scene,
        )

        @scene.afterwards
        def the_receipts_say_what_happened() -> None:
            statuses = {
                receipt_key_string(key): record.status for key, record in world.receipts.items()
            }
            paid = [key for key, _ in world.paid]
            assert len(set(paid)) == len(paid)
            for key, status in statuses.items():
                if status == "completed":
                    assert key in paid
                else:
                    # What was entered is in doubt, and what was not is known not to have happened.
                    assert status == ("running" if key in entered else "failed")
            for state in kit.states:
                answers = answer_kinds(state.messages)
                assert answers["success"] == Counter(statuses.values())["completed"]
            if scene.outcome == "completed" and not scene.stopped:
                assert set(statuses.values()) == {"completed"}

        async with kit.open() as run:
            if stop == "aborted":
                scene.on_cut(run.abort)
            await run.wait()

    cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=160)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["claim_receipt", "settle_receipt"])
async def test_a_store_that_fails_ends_the_run_and_no_model_hears_of_a_failure(
    method: str, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()

    async def down(*args: object, **options: object) -> None:
        raise StoreError("store.unreachable", "the database is down")

    monkeypatch.setattr(MemoryStore, method, down)
    kit = run_harness(
        [tool_call_turn([tool_call("pay", {"amount": 5})]), final_answer("Paid.")],
        tools=with_receipts([pay_into(world, "opaque", serial=False)], world.store, tenant=TENANT),
    )
    with pytest.raises(StoreError, match="down"):
        await kit.run()
    (state,) = kit.states
    assert answer_kinds(state.messages) == {"interrupted": 1}
    assert len(kit.script.requests) == 1


def test_a_run_with_receipts_has_the_transcript_of_one_without() -> None:
    def played(wrap: Callable[[Tool], Toolset | Sequence[Tool]]) -> list[Message]:
        async def main() -> list[Message]:
            calls = [tool_call("count", {"n": 1}) for _ in range(3)]
            kit = run_harness(
                [tool_call_turn([*calls, tool_call("nobody")]), final_answer("Counted.")],
                tools=wrap(counting_tool(serial=True)),
            )
            return (await kit.run()).state.messages

        return run_virtual(main)

    def wrapped(tool: Tool) -> Toolset:
        return with_receipts([tool], MemoryStore(), tenant=TENANT)

    assert played(wrapped) == played(lambda tool: [tool])
    assert played(wrapped) == played(
        lambda tool: with_receipts(wrapped(tool), MemoryStore(), tenant=TENANT)
    )


async def test_a_question_of_a_call_is_answered_in_the_next_leg() -> None:
    store = MemoryStore()
    asked: list[object] = []

    async def pay(arguments: dict[str, JSON], context: CallContext[object]) -> object:
        asked.append(context.reply)
        return Suspend.answer("Sure?") if context.reply is None else "paid"

    tool = define_tool("pay", "Pays.", schema={"type": "object"}, execute=pay, resumes=True)
    kit = run_harness(
        [tool_call_turn([tool_call("pay"), tool_call("pay")]), final_answer("Paid.")],
        tools=with_receipts([tool], store, tenant=TENANT),
    )
    first = await kit.run()
    assert first.stop_reason == "waiting_for_reply"
    for call_id in ("call_1", "call_2"):
        first.state.reply(call_id, "yes")
    assert (await kit.run(first.state)).stop_reason == "done"
    assert asked[:2] == [None, None]
    assert len(asked) == 4
    listed = await store.list_receipts(TENANT)
    assert [(each.key.occurrence, each.status, each.attempt) for each in listed] == [
        (0, "completed", 2), (1, "completed", 2)
    ]  # fmt: skip


class Forgetful(Compactor):
    """Keeps nothing but the first message, as often as it may."""

    def needed(self, state: RunState) -> bool:
        return len(state.messages) > 2

    async def compact(self, messages: Sequence[Message]) -> Compaction:
        await trio.lowlevel.checkpoint()
        return Compaction(messages=[messages[0]])


@pytest.mark.rule("R-RCPT-16")
async def test_a_call_made_again_after_a_compaction_is_another_call() -> None:
    store = MemoryStore()
    count = counting_tool("pay")
    kit = run_harness(
        [tool_call_turn([tool_call("pay", {"amount": 5})]) for _ in range(3)]
        + [final_answer("Paid.")],
        tools=with_receipts([count], store, tenant=TENANT),
        compactor=Forgetful(),
    )
    result = await kit.run()
    assert result.state.compactions == 3
    assert count.started == 3
    listed = await store.list_receipts(TENANT)
    assert [each.key.occurrence for each in listed] == [0, 1, 2]
