import itertools
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness._durable import ReceiptClaim, ReceiptKey, RunKey, RunLease
from harness._errors import LeaseLostError, StoreError, ToolDefinitionError
from harness._events import ReceiptAmbiguous
from harness._json import JSON
from harness._messages import (
    Message,
    assistant_message,
    success_envelope,
    tool_message,
    user_message,
)
from harness._toolset import (
    CallContext,
    Effect,
    NormalizedCall,
    Outcome,
    Reply,
    Suspend,
    ToolCall,
    Toolset,
    normalized,
)
from harness.checkpoints import create_checkpoint
from harness.kernel import RunState
from harness.receipts import (
    Claimed,
    ReceiptToolset,
    Settlement,
    receipt_key_from,
    receipt_key_string,
    with_receipts,
)
from harness.receipts._toolset import AMBIGUOUS_TEXT, LOST_TEXT
from harness.stores import MemoryStore
from harness.testing import (
    FakeTool,
    counting_tool,
    failing_tool,
    final_answer,
    held_tool,
    run_harness,
    slow_tool,
    stubborn_tool,
    tool_call,
    tool_call_turn,
)
from harness.tools import ToolList, define_tool
from tests.receipts.working import (
    TENANT,
    SlowStore,
    asking,
    only_receipt,
    receipts,
    rendered,
)

EFFECTS: tuple[Effect, ...] = ("resumable", "opaque")
PAY: tuple[str, dict[str, JSON]] = ("pay", {"amount": 5})


def paying(
    outcome: object = None, *, effect: Effect = "opaque", **options: Any
) -> tuple[list[CallContext[object]], ToolList]:
    """Return a tool that answers *outcome*, and the contexts that it was called with."""
    called: list[CallContext[object]] = []

    async def pay(arguments: dict[str, JSON], context: CallContext[object]) -> object:
        called.append(context)
        await trio.lowlevel.checkpoint()
        return outcome

    tool = define_tool(
        "pay", "Pays.", schema={"type": "object"}, execute=pay, effect=effect, **options
    )
    return called, ToolList([tool])


def receipted(tools: Toolset | Sequence[Any], store: MemoryStore, **options: Any) -> ReceiptToolset:
    return with_receipts(tools, store, **{"tenant": TENANT, "seconds": 9.0, **options})


async def dead_worker(store: MemoryStore, effect: Effect, toolset: Toolset | None = None) -> None:
    """Leave a receipt of `PAY` as a worker does that dies while it pays."""
    stuck = held_tool("pay", effect=effect)
    with trio.move_on_after(0.5):
        await asking(PAY).of(receipted([stuck], store))
    assert len(stuck.visits) == 1
    assert (await only_receipt(store)).status == "running"


# -- what is run, and what is not ---------------------------------------------------------------


@pytest.mark.rule("R-RCPT-15")
async def test_a_call_without_an_effect_is_passed_on_and_leaves_no_receipt() -> None:
    called, tools = paying("read", effect="none", normalize=lambda args: args)
    store = MemoryStore()
    asked = asking(PAY)
    for _ in range(2):
        assert await asked.of(receipted(tools, store)) == Outcome.completed("read")
    assert await store.list_receipts(TENANT) == []
    assert [context.receipt for context in called] == [None, None]


@pytest.mark.rule("R-RCPT-12")
async def test_a_call_is_claimed_before_it_is_executed_and_settled_after() -> None:
    store = MemoryStore()
    seen: list[tuple[str, int, ReceiptClaim | None]] = []

    async def pay(arguments: dict[str, JSON], context: CallContext[object]) -> object:
        receipt = await only_receipt(store)
        seen.append((receipt.status, receipt.attempt, context.receipt))
        return {"paid": arguments["amount"]}

    tool = define_tool("pay", "Pays.", schema={"type": "object"}, execute=pay)
    outcome = await asking(PAY).of(receipted([tool], store))
    assert outcome == Outcome.completed({"paid": 5})
    receipt = await only_receipt(store)
    ((status, attempt, claim),) = seen
    assert (status, attempt) == ("running", 1)
    assert claim is not None
    assert (claim.key, claim.attempt, claim.seconds) == (receipt.key, 1, 9.0)
    assert (receipt.status, receipt.result, receipt.effect) == ("completed", {"paid": 5}, "opaque")
    assert (receipt.key.tenant, receipt.key.run_id, receipt.key.tool) == (TENANT, "run_1", "pay")


