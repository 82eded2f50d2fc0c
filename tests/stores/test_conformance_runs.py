"""What every store of checkpoints promises, a test for each sentence of the protocol."""

import math
from datetime import UTC, datetime

import attrs
import pytest
import trio

from harness._durable import RunKey, RunLease
from harness._errors import (
    LeaseLostError,
    RunBusyError,
    RunExistsError,
    RunNotFoundError,
    StaleRevisionError,
)
from harness._messages import Message, assistant_message, user_message
from harness._toolset import Reply, Suspend
from harness._usage import Usage
from harness.checkpoints import Checkpoint, CheckpointHead, CheckpointRef, Commit, Position
from harness.kernel import Limits, Pause, RunStats, RunUsage, ToolStats
from tests.stores.conformance import (
    KEY,
    ODD_TEXTS,
    Subject,
    a_checkpoint,
    a_commit,
    a_head,
    texts,
)


def _full_head(revision: int = 0) -> CheckpointHead:
    """Return a head with something in every field."""
    pause = Pause(
        open=("c1", "c2", "c3"),
        suspends={
            "c1": Suspend(kind="answer", question="Pay?", payload={"amount": 3}),
            "c2": Suspend(kind="answer", question="Really?"),
            "c3": Suspend(kind="wake", at=datetime(2027, 1, 1, tzinfo=UTC)),
        },
        replies={"c2": Reply(value=["yes"])},
        memo={"asked": 1},
    )
    head = a_head(revision, status="waiting_for_reply", pause=pause, bindings={"model": ["m", 1]})
    return attrs.evolve(
        head,
        parent=CheckpointRef(run_id="elder", revision=4),
        limits=Limits(turns=None, tool_calls=5, tokens=1000, cost_cents=2.5),
        position=Position(
            leg=2,
            turn=7,
            tool_calls=9,
            calls_taken=8,
            usage=RunUsage(input=10, cached_input=4, output=5, cost_cents=0.25, last_prompt=3),
            compactions=1,
            forgotten={"d": 2},
        ),
        stats=RunStats(
            turns=7,
            usage=Usage(input=10, output=5),
            per_tool={"pay": ToolStats(calls=2, failures=1, time=0.5)},
        ),
    )


async def _held(subject: Subject, *words: str, owner: str = "owner") -> RunLease:
    """Store a run and take it."""
    await subject.store.create_run(KEY, a_checkpoint(*words))
    return await subject.store.acquire_run(KEY, owner=owner, seconds=subject.lease)


# -- creating and loading ----------------------------------------------------------------------


async def test_a_run_loads_as_it_was_stored(subject: Subject) -> None:
    answer: Message = assistant_message(None)
    answer["x-other"] = {"deep": [1, 2.5, None]}  # type: ignore[typeddict-unknown-key]
    stored = Checkpoint(head=_full_head(), messages=(*texts("hi", "猫\x00"), answer))
    await subject.store.create_run(KEY, stored)
    async with subject.open_store() as other:
        assert await other.load_run(KEY) == stored
        assert await other.load_run(KEY, revision=0) == stored


@pytest.mark.rule("R-STORE-13")
async def test_what_a_store_keeps_is_its_own(subject: Subject) -> None:
    message = user_message("hi")
    given = Checkpoint(head=_full_head(), messages=(message,))
    await subject.store.create_run(KEY, given)
    stored = await subject.store.load_run(KEY)
    for one in (given, stored):
        one.messages[0]["content"] = "changed"
        one.head.stats.turns += 1
        assert one.head.pause is not None
        one.head.pause.replies.clear()
    again = await subject.store.load_run(KEY)
    assert again.messages == texts("hi")
    assert again.head == _full_head()


async def test_what_is_committed_is_the_stores_own(subject: Subject) -> None:
    lease = await _held(subject)
    commit = a_commit(1, 0, "hi")
    await subject.store.commit_run(lease, commit)
    commit.tail[0]["content"] = "changed"
    commit.head.stats.turns += 1
    loaded = await subject.store.load_run(KEY)
    assert (loaded.messages, loaded.head.stats.turns) == (texts("hi"), 0)


async def test_a_run_is_created_once(subject: Subject) -> None:
    await subject.store.create_run(KEY, a_checkpoint("first"))
    with pytest.raises(RunExistsError) as caught:
        await subject.store.create_run(KEY, a_checkpoint("second"))
    assert caught.value.run_id == "run"
    await subject.store.create_run(attrs.evolve(KEY, tenant="another"), a_checkpoint("theirs"))
    assert (await subject.store.load_run(KEY)).messages == texts("first")


