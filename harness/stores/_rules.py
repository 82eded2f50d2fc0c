"""What a store does with a record: the same for every store, apart from where it is kept.

A transaction of a store is: read a record, ask one of these functions, write the record that it
returns. So the implementations differ in how they read, lock and write, and not in what a claim,
a lease or a commit means. All times are the store's own; none of these functions has a clock.

Who holds something is never a question of time. A lease that is over only lets somebody else try;
whoever does changes the fence of a run or the attempt of a receipt, and that is what shuts the
one before out. An owner that is empty is nobody: a run was given back, a receipt was settled by a
person.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, get_args

import attrs

from harness._bounds import check_count
from harness._durable import ReceiptClaim, ReceiptKey, RunKey, RunLease, check_name
from harness._errors import (
    LeaseLostError,
    ReceiptStateError,
    RunBusyError,
    StaleRevisionError,
    StoreError,
)
from harness._json import decode
from harness._toolset import Effect
from harness._usage import Usage
from harness.checkpoints import CheckpointHead, CheckpointStatus, Commit, StoredRun
from harness.receipts import (
    Claimed,
    Receipt,
    ReceiptState,
    ReceiptStatus,
    Settlement,
    decide_tool_call_receipt,
    receipt_key_string,
)

__all__ = [
    "ReceiptRecord",
    "RunRecord",
    "acquired",
    "check_commit",
    "check_head",
    "check_settlement",
    "check_tenant",
    "check_version",
    "claimed",
    "held",
    "is_held",
    "listed_receipt",
    "listed_run",
    "released",
    "renewed",
    "renewed_claim",
    "settled",
    "settled_by_hand",
    "with_revision",
]

NOBODY: Final = ""


@attrs.frozen(kw_only=True)
class RunRecord:
    """A run as a store keeps it, besides its heads and messages; tables have it field by field."""

    revision: int
    status: CheckpointStatus
    messages: int
    """How many there are in the last revision."""
    changed_at: float
    """When the last revision was stored, in seconds since the epoch."""
    fence: int = 0
    owner: str = NOBODY
    lease_until: float = 0.0


@attrs.frozen(kw_only=True)
class ReceiptRecord:
    """A receipt as a store keeps it; tables have it field by field."""

    status: ReceiptStatus
    attempt: int
    owner: str
    effect: Effect
    lease_until: float
    changed_at: float
    """When it came to have its status, in seconds since the epoch."""
    result: bytes = b"null"
    """As JSON."""


# -- runs --------------------------------------------------------------------------------------


def check_version(version: int, *, newest: int, where: str) -> int:
    """Return the version of what is stored *where*, if it is one that is known here.

    Raises:
        StoreError: it is a later one, or none.
    """
    if version > newest:
        reason = f"{where} is of version {version}, expected at most {newest}"
        raise StoreError("store.newer", reason)
    if version < 1:
        raise StoreError("store.corrupt", f"{where} is of version {version}, expected 1")
    return version


def check_tenant(tenant: str) -> None:
    """Refuse the name of a tenant that no run can be of."""
    check_name("tenant", tenant)


def check_head(key: RunKey, head: CheckpointHead) -> None:
    """Refuse the head of another run, or of no revision."""
    check_count("CheckpointHead.revision", head.revision)
    if head.run_id != key.run_id:
        raise ValueError(f"the checkpoint is of run {head.run_id!r}, expected run {key.run_id!r}")


def acquired(record: RunRecord, asked: RunLease, *, now: float) -> RunRecord:
    """Return the record of a run that is taken; the fence that was *asked* for does not count.

    Raises:
        RunBusyError: somebody holds it.
    """
    if _live(record, now):
        seconds = record.lease_until - now
        raise RunBusyError(asked.key.run_id, owner=record.owner, seconds=seconds)
    return attrs.evolve(
        record, fence=record.fence + 1, owner=asked.owner, lease_until=now + asked.seconds
    )


def is_held(record: RunRecord | None, lease: RunLease) -> bool:
    """Whether nobody has taken over, nor was the run given back."""
    return record is not None and (record.fence, record.owner) == (lease.fence, lease.owner)


def held(record: RunRecord | None, lease: RunLease) -> RunRecord:
    """Return the record of a run that *lease* holds.

    Raises:
        LeaseLostError: it does not, see `is_held`.
    """
    if record is None or not is_held(record, lease):
        raise LeaseLostError(lease.key.run_id, owner=lease.owner)
    return record


def renewed(record: RunRecord, lease: RunLease, *, now: float) -> RunRecord:
    """Return the record with the lease running from *now*."""
    return attrs.evolve(record, lease_until=now + lease.seconds)


def released(record: RunRecord) -> RunRecord:
    """Return the record of a run that nobody holds any more."""
    return attrs.evolve(record, owner=NOBODY, lease_until=0.0)


def check_commit(record: RunRecord, commit: Commit) -> None:
    """Refuse a commit that does not follow what is stored."""
    head = commit.head
    if head.revision != record.revision + 1:
        raise StaleRevisionError(head.run_id, revision=head.revision, stored=record.revision)
    if check_count("Commit.keep", commit.keep) > record.messages:
        raise ValueError(
            f"Commit.keep is {commit.keep}, and there are only {record.messages} messages"
        )


def with_revision(
    record: RunRecord | None, head: CheckpointHead, *, messages: int, at: float
) -> RunRecord:
    """Return the record of a run whose last revision is now that of *head*; None is a new run."""
    if record is None:
        return RunRecord(
            revision=head.revision, status=head.status, messages=messages, changed_at=at
        )
    return attrs.evolve(
        record, revision=head.revision, status=head.status, messages=messages, changed_at=at
    )


def listed_run(key: RunKey, record: RunRecord, head: CheckpointHead, *, now: float) -> StoredRun:
    """Return what a listing shows of a run."""
    used = head.position.usage
    asked = () if head.pause is None else head.pause.questions.values()
    return StoredRun(
        key=key,
        revision=record.revision,
        status=head.status,
        stop_reason=head.stop_reason,
        turns=head.position.turn,
        usage=Usage(
            input=used.input,
            cached_input=used.cached_input,
            output=used.output,
            cost_cents=used.cost_cents,
        ),
        questions=tuple(each.question for each in asked),
        owner=record.owner if _live(record, now) else None,
        changed_at=_date(record.changed_at),
    )


# -- receipts ----------------------------------------------------------------------------------


def check_settlement(settlement: Settlement) -> None:
    """Refuse what no attempt can end as."""
    if settlement not in get_args(Settlement):
        raise ValueError(f"it is settled as {settlement!r}, expected one of {get_args(Settlement)}")


def claimed(
    record: ReceiptRecord | None,
    asked: ReceiptClaim,
    *,
    effect: Effect,
    now: float,
    at: float,
) -> tuple[Claimed, ReceiptRecord | None]:
    """Return the answer to a claim, and the record to write if there is one.

    The attempt that was *asked* for does not count, the decision does. An attempt whose worker is
    gone can be taken over only if it left a trail and the next one reads it, so it is opaque if
    either of them is.

    Raises:
        ValueError: the effect is none that has receipts.
    """
    left = record is not None and record.status == "running" and record.effect == "opaque"
    worse: Effect = "opaque" if left and effect == "resumable" else effect
    decided = decide_tool_call_receipt(_state(record, now), worse)
    if record is None or decided.action == "execute":
        written = ReceiptRecord(
            status="running",
            attempt=decided.attempt,
            owner=asked.owner,
            effect=effect,
            lease_until=now + asked.seconds,
            changed_at=at,
        )
        claim = attrs.evolve(asked, attempt=decided.attempt)
        return Claimed(action="execute", attempt=decided.attempt, claim=claim), written
    answer = Claimed(
        action=decided.action,
        attempt=decided.attempt,
        result=decode(record.result) if decided.action == "replay" else None,
        reason=decided.reason,
        seconds_left=record.lease_until - now if decided.action == "wait" else 0.0,
    )
    if decided.action == "ambiguous" and record.status == "running":
        return answer, attrs.evolve(record, status="ambiguous", changed_at=at)
    return answer, None


def renewed_claim(
    record: ReceiptRecord | None, claim: ReceiptClaim, *, now: float
) -> ReceiptRecord | None:
    """Return the record with the claim running from *now*; None if it is no longer held."""
    if record is None or not _is_of(record, claim) or record.status != "running":
        return None
    return attrs.evolve(record, lease_until=now + claim.seconds)


def settled(
    record: ReceiptRecord | None,
    claim: ReceiptClaim,
    settlement: Settlement,
    result: bytes,
    *,
    at: float,
) -> tuple[bool, ReceiptRecord | None]:
    """Return whether the claim's attempt ends like this, and the record to write if it does now."""
    if record is None or not _is_of(record, claim):
        return False, None
    if record.status == "running":
        return True, attrs.evolve(record, status=settlement, result=result, changed_at=at)
    return (record.status, record.result) == (settlement, result), None