@pytest.mark.rule("R-RCPT-12")
async def test_the_owner_of_a_claim_is_its_own() -> None:
    store = MemoryStore()
    called, tools = paying(Outcome.failed("no"))
    toolset = receipted(tools, store)
    for _ in range(2):
        await asking(PAY).of(toolset)
    owners = [context.receipt.owner for context in called if context.receipt is not None]
    assert len(set(owners)) == 2


OUTCOMES = [
    Outcome.completed({"b": [1, 2.0, None], "a": "é"}),
    Outcome.completed(None),
    Outcome.completed({"x-harness": {"kind": "failed"}}),
    Outcome.completed(object()),
    Outcome.completed((1, math.nan)),
    Outcome.completed("seen", parts=[{"type": "image_url", "image_url": {"url": "x"}}]),
    Outcome.completed("seen", parts=[{"type": "text", "text": object()}]),  # type: ignore[dict-item]  # no JSON
    Outcome.completed(1, activate_plugins=["a", "b"], activate_skills=["c"], compact=True),
    Outcome.completed("later", suspend=Suspend.wake(datetime(2030, 1, 1, tzinfo=UTC), {"a": 1})),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=range(len(OUTCOMES)))
@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_completed_call_is_replayed_with_the_bytes_of_its_answer(
    outcome: Outcome, effect: Effect
) -> None:
    store = MemoryStore()
    called, tools = paying(outcome, effect=effect)
    first = asking(PAY)
    was = await first.of(receipted(tools, store))
    again = asking(PAY, ids="other")
    toolset = receipted(tools, store)
    now = await again.of(toolset)
    assert len(called) == 1
    if not outcome.parts or now.parts:
        # What the kernel writes for parts that no message can hold is the envelope alone.
        assert rendered(toolset, again.batch.calls[0], now) == rendered(
            toolset, first.batch.calls[0], was
        )
    for name in ("activate_plugins", "activate_skills", "compact", "suspend", "kind"):
        assert getattr(now, name) == getattr(was, name) == getattr(outcome, name)
    assert rendered(toolset, again.batch.calls[0], attrs.evolve(now, parts=())) == rendered(
        tools, first.batch.calls[0], attrs.evolve(outcome, parts=())
    )


@pytest.mark.rule("R-RCPT-15")
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("failure", [Outcome.failed("broke", "external"), Outcome.not_run()])
async def test_a_returned_failure_is_the_word_that_nothing_happened(
    failure: Outcome, effect: Effect
) -> None:
    store = MemoryStore()
    called, tools = paying(failure, effect=effect)
    toolset = receipted(tools, store)
    for attempt in (1, 2):
        assert await asking(PAY).of(toolset) == failure
        receipt = await only_receipt(store)
        assert (receipt.status, receipt.attempt) == ("failed", attempt)
    assert len(called) == 2


def raising(effect: Effect) -> FakeTool:
    return failing_tool(ValueError("in the middle"), "pay", effect=effect)


async def raises(toolset: Toolset) -> None:
    with pytest.raises(ValueError, match="in the middle"):
        await asking(PAY).of(toolset)


async def is_cut(toolset: Toolset) -> None:
    with trio.move_on_after(1) as scope:
        await asking(PAY).of(toolset)
    assert scope.cancelled_caught


async def says_so(toolset: Toolset) -> None:
    assert await asking(PAY).of(toolset) == Outcome.interrupted()


ENDS: dict[str, tuple[Callable[[Effect], FakeTool], Callable[[Toolset], Any]]] = {
    "raises": (raising, raises),
    "is cut": (lambda effect: slow_tool(5, "pay", effect=effect), is_cut),
    "says so": (
        lambda effect: slow_tool(0, "pay", result=Outcome.interrupted(), effect=effect),
        says_so,
    ),
}


