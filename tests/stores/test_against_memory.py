"""Every store answers as the one in memory does, whatever it is asked and whatever time it is.

A script of requests is played on both, step by step, on one clock that jumps back and forth. All
answers are compared, refusals too. A request names leases and claims by number: those that both
stores have given out so far, which are equal, or are held by nobody any more.
"""

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from harness._durable import ReceiptClaim, ReceiptKey, RunKey, RunLease
from harness._errors import HarnessError
from harness.checkpoints import Checkpoint, CheckpointStatus, Commit
from harness.receipts import Claimed
from harness.stores import MemoryStore
from tests.stores.conformance import OpenSubject, Store, a_head, texts

RUNS: Final = [RunKey(tenant=tenant, run_id=run_id) for tenant in "st" for run_id in ("r", "q")]
CALLS: Final = [
    ReceiptKey(tenant=key.tenant, run_id=key.run_id, tool=tool, args_hash="h", occurrence=number)
    for key in RUNS[:2]
    for tool, number in (("pay", 0), ("pay", 1), ("ask", 0))
]
STATUSES: Final[tuple[CheckpointStatus, ...]] = ("ready", "waiting_for_reply", "finished")


@attrs.define
class Known:
    """What the stores have given out so far."""

    leases: list[RunLease]
    claims: list[ReceiptClaim]


Request: TypeAlias = Callable[[Store, Known], Awaitable[object]]


# -- the requests ------------------------------------------------------------------------------


@attrs.frozen
class Step:
    """One request, and how a failing script shows it."""

    name: str
    request: Request = attrs.field(repr=False, eq=False)
    jump: float = 0.0


def _steps(name: str, *parts: st.SearchStrategy[object]) -> Callable[..., st.SearchStrategy[Step]]:
    def of(build: Callable[..., Request]) -> st.SearchStrategy[Step]:
        return st.tuples(*parts).map(lambda args: Step(f"{name}{args}", build(*args)))

    return of


runs = st.sampled_from(RUNS)
calls = st.sampled_from(CALLS)
owners = st.sampled_from(["ann", "bob"])
effects = st.sampled_from(["opaque", "resumable"])
seconds = st.sampled_from([1.0, 10.0, 60])
numbers = st.integers(0, 30)
words = st.lists(st.text("ab猫", max_size=3), max_size=3)
settlements = st.sampled_from(["completed", "failed"])
results = st.sampled_from([None, 1, {"a": [1.5, "猫"]}])
statuses = st.sampled_from(STATUSES)


@_steps("create", runs, st.integers(0, 2), words)
def create(key: RunKey, revision: int, contents: list[str]) -> Request:
    head = a_head(revision, run_id=key.run_id)
    checkpoint = Checkpoint(head=head, messages=texts(*contents))
    return lambda store, _: store.create_run(key, checkpoint)


def _load(key: RunKey, revision: int | None) -> Step:
    return Step(f"load({key}, {revision})", lambda store, _: store.load_run(key, revision=revision))


load = st.builds(_load, runs, st.none() | st.integers(-1, 8))


@_steps("acquire", runs, owners, seconds)
def acquire(key: RunKey, owner: str, for_seconds: float) -> Request:
    return lambda store, _: store.acquire_run(key, owner=owner, seconds=for_seconds)


def _a_lease(known: Known, number: int) -> RunLease:
    if not known.leases:
        return RunLease(key=RUNS[0], owner="nobody", fence=1, seconds=1)
    return known.leases[-1 - number % len(known.leases)]


@_steps("renew", numbers)
def renew(number: int) -> Request:
    return lambda store, known: store.renew_run(_a_lease(known, number))


@_steps("release", numbers)
def release(number: int) -> Request:
    return lambda store, known: store.release_run(_a_lease(known, number))


@_steps("commit", numbers, st.sampled_from([1, 1, 1, 1, 0, 2]), st.integers(0, 6), words, statuses)
def commit(
    number: int, ahead: int, keep: int, contents: list[str], status: CheckpointStatus
) -> Request:
    async def request(store: Store, known: Known) -> None:
        lease = _a_lease(known, number)
        listed = {each.key: each.revision for each in await store.list_runs(lease.key.tenant)}
        revision = listed.get(lease.key, 0) + ahead
        head = a_head(revision, run_id=lease.key.run_id, status=status)
        await store.commit_run(lease, Commit(head=head, keep=keep, tail=texts(*contents)))

    return request


@_steps("list_runs", st.sampled_from("st"), st.none() | statuses)
def list_runs(tenant: str, status: CheckpointStatus | None) -> Request:
    return lambda store, _: store.list_runs(tenant, status=status)


