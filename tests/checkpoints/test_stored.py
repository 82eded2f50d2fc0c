"""Stored runs: one worker at a time, given back on every exit, gone on with after any crash."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness import (
    Limits,
    Message,
    ModelRequest,
    ModelTurn,
    Run,
    Suspend,
    Tool,
    TurnStream,
    assistant_message,
    tool,
    user_message,
)
from harness._durable import RunKey, RunLease
from harness._errors import error_text
from harness.checkpoints import (
    Checkpoint,
    CheckpointedRun,
    Commit,
    MessageInput,
    ReplyInput,
    Restored,
    StoredRun,
    WakeInput,
    apply_stored_input,
    check_checkpoint,
    create_checkpoint,
    fork_stored,
    open_stored_run,
    run_stored,
)
from harness.errors import (
    CheckpointInputError,
    LeaseLostError,
    RecordError,
    RunBusyError,
    RunExistsError,
    RunNotFoundError,
    RunUseError,
    StaleRevisionError,
    StoreError,
)
from harness.receipts import with_receipts
from harness.receipts._toolset import AMBIGUOUS_TEXT
from harness.stores import MemoryStore
from harness.testing import (
    FakeTool,
    Scene,
    ScriptedModel,
    ScriptItem,
    cancel_everywhere,
    final_answer,
    run_virtual,
    scripted_model,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)

KEY: Final = RunKey(tenant="tenant", run_id="run")


class Clock:
    """A store's clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


@attrs.define
class World:
    """A store with a run in it, and what its worker works with."""

    store: MemoryStore
    clock: Clock
    script: ScriptedModel
    tool: FakeTool

    @asynccontextmanager
    async def restore(self, checkpoint: Checkpoint, lease: RunLease) -> AsyncIterator[Restored]:
        assert (checkpoint.run_id, lease.key) == ("run", KEY)
        yield Restored(
            model=self.script,
            options={"tools": [self.tool]},
            capture_bindings=lambda: {"by": lease.owner},
        )

    async def listed(self) -> StoredRun:
        (only,) = await self.store.list_runs("tenant")
        return only


async def world(
    turns: Sequence[ScriptItem] | None = None,
    *,
    seconds: float = 2.0,
    result: object = None,
    store: type[MemoryStore] = MemoryStore,
) -> World:
    if turns is None:
        turns = [
            timed(1, tool_call_turn([tool_call("look", id="a")])),
            timed(1, tool_call_turn([tool_call("look", id="b")])),
            timed(1, final_answer("Found.")),
        ]
    clock = Clock()
    made = World(
        store(clock=clock, wall_clock=clock),
        clock,
        scripted_model(turns),
        slow_tool(seconds, "look", result=result),
    )
    await made.store.create_run(KEY, create_checkpoint("run", "Go."))
    return made


# -- one worker at a time ------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-07", "R-CKPT-20")
async def test_a_stored_run_is_committed_revision_by_revision(autojump_clock: MockClock) -> None:
    at = await world()
    ended = await run_stored(at.store, KEY, at.restore, owner="me")
    assert ended.stop_reason == "done"
    for revision in range(4):
        stored = await at.store.load_run(KEY, revision=revision)
        check_checkpoint(stored)
        assert stored.revision == revision
        assert stored.head.bindings == ({"by": "me"} if revision else None)
    assert await at.store.load_run(KEY) == ended.checkpoint
    assert (await at.listed()).owner is None


@pytest.mark.rule("R-CKPT-20")
async def test_a_commit_that_follows_no_stored_revision_is_refused(
    autojump_clock: MockClock,
) -> None:
    at = await world()
    first = await at.store.load_run(KEY)
    head = attrs.evolve(first.head, revision=2)
    lease = await at.store.acquire_run(KEY, owner="me", seconds=10)
    with pytest.raises(StaleRevisionError):
        await at.store.commit_run(lease, Commit(head=head, keep=1, tail=()))
    assert await at.store.load_run(KEY) == first


@pytest.mark.rule("R-CKPT-20")
async def test_a_run_that_somebody_holds_is_not_run(autojump_clock: MockClock) -> None:
    at = await world()
    async with open_stored_run(at.store, KEY, at.restore, owner="me"):
        with pytest.raises(RunBusyError, match="held by 'me'"):
            await run_stored(at.store, KEY, at.restore, owner="other")
    assert len(at.script.requests) <= 1


async def test_a_run_that_is_not_there_is_not_run() -> None:
    at = await world()
    with pytest.raises(RunNotFoundError):
        await run_stored(at.store, attrs.evolve(KEY, run_id="x"), at.restore, owner="me")


