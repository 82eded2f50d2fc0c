"""The whole product of what a claim finds and asks, against a list written down by hand."""

from itertools import product
from typing import Final

import attrs
import pytest

from harness._durable import ReceiptClaim
from harness._toolset import Effect
from harness.receipts import ReceiptStatus
from harness.stores._rules import ReceiptRecord, claimed, renewed_claim, settled
from tests.stores.conformance import CALL

NOW: Final = 100.0
ASKED: Final = ReceiptClaim(key=CALL, attempt=1, owner="new", seconds=10)
HELD: Final = ReceiptClaim(key=CALL, attempt=3, owner="old", seconds=10)

STATUSES: Final[tuple[ReceiptStatus, ...]] = ("running", "completed", "failed", "ambiguous")
EFFECTS: Final[tuple[Effect, ...]] = ("opaque", "resumable")


def _record(status: ReceiptStatus, effect: Effect, *, live: bool) -> ReceiptRecord:
    return ReceiptRecord(
        status=status,
        attempt=3,
        owner="old",
        effect=effect,
        lease_until=NOW + 5 if live else NOW,
        changed_at=1.0,
        result=b"7",
    )


def _expected(status: ReceiptStatus, left: Effect, asks: Effect, *, live: bool) -> str:
    if status == "completed":
        return "replay"
    if status == "failed":
        return "execute"
    if status == "running" and live:
        return "wait"
    if status == "running" and left == asks == "resumable":
        return "execute"
    return "ambiguous"


@pytest.mark.rule("R-STORE-15")
@pytest.mark.parametrize(
    ("status", "left", "asks", "live"), list(product(STATUSES, EFFECTS, EFFECTS, [True, False]))
)
def test_a_claim_is_answered_and_written_by_what_it_finds(
    status: ReceiptStatus, left: Effect, asks: Effect, *, live: bool
) -> None:
    found = _record(status, left, live=live)
    answer, written = claimed(found, ASKED, effect=asks, now=NOW, at=50.0)
    assert answer.action == _expected(status, left, asks, live=live)
    assert answer.attempt == (4 if answer.action == "execute" else 3)
    assert answer.result == (7 if answer.action == "replay" else None)
    assert answer.seconds_left == (5 if answer.action == "wait" else 0)
    assert bool(answer.reason) == (answer.action in ("wait", "ambiguous"))
    if answer.action == "execute":
        assert answer.claim == attrs.evolve(ASKED, attempt=4)
        assert written == ReceiptRecord(
            status="running",
            attempt=4,
            owner="new",
            effect=asks,
            lease_until=NOW + 10,
            changed_at=50.0,
        )
    elif answer.action == "ambiguous" and status == "running":
        assert written == attrs.evolve(found, status="ambiguous", changed_at=50.0)
    else:
        assert written is None


@pytest.mark.parametrize(("status", "live"), list(product(STATUSES, [True, False])))
def test_only_what_is_running_is_renewed_and_settled(status: ReceiptStatus, *, live: bool) -> None:
    found = _record(status, "opaque", live=live)
    runs = status == "running"
    renewed = renewed_claim(found, HELD, now=NOW)
    assert renewed == (attrs.evolve(found, lease_until=NOW + 10) if runs else None)
    answer, written = settled(found, HELD, "failed", b"8", at=50.0)
    assert answer is runs
    changed = attrs.evolve(found, status="failed", result=b"8", changed_at=50.0)
    assert written == (changed if runs else None)
    again, nothing = settled(found, HELD, "failed", b"7", at=50.0)
    assert again is (runs or status == "failed")
    assert runs or nothing is None