@pytest.mark.rule("R-RCPT-14", "R-RCPT-15", "R-RCPT-10")
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("end", ENDS)
async def test_what_did_not_say_how_it_ended_stays_running_and_is_then_in_doubt(
    end: str, effect: Effect, autojump_clock: MockClock
) -> None:
    store = MemoryStore()
    make, ends = ENDS[end]
    await ends(receipted([make(effect)], store))
    left = await only_receipt(store)
    assert (left.status, left.lease_live, left.attempt) == ("running", True, 1)
    await trio.sleep(9)
    left = await only_receipt(store)
    assert (left.status, left.lease_live, left.in_doubt) == ("running", False, True)
    called, tools = paying("done", effect=effect)
    again = asking(PAY)
    outcome = await again.of(receipted(tools, store))
    now = await only_receipt(store)
    if effect == "resumable":
        assert (outcome, len(called)) == (Outcome.completed("done"), 1)
        assert (now.status, now.attempt) == ("completed", 2)
        assert again.told == []
    else:
        assert (outcome, called) == (Outcome.interrupted(AMBIGUOUS_TEXT), [])
        assert (now.status, now.attempt, now.in_doubt) == ("ambiguous", 1, True)
        key = receipt_key_string(now.key)
        assert again.told == [
            ReceiptAmbiguous(call_id="call_0", name="pay", attempt=1, receipt=key)
        ]


@pytest.mark.rule("R-RCPT-09")
async def test_what_is_ambiguous_stays_so_until_a_person_has_settled_it(
    autojump_clock: MockClock,
) -> None:
    store = MemoryStore()
    await dead_worker(store, "opaque")
    called, tools = paying("done")
    toolset = receipted(tools, store)
    told = asking(PAY)
    for _ in range(3):
        assert await told.of(toolset) == Outcome.interrupted(AMBIGUOUS_TEXT)
    ambiguous = told.told[-1]
    assert isinstance(ambiguous, ReceiptAmbiguous)
    key = receipt_key_from(ambiguous.receipt)
    await store.settle_receipt_by_hand(key, "completed", {"receipt": "A-17"})
    assert await told.of(toolset) == Outcome.completed({"receipt": "A-17"})
    assert called == []


@pytest.mark.rule("R-RCPT-09")
async def test_what_a_person_found_not_to_have_happened_is_executed(
    autojump_clock: MockClock,
) -> None:
    store = MemoryStore()
    await dead_worker(store, "opaque")
    await trio.sleep(9)
    await store.settle_receipt_by_hand((await only_receipt(store)).key, "failed", None)
    called, tools = paying("done")
    assert await asking(PAY).of(receipted(tools, store)) == Outcome.completed("done")
    assert len(called) == 1
    assert (await only_receipt(store)).attempt == 2


# -- questions ----------------------------------------------------------------------------------