@pytest.mark.rule("R-CKPT-10")
async def test_a_stored_run_that_waits_or_is_finished_is_given_back_unrun(
    autojump_clock: MockClock,
) -> None:
    at = await world([final_answer("Found.")])
    await run_stored(at.store, KEY, at.restore, owner="me")
    again = await run_stored(at.store, KEY, at.restore, owner="me")
    assert (again.stop_reason, again.result, again.checkpoint.revision) == ("done", None, 1)
    with pytest.raises(RunUseError, match="is finished, expected one that is ready"):
        async with open_stored_run(at.store, KEY, at.restore, owner="me"):
            pass
    assert (await at.listed()).owner is None


async def test_a_lease_is_renewed_for_as_long_as_the_run_lasts(autojump_clock: MockClock) -> None:
    at = await world(seconds=100)

    async def pass_time() -> None:
        while True:
            await trio.sleep(1)
            at.clock.now += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_time)
        await run_stored(at.store, KEY, at.restore, owner="me", seconds=9)
        nursery.cancel_scope.cancel()
    assert (await at.store.load_run(KEY)).status == "finished"


@pytest.mark.rule("R-CKPT-28")
async def test_legs_are_numbered_by_the_fence_even_if_they_committed_nothing(
    autojump_clock: MockClock,
) -> None:
    at = await world()
    ids = []
    for number in (1, 2, 3):
        with trio.move_on_after(0.5 if number < 3 else 100):
            await run_stored(at.store, KEY, at.restore, owner="me")
        ids.append(at.script.requests[number - 1].turn_id)
    assert ids == ["run:1:0", "run:2:0", "run:3:0"]
    assert (await at.store.load_run(KEY)).head.position.leg == 3


@pytest.mark.rule("R-CKPT-28")
async def test_a_run_that_was_begun_elsewhere_does_not_count_its_legs_anew(
    autojump_clock: MockClock,
) -> None:
    at = await world()
    begun = create_checkpoint("run", "Go.")
    position = attrs.evolve(begun.head.position, leg=5)
    begun = attrs.evolve(begun, head=attrs.evolve(begun.head, position=position))
    store = MemoryStore()
    await store.create_run(KEY, begun)
    await run_stored(store, KEY, at.restore, owner="me")
    assert at.script.requests[0].turn_id == "run:6:0"


# -- losing a lease ------------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-20", "R-CKPT-21")
@pytest.mark.parametrize(
    ("at_second", "end"), [(3.5, "cancelled"), (4.5, "cancelled"), (20.5, "returned")]
)
async def test_who_has_lost_the_lease_commits_nothing_and_its_tools_are_cancelled(
    at_second: float, end: str, autojump_clock: MockClock
) -> None:
    at = await world(seconds=20)  # its only call is entered in the second second

    async def take_over() -> None:
        await trio.sleep(at_second)
        at.clock.now += 1_000
        at_revision.append((await at.store.load_run(KEY)).revision)
        await at.store.acquire_run(KEY, owner="other", seconds=500)

    at_revision: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_over)
        with pytest.raises(LeaseLostError, match="^'me' no longer holds run 'run'$"):
            await run_stored(at.store, KEY, at.restore, owner="me", seconds=9)
    assert [visit.end for visit in at.tool.visits] == [end]
    assert (await at.store.load_run(KEY)).revision == at_revision[0] == 0
    assert (await at.listed()).owner == "other"


@pytest.mark.rule("R-CKPT-20")
async def test_a_block_is_cut_when_its_lease_is_lost(autojump_clock: MockClock) -> None:
    at = await world(seconds=20)
    opened: Run | None = None
    with pytest.raises(LeaseLostError):
        async with open_stored_run(at.store, KEY, at.restore, owner="me", seconds=9) as opened:
            await trio.sleep(2)
            at.clock.now += 1_000
            await at.store.acquire_run(KEY, owner="other", seconds=500)
            await trio.sleep_forever()
    assert opened is not None
    assert opened.result.stop_reason == "cancelled"
    assert trio.current_time() < 9


class _Unreachable(MemoryStore):
    """A store whose leases cannot be renewed nor given back."""

    async def renew_run(self, lease: RunLease) -> bool:
        await trio.lowlevel.checkpoint()
        raise StoreError("store.unreachable", "the database does not answer")

    async def release_run(self, lease: RunLease) -> None:
        await trio.lowlevel.checkpoint()
        raise StoreError("store.unreachable", "the database does not answer")


