"""What is to be done about a call, by what is known of it: a table.

A worker that crashes leaves its transcript where it was last written, so the turn is made again
and its calls come a second time. Some of them have been carried out. What is known of each stands
in its receipt, which was claimed before the call began and settled when it had ended. A receipt
that is settled answers the question. One that is claimed and not settled does not: the worker may
be at it still, or may have died before the effect, or after.

While its lease lives, the answer is to wait. Once that is over, it depends on what kind of effect
the call has. A *resumable* one keeps a trail of the parts that it has finished, so it may be run
again and goes on where it stopped. An *opaque* one is a single act without a trail. Nobody can
find out from here whether it happened, so it is not run again, and a person is asked. There is
nothing to guess from: a payment made twice and a payment lost look the same in the receipt.

Being ambiguous is final for us, and is a state of its own: the store has taken the receipt from
the worker who held it, who can no longer settle it should it wake up. Only a person ends it.

Rejected: an expiry time in the state. Whoever compared it would use a clock of its own, and two
clocks disagree. The store says whether the lease lives, by its clock, in the transaction in which
it acts on the answer. Rejected too: running an opaque call again after long enough. That no
effect has been seen for an hour says nothing about the first minute.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from harness._bounds import check_count
from harness._toolset import Effect
from harness.receipts._store import ReceiptAction

__all__ = [
    "RECEIPT_ROWS",
    "FoundStatus",
    "ReceiptDecision",
    "ReceiptRow",
    "ReceiptState",
    "decide_tool_call_receipt",
]

FoundStatus: TypeAlias = Literal["none", "running", "completed", "failed", "ambiguous"]


@attrs.frozen(kw_only=True)
class ReceiptState:
    """What a store found under a key.

    Raises:
        TypeError, ValueError: the attempt is no count that fits the status, or a lease lives on
            what is not running.
    """

    status: FoundStatus = "none"
    attempt: int = attrs.field(default=0)
    """The last one; 0 just if there is none."""
    lease_live: bool = attrs.field(default=False)
    """Whether whoever runs it may still be at it, by the store's clock."""

    def __attrs_post_init__(self) -> None:
        check_count("ReceiptState.attempt", self.attempt)
        if (self.attempt == 0) != (self.status == "none"):
            text = f"ReceiptState.attempt is {self.attempt} of a receipt that is {self.status!r}"
            raise ValueError(f"{text}, expected 0 for none and else a number from 1")
        if self.lease_live and self.status != "running":
            text = f"ReceiptState.lease_live is True of a receipt that is {self.status!r}"
            raise ValueError(f"{text}, expected it of a running one only")


@attrs.frozen(kw_only=True)
class ReceiptDecision:
    """What is to be done about a call."""

    action: ReceiptAction
    attempt: int
    """The attempt to execute, or the one that was found."""
    reason: str = ""
    """Why to wait, or what is in doubt."""


@attrs.frozen
class ReceiptRow:
    """One row: what was found, for which effects it means what, and what to do then."""

    status: FoundStatus
    lease_live: bool | None
    """None for a status without a lease."""
    effects: tuple[Effect, ...]
    action: ReceiptAction
    next_attempt: bool
    """Whether an attempt begins, with the next number."""
    why: str


_ANY: Final[tuple[Effect, ...]] = ("resumable", "opaque")

RECEIPT_ROWS: Final = (
    ReceiptRow("none", None, _ANY, "execute", True, "nobody has begun it"),
    ReceiptRow("completed", None, _ANY, "replay", False, "its effect has happened"),
    ReceiptRow("failed", None, _ANY, "execute", True, "the last attempt ended without an effect"),
    ReceiptRow("running", True, _ANY, "wait", False, "another worker is at it"),
    ReceiptRow(
        "running",
        False,
        ("resumable",),
        "execute",
        True,
        "its worker is gone, and the effect goes on where it was left",
    ),
    ReceiptRow(
        "running",
        False,
        ("opaque",),
        "ambiguous",
        False,
        "its worker is gone without a word, so its effect may have happened or not",
    ),
    ReceiptRow(
        "ambiguous",
        None,
        _ANY,
        "ambiguous",
        False,
        "its effect may have happened or not, and nobody has said which",
    ),
)
"""What is done about a call: a row for each thing that may be found, and each effect."""

_ROWS: Final = {
    (row.status, bool(row.lease_live), effect): row
    for row in RECEIPT_ROWS
    for effect in row.effects
}


def decide_tool_call_receipt(state: ReceiptState, effect: Effect) -> ReceiptDecision:
    """Return what is to be done about a call of *effect* whose receipt is *state*.

    A store asks this inside the transaction that acts on the answer.

    Raises:
        ValueError: *effect* is ``"none"``: such a call has no receipt, and is simply run.
    """
    row = _ROWS.get((state.status, state.lease_live, effect))
    if row is None:
        raise ValueError(f"the effect is {effect!r}, expected one of {_ANY}")
    waits = row.action in ("wait", "ambiguous")
    return ReceiptDecision(
        action=row.action,
        attempt=state.attempt + row.next_attempt,
        reason=f"attempt {state.attempt}: {row.why}" if waits else "",
    )
