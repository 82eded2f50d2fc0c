"""Two mistakes, made on purpose: without what each leaves out, the judge must find fault.

A torture that finds nothing proves nothing unless it finds these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from harness._arguments import Parsed, parse_tool_call_arguments
from harness._durable import ReceiptKey, RunLease
from harness._ids import random_id
from harness._toolset import CallContext, ForwardingToolset, Outcome, ToolCall, Toolset
from harness.receipts import ReceiptStore, tool_call_args_hash
from harness.stores import _rules

__all__ = ["ClaimingLate", "remove_fences"]


class ClaimingLate(ForwardingToolset):
    """Stands where `with_receipts` does: it runs a call, and claims its receipt afterwards."""

    def __init__(
        self, toolset: Toolset, store: ReceiptStore, *, lease: RunLease, seconds: float
    ) -> None:
        super().__init__(toolset)
        self._store = store
        self._lease = lease
        self._claim = partial(
            store.claim_receipt, owner=random_id("claim"), seconds=seconds, run=lease
        )

    async def execute(self, call: ToolCall, context: CallContext[object]) -> Outcome:
        outcome = await super().execute(call, context)
        effect = self.policy(call).effect
        parsed = parse_tool_call_arguments(call)
        if effect == "none" or outcome.kind != "completed" or not isinstance(parsed, Parsed):
            return outcome
        key = ReceiptKey(
            tenant=self._lease.key.tenant,
            run_id=self._lease.key.run_id,
            tool=call.name,
            args_hash=tool_call_args_hash(parsed.arguments),
            occurrence=context.batch.turn,
        )
        claimed = await self._claim(key, effect=effect)
        if claimed.claim is not None:
            await self._store.settle_receipt(claimed.claim, "completed", {})
        return outcome


def remove_fences() -> None:
    """Let the stores of this process take every write, whoever has taken over."""
    # Both stand for the one question that every write of every store asks.
    _let_all_pass("is_held", lambda record, _: record is not None)
    _let_all_pass("_is_of", lambda _record, _claim: True)


def _let_all_pass(name: str, question: Callable[[object, object], bool]) -> None:
    if not callable(getattr(_rules, name)):
        raise TypeError(f"{name} is {getattr(_rules, name)!r}, expected a question about a fence")
    setattr(_rules, name, question)