async def test_a_store_that_cannot_be_reached_costs_the_lease_and_no_more(
    autojump_clock: MockClock,
) -> None:
    at = await world(seconds=20, store=_Unreachable)
    with pytest.raises(LeaseLostError) as caught:
        await run_stored(at.store, KEY, at.restore, owner="me", seconds=9)
    assert error_text(caught.value.__cause__ or ValueError()) == "the database does not answer"
    assert trio.current_time() == 9
    assert [visit.end for visit in at.tool.visits] == ["cancelled"]


@pytest.mark.rule("R-CKPT-20")
async def test_a_lost_lease_is_told_whatever_else_fails_on_the_way_out(
    autojump_clock: MockClock,
) -> None:
    at = await world(seconds=20, store=_Unreachable)

    @asynccontextmanager
    async def restore(checkpoint: Checkpoint, lease: RunLease) -> AsyncIterator[Restored]:
        try:
            async with at.restore(checkpoint, lease) as restored:
                yield restored
        finally:
            raise ConnectionError("closing the sandbox failed")

    with pytest.raises(LeaseLostError) as caught:
        await run_stored(at.store, KEY, restore, owner="me", seconds=9)
    assert isinstance(caught.value.__cause__, ConnectionError)


@pytest.mark.rule("R-CKPT-20")
async def test_a_leg_that_had_ended_when_its_lease_was_over_has_its_result(
    autojump_clock: MockClock,
) -> None:
    class Slow(MemoryStore):
        """A store whose last commit takes longer than the lease, and cannot be cut."""

        async def commit_run(self, lease: RunLease, commit: Commit) -> None:
            await super().commit_run(lease, commit)
            if commit.head.status == "finished":
                with trio.CancelScope(shield=True):
                    await trio.sleep(60)

    at = await world(seconds=2, store=Slow)
    ended = await run_stored(at.store, KEY, at.restore, owner="me", seconds=9)
    assert ended.stop_reason == "done"
    assert ended.checkpoint == await at.store.load_run(KEY)


async def test_what_restore_opens_is_looked_at(autojump_clock: MockClock) -> None:
    at = await world(seconds=2)

    @asynccontextmanager
    async def restore(checkpoint: Checkpoint, lease: RunLease) -> AsyncIterator[Restored]:
        yield None  # type: ignore[misc]  # wrong on purpose

    with pytest.raises(TypeError, match=r"^restore answered None, expected a Restored$"):
        await run_stored(at.store, KEY, restore, owner="me", seconds=9)


# -- giving back ---------------------------------------------------------------------------------


class _FullOnCommit(MemoryStore):
    async def commit_run(self, lease: RunLease, commit: Commit) -> None:
        await trio.lowlevel.checkpoint()
        raise StoreError("store.full", "there is no space left")


class _Corrupt(MemoryStore):
    async def load_run(self, key: RunKey, *, revision: int | None = None) -> Checkpoint:
        await trio.lowlevel.checkpoint()
        raise RecordError("it is no object")


class _NoRelease(MemoryStore):
    async def release_run(self, lease: RunLease) -> None:
        await trio.lowlevel.checkpoint()
        raise StoreError("store.busy", "the database is locked")


class _SlowRelease(MemoryStore):
    async def release_run(self, lease: RunLease) -> None:
        await trio.sleep(1_000)
        await super().release_run(lease)


@pytest.mark.rule("R-CKPT-27")
@pytest.mark.parametrize("how", ["done", "abort", "deadline", "body", "cancel", "leave"])
async def test_a_run_is_given_back_on_every_exit(how: str, autojump_clock: MockClock) -> None:
    at = await world()
    deadline = trio.current_time() + (1.5 if how == "deadline" else 1_000)
    with trio.CancelScope() as scope:
        try:
            opening = open_stored_run(at.store, KEY, at.restore, owner="me", deadline=deadline)
            async with opening as run:
                await trio.sleep(1.5)
                assert (await at.listed()).owner == "me"
                if how == "abort":
                    run.abort()
                elif how == "body":
                    raise KeyError("the body's")
                elif how == "cancel":
                    scope.cancel("stop")
                if how != "leave":
                    await run.wait()
        except KeyError:
            assert how == "body"
    assert scope.cancelled_caught == (how == "cancel")
    assert (await at.listed()).owner is None


@pytest.mark.rule("R-CKPT-27")
@pytest.mark.parametrize(
    ("store", "code"), [(_FullOnCommit, "store.full"), (_Corrupt, "record.invalid")]
)
async def test_a_run_is_given_back_when_its_store_fails(
    store: type[MemoryStore], code: str, autojump_clock: MockClock
) -> None:
    at = await world(store=store)
    with pytest.raises((StoreError, RecordError)) as caught:
        await run_stored(at.store, KEY, at.restore, owner="me")
    assert caught.value.code == code, error_text(caught.value)
    lease = await at.store.acquire_run(KEY, owner="other", seconds=5)  # nobody holds it
    assert lease.fence == 2


