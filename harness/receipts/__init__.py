"""Receipts of calls: no effect is repeated that need not be, and a doubtful one is shown."""

from harness._durable import ReceiptClaim, ReceiptKey
from harness.receipts._decision import (
    RECEIPT_ROWS,
    FoundStatus,
    ReceiptDecision,
    ReceiptRow,
    ReceiptState,
    decide_tool_call_receipt,
)
from harness.receipts._key import receipt_key_from, receipt_key_string, tool_call_args_hash
from harness.receipts._lease import HeldLease, hold_lease
from harness.receipts._result import outcome_of_result, result_of_outcome
from harness.receipts._store import (
    Claimed,
    Receipt,
    ReceiptAction,
    ReceiptStatus,
    ReceiptStore,
    Settlement,
)
from harness.receipts._toolset import ReceiptToolset, with_receipts

__all__ = [
    "RECEIPT_ROWS",
    "Claimed",
    "FoundStatus",
    "HeldLease",
    "Receipt",
    "ReceiptAction",
    "ReceiptClaim",
    "ReceiptDecision",
    "ReceiptKey",
    "ReceiptRow",
    "ReceiptState",
    "ReceiptStatus",
    "ReceiptStore",
    "ReceiptToolset",
    "Settlement",
    "decide_tool_call_receipt",
    "hold_lease",
    "outcome_of_result",
    "receipt_key_from",
    "receipt_key_string",
    "result_of_outcome",
    "tool_call_args_hash",
    "with_receipts",
]