async def test_a_checkpoint_of_another_run_is_refused(subject: Subject) -> None:
    other = a_checkpoint(head=a_head(run_id="other"))
    with pytest.raises(ValueError, match=r"^the checkpoint is of run 'other', expected run 'run'$"):
        await subject.store.create_run(KEY, other)
    with pytest.raises(ValueError, match=r"^CheckpointHead.revision is -1, expected at least 0$"):
        await subject.store.create_run(KEY, a_checkpoint(head=a_head(-1)))
    assert not await subject.store.list_runs("tenant")


async def test_what_is_not_there_does_not_load(subject: Subject) -> None:
    store = subject.store
    with pytest.raises(RunNotFoundError) as caught:
        await store.load_run(KEY)
    assert (caught.value.run_id, caught.value.revision) == ("run", None)
    await store.create_run(KEY, a_checkpoint(head=a_head(5)))
    for revision in (0, 4, 6, -1, 2**70, -(2**70)):
        with pytest.raises(RunNotFoundError) as caught:
            await store.load_run(KEY, revision=revision)
        assert (caught.value.run_id, caught.value.revision) == ("run", revision)
    for key in (attrs.evolve(KEY, tenant="x"), attrs.evolve(KEY, run_id="x")):
        with pytest.raises(RunNotFoundError):
            await store.load_run(key)
        with pytest.raises(RunNotFoundError):
            await store.acquire_run(key, owner="x", seconds=1)


async def test_a_run_may_start_at_any_revision(subject: Subject) -> None:
    await subject.store.create_run(KEY, a_checkpoint("a", head=a_head(5)))
    lease = await subject.store.acquire_run(KEY, owner="x", seconds=9)
    await subject.store.commit_run(lease, a_commit(6, 1, "b"))
    assert (await subject.store.load_run(KEY)).messages == texts("a", "b")
    assert (await subject.store.load_run(KEY, revision=5)).messages == texts("a")


# -- the lease ---------------------------------------------------------------------------------


async def test_one_worker_holds_a_run(subject: Subject) -> None:
    lease = await _held(subject)
    assert lease == RunLease(key=KEY, owner="owner", fence=1, seconds=subject.lease)
    for owner in ("other", "owner"):
        with pytest.raises(RunBusyError) as caught:
            await subject.store.acquire_run(KEY, owner=owner, seconds=1)
        assert (caught.value.run_id, caught.value.owner) == ("run", "owner")
        assert 0 < caught.value.seconds <= subject.lease


async def test_a_run_that_was_given_back_is_free_at_once(subject: Subject) -> None:
    lease = await _held(subject)
    await subject.store.release_run(lease)
    second = await subject.store.acquire_run(KEY, owner="owner", seconds=1)
    assert second.fence == 2
    await subject.store.release_run(lease)  # which is not its any more
    assert await subject.store.renew_run(second)
    assert not await subject.store.renew_run(lease)


@pytest.mark.rule("R-STORE-12")
async def test_who_gave_a_run_back_writes_no_more(subject: Subject) -> None:
    lease = await _held(subject)
    await subject.store.release_run(lease)
    with pytest.raises(LeaseLostError):
        await subject.store.commit_run(lease, a_commit(1, 0, "late"))
    assert not await subject.store.renew_run(lease)
    assert (await subject.store.load_run(KEY)).revision == 0


@pytest.mark.rule("R-STORE-12")
async def test_a_worker_that_was_overtaken_writes_nothing(subject: Subject) -> None:
    first = await _held(subject)
    await subject.let_pass(1.1)
    async with subject.open_store() as other:
        second = await other.acquire_run(KEY, owner="other", seconds=9)
        assert second.fence == 2
        with pytest.raises(LeaseLostError) as caught:
            await subject.store.commit_run(first, a_commit(1, 0, "late"))
        assert (caught.value.run_id, caught.value.owner) == ("run", "owner")
        assert not await subject.store.renew_run(first)
        await subject.store.release_run(first)
        await other.commit_run(second, a_commit(1, 0, "in time"))
    assert (await subject.store.load_run(KEY)).messages == texts("in time")


async def test_the_fence_counts_and_not_the_owners_name(subject: Subject) -> None:
    first = await _held(subject)
    await subject.let_pass(1.1)
    second = await subject.store.acquire_run(KEY, owner="owner", seconds=9)
    for stale in (first, attrs.evolve(second, fence=3), attrs.evolve(second, owner="other")):
        with pytest.raises(LeaseLostError):
            await subject.store.commit_run(stale, a_commit(1, 0))
        assert not await subject.store.renew_run(stale)


@pytest.mark.rule("R-STORE-12")
async def test_a_lease_that_is_over_commits_until_somebody_takes_over(subject: Subject) -> None:
    lease = await _held(subject)
    await subject.let_pass(1.1)
    await subject.store.commit_run(lease, a_commit(1, 0, "late, and alone"))
    assert await subject.store.renew_run(lease)
    with pytest.raises(RunBusyError):
        await subject.store.acquire_run(KEY, owner="other", seconds=1)


