"""A toolset whose calls leave receipts.

::

    normalize → number → claim ─┬─ execute → hold the lease, run it, settle
                                ├─ replay → what was stored
                                ├─ wait → claim again, a little later
                                └─ ambiguous → say so to the model and to the host

The claim is durable before the tool is entered. A receipt that is claimed and not settled is the
evidence that an effect may have happened, and it is left behind by everything that keeps a call
from saying how it ended: a crash, a cancellation, an exception. So a receipt is settled only for
a value that was returned; a tool that is not sure raises.

A store that cannot be used ends the run. The model is not told of a failure, because it would try
again, and what it would try again may have happened.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Final, TypeVar, assert_never

import attrs
import trio

from harness._arguments import Parsed, parse_tool_call_arguments
from harness._bounds import check_seconds
from harness._durable import ReceiptClaim, ReceiptKey, RunLease, check_name
from harness._errors import LeaseLostError, RecordError, StoreError, loses_track, shown
from harness._events import ReceiptAmbiguous
from harness._ids import IdSource, random_id
from harness._json import JSON
from harness._shield import only_cancelled, run_shielded, stop_due
from harness._toolset import (
    Batch,
    CallContext,
    ForwardingToolset,
    Outcome,
    ToolCall,
    Toolset,
    normalized,
)
from harness.receipts._key import receipt_key_string, tool_call_args_hash, tool_key_name
from harness.receipts._lease import hold_lease
from harness.receipts._occurrences import Occurrences
from harness.receipts._result import (
    outcome_of_result,
    result_of_outcome,
    settlement_of,
    with_plain_data,
)
from harness.receipts._store import Claimed, ReceiptStore, Settlement
from harness.tools import Tool, as_toolset

__all__ = ["ReceiptToolset", "with_receipts"]

T = TypeVar("T")

AMBIGUOUS_TEXT: Final = (
    "Outcome unknown: an earlier attempt at this call began, and how it ended was never recorded. "
    "It may have had its effect. It was not repeated, and must not be: somebody has to find out "
    "what happened."
)
LOST_TEXT: Final = (
    "Outcome unknown: while this call was being carried out, the claim to it was lost, and another "
    "worker may have taken it over. Its effects may be complete, partial or absent; check before "
    "doing it again."
)
_NEVER_ENTERED: Final = Outcome.not_run()

_FIRST_WAIT: Final = 0.05
"""Seconds until a receipt that somebody else works on is looked at again; each wait doubles."""
_LONGEST_WAIT: Final = 2.0
_PATIENCE: Final = 5
"""How often a claim may be over before its call is entered."""
_RUNS: Final = 64
"""How many runs are numbered at a time. One more, and the oldest is read again when it goes on."""


def with_receipts(
    tools: Toolset | Iterable[Tool],
    store: ReceiptStore,
    *,
    tenant: str,
    run_id: str | None = None,
    lease: RunLease | None = None,
    seconds: float = 30.0,
    ids: IdSource = random_id,
) -> ReceiptToolset:
    """Return *tools* with a receipt for every call that has an effect.

    A call whose policy says ``effect="none"`` is passed on as it is. It serves any number of runs,
    one after the other or side by side. Put it around everything that changes what a call does,
    and within what only watches.

    Args:
        tools: what the run has.
        store: where receipts are kept.
        tenant: whose receipts they are.
        run_id: the run that they belong to; by default the one that the call comes from, so that
            the calls of child runs have receipts of their own. With one id for several runs,
            equal calls of two of them are the same call.
        lease: this worker's turn at the run. Nothing is claimed once somebody else has taken it.
        seconds: how long a claim lasts without being renewed. So long a call waits that was being
            carried out when its worker died; and so long a stop waits for a store that does not
            answer.
        ids: where the owners of claims come from.

    Raises:
        TypeError, ValueError: *seconds* is no positive number, *tenant* or *run_id* is empty, or
            *lease* is of another tenant.
        ToolDefinitionError: something in *tools* is no tool, or two have one name.
    """
    check_seconds("seconds", seconds, zero=False)
    check_name("tenant", tenant)
    if run_id is not None:
        check_name("run_id", run_id)
    if lease is not None and lease.key.tenant != tenant:
        other = lease.key.tenant
        raise ValueError(f"the lease is of the tenant {other!r}, expected {tenant!r}")
    return ReceiptToolset(
        toolset=as_toolset(tools),
        store=store,
        tenant=tenant,
        run_id=run_id,
        lease=lease,
        seconds=seconds,
        ids=ids,
    )


@attrs.define(kw_only=True, eq=False)
class ReceiptToolset(ForwardingToolset):
    """A toolset whose calls leave receipts. Made by `with_receipts`."""

    _toolset: Toolset = attrs.field(alias="toolset")
    _store: ReceiptStore = attrs.field(alias="store")
    _tenant: str = attrs.field(alias="tenant")
    _run_id: str | None = attrs.field(alias="run_id")
    _lease: RunLease | None = attrs.field(alias="lease")
    _seconds: float = attrs.field(alias="seconds")
    _ids: IdSource = attrs.field(alias="ids", repr=False)
    _runs: OrderedDict[str, Occurrences] = attrs.field(factory=OrderedDict, init=False, repr=False)

    async def execute(self, call: ToolCall, context: CallContext[object]) -> Outcome:
        """Run *call* unless its receipt says otherwise. A checkpoint, if it has an effect.

        A cancellation leaves the receipt of a call that was entered as it is: running. One that
        comes while a result is being settled does not take it away.

        Raises:
            StoreError: the store cannot be used; `fatal`.
            LeaseLostError: somebody else has taken over the run; `fatal`.
        """
        effect = self.policy(call).effect
        if effect == "none":
            return await self._toolset.execute(call, context)
        normal = normalized(self._toolset, call)
        if isinstance(normal, Outcome):
            return normal
        key = self._key(normal, context.batch)
        longest, too_slow = _FIRST_WAIT, 0
        while True:
            began = trio.current_time()
            claimed = await self._own(
                self._store.claim_receipt(
                    key,
                    effect=effect,
                    owner=self._ids("claim"),
                    seconds=self._seconds,
                    run=self._lease,
                )
            )
            wait = longest
            match claimed.action:
                case "replay":
                    return self._replayed(claimed)
                case "ambiguous":
                    return _tell_ambiguous(key, claimed, context)
                case "wait":
                    wait = min(max(claimed.seconds_left, _FIRST_WAIT), longest)
                case "execute":
                    outcome = await self._carry_out(claimed, normal, context, began)
                    if outcome is not None:
                        return outcome
                    too_slow += 1
                    if too_slow == _PATIENCE:
                        raise self._too_slow()
                case _:
                    assert_never(claimed.action)
            await trio.sleep(wait)
            longest = min(2 * longest, _LONGEST_WAIT)

    def fatal(self, error: BaseException) -> bool:
        """Whether *error* is one of a store, or ends the run for the toolset."""
        return loses_track(error) or self._toolset.fatal(error)

    def _key(self, call: ToolCall, batch: Batch) -> ReceiptKey:
        """Return the key of *call*, which is in its normal form.

        Arguments that cannot be read have a key too, made of their text, and so have calls that
        are no function calls. The toolset would refuse most of them, but whether it does is its
        own business, and what it runs must have a receipt.
        """
        parsed = parse_tool_call_arguments(call)
        args: JSON = (
            parsed.arguments if isinstance(parsed, Parsed) else [call.type, repr(call.arguments)]
        )
        return ReceiptKey(
            tenant=self._tenant,
            run_id=batch.run_id if self._run_id is None else self._run_id,
            tool=tool_key_name(call.name),
            args_hash=tool_call_args_hash(args),
            occurrence=self._occurrences(batch.run_id).number(call, batch),
        )

    def _occurrences(self, run_id: str) -> Occurrences:
        found = self._runs.pop(run_id, None) or Occurrences(partial(normalized, self._toolset))
        self._runs[run_id] = found
        if len(self._runs) > _RUNS:
            self._runs.popitem(last=False)
        return found

    async def _carry_out(
        self, claimed: Claimed, call: ToolCall, context: CallContext[object], began: float
    ) -> Outcome | None:
        """Run a call that was claimed; None if it was not entered, and the claim given back."""
        claim = claimed.claim
        assert claim is not None
        entered, returned = False, None
        async with hold_lease(
            lambda: self._own(self._store.renew_receipt(claim)), seconds=claim.seconds, since=began
        ) as held:
            # Asked in the step in which the tool is entered. The lease is a scope too: one that is
            # over already is a stop.
            if not stop_due():
                entered = True
                under = attrs.evolve(context, call=call, receipt=claim)
                returned = await self._toolset.execute(call, under)
        if not entered:
            await self._settle(claim, "failed", result_of_outcome(_NEVER_ENTERED))
            await trio.lowlevel.checkpoint()
            return None
        if returned is None and held.lost:
            return Outcome.interrupted(LOST_TEXT)
        return await self._settled(claim, returned)

    async def _settled(self, claim: ReceiptClaim, returned: object) -> Outcome:
        """Settle what a tool returned, and return what the model is to be told.

        The store is asked even if the lease is over: what a cancellation could not cut has come to
        an end all the same, and is lost only if somebody else has taken over, which the store
        knows.
        """
        if not isinstance(returned, Outcome):
            raise TypeError(f"the toolset returned {shown(returned)}, expected an Outcome")
        settlement = settlement_of(returned)
        if settlement is None:
            return returned
        outcome = with_plain_data(returned)
        if await self._settle(claim, settlement, result_of_outcome(outcome)):
            return outcome
        return Outcome.interrupted(LOST_TEXT)

    async def _settle(self, claim: ReceiptClaim, settlement: Settlement, result: JSON) -> bool:
        """Settle a claim, also if a stop has arrived. False if it was no longer held."""
        held: bool | None = None

        async def settle() -> None:
            nonlocal held
            held = await self._own(self._store.settle_receipt(claim, settlement, result))

        try:
            await run_shielded(settle, give_up_at=lambda: trio.current_time() + self._seconds)
        except BaseException as error:  # noqa: ASYNC103  # see below
            # A tool that returned after a stop has completed, and its receipt now says so. The
            # stop is not lost: it is raised again at the next checkpoint.
            if held is None or not only_cancelled(error):
                raise
        assert held is not None
        return held

    def _too_slow(self) -> StoreError:
        reason = (
            f"{_PATIENCE} claims took longer than the {self._seconds:g} s that they last, "
            "expected a store that answers sooner, or claims that last longer"
        )
        return StoreError("store.busy", reason)

    def _replayed(self, claimed: Claimed) -> Outcome:
        try:
            return outcome_of_result(claimed.result)
        except RecordError as error:
            reason = f"what the receipt holds does not load: {error}"
            raise StoreError("store.corrupt", reason) from error

    async def _own(self, asked: Awaitable[T]) -> T:
        """Await an answer of the store; whatever it raises besides is an error of a store, too."""
        try:
            return await asked
        except (StoreError, LeaseLostError):
            raise
        except Exception as error:
            reason = f"the store of receipts failed: {error!r}"
            raise StoreError("store.failed", reason) from error


def _tell_ambiguous(key: ReceiptKey, claimed: Claimed, context: CallContext[object]) -> Outcome:
    context.tell(
        ReceiptAmbiguous(
            call_id=context.call.id,
            name=context.call.name,
            attempt=claimed.attempt,
            receipt=receipt_key_string(key),
        )
    )
    return Outcome.interrupted(AMBIGUOUS_TEXT)