async def test_a_run_is_given_back_when_restoring_it_fails() -> None:
    at = await world()

    @asynccontextmanager
    async def restore(checkpoint: Checkpoint, lease: RunLease) -> AsyncIterator[Restored]:
        if lease.fence == 1:
            raise LookupError("room 7 is gone")
        async with at.restore(checkpoint, lease) as restored:
            yield restored

    with pytest.raises(LookupError, match="room 7 is gone"):
        await run_stored(at.store, KEY, restore, owner="me")
    assert ((await at.listed()).owner, at.script.requests) == (None, [])


@pytest.mark.rule("R-CKPT-27")
async def test_a_run_that_cannot_be_given_back_has_ended_all_the_same(
    autojump_clock: MockClock,
) -> None:
    at = await world(store=_NoRelease)
    ended = await run_stored(at.store, KEY, at.restore, owner="me")
    assert (ended.stop_reason, (await at.listed()).owner) == ("done", "me")


@pytest.mark.rule("R-CKPT-27")
async def test_giving_back_takes_its_time_until_a_stop_and_then_little(
    autojump_clock: MockClock,
) -> None:
    at = await world(store=_SlowRelease)
    with trio.move_on_after(1.5) as scope:
        await run_stored(at.store, KEY, at.restore, owner="me")
    assert scope.cancelled_caught
    assert trio.current_time() == 1.5 + 5


# -- input and forks -----------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-11", "R-CKPT-12")
async def test_input_is_applied_to_a_stored_run_by_anybody(autojump_clock: MockClock) -> None:
    turns = [tool_call_turn([tool_call("look", id="a")]), final_answer("So be it.")]
    at = await world(turns, result=Suspend.answer("Really?"))
    waits = await run_stored(at.store, KEY, at.restore, owner="me")
    assert (await at.listed()).questions == ("Really?",)

    for wrong in (WakeInput(), ReplyInput(call_id="b", value=1)):
        with pytest.raises(CheckpointInputError):
            await apply_stored_input(at.store, KEY, wrong, owner="other")
    assert await at.store.load_run(KEY) == waits.checkpoint

    reply = ReplyInput(call_id="a", value="yes")
    after = await apply_stored_input(at.store, KEY, reply, owner="other")
    assert (after.status, await at.store.load_run(KEY)) == ("ready", after)
    assert ((await at.listed()).owner, (await at.listed()).questions) == (None, ())
    ended = await run_stored(at.store, KEY, at.restore, owner="me")
    assert ended.checkpoint.messages[-1] == assistant_message("So be it.")
    assert ended.stop_reason == "done"


async def test_input_waits_for_nobody_and_takes_nothing_from_a_worker(
    autojump_clock: MockClock,
) -> None:
    at = await world()
    more = MessageInput(message=user_message("And?"))
    async with open_stored_run(at.store, KEY, at.restore, owner="me") as run:
        with pytest.raises(RunBusyError):
            await apply_stored_input(at.store, KEY, more, owner="other")
        await run.wait()
    assert run.result.stop_reason == "done"
    assert (await apply_stored_input(at.store, KEY, more, owner="other")).status == "ready"


@pytest.mark.rule("R-CKPT-15", "R-CKPT-17")
async def test_a_fork_is_stored_as_a_run_of_its_own(autojump_clock: MockClock) -> None:
    at = await world()
    source = (await run_stored(at.store, KEY, at.restore, owner="me")).checkpoint
    key = attrs.evolve(KEY, run_id="fork")
    forked = await fork_stored(at.store, source, key, limits=Limits(turns=2), bindings="copy")
    assert await at.store.load_run(key) == forked
    assert forked.head.parent is not None
    assert (forked.head.parent.run_id, forked.head.parent.revision) == ("run", 3)
    assert await at.store.load_run(KEY) == source
    with pytest.raises(RunExistsError):
        await fork_stored(at.store, source, key, limits=Limits(), bindings=None)
    with pytest.raises(ValueError, match="expected one of its own"):
        await fork_stored(at.store, source, KEY, limits=Limits(), bindings=None)


# -- every cut -----------------------------------------------------------------------------------

_CALLS: Final = (["pay", "look"], ["pay", "pay"])


