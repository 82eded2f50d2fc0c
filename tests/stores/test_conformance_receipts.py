"""What every store of receipts promises, a test for each sentence of the protocol."""

import math
from datetime import UTC

import attrs
import pytest
import trio

from harness._durable import ReceiptClaim, ReceiptKey
from harness._errors import LeaseLostError, NotJSONError, ReceiptStateError
from harness._json import JSON
from harness._toolset import Effect
from harness.receipts import ReceiptStatus, Settlement
from tests.stores.conformance import CALL, KEY, ODD_TEXTS, Subject, a_checkpoint

# -- claiming ----------------------------------------------------------------------------------


async def test_a_call_that_nobody_claimed_is_executed_as_attempt_1(subject: Subject) -> None:
    answer = await subject.store.claim_receipt(CALL, effect="opaque", owner="me", seconds=5)
    assert (answer.action, answer.attempt, answer.reason) == ("execute", 1, "")
    assert answer.claim == ReceiptClaim(key=CALL, attempt=1, owner="me", seconds=5)


@pytest.mark.rule("R-RCPT-12")
async def test_a_claim_that_is_never_settled_stays_behind_as_evidence(subject: Subject) -> None:
    await subject.claim()
    async with subject.open_store() as after_the_crash:
        (left,) = await after_the_crash.list_receipts(CALL.tenant)
    assert (left.key, left.status, left.attempt) == (CALL, "running", 1)
    assert (left.owner, left.effect, left.result) == ("owner", "opaque", None)


async def test_who_comes_second_waits_for_what_is_left_of_the_lease(subject: Subject) -> None:
    await subject.claim()
    for owner in ("other", "owner"):  # nobody shares a claim, its owner's name or not
        answer = await subject.store.claim_receipt(CALL, effect="opaque", owner=owner, seconds=9)
        assert (answer.action, answer.attempt, answer.claim) == ("wait", 1, None)
        assert answer.reason
        assert 0 < answer.seconds_left <= subject.lease


@pytest.mark.parametrize("effect", ["opaque", "resumable"])
async def test_a_completed_call_is_replayed(subject: Subject, effect: Effect) -> None:
    claim = await subject.claim(effect=effect)
    assert await subject.store.settle_receipt(claim, "completed", {"paid": 3})
    await subject.let_pass(2)
    async with subject.open_store() as store:
        answer = await store.claim_receipt(CALL, effect=effect, owner="other", seconds=1)
    assert (answer.action, answer.attempt, answer.claim) == ("replay", 1, None)
    assert answer.result == {"paid": 3}


@pytest.mark.parametrize("effect", ["opaque", "resumable"])
async def test_a_failed_call_is_executed_again(subject: Subject, effect: Effect) -> None:
    first = await subject.claim(effect=effect)
    assert await subject.store.settle_receipt(first, "failed", "no money")
    assert (await subject.receipt()).result == "no money"
    second = await subject.claim(owner="other", effect=effect)
    assert second.attempt == 2
    assert (await subject.receipt()).result is None


@pytest.mark.rule("R-RCPT-13")
async def test_a_resumable_call_is_taken_over_and_the_first_worker_is_late(
    subject: Subject,
) -> None:
    first = await subject.claim(effect="resumable")
    await subject.let_pass(1.1)
    second = await subject.claim(owner="other", effect="resumable")
    assert second.attempt == 2
    assert not await subject.store.settle_receipt(first, "completed", "late")
    assert not await subject.store.renew_receipt(first)
    assert (await subject.receipt()).status == "running"
    assert await subject.store.settle_receipt(second, "completed", "in time")
    assert not await subject.store.settle_receipt(first, "completed", "in time")
    assert (await subject.receipt()).result == "in time"