async def test_a_renewed_lease_lasts_for_its_seconds_from_then(subject: Subject) -> None:
    lease = await _held(subject)
    await subject.let_pass(0.6)
    assert await subject.store.renew_run(lease)
    await subject.let_pass(0.6)
    with pytest.raises(RunBusyError):
        await subject.store.acquire_run(KEY, owner="other", seconds=1)
    await subject.let_pass(0.6)
    assert (await subject.store.acquire_run(KEY, owner="other", seconds=1)).fence == 2


async def test_a_lease_of_a_run_that_is_not_there_is_not_held(subject: Subject) -> None:
    lease = RunLease(key=KEY, owner="x", fence=1, seconds=1)
    assert not await subject.store.renew_run(lease)
    await subject.store.release_run(lease)
    with pytest.raises(LeaseLostError):
        await subject.store.commit_run(lease, a_commit(1, 0))
    assert not await subject.store.list_runs("tenant")


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, True])
async def test_a_lease_lasts_for_a_positive_time(subject: Subject, seconds: float) -> None:
    await subject.store.create_run(KEY, a_checkpoint())
    with pytest.raises((TypeError, ValueError), match=r"^RunLease.seconds is "):
        await subject.store.acquire_run(KEY, owner="x", seconds=seconds)
    assert (await subject.store.acquire_run(KEY, owner="x", seconds=1)).fence == 1


@pytest.mark.rule("R-STORE-11")
async def test_a_clock_that_jumps_costs_a_second_worker_and_no_second_commit(
    subject: Subject,
) -> None:
    if subject.clock is None:
        pytest.skip("its clock cannot be moved")
    first = await _held(subject)
    subject.clock.now += 1e6
    second = await subject.store.acquire_run(KEY, owner="other", seconds=subject.lease)
    with pytest.raises(LeaseLostError):
        await subject.store.commit_run(first, a_commit(1, 0, "first"))
    subject.clock.now -= 2e6
    with pytest.raises(RunBusyError):
        await subject.store.acquire_run(KEY, owner="third", seconds=1)
    await subject.store.commit_run(second, a_commit(1, 0, "second"))
    assert await subject.store.renew_run(second)
    subject.clock.now += 1.1 * subject.lease
    assert (await subject.store.acquire_run(KEY, owner="third", seconds=1)).fence == 3


# -- commits -----------------------------------------------------------------------------------


@pytest.mark.rule("R-STORE-10")
async def test_every_revision_stays_readable(subject: Subject) -> None:
    lease = await _held(subject, "a", "b")
    commits = [
        a_commit(1, 2, "c", "d"),
        a_commit(2, 0, "summary"),  # as a compaction does
        a_commit(3, 1),
        a_commit(4, 1, "e", "f", "g", "h"),
        a_commit(5, 2, "i"),
        a_commit(6, 0),
        a_commit(7, 0, *"jklmnopqrst"),
    ]
    expected = [a_checkpoint("a", "b")]
    for commit in commits:
        await subject.store.commit_run(lease, commit)
        expected.append(expected[-1].after(commit))
    async with subject.open_store() as other:
        for revision, each in enumerate(expected):
            assert await other.load_run(KEY, revision=revision) == each
        assert await other.load_run(KEY) == expected[-1]


@pytest.mark.rule("R-CKPT-20")
async def test_of_two_commits_to_one_revision_the_second_is_stale(subject: Subject) -> None:
    lease = await _held(subject)
    await subject.store.commit_run(lease, a_commit(1, 0, "first"))
    for revision in (0, 1, 3):
        with pytest.raises(StaleRevisionError) as caught:
            await subject.store.commit_run(lease, a_commit(revision, 0, "second"))
        error = caught.value
        assert (error.run_id, error.revision, error.stored) == ("run", revision, 1)
    assert (await subject.store.load_run(KEY)).messages == texts("first")
    await subject.store.commit_run(lease, a_commit(2, 1, "second"))


@pytest.mark.rule("R-CKPT-20")
async def test_of_many_commits_at_once_one_is_stored(subject: Subject) -> None:
    lease = await _held(subject)
    ends: list[str] = []

    async def commit(word: str) -> None:
        try:
            await subject.store.commit_run(lease, a_commit(1, 0, word))
            ends.append(word)
        except StaleRevisionError:
            ends.append("stale")

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(commit, str(number))
    (stored,) = set(ends) - {"stale"}
    assert ends.count("stale") == 19
    assert (await subject.store.load_run(KEY)).messages == texts(stored)


