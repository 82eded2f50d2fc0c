"""Transcripts: when one is settled, and what a provider refuses in one, and how it is mended."""

from __future__ import annotations

from harness.transcript._calls import calls_in, calls_of
from harness.transcript._checks import (
    REFUSALS,
    Refusal,
    check_anthropic,
    check_openai,
    check_settled,
    is_settled,
    joining_fault,
    unanswered_call_ids,
)
from harness.transcript._healing import REPAIRS, Healed, heal_messages
from harness.transcript._lines import message_fault
from harness.transcript._poison import raw_arguments, raw_name, without_kept, without_poison
from harness.transcript._repairs import Issue, IssueCode, RepairRow, Tail
from harness.transcript._rows import Check, RefusalRow

__all__ = [
    "REFUSALS",
    "REPAIRS",
    "Check",
    "Healed",
    "Issue",
    "IssueCode",
    "Refusal",
    "RefusalRow",
    "RepairRow",
    "Tail",
    "calls_in",
    "calls_of",
    "check_anthropic",
    "check_openai",
    "check_settled",
    "heal_messages",
    "is_settled",
    "joining_fault",
    "message_fault",
    "raw_arguments",
    "raw_name",
    "unanswered_call_ids",
    "without_kept",
    "without_poison",
]