@pytest.mark.rule("R-RCPT-14")
async def test_an_opaque_call_is_in_doubt_once_its_lease_is_over(subject: Subject) -> None:
    claim = await subject.claim()
    assert not (await subject.receipt()).in_doubt
    await subject.let_pass(1.1)
    assert (await subject.receipt()).in_doubt
    assert (await subject.receipt()).status == "running"
    for _ in range(2):
        answer = await subject.store.claim_receipt(CALL, effect="opaque", owner="x", seconds=1)
        assert (answer.action, answer.attempt, answer.claim) == ("ambiguous", 1, None)
        assert answer.reason
        assert (await subject.receipt()).status == "ambiguous"
    assert not await subject.store.settle_receipt(claim, "completed", "late")
    assert not await subject.store.renew_receipt(claim)
    assert (await subject.receipt()).result is None


@pytest.mark.rule("R-STORE-15")
@pytest.mark.parametrize(("left", "now"), [("opaque", "resumable"), ("resumable", "opaque")])
async def test_a_call_is_in_doubt_if_it_was_or_has_become_opaque(
    subject: Subject, left: Effect, now: Effect
) -> None:
    await subject.claim(effect=left)
    await subject.let_pass(1.1)
    answer = await subject.store.claim_receipt(CALL, effect=now, owner="other", seconds=1)
    assert answer.action == "ambiguous"
    assert (await subject.receipt()).effect == left


async def test_what_has_no_effect_has_no_receipt(subject: Subject) -> None:
    with pytest.raises(ValueError, match=r"^the effect is 'none', expected "):
        await subject.store.claim_receipt(CALL, effect="none", owner="x", seconds=1)
    assert not await subject.store.list_receipts(CALL.tenant)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, True])
async def test_a_claim_lasts_for_a_positive_time(subject: Subject, seconds: float) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^ReceiptClaim.seconds is "):
        await subject.store.claim_receipt(CALL, effect="opaque", owner="x", seconds=seconds)
    assert not await subject.store.list_receipts(CALL.tenant)


@pytest.mark.rule("R-STORE-01")
async def test_of_many_claims_at_once_one_executes(subject: Subject) -> None:
    actions: list[str] = []
    async with subject.open_store() as other, trio.open_nursery() as nursery:
        for number in range(20):

            async def claim(owner: str, at: int) -> None:
                store = (subject.store, other)[at % 2]
                answer = await store.claim_receipt(CALL, effect="opaque", owner=owner, seconds=60)
                actions.append(answer.action)

            nursery.start_soon(claim, f"worker {number}", number)
    assert sorted(actions) == ["execute"] + ["wait"] * 19


# -- the lease ---------------------------------------------------------------------------------


async def test_a_renewed_claim_lasts_for_its_seconds_from_then(subject: Subject) -> None:
    claim = await subject.claim()
    await subject.let_pass(0.6)
    assert await subject.store.renew_receipt(claim)
    await subject.let_pass(0.6)
    answer = await subject.store.claim_receipt(CALL, effect="opaque", owner="other", seconds=1)
    assert answer.action == "wait"


@pytest.mark.rule("R-STORE-12")
async def test_a_lease_that_is_over_holds_until_somebody_takes_over(subject: Subject) -> None:
    claim = await subject.claim()
    await subject.let_pass(1.1)
    assert await subject.store.renew_receipt(claim)
    assert (await subject.receipt()).lease_live
    await subject.let_pass(1.1)
    assert not (await subject.receipt()).lease_live
    assert await subject.store.settle_receipt(claim, "completed", "done")
    assert (await subject.receipt()).result == "done"


async def test_nobody_renews_a_claim_of_somebody_else_or_of_nothing(subject: Subject) -> None:
    claim = await subject.claim()
    assert not await subject.store.renew_receipt(attrs.evolve(claim, owner="other"))
    assert not await subject.store.renew_receipt(attrs.evolve(claim, attempt=2))
    elsewhere = attrs.evolve(claim, key=attrs.evolve(CALL, occurrence=1))
    assert not await subject.store.renew_receipt(elsewhere)
    assert await subject.store.settle_receipt(claim, "failed", None)
    assert not await subject.store.renew_receipt(claim)