def settled_by_hand(
    record: ReceiptRecord | None,
    key: ReceiptKey,
    settlement: Settlement,
    result: bytes,
    *,
    now: float,
    at: float,
) -> ReceiptRecord:
    """Return the record of a receipt that a person settles. It is nobody's from then on.

    Raises:
        ReceiptStateError: there is none, or it is in no doubt.
    """
    if record is None:
        raise ReceiptStateError(
            f"the store has no receipt {receipt_key_string(key)}, expected one that is in doubt"
        )
    if not listed_receipt(key, record, now=now).in_doubt:
        raise ReceiptStateError(
            f"the receipt {receipt_key_string(key)} is {record.status}, expected one in doubt"
        )
    return attrs.evolve(record, status=settlement, result=result, owner=NOBODY, changed_at=at)


def listed_receipt(key: ReceiptKey, record: ReceiptRecord, *, now: float) -> Receipt:
    """Return what an operator sees of a receipt."""
    return Receipt(
        key=key,
        status=record.status,
        attempt=record.attempt,
        owner=record.owner,
        effect=record.effect,
        lease_live=_state(record, now).lease_live,
        result=decode(record.result),
        changed_at=_date(record.changed_at),
    )


def _state(record: ReceiptRecord | None, now: float) -> ReceiptState:
    if record is None:
        return ReceiptState()
    return ReceiptState(
        status=record.status,
        attempt=record.attempt,
        lease_live=record.status == "running" and now < record.lease_until,
    )


def _is_of(record: ReceiptRecord, claim: ReceiptClaim) -> bool:
    return (record.attempt, record.owner) == (claim.attempt, claim.owner)


def _live(record: RunRecord, now: float) -> bool:
    return record.owner != NOBODY and now < record.lease_until


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