@attrs.define(eq=False)
class _Shop:
    """A run that pays four times, and whose model says what the transcript calls for."""

    clock: Clock = attrs.field(factory=Clock)
    paid: list[str] = attrs.field(factory=list)
    store: MemoryStore = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock, wall_clock=self.clock)

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn:
        await trio.sleep(1)
        turn = sum(each["role"] == "assistant" for each in request.messages)
        if turn == len(_CALLS):
            return final_answer("Paid.")
        return tool_call_turn(
            [
                tool_call(name, {"bill": f"{turn}-{place}"}, id=f"{turn}-{place}")
                for place, name in enumerate(_CALLS[turn])
            ]
        )

    def tools(self) -> list[Tool]:
        @tool
        async def pay(bill: str) -> str:
            """Pay a bill."""
            await trio.sleep(1)
            self.paid.append(bill)
            await trio.sleep(1)
            return f"paid {bill}"

        @tool(effect="none")
        async def look(bill: str) -> str:
            """Look at a bill."""
            await trio.sleep(1)
            return f"seen {bill}"

        return [pay, look]

    @asynccontextmanager
    async def restore(self, checkpoint: Checkpoint, lease: RunLease) -> AsyncIterator[Restored]:
        tools = with_receipts(self.tools(), self.store, tenant="tenant", lease=lease)
        yield Restored(model=self.complete, options={"tools": tools}, capture_bindings=dict)

    async def open_shop(self) -> None:
        await self.store.create_run(KEY, create_checkpoint("run", "Pay the bills."))

    async def go_on(self) -> CheckpointedRun | None:
        """Go on in another process, a while later; None if the run had not even been stored."""
        self.clock.now += 1_000
        try:
            stored = await self.store.load_run(KEY)
        except RunNotFoundError:
            return None
        check_checkpoint(stored)
        return await run_stored(self.store, KEY, self.restore, owner="next")


async def _uncut() -> Sequence[Message]:
    shop = _Shop()
    await shop.open_shop()
    return (await run_stored(shop.store, KEY, shop.restore, owner="me")).checkpoint.messages


def _check_went_on(shop: _Shop, uncut: Sequence[Message]) -> None:
    ended = run_virtual(shop.go_on)
    if ended is None:
        assert shop.paid == []
        return
    assert ended.stop_reason == "done"
    messages = ended.checkpoint.messages
    doubtful = {
        str(each["tool_call_id"])
        for each in messages
        if each["role"] == "tool" and AMBIGUOUS_TEXT in str(each["content"])
    }
    assert len(messages) == len(uncut)
    for mine, theirs in zip(messages, uncut, strict=True):
        assert mine == theirs or mine.get("tool_call_id") in doubtful
    paid = Counter(shop.paid)
    assert all(count == 1 for count in paid.values()), paid
    assert {*paid} | doubtful == {"0-0", "1-0", "1-1"}


async def _plain(scene: Scene, shop: _Shop) -> None:
    await run_stored(shop.store, KEY, shop.restore, owner="me")


async def _aborted(scene: Scene, shop: _Shop) -> None:
    async with open_stored_run(shop.store, KEY, shop.restore, owner="me") as run:
        scene.on_cut(run.abort)
        await run.wait()


@pytest.mark.slow
@pytest.mark.rule("R-CKPT-21", "R-CKPT-22")
@pytest.mark.parametrize("leg", [_plain, _aborted])
def test_a_run_goes_on_after_every_cut_and_pays_once(
    leg: Callable[[Scene, _Shop], Awaitable[None]],
) -> None:
    uncut = run_virtual(_uncut)

    async def scenario(scene: Scene) -> None:
        shop = _Shop()
        scene.afterwards(partial(_check_went_on, shop, uncut))
        await shop.open_shop()
        await leg(scene, shop)

    cancel_everywhere(scenario, minimum=120)


@pytest.mark.rule("R-CKPT-27")
def test_input_that_is_cut_was_applied_or_not_and_the_run_is_given_back() -> None:
    async def scenario(scene: Scene) -> None:
        store = MemoryStore()
        await store.create_run(KEY, create_checkpoint("run", "Hello."))
        scene.afterwards(lambda: run_virtual(partial(_check_input, store)))
        await apply_stored_input(
            store, KEY, MessageInput(message=user_message("More.")), owner="clerk"
        )

    cancel_everywhere(scenario, minimum=8)


async def _check_input(store: MemoryStore) -> None:
    (run,) = await store.list_runs("tenant")
    stored = await store.load_run(KEY)
    assert run.owner is None
    assert len(stored.messages) == 1 + stored.revision
    check_checkpoint(stored)