@pytest.mark.rule("R-STORE-11")
async def test_a_clock_that_jumps_ahead_costs_an_attempt_and_settles_nothing_twice(
    subject: Subject,
) -> None:
    if subject.clock is None:
        pytest.skip("its clock cannot be moved")
    first = await subject.claim(effect="resumable")
    subject.clock.now += 1e6
    second = await subject.claim(owner="other", effect="resumable")
    assert not await subject.store.settle_receipt(first, "completed", 1)
    assert await subject.store.settle_receipt(second, "completed", 2)
    assert not await subject.store.settle_receipt(first, "completed", 1)


@pytest.mark.rule("R-STORE-11")
async def test_a_clock_that_jumps_back_makes_others_wait_and_shuts_nobody_out(
    subject: Subject,
) -> None:
    if subject.clock is None:
        pytest.skip("its clock cannot be moved")
    claim = await subject.claim()
    subject.clock.now -= 1e6
    answer = await subject.store.claim_receipt(CALL, effect="opaque", owner="other", seconds=1)
    assert answer.action == "wait"
    assert await subject.store.renew_receipt(claim)  # which measures from the new time on
    subject.clock.now += 1.1 * subject.lease
    assert (await subject.receipt()).in_doubt
    assert await subject.store.settle_receipt(claim, "completed", "done")


# -- the run's fence ---------------------------------------------------------------------------


@pytest.mark.rule("R-RCPT-13")
async def test_a_worker_that_lost_its_run_claims_nothing(subject: Subject) -> None:
    store = subject.store
    await store.create_run(KEY, a_checkpoint())
    lost = await store.acquire_run(KEY, owner="first", seconds=subject.lease)
    await subject.let_pass(1.1)
    await store.claim_receipt(CALL, effect="opaque", owner="a", seconds=9, run=lost)  # not yet
    mine = await store.acquire_run(KEY, owner="second", seconds=subject.lease)
    second = attrs.evolve(CALL, occurrence=1)
    with pytest.raises(LeaseLostError) as caught:
        await store.claim_receipt(second, effect="opaque", owner="b", seconds=9, run=lost)
    assert (caught.value.run_id, caught.value.owner) == ("run", "first")
    assert [each.key for each in await store.list_receipts(CALL.tenant)] == [CALL]
    await store.claim_receipt(second, effect="opaque", owner="b", seconds=9, run=mine)
    await store.release_run(mine)
    third = attrs.evolve(CALL, occurrence=2)
    with pytest.raises(LeaseLostError):
        await store.claim_receipt(third, effect="opaque", owner="c", seconds=9, run=mine)


async def test_a_lost_run_hides_even_what_could_be_replayed(subject: Subject) -> None:
    store = subject.store
    assert await store.settle_receipt(await subject.claim(), "completed", 1)
    await store.create_run(KEY, a_checkpoint())
    lease = await store.acquire_run(KEY, owner="first", seconds=9)
    await store.release_run(lease)
    with pytest.raises(LeaseLostError):
        await store.claim_receipt(CALL, effect="opaque", owner="x", seconds=1, run=lease)


async def test_a_lease_of_a_run_that_is_not_there_is_lost(subject: Subject) -> None:
    await subject.store.create_run(KEY, a_checkpoint())
    lease = await subject.store.acquire_run(KEY, owner="first", seconds=9)
    elsewhere = attrs.evolve(lease, key=attrs.evolve(KEY, run_id="other"))
    with pytest.raises(LeaseLostError):
        await subject.store.claim_receipt(
            CALL, effect="opaque", owner="x", seconds=1, run=elsewhere
        )


# -- settling ----------------------------------------------------------------------------------


