"""Calls that no run is behind, and stores that take their time as a database does."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from harness._durable import ReceiptClaim, ReceiptKey, RunLease
from harness._events import Event
from harness._json import JSON, encode
from harness._messages import Message, MessagesView, assistant_message, user_message
from harness._toolset import Batch, CallContext, Effect, Outcome, Reply, ToolCall, Toolset
from harness.receipts import Claimed, Receipt, Settlement
from harness.stores import MemoryStore
from harness.testing import tool_call
from harness.transcript import calls_of
from tests.tools.contexts import Stop

TENANT = "acme"


@attrs.define
class Asked:
    """A batch of calls, each with the context that a run would give it."""

    batch: Batch
    told: list[Event] = attrs.field(factory=list)

    def context(self, place: int = 0, *, reply: Reply | None = None) -> CallContext[object]:
        def refuse() -> None:
            raise AssertionError("nobody was to keep a permit")

        return CallContext(
            call=self.batch.calls[place],
            batch=self.batch,
            stopping=Stop(),
            host=None,
            reply=reply,
            tell=self.told.append,
            keep_permit=lambda: refuse,
        )

    async def of(self, toolset: Toolset, place: int = 0, *, reply: Reply | None = None) -> Outcome:
        """Let *toolset* execute one of the calls."""
        return await toolset.execute(self.batch.calls[place], self.context(place, reply=reply))


def asking(
    *calls: tuple[str, dict[str, JSON] | str],
    before: Sequence[Message] = (),
    run_id: str = "run_1",
    ids: str = "call",
) -> Asked:
    """Return the batch of a message with *calls*, each a name and arguments."""
    named = [
        tool_call(name, arguments, id=f"{ids}_{number}")
        for number, (name, arguments) in enumerate(calls)
    ]
    message = assistant_message(None, named)
    messages = [user_message("Go."), *before, message]
    return Asked(
        Batch(
            run_id=run_id,
            turn_id=f"{run_id}/1",
            turn=1,
            calls=calls_of(message),
            messages=MessagesView(messages),
        )
    )


def rendered(toolset: Toolset, call: ToolCall, outcome: Outcome) -> bytes:
    """Return the answer to *call* as a model reads it, but for the id of the call."""
    return encode(toolset.render(attrs.evolve(call, id="any"), outcome))


async def receipts(store: MemoryStore) -> dict[str, Receipt]:
    """Return the receipts in *store* by tool and occurrence, ``pay/0``."""
    listed = await store.list_receipts(TENANT)
    return {f"{each.key.tool}/{each.key.occurrence}": each for each in listed}


async def only_receipt(store: MemoryStore) -> Receipt:
    (receipt,) = await store.list_receipts(TENANT)
    return receipt


@attrs.define(eq=False)
class SlowStore(MemoryStore):
    """A store as a database is one: it takes its time before it writes, and after.

    Before it has written it can be cut, and has then written nothing. Afterwards it cannot: the
    thread that writes is waited for.
    """

    before: float = attrs.field(default=0.0, kw_only=True)
    after: float = attrs.field(default=0.0, kw_only=True)
    settling: float | None = attrs.field(default=None, kw_only=True)
    """As `before`, for settling alone."""

    async def claim_receipt(
        self,
        key: ReceiptKey,
        *,
        effect: Effect,
        owner: str,
        seconds: float,
        run: RunLease | None = None,
    ) -> Claimed:
        await trio.sleep(self.before)
        claimed = await super().claim_receipt(
            key, effect=effect, owner=owner, seconds=seconds, run=run
        )
        await self._end()
        return claimed

    async def renew_receipt(self, claim: ReceiptClaim) -> bool:
        await trio.sleep(self.before)
        renewed = await super().renew_receipt(claim)
        await self._end()
        return renewed

    async def settle_receipt(
        self, claim: ReceiptClaim, settlement: Settlement, result: JSON
    ) -> bool:
        await trio.sleep(self.before if self.settling is None else self.settling)
        settled = await super().settle_receipt(claim, settlement, result)
        await self._end()
        return settled

    async def _end(self) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(self.after)
