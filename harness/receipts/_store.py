"""What a store of receipts promises. Every implementation passes one suite of tests.

A receipt is claimed before a call is executed and settled after it, so one that was claimed and
never settled is the evidence that an effect may have happened. Three things are the store's, and
nobody else can do them:

* **Its clock** is the only one that leases are written and compared with.
* **Each method is one transaction.** `claim_receipt` reads, decides (`decide_tool_call_receipt`)
  and writes in one, and what it returns has been made durable.
* **Every write is gated**: a settlement on the claim's attempt and owner, a claim on the fence of
  the run's lease. Who has been overtaken is told, and writes nothing.

A method is a checkpoint. One that is cancelled has either written nothing or returns, and the
cancellation is then raised at the next checkpoint: nobody is left in doubt whether a write that
was cut has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

import attrs

from harness._durable import ReceiptClaim, ReceiptKey, RunLease
from harness._json import JSON
from harness._toolset import Effect

__all__ = [
    "Claimed",
    "Receipt",
    "ReceiptAction",
    "ReceiptStatus",
    "ReceiptStore",
    "Settlement",
]

Settlement: TypeAlias = Literal["completed", "failed"]
"""How an attempt ended: with an effect and a result, or without an effect."""
ReceiptStatus: TypeAlias = Literal["running", "completed", "failed", "ambiguous"]
ReceiptAction: TypeAlias = Literal["execute", "replay", "wait", "ambiguous"]


@attrs.frozen(kw_only=True)
class Claimed:
    """A store's answer to a claim."""

    action: ReceiptAction
    attempt: int
    """The attempt to execute, or the one that was found."""
    claim: ReceiptClaim | None = None
    """To execute with; None for every other action."""
    result: JSON = None
    """To replay: what the completed attempt stored."""
    reason: str = ""
    """Why to wait, or what is in doubt."""
    seconds_left: float = 0.0
    """To wait: what is left of the other worker's lease, by the store's clock."""


@attrs.frozen(kw_only=True)
class Receipt:
    """A receipt as an operator sees it."""

    key: ReceiptKey
    status: ReceiptStatus
    attempt: int
    owner: str
    effect: Effect
    lease_live: bool
    """Whether a running one may still be at work, as the store's clock has it."""
    result: JSON
    changed_at: datetime
    """By the store's clock, with a time zone."""

    @property
    def in_doubt(self) -> bool:
        """Whether its effect may have happened, and nobody will say so unless asked."""
        return self.status == "ambiguous" or (self.status == "running" and not self.lease_live)


class ReceiptStore(Protocol):
    """Keeps receipts. All methods raise `StoreError` if the database cannot be used."""

    async def claim_receipt(
        self,
        key: ReceiptKey,
        *,
        effect: Effect,
        owner: str,
        seconds: float,
        run: RunLease | None = None,
    ) -> Claimed:
        """Decide what is to be done about a call, and claim it if that is to execute it.

        A running attempt of an opaque effect whose lease is over becomes ``ambiguous``, so that
        its worker, if it should wake up, can no longer settle it.

        Raises:
            LeaseLostError: *run* is given, and somebody else has taken over that run.
        """
        ...

    async def renew_receipt(self, claim: ReceiptClaim) -> bool:
        """Make the claim last for its seconds from now; False if it is no longer held."""
        ...

    async def settle_receipt(
        self, claim: ReceiptClaim, settlement: Settlement, result: JSON
    ) -> bool:
        """Store how the attempt ended; False, and nothing written, if it is no longer held.

        Settling again what the same claim has settled is True and changes nothing. A lease that
        is over is no reason to refuse, as long as nobody has taken over.
        """
        ...

    async def list_receipts(
        self, tenant: str, *, run_id: str | None = None, status: ReceiptStatus | None = None
    ) -> Sequence[Receipt]:
        """Return the receipts of a tenant, oldest first."""
        ...

    async def settle_receipt_by_hand(
        self, key: ReceiptKey, settlement: Settlement, result: JSON
    ) -> None:
        """Store what a person found out about a receipt that is `Receipt.in_doubt`.

        Raises:
            ReceiptStateError: there is no such receipt, or it is in no doubt.
        """
        ...