def _deep(levels: int) -> JSON:
    value: JSON = "bottom"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "result",
    [
        None,
        True,
        0,
        -1.5,
        5e-324,
        2**70,
        "",
        "null",
        "\x00 \N{SNOWMAN} 猫",
        [],
        {},
        {"": {"a": [1, 1.0, None, {"b": []}]}},
        "x" * 1_000_000,
        _deep(199),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_a_result_comes_back_as_it_was(subject: Subject, result: JSON) -> None:
    claim = await subject.claim()
    assert await subject.store.settle_receipt(claim, "completed", result)
    answer = await subject.store.claim_receipt(CALL, effect="opaque", owner="x", seconds=1)
    assert answer.result == result
    assert repr(answer.result) == repr(result)
    assert (await subject.receipt()).result == result


@pytest.mark.rule("R-STORE-13")
async def test_a_result_is_the_stores_own(subject: Subject) -> None:
    result: list[JSON] = [1]
    assert await subject.store.settle_receipt(await subject.claim(), "completed", result)
    result.append(2)
    returned = (await subject.receipt()).result
    assert returned == [1]
    assert isinstance(returned, list)
    returned.append(3)
    assert (await subject.receipt()).result == [1]


@pytest.mark.rule("R-STORE-16")
@pytest.mark.parametrize("settlement", ["completed", "failed"])
async def test_settling_again_changes_nothing(subject: Subject, settlement: Settlement) -> None:
    claim, store = await subject.claim(), subject.store
    assert await store.settle_receipt(claim, settlement, [1])
    before = await subject.receipt()
    await subject.let_pass(0.1)
    assert await store.settle_receipt(claim, settlement, [1])
    other: Settlement = "failed" if settlement == "completed" else "completed"
    assert not await store.settle_receipt(claim, settlement, [2])
    assert not await store.settle_receipt(claim, other, [1])
    assert await subject.receipt() == before


@pytest.mark.rule("R-STORE-12")
async def test_only_the_claims_owner_settles_it_at_its_attempt(subject: Subject) -> None:
    claim, store = await subject.claim(), subject.store
    for other in (
        attrs.evolve(claim, owner="other"),
        attrs.evolve(claim, attempt=2),
        attrs.evolve(claim, key=attrs.evolve(CALL, occurrence=1)),
        attrs.evolve(claim, key=attrs.evolve(CALL, tenant="other")),
    ):
        assert not await store.settle_receipt(other, "completed", None)
    assert (await subject.receipt()).status == "running"


async def test_what_is_no_json_or_no_settlement_is_refused(subject: Subject) -> None:
    claim, store = await subject.claim(), subject.store
    with pytest.raises(NotJSONError):
        await store.settle_receipt(claim, "completed", {1: 2})  # type: ignore[dict-item]  # the point
    with pytest.raises(ValueError, match=r"^it is settled as 'done', expected "):
        await store.settle_receipt(claim, "done", None)  # type: ignore[arg-type]  # the point
    with pytest.raises(NotJSONError):
        await store.settle_receipt_by_hand(CALL, "failed", math.nan)
    with pytest.raises(ValueError, match=r"^it is settled as 'running', expected "):
        await store.settle_receipt_by_hand(CALL, "running", None)  # type: ignore[arg-type]  # the point
    assert (await subject.receipt()).status == "running"


# -- what an operator does ---------------------------------------------------------------------


@pytest.mark.rule("R-STORE-17")
@pytest.mark.parametrize("asked", [False, True], ids=["running", "ambiguous"])
async def test_a_person_settles_what_is_in_doubt(subject: Subject, *, asked: bool) -> None:
    claim, store = await subject.claim(), subject.store
    await subject.let_pass(1.1)
    if asked:
        await store.claim_receipt(CALL, effect="opaque", owner="x", seconds=1)
    await store.settle_receipt_by_hand(CALL, "completed", "seen on the account")
    assert not await store.settle_receipt(claim, "completed", "seen on the account")
    assert not await store.renew_receipt(claim)
    answer = await store.claim_receipt(CALL, effect="opaque", owner="x", seconds=1)
    assert (answer.action, answer.result) == ("replay", "seen on the account")


async def test_a_person_allows_another_attempt(subject: Subject) -> None:
    await subject.claim()
    await subject.let_pass(1.1)
    await subject.store.settle_receipt_by_hand(CALL, "failed", None)
    assert (await subject.claim(owner="other")).attempt == 2


@pytest.mark.rule("R-STORE-17")
async def test_a_person_settles_nothing_that_is_in_no_doubt(subject: Subject) -> None:
    store = subject.store
    with pytest.raises(ReceiptStateError, match=r"^the store has no receipt \["):
        await store.settle_receipt_by_hand(CALL, "completed", None)
    claim = await subject.claim()
    with pytest.raises(ReceiptStateError, match=r" is running, expected one in doubt$"):
        await store.settle_receipt_by_hand(CALL, "completed", None)
    for settlement in ("failed", "completed"):
        if settlement == "completed":
            claim = await subject.claim(owner="other")
        assert await store.settle_receipt(claim, settlement, 1)
        with pytest.raises(ReceiptStateError, match=rf" is {settlement}, expected one in doubt$"):
            await store.settle_receipt_by_hand(CALL, "completed", 2)
    assert (await subject.receipt()).result == 1


async def test_receipts_are_listed_oldest_first(subject: Subject) -> None:
    store = subject.store
    keys = [attrs.evolve(CALL, run_id=run, tool=tool) for tool in "zmab" for run in ("r2", "r1")]
    for key in keys:
        await subject.claim(key)
    await subject.claim(attrs.evolve(CALL, tenant="another"))
    settled = await subject.claim(attrs.evolve(CALL, run_id="r1", occurrence=7))
    assert await store.settle_receipt(settled, "completed", None)
    first = await store.list_receipts("tenant")
    assert [each.key for each in first] == [*keys, settled.key]
    assert [each.key for each in await store.list_receipts("tenant", run_id="r1")] == [
        *keys[1::2],
        settled.key,
    ]
    assert [each.key for each in await store.list_receipts("tenant", status="completed")] == [
        settled.key
    ]
    assert not await store.list_receipts("tenant", run_id="r2", status="completed")
    assert not await store.list_receipts("nobody")


async def test_a_receipt_says_when_it_changed_by_the_stores_clock(subject: Subject) -> None:
    claim = await subject.claim()
    first = (await subject.receipt()).changed_at
    assert first.tzinfo == UTC
    await subject.let_pass(0.5)
    assert await subject.store.renew_receipt(claim)
    assert (await subject.receipt()).changed_at == first
    assert await subject.store.settle_receipt(claim, "completed", None)
    passed = ((await subject.receipt()).changed_at - first).total_seconds()
    assert passed == pytest.approx(0.5 * subject.lease, abs=0.5)
    assert passed > 0.4 * subject.lease


@pytest.mark.parametrize("status", ["running", "completed", "failed", "ambiguous"])
async def test_each_status_is_listed(subject: Subject, status: ReceiptStatus) -> None:
    claim, store = await subject.claim(), subject.store
    if status == "ambiguous":
        await subject.let_pass(1.1)
        await store.claim_receipt(CALL, effect="opaque", owner="x", seconds=1)
    elif status != "running":
        await store.settle_receipt(claim, status, None)
    assert [each.status for each in await store.list_receipts("tenant", status=status)] == [status]
    for other in {"running", "completed", "failed", "ambiguous"} - {status}:
        assert not await store.list_receipts("tenant", status=other)  # type: ignore[arg-type]


@pytest.mark.rule("R-STORE-18")
async def test_every_field_of_a_key_tells_receipts_apart(subject: Subject) -> None:
    keys = [CALL, attrs.evolve(CALL, occurrence=1)]
    for text in ODD_TEXTS:
        keys += [attrs.evolve(CALL, tenant=text), attrs.evolve(CALL, run_id=text)]
        keys += [attrs.evolve(CALL, tool=text), attrs.evolve(CALL, args_hash=text)]
    for number, key in enumerate(keys):
        claim = await subject.claim(key, owner=f"owner {number}")
        assert await subject.store.settle_receipt(claim, "completed", number)
    for number, key in enumerate(keys):
        answer = await subject.store.claim_receipt(key, effect="opaque", owner="x", seconds=1)
        assert (answer.action, answer.result) == ("replay", number)
    found: list[ReceiptKey] = []
    for tenant in dict.fromkeys(key.tenant for key in keys):
        found += [each.key for each in await subject.store.list_receipts(tenant)]
    assert sorted(found, key=repr) == sorted(keys, key=repr)