async def test_a_call_that_asks_is_run_again_with_its_answer(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    replies: list[Reply | None] = []

    async def pay(arguments: dict[str, JSON], context: CallContext[object]) -> object:
        replies.append(context.reply)
        return Suspend.answer("Sure?") if context.reply is None else context.reply.value

    tool = define_tool("pay", "Pays.", schema={"type": "object"}, execute=pay, resumes=True)
    toolset = receipted([tool], store)
    asked = asking(PAY)
    question = await asked.of(toolset)
    assert question == Outcome.completed(suspend=Suspend.answer("Sure?"))
    receipt = await only_receipt(store)
    assert (receipt.status, receipt.attempt) == ("failed", 1)
    reply = Reply(value="yes")
    for _ in range(2):
        assert await asked.of(receipted([tool], store), reply=reply) == Outcome.completed("yes")
    assert replies == [None, reply]
    receipt = await only_receipt(store)
    assert (receipt.status, receipt.attempt) == ("completed", 2)


async def test_a_call_that_wants_to_be_woken_has_its_result() -> None:
    store = MemoryStore()
    outcome = Outcome.completed(1, suspend=Suspend.wake(datetime(2030, 1, 1, tzinfo=UTC)))
    called, tools = paying(outcome)
    for _ in range(2):
        assert await asking(PAY).of(receipted(tools, store)) == outcome
    assert len(called) == 1


# -- others at the same call --------------------------------------------------------------------


async def test_a_call_that_somebody_is_at_is_waited_for(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    slow = slow_tool(30, "pay", result="paid")
    outcomes: list[Outcome] = []

    async def work() -> None:
        outcomes.append(await asking(PAY).of(receipted([slow], store)))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(work)
    assert outcomes == [Outcome.completed("paid")] * 5
    assert len(slow.visits) == 1
    assert 30 <= trio.current_time() <= 32


async def test_waiting_asks_more_and_more_seldom_and_never_past_the_lease(
    autojump_clock: MockClock,
) -> None:
    asked: list[float] = []

    class Watched(MemoryStore):
        async def claim_receipt(
            self,
            key: ReceiptKey,
            *,
            effect: Effect,
            owner: str,
            seconds: float,
            run: RunLease | None = None,
        ) -> Claimed:
            asked.append(trio.current_time())
            return await super().claim_receipt(
                key, effect=effect, owner=owner, seconds=seconds, run=run
            )

    store = Watched()
    await dead_worker(store, "opaque")
    over = 9.0
    asked.clear()
    await asking(PAY).of(receipted(paying()[1], store))
    pauses = [later - sooner for sooner, later in itertools.pairwise(asked)]
    assert pauses[:6] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
    assert max(pauses) == pytest.approx(2.0)
    assert asked[-1] == pytest.approx(over, abs=0.05)
    assert len(asked) < 15


async def test_waiting_can_be_cancelled(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    await dead_worker(store, "resumable")
    with trio.move_on_after(1) as scope:
        await asking(PAY).of(receipted(paying(effect="resumable")[1], store))
    assert scope.cancelled_caught
    receipt = await only_receipt(store)
    assert (receipt.status, receipt.attempt) == ("running", 1)


@pytest.mark.rule("R-RCPT-13")
async def test_a_worker_that_was_overtaken_can_no_longer_settle(autojump_clock: MockClock) -> None:
    class Unreachable(MemoryStore):
        """Cannot be reached by the first of the two workers."""

        async def renew_receipt(self, claim: ReceiptClaim) -> bool:
            if claim.attempt == 1:
                raise StoreError("store.unreachable", "no network")
            return await super().renew_receipt(claim)

    store = Unreachable()
    outcomes: dict[str, Outcome] = {}

    async def first() -> None:
        stubborn = stubborn_tool(20, "pay", result="first", effect="resumable")
        outcomes["first"] = await asking(PAY).of(receipted([stubborn], store))

    async def second() -> None:
        await trio.sleep(1)
        slow = slow_tool(20, "pay", result="second", effect="resumable")
        outcomes["second"] = await asking(PAY).of(receipted([slow], store))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        nursery.start_soon(second)
    assert outcomes == {
        "first": Outcome.interrupted(LOST_TEXT),
        "second": Outcome.completed("second"),
    }
    receipt = await only_receipt(store)
    assert (receipt.status, receipt.result, receipt.attempt) == ("completed", "second", 2)


async def test_a_call_whose_claim_is_lost_is_cut(autojump_clock: MockClock) -> None:
    class Refusing(MemoryStore):
        async def renew_receipt(self, claim: ReceiptClaim) -> bool:
            return False

    slow = slow_tool(20, "pay")
    store = Refusing()
    assert await asking(PAY).of(receipted([slow], store)) == Outcome.interrupted(LOST_TEXT)
    assert trio.current_time() == 3.0
    assert [visit.end for visit in slow.visits] == ["cancelled"]
    assert (await only_receipt(store)).status == "running"


@pytest.mark.rule("R-RCPT-13")
async def test_what_ends_after_its_lease_is_settled_if_nobody_has_taken_over(
    autojump_clock: MockClock,
) -> None:
    class Unreachable(MemoryStore):
        async def renew_receipt(self, claim: ReceiptClaim) -> bool:
            raise StoreError("store.unreachable", "no network")

    store = Unreachable()
    stubborn = stubborn_tool(20, "pay", result="paid")
    assert await asking(PAY).of(receipted([stubborn], store)) == Outcome.completed("paid")
    assert (await only_receipt(store)).status == "completed"


async def test_a_tool_may_settle_its_receipt_itself() -> None:
    """As one does that writes into the same database, in the transaction of its effect."""
    store = MemoryStore()

    async def pay(arguments: dict[str, JSON], context: CallContext[object]) -> object:
        assert context.receipt is not None
        paid: JSON = {"paid": arguments["amount"]}
        assert await store.settle_receipt(context.receipt, "completed", paid)
        return paid

    tool = define_tool("pay", "Pays.", schema={"type": "object"}, execute=pay)
    toolset = receipted([tool], store)
    for _ in range(2):
        assert await asking(PAY).of(toolset) == Outcome.completed({"paid": 5})
    assert (await only_receipt(store)).result == {"paid": 5}


# -- stops --------------------------------------------------------------------------------------


async def test_a_stop_after_the_claim_gives_it_back_and_does_not_enter_the_tool(
    autojump_clock: MockClock,
) -> None:
    store = SlowStore(after=2.0)
    called, tools = paying("done")
    with trio.move_on_after(1) as scope:
        await asking(PAY).of(receipted(tools, store))
    assert scope.cancelled_caught
    assert called == []
    receipt = await only_receipt(store)
    assert (receipt.status, receipt.attempt) == ("failed", 1)
    assert await asking(PAY).of(receipted(tools, store)) == Outcome.completed("done")
    assert (await only_receipt(store)).attempt == 2


async def test_a_stop_is_heard_even_if_the_store_never_listens(autojump_clock: MockClock) -> None:
    claims: list[Claimed] = []

    class Deaf(MemoryStore):
        async def claim_receipt(
            self,
            key: ReceiptKey,
            *,
            effect: Effect,
            owner: str,
            seconds: float,
            run: RunLease | None = None,
        ) -> Claimed:
            claim = partial(super().claim_receipt, key, effect=effect, owner=owner)
            with trio.CancelScope(shield=True):
                await trio.sleep(2)
                claims.append(await claim(seconds=seconds, run=run))
            return claims[-1]

    called, tools = paying("done")
    with trio.move_on_after(1) as scope:
        await asking(PAY).of(receipted(tools, Deaf()))
    assert scope.cancelled_caught
    assert called == []
    assert trio.current_time() == 2.0


async def test_a_claim_that_took_longer_than_it_lasts_is_made_again(
    autojump_clock: MockClock,
) -> None:
    store = SlowStore(after=10.0)
    called, tools = paying("done")

    async def recover() -> None:
        await trio.sleep(15)
        store.after = 0.0

    async with trio.open_nursery() as nursery:
        nursery.start_soon(recover)
        assert await asking(PAY).of(receipted(tools, store)) == Outcome.completed("done")
    assert len(called) == 1
    receipt = await only_receipt(store)
    assert (receipt.status, receipt.attempt) == ("completed", 2)


@pytest.mark.parametrize("stop", [0.5, 3.5], ids=["in the tool", "in the settlement"])
async def test_a_result_that_came_after_a_stop_is_settled_and_returned(
    stop: float, autojump_clock: MockClock
) -> None:
    store = SlowStore(settling=1.0)
    stubborn = stubborn_tool(3, "pay", result="paid")
    outcome = None
    went_on = False
    with trio.move_on_after(stop) as scope:
        outcome = await asking(PAY).of(receipted([stubborn], store))
        await trio.lowlevel.checkpoint()
        went_on = True
    assert outcome == Outcome.completed("paid")
    assert scope.cancelled_caught  # the stop was kept for the next checkpoint
    assert not went_on
    assert (await only_receipt(store)).status == "completed"


async def test_a_settlement_that_hangs_is_given_up_some_time_after_the_stop(
    autojump_clock: MockClock,
) -> None:
    store = SlowStore(settling=math.inf)
    _, tools = paying("done")
    with trio.move_on_after(4) as scope:
        await asking(PAY).of(receipted(tools, store))
    assert scope.cancelled_caught
    assert trio.current_time() == 4 + 9
    assert (await only_receipt(store)).status == "running"


# -- failures of the store ----------------------------------------------------------------------


class Breaking(MemoryStore):
    """A store of which one method raises."""

    def __init__(self, method: str, error: Exception) -> None:
        super().__init__()
        self.method, self.error = method, error

    def fail(self, method: str) -> None:
        if method == self.method:
            raise self.error

    async def claim_receipt(
        self,
        key: ReceiptKey,
        *,
        effect: Effect,
        owner: str,
        seconds: float,
        run: RunLease | None = None,
    ) -> Claimed:
        self.fail("claim")
        return await super().claim_receipt(
            key, effect=effect, owner=owner, seconds=seconds, run=run
        )

    async def renew_receipt(self, claim: ReceiptClaim) -> bool:
        self.fail("renew")
        return await super().renew_receipt(claim)

    async def settle_receipt(
        self, claim: ReceiptClaim, settlement: Settlement, result: JSON
    ) -> bool:
        self.fail("settle")
        return await super().settle_receipt(claim, settlement, result)


BREAKS = [
    ("claim", StoreError("store.unreachable", "down")),
    ("claim", LeaseLostError("run_1", owner="me")),
    ("claim", OSError("not wrapped")),
    ("settle", StoreError("store.full", "full")),
    ("settle", OSError("not wrapped")),
]


@pytest.mark.parametrize(("method", "error"), BREAKS)
async def test_a_failure_of_the_store_is_one_of_a_store_and_fatal(
    method: str, error: Exception, autojump_clock: MockClock
) -> None:
    store = Breaking(method, error)
    slow = slow_tool(5, "pay")
    toolset = receipted([slow], store)
    with pytest.raises((StoreError, LeaseLostError)) as caught:
        await asking(PAY).of(toolset)
    if isinstance(error, OSError):
        assert (caught.value.code, caught.value.__cause__) == ("store.failed", error)
    else:
        assert caught.value is error
    assert toolset.fatal(caught.value)
    assert not toolset.fatal(ValueError("another"))
    statuses = [each.status for each in await store.list_receipts(TENANT)]
    assert statuses == ([] if method == "claim" else ["running"])


async def test_a_renewal_that_fails_is_tried_again_whatever_it_raises(
    autojump_clock: MockClock,
) -> None:
    store = Breaking("renew", OSError("not wrapped"))
    outcome = await asking(PAY).of(receipted([slow_tool(5, "pay")], store))
    assert outcome.kind == "completed"


async def test_an_error_of_the_tool_is_as_fatal_as_its_toolset_says() -> None:
    class Strict(ToolList):
        def fatal(self, error: BaseException) -> bool:
            return isinstance(error, KeyError)

    toolset = receipted(Strict([raising("opaque")]), MemoryStore())
    assert toolset.fatal(KeyError())
    with pytest.raises(ValueError, match="middle") as caught:
        await asking(PAY).of(toolset)
    assert not toolset.fatal(caught.value)


async def test_every_failure_of_a_store_is_fatal_however_many_there_are(
    autojump_clock: MockClock,
) -> None:
    class Forgiving(ToolList):
        def fatal(self, error: BaseException) -> bool:
            return False

    store = Breaking("settle", StoreError("store.full", "full"))
    toolset = receipted(Forgiving([counting_tool("pay")]), store)
    failed: list[str] = []

    async def pays(number: int) -> None:
        kit = run_harness(
            [tool_call_turn([tool_call("pay")]), final_answer("Paid.")], tools=toolset
        )
        state = RunState(run_id=f"run_{number}", messages=[user_message("Pay.")])
        with pytest.raises(StoreError):
            await kit.run(state)
        failed.append(state.run_id)

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(pays, number)
    assert len(failed) == 40


async def test_a_store_that_answers_later_than_its_claims_last_is_given_up(
    autojump_clock: MockClock,
) -> None:
    called, tools = paying()
    with pytest.raises(StoreError, match=r"^5 claims took longer than the 9 s that they last"):
        await asking(PAY).of(receipted(tools, SlowStore(after=18)))
    assert called == []


async def test_a_result_that_does_not_load_is_fatal() -> None:
    store = MemoryStore()
    called, tools = paying()

    async def pay(arguments: dict[str, JSON], context: CallContext[object]) -> object:
        assert context.receipt is not None
        assert await store.settle_receipt(context.receipt, "completed", {"x-harness": 1})
        raise ValueError("gone")

    tool = define_tool("pay", "Pays.", schema={"type": "object"}, execute=pay)
    with pytest.raises(ValueError, match="gone"):
        await asking(PAY).of(receipted([tool], store))
    toolset = receipted(tools, store)
    with pytest.raises(StoreError, match="does not load") as caught:
        await asking(PAY).of(toolset)
    assert toolset.fatal(caught.value)
    assert called == []


async def test_nothing_is_claimed_for_a_run_that_somebody_else_has_taken(
    autojump_clock: MockClock,
) -> None:
    store = MemoryStore()
    run = RunKey(tenant=TENANT, run_id="run_1")
    await store.create_run(run, create_checkpoint("run_1", "Go."))
    lease = await store.acquire_run(run, owner="me", seconds=9.0)
    called, tools = paying("done")
    toolset = receipted(tools, store, lease=lease)
    assert await asking(PAY).of(toolset) == Outcome.completed("done")
    await trio.sleep(10)
    await store.acquire_run(run, owner="another", seconds=9.0)
    with pytest.raises(LeaseLostError) as caught:
        await asking(("pay", {"amount": 6})).of(toolset)
    assert toolset.fatal(caught.value)
    assert len(called) == 1
    assert len(await store.list_receipts(TENANT)) == 1


# -- which call it is ---------------------------------------------------------------------------


def lower(arguments: dict[str, JSON]) -> dict[str, JSON]:
    to = arguments["to"]
    if not isinstance(to, str):
        raise TypeError("a name is a text")
    return {"to": to.lower()}


@pytest.mark.rule("R-RCPT-08")
async def test_a_call_is_known_by_its_normalized_arguments() -> None:
    store = MemoryStore()
    called, tools = paying("done", normalize=lower)
    toolset = receipted(tools, store)
    await asking(("pay", {"to": "ANN"})).of(toolset)
    await asking(("pay", {"to": "ann"})).of(toolset)
    (context,) = called
    assert isinstance(context.call, NormalizedCall)
    assert context.call.arguments == '{"to":"ann"}'
    asked = asking(("pay", {"to": "ANN"}), ("pay", {"to": "Ann"}))
    await asked.of(toolset, 1)
    assert sorted(await receipts(store)) == ["pay/0", "pay/1"]


@pytest.mark.rule("R-RCPT-08")
async def test_arguments_that_a_schema_would_make_equal_are_two_calls() -> None:
    store = MemoryStore()
    called, tools = paying("done")
    toolset = receipted(tools, store)
    await asking(("pay", {"n": 1})).of(toolset)
    await asking(("pay", {"n": "1"})).of(toolset)
    assert len(called) == 2


async def test_a_call_that_has_no_normal_form_is_refused_and_leaves_no_receipt() -> None:
    store = MemoryStore()
    called, tools = paying("done", normalize=lower)
    outcome = await asking(("pay", {"to": 1})).of(receipted(tools, store))
    assert (outcome.kind, outcome.failure_kind) == ("failed", "validation")
    assert (called, await store.list_receipts(TENANT)) == ([], [])


@pytest.mark.parametrize("arguments", ["{", '{"a":1}{', "[1]", "\ud800", "null"])
async def test_arguments_that_cannot_be_read_are_answered_as_without_receipts(
    arguments: str,
) -> None:
    store = MemoryStore()
    called, tools = paying("done")
    asked = asking(("pay", arguments))
    outcome = await asked.of(receipted(tools, store))
    assert outcome == await asked.of(tools)
    assert outcome.failure_kind == "validation"
    assert called == []
    assert (await only_receipt(store)).status == "failed"


async def test_calls_whose_arguments_cannot_be_read_are_known_by_their_text() -> None:
    """A toolset may make sense of what is no JSON to us, and have an effect."""

    class Raw(ToolList):
        ran: list[str]

        async def execute(self, call: ToolCall, context: CallContext[Any]) -> Outcome:
            self.ran.append(call.arguments)
            return Outcome.completed(call.arguments)

    tools = Raw()
    tools.ran = []
    toolset = receipted(tools, MemoryStore())
    for text in ("pay 5", "pay 6", "pay 5"):
        await asking(("shell", text)).of(toolset)
    assert tools.ran == ["pay 5", "pay 6"]


@pytest.mark.parametrize("name", ["nobody", "", "x" * 10_000, "a\x00b"])
async def test_a_name_that_nobody_knows_is_answered_as_without_receipts(name: str) -> None:
    store = MemoryStore()
    asked = asking((name, {}))
    tools = ToolList([counting_tool("pay")])
    outcome = await asked.of(receipted(tools, store))
    assert outcome == await asked.of(tools)
    assert outcome.failure_kind == "not_found"
    assert len((await only_receipt(store)).key.tool) <= 200


@pytest.mark.rule("R-RCPT-01", "R-RCPT-16")
async def test_a_turn_made_again_in_another_order_finds_each_call_its_own_result() -> None:
    store = MemoryStore()
    count = counting_tool("pay")
    first = asking(("pay", {"n": 1}), ("pay", {"n": 2}), ("pay", {"n": 1}))
    toolset = receipted([count], store)
    was = [await first.of(toolset, place) for place in range(3)]
    assert [outcome.data for outcome in was] == [1, 2, 3]
    again = asking(("pay", {"n": 2}), ("pay", {"n": 1}), ("pay", {"n": 1}), ids="new")
    now = [await again.of(receipted([count], store), place) for place in range(3)]
    assert [outcome.data for outcome in now] == [2, 1, 3]
    assert count.started == 3


@pytest.mark.rule("R-RCPT-16")
async def test_an_equal_call_of_a_later_turn_is_another_call() -> None:
    store = MemoryStore()
    count = counting_tool("pay")
    toolset = receipted([count], store)
    first = asking(PAY)
    await first.of(toolset)
    settled: list[Message] = [
        assistant_message(None, [tool_call(*PAY, id="call_0")]),
        tool_message("call_0", success_envelope(1)),
    ]
    for _ in range(2):
        outcome = await asking(PAY, before=settled).of(toolset)
        assert outcome.data == 2
    assert sorted(await receipts(store)) == ["pay/0", "pay/1"]


async def test_each_run_has_receipts_of_its_own_unless_told_otherwise() -> None:
    store = MemoryStore()
    count = counting_tool("pay")
    toolset = receipted([count], store)
    for run_id in ("run_1", "run_2", "run_1"):
        await asking(PAY, run_id=run_id).of(toolset)
    assert count.started == 2
    fixed = receipted([count], store, run_id="order_7")
    for run_id in ("run_1", "run_2"):
        await asking(PAY, run_id=run_id).of(fixed)
    assert count.started == 3
    assert {each.key.run_id for each in await store.list_receipts(TENANT)} == {
        "run_1", "run_2", "order_7"
    }  # fmt: skip


async def test_any_number_of_runs_is_served_and_few_are_remembered() -> None:
    store = MemoryStore()
    count = counting_tool("pay")
    toolset = receipted([count], store)
    for number in range(200):
        await asking(PAY, run_id=f"run_{number}").of(toolset)
    assert len(toolset._runs) == 64
    await asking(PAY, run_id="run_0").of(toolset)
    assert count.started == 200


@pytest.mark.rule("R-RCPT-02")
async def test_tenants_who_share_a_store_do_not_meet() -> None:
    store = MemoryStore()
    count = counting_tool("pay")
    for tenant in ("acme", "umbrella"):
        await asking(PAY).of(receipted([count], store, tenant=tenant))
    assert count.started == 2
    assert len(await store.list_receipts("umbrella")) == 1


# -- a toolset like any other -------------------------------------------------------------------


async def test_everything_else_is_passed_on() -> None:
    called, tools = paying("done", normalize=lower, grace=3.0)
    toolset = receipted(tools, MemoryStore())
    asked = asking(("pay", {"to": "ANN"}))
    call = asked.batch.calls[0]
    assert toolset.definitions() is tools.definitions()
    assert toolset.policy(call) == tools.policy(call)
    assert normalized(toolset, call) == normalized(tools, call)
    assert rendered(toolset, call, Outcome.completed(1)) == rendered(
        tools, call, Outcome.completed(1)
    )
    assert repr(toolset).startswith("ReceiptToolset(")
    assert called == []


async def test_what_is_no_outcome_says_nothing_of_how_the_call_ended() -> None:
    class Broken(ToolList):
        async def execute(self, call: ToolCall, context: CallContext[Any]) -> Outcome:
            return None  # type: ignore[return-value]  # what is being tested

    store = MemoryStore()
    with pytest.raises(TypeError, match="the toolset returned None, expected an Outcome"):
        await asking(PAY).of(receipted(Broken(), store))
    assert (await only_receipt(store)).status == "running"


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"seconds": 0}, ValueError, "seconds is 0, expected seconds that are positive"),
        ({"seconds": math.inf}, ValueError, "seconds is inf"),
        ({"seconds": True}, TypeError, "seconds is True"),
        ({"tenant": ""}, ValueError, "tenant is '', expected a text"),
        ({"run_id": ""}, ValueError, "run_id is '', expected a text"),
        (
            {
                "lease": RunLease(
                    key=RunKey(tenant="other", run_id="r"), owner="me", fence=1, seconds=1.0
                )
            },
            ValueError,
            "the lease is of the tenant 'other', expected 'acme'",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        receipted([], MemoryStore(), **options)
    with pytest.raises(ToolDefinitionError):
        receipted([print], MemoryStore())
