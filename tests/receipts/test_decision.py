from itertools import product
from typing import get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._toolset import Effect
from harness.receipts import (
    RECEIPT_ROWS,
    FoundStatus,
    ReceiptDecision,
    ReceiptRow,
    ReceiptState,
    ReceiptStatus,
    decide_tool_call_receipt,
)

EFFECTS: tuple[Effect, ...] = ("resumable", "opaque")
FOUND = [
    ("none", False),
    ("running", False),
    ("running", True),
    ("completed", False),
    ("failed", False),
    ("ambiguous", False),
]


def state(status: FoundStatus, attempt: int = 3, *, lease_live: bool = False) -> ReceiptState:
    return ReceiptState(
        status=status, attempt=0 if status == "none" else attempt, lease_live=lease_live
    )


def rows_for(status: str, lease_live: bool, effect: Effect) -> list[ReceiptRow]:
    return [
        row
        for row in RECEIPT_ROWS
        if row.status == status
        and row.lease_live in (None, lease_live)
        and effect in row.effects
    ]  # fmt: skip


@pytest.mark.rule("R-RCPT-09")
def test_there_is_one_row_for_everything_that_may_be_found() -> None:
    assert {status for status, _ in FOUND} == set(get_args(FoundStatus))
    assert set(get_args(FoundStatus)) == {"none", *get_args(ReceiptStatus)}
    for (status, lease_live), effect in product(FOUND, EFFECTS):
        assert len(rows_for(status, lease_live, effect)) == 1
    for row in RECEIPT_ROWS:
        assert (row.lease_live is None) is (row.status != "running")
        assert row.effects
        assert row.next_attempt is (row.action == "execute")


def test_a_row_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        RECEIPT_ROWS[0].action = "replay"  # type: ignore[misc]  # what is being tested


@pytest.mark.rule("R-RCPT-09")
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(
    ("found", "action", "attempt"),
    [
        (state("none"), "execute", 1),
        (state("completed"), "replay", 3),
        (state("failed"), "execute", 4),
        (state("running", lease_live=True), "wait", 3),
        (state("ambiguous"), "ambiguous", 3),
    ],
)
def test_what_is_found_decides_whatever_the_effect(
    found: ReceiptState, action: str, attempt: int, effect: Effect
) -> None:
    decision = decide_tool_call_receipt(found, effect)
    assert (decision.action, decision.attempt) == (action, attempt)


@pytest.mark.rule("R-RCPT-09", "R-RCPT-10")
def test_what_was_left_behind_is_taken_over_just_if_it_left_a_trail() -> None:
    left = state("running")
    resumed = decide_tool_call_receipt(left, "resumable")
    assert (resumed.action, resumed.attempt, resumed.reason) == ("execute", 4, "")
    doubtful = decide_tool_call_receipt(left, "opaque")
    assert (doubtful.action, doubtful.attempt) == ("ambiguous", 3)
    assert doubtful.reason == (
        "attempt 3: its worker is gone without a word, so its effect may have happened or not"
    )


@pytest.mark.rule("R-RCPT-09")
def test_a_decision_gives_a_reason_just_for_what_keeps_a_call_from_an_answer() -> None:
    for (status, lease_live), effect in product(FOUND, EFFECTS):
        found = state(status, lease_live=lease_live)  # type: ignore[arg-type]  # one of them
        decision = decide_tool_call_receipt(found, effect)
        (row,) = rows_for(status, lease_live, effect)
        waits = decision.action in ("wait", "ambiguous")
        assert decision.reason == (f"attempt 3: {row.why}" if waits else "")


@given(
    st.sampled_from(FOUND),
    st.integers(1, 99),
    st.sampled_from(EFFECTS),
)
def test_an_attempt_never_has_a_number_that_was_had_before(
    found: tuple[FoundStatus, bool], attempt: int, effect: Effect
) -> None:
    status, lease_live = found
    before = state(status, attempt, lease_live=lease_live)
    decision = decide_tool_call_receipt(before, effect)
    assert decision.attempt == before.attempt + (decision.action == "execute")


@pytest.mark.rule("R-RCPT-15")
@pytest.mark.parametrize(("status", "lease_live"), FOUND)
def test_a_call_without_an_effect_has_no_receipt(status: FoundStatus, lease_live: bool) -> None:
    with pytest.raises(ValueError, match=r"the effect is 'none', expected one of \('resumable'"):
        decide_tool_call_receipt(state(status, lease_live=lease_live), "none")


@pytest.mark.rule("R-RCPT-11")
def test_no_time_enters_the_decision() -> None:
    for record in (ReceiptState, ReceiptDecision):
        types = {field.name: field.type for field in attrs.fields(record)}
        assert "float" not in types.values()
        assert not any("datetime" in str(each) for each in types.values())
    assert set(attrs.fields_dict(ReceiptState)) == {"status", "attempt", "lease_live"}


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"attempt": 1}, ValueError, "attempt is 1 of a receipt that is 'none', expected 0"),
        ({"status": "failed"}, ValueError, "attempt is 0 of a receipt that is 'failed'"),
        ({"status": "failed", "attempt": -1}, ValueError, "attempt is -1, expected at least 0"),
        ({"status": "failed", "attempt": True}, TypeError, "attempt is True, expected an int"),
        (
            {"status": "failed", "attempt": 1, "lease_live": True},
            ValueError,
            "lease_live is True of a receipt that is 'failed', expected it of a running one",
        ),
    ],
)
def test_a_state_that_cannot_be_is_refused(
    change: dict[str, object], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        ReceiptState(**change)  # type: ignore[arg-type]  # what is being tested