async def test_a_commit_that_keeps_what_is_not_there_is_refused(subject: Subject) -> None:
    lease = await _held(subject, "a")
    with pytest.raises(ValueError, match=r"^Commit.keep is 2, and there are only 1 messages$"):
        await subject.store.commit_run(lease, a_commit(1, 2))
    with pytest.raises(ValueError, match=r"^Commit.keep is -1, expected at least 0$"):
        await subject.store.commit_run(lease, a_commit(1, -1))
    with pytest.raises(ValueError, match=r"^the checkpoint is of run 'other', expected run 'run'$"):
        await subject.store.commit_run(lease, a_commit(1, 1, run_id="other"))
    assert await subject.store.load_run(KEY) == a_checkpoint("a")


@pytest.mark.rule("R-STORE-01")
async def test_of_many_workers_at_once_one_takes_a_run(subject: Subject) -> None:
    await subject.store.create_run(KEY, a_checkpoint())
    ends: list[str] = []

    async with subject.open_store() as other:

        async def acquire(number: int) -> None:
            store = (subject.store, other)[number % 2]
            try:
                lease = await store.acquire_run(KEY, owner=str(number), seconds=60)
                ends.append(f"fence {lease.fence}")
            except RunBusyError:
                ends.append("busy")

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(acquire, number)
    assert sorted(ends) == ["busy"] * 19 + ["fence 1"]


# -- listing -----------------------------------------------------------------------------------


async def test_runs_are_listed_in_the_order_of_their_creation(subject: Subject) -> None:
    store = subject.store
    ids = ["z", "m", "a", "q"]
    for run_id in ids:
        head = a_head(run_id=run_id, status="finished" if run_id in "mq" else "ready")
        await store.create_run(RunKey(tenant="tenant", run_id=run_id), a_checkpoint(head=head))
    await store.create_run(attrs.evolve(KEY, tenant="another"), a_checkpoint())
    assert [each.key.run_id for each in await store.list_runs("tenant")] == ids
    finished = await store.list_runs("tenant", status="finished")
    assert [each.key.run_id for each in finished] == ["m", "q"]
    assert [each.key for each in await store.list_runs("another")] == [
        attrs.evolve(KEY, tenant="another")
    ]
    assert not await store.list_runs("nobody")
    assert not await store.list_runs("tenant", status="waiting_for_wake")


async def test_a_listing_tells_of_the_last_revision(subject: Subject) -> None:
    lease = await _held(subject)
    (before,) = await subject.store.list_runs("tenant")
    assert (before.revision, before.status, before.owner) == (0, "ready", "owner")
    assert (before.questions, before.turns) == ((), 0)
    await subject.let_pass(0.5)
    head = _full_head(1)
    await subject.store.commit_run(lease, Commit(head=head, keep=0, tail=()))
    (listed,) = await subject.store.list_runs("tenant")
    assert (listed.key, listed.revision, listed.status) == (KEY, 1, "waiting_for_reply")
    assert (listed.turns, listed.stop_reason, listed.owner) == (7, None, "owner")
    assert listed.usage == Usage(input=10, cached_input=4, output=5, cost_cents=0.25)
    assert type(listed.usage) is Usage
    assert listed.questions == ("Pay?",)
    assert listed.changed_at.tzinfo == UTC
    passed = (listed.changed_at - before.changed_at).total_seconds()
    assert passed == pytest.approx(0.5 * subject.lease, abs=0.5)
    assert [each.key for each in await subject.store.list_runs("tenant", status="ready")] == []
    end = a_head(2, status="finished", stop_reason="done")
    await subject.store.commit_run(lease, Commit(head=end, keep=0, tail=()))
    (listed,) = await subject.store.list_runs("tenant", status="finished")
    assert (listed.stop_reason, listed.questions) == ("done", ())


async def test_a_lease_that_is_over_is_listed_as_nobodys(subject: Subject) -> None:
    lease = await _held(subject)
    await subject.let_pass(1.1)
    (listed,) = await subject.store.list_runs("tenant")
    assert listed.owner is None
    assert await subject.store.renew_run(lease)
    (listed,) = await subject.store.list_runs("tenant")
    assert listed.owner == "owner"
    await subject.store.release_run(lease)
    (listed,) = await subject.store.list_runs("tenant")
    assert listed.owner is None


@pytest.mark.rule("R-STORE-18")
async def test_both_fields_of_a_key_tell_runs_apart(subject: Subject) -> None:
    keys = [attrs.evolve(KEY, tenant=text) for text in ODD_TEXTS]
    keys += [attrs.evolve(KEY, run_id=text) for text in ODD_TEXTS]
    for number, key in enumerate(keys):
        head = a_head(run_id=key.run_id)
        await subject.store.create_run(key, a_checkpoint(str(number), head=head))
    for number, key in enumerate(keys):
        assert (await subject.store.load_run(key)).messages == texts(str(number))
        assert key in [each.key for each in await subject.store.list_runs(key.tenant)]