@_steps("claim", calls, effects, owners, seconds, st.none() | numbers)
def claim(key: ReceiptKey, effect: str, owner: str, wait: float, number: int | None) -> Request:
    return lambda store, known: store.claim_receipt(
        key,
        effect=effect,  # type: ignore[arg-type]  # one of them
        owner=owner,
        seconds=wait,
        run=None if number is None else _a_lease(known, number),
    )


@_steps("crowd", calls, effects, seconds)
def crowd(key: ReceiptKey, effect: str, wait: float) -> Request:
    """Claim one call from several tasks at once; whoever gets it has the same name."""

    async def request(store: Store, _: Known) -> object:
        answers: list[Claimed] = []

        async def one() -> None:
            answers.append(
                await store.claim_receipt(
                    key,
                    effect=effect,  # type: ignore[arg-type]  # one of them
                    owner="crowd",
                    seconds=wait,
                )
            )

        async with trio.open_nursery() as nursery:
            for _task in range(5):
                nursery.start_soon(one)
        return sorted(answers, key=repr)

    return request


def _a_claim(known: Known, number: int) -> ReceiptClaim:
    if not known.claims:
        return ReceiptClaim(key=CALLS[0], attempt=1, owner="nobody", seconds=1)
    return known.claims[-1 - number % len(known.claims)]


@_steps("renew_claim", numbers)
def renew_claim(number: int) -> Request:
    return lambda store, known: store.renew_receipt(_a_claim(known, number))


@_steps("settle", numbers, settlements, results)
def settle(number: int, settlement: str, result: object) -> Request:
    return lambda store, known: store.settle_receipt(
        _a_claim(known, number),
        settlement,  # type: ignore[arg-type]  # one of them
        result,  # type: ignore[arg-type]  # JSON
    )


@_steps("by_hand", calls, settlements, results)
def by_hand(key: ReceiptKey, settlement: str, result: object) -> Request:
    return lambda store, _: store.settle_receipt_by_hand(
        key,
        settlement,  # type: ignore[arg-type]  # one of them
        result,  # type: ignore[arg-type]  # JSON
    )


@_steps(
    "list_receipts",
    st.sampled_from("st"),
    st.sampled_from([None, "r"]),
    st.sampled_from([None, "running", "completed", "ambiguous"]),
)
def list_receipts(tenant: str, run_id: str | None, status: str | None) -> Request:
    return lambda store, _: store.list_receipts(
        tenant,
        run_id=run_id,
        status=status,  # type: ignore[arg-type]  # one of them
    )


jumps = st.sampled_from([0.5, 2.0, 11.0, 1e6, -1.0, -30.0, -1e6]).map(
    lambda jump: Step(f"jump({jump})", _nothing, jump)
)


async def _nothing(_: Store, __: Known) -> None: ...


steps = st.one_of(
    create, load, acquire, renew, release, commit, commit, list_runs,
    claim, claim, crowd, renew_claim, settle, settle, by_hand, list_receipts, jumps, jumps,
)  # fmt: skip


# -- the comparison ----------------------------------------------------------------------------


async def _answer(step: Step, store: Store, known: Known) -> object:
    try:
        return await step.request(store, known)
    except (HarnessError, ValueError) as error:
        return type(error), str(error)


async def _play(script: list[Step], open_subject: OpenSubject, folder: Path) -> int:
    """Compare the store with memory after each step; return how many there were."""
    async with open_subject(folder) as subject:
        if subject.clock is None:
            pytest.skip("its clock cannot be moved")
        if isinstance(subject.store, MemoryStore):
            pytest.skip("it is what the others are compared with")
        model: Store = MemoryStore(clock=subject.clock, wall_clock=subject.clock)
        known = Known([], [])
        for step in script:
            subject.clock.now += step.jump
            expected = await _answer(step, model, known)
            assert await _answer(step, subject.store, known) == expected, step
            for each in expected if isinstance(expected, list) else [expected]:
                if isinstance(each, RunLease):
                    known.leases.append(each)
                elif isinstance(each, Claimed) and each.claim is not None:
                    known.claims.append(each.claim)
        async with subject.open_store() as reopened:
            for tenant in "st":
                assert await reopened.list_receipts(tenant) == await model.list_receipts(tenant)
                listed = await model.list_runs(tenant)
                assert await reopened.list_runs(tenant) == listed
                for run in listed:
                    for revision in range(run.revision + 1):
                        step = _load(run.key, revision)
                        expected = await _answer(step, model, known)
                        assert await _answer(step, reopened, known) == expected, step
    return len(script)


@pytest.mark.rule("R-STORE-14")
@settings(max_examples=60)
@given(script=st.lists(steps, min_size=20, max_size=60))
def test_a_store_answers_as_memory_does(open_subject: OpenSubject, script: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert trio.run(_play, script, open_subject, Path(folder)) == len(script)
