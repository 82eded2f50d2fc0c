"""Exit codes: one for each way a run can end, so that a script need not read the output."""

from __future__ import annotations

from harness._errors import ProviderError, RunNotFoundError, StorageError
from harness._events import StopReason

__all__ = ["ERROR", "EXIT_CODES", "INTERRUPTED", "USAGE", "code_of"]

ERROR = 1
USAGE = 2
INTERRUPTED = 130

EXIT_CODES: dict[StopReason, int] = {
    "done": 0,
    "failed": ERROR,
    "waiting_for_reply": 3,
    "resuming_later": 4,
    "checkpointed": 4,
    "turn_limit": 5,
    "budget": 6,
    "deadline": 7,
    "halted": 8,
    "aborted": INTERRUPTED,
    "cancelled": INTERRUPTED,
}


def code_of(error: Exception) -> int:
    """Return the exit code of what was raised before a run began, or without one."""
    if isinstance(error, RunNotFoundError):
        return USAGE
    return ERROR if isinstance(error, ProviderError | StorageError) else USAGE
