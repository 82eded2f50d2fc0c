"""What the end of a child is to the call that it ran in: a table of every way in which a run ends.

A child that is done has a result. One that came to a limit, or was halted, has none, but it ended
between two turns: each of its calls has a result that says what came of it, so it has failed, and
what it did stands. One that was cut is another matter. Its last calls were answered as
interrupted, effect unknown, and nobody in it has looked at that; so what the parent is told is the
same of the whole child. ``failed`` would promise that what was left behind is known.

A child that waits is in `_question`. One that failed with an exception, or was cancelled from
outside, has no end to judge: what it raised leaves the call, and the kernel's own table has a row
for it.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from harness._errors import InternalError
from harness._events import StopReason
from harness._toolset import Outcome
from harness.checkpoints import checkpoint_of
from harness.delegation._question import ask_for_child
from harness.kernel import Limits, RunResult

__all__ = ["CHILD_END_ROWS", "ChildEndRow", "outcome_of_child"]

ChildEnd: TypeAlias = Literal["completed", "failed", "interrupted", "asks", "raises"]


@attrs.frozen
class ChildEndRow:
    """One row: how a child ended, and what that is to the call."""

    reason: StopReason
    end: ChildEnd
    text: str
    """What the parent's model is told, after the child's name."""


_STANDS = "What it did by then stands."
_UNKNOWN = "What it had begun may be complete, partial or absent; check before doing it again."

CHILD_END_ROWS: Final = (
    ChildEndRow("done", "completed", ""),
    ChildEndRow("waiting_for_reply", "asks", ""),
    ChildEndRow("resuming_later", "asks", ""),
    ChildEndRow("turn_limit", "failed", f"used up its turns before it was done. {_STANDS}"),
    ChildEndRow("budget", "failed", f"used up its budget before it was done. {_STANDS}"),
    ChildEndRow("checkpointed", "failed", f"was put aside before it was done. {_STANDS}"),
    ChildEndRow("halted", "failed", f"was halted before it was done. {_STANDS}"),
    ChildEndRow("aborted", "interrupted", f"was stopped before it was done. {_UNKNOWN}"),
    ChildEndRow("deadline", "interrupted", f"ran out of time before it was done. {_UNKNOWN}"),
    ChildEndRow("cancelled", "raises", ""),
    ChildEndRow("failed", "raises", ""),
)
"""What each end of a child is to the call that it ran in."""

_ROWS: Final = {row.reason: row for row in CHILD_END_ROWS}


def outcome_of_child(agent: str, result: RunResult, limits: Limits) -> Outcome:
    """Return the outcome of the call that the child of *agent* ran in, which ended with *result*.

    *limits* are the child's, and the figures in *result* those of all its legs: they go into the
    checkpoint of one that asks.

    Raises:
        InternalError: it raised, so it has no result.
    """
    row = _ROWS[result.stop_reason]
    match row.end:
        case "completed":
            return Outcome.completed(result.text if result.parsed is None else result.parsed)
        case "asks":
            child = checkpoint_of(result.state, limits=limits, stats=result.stats)
            return Outcome.completed(suspend=ask_for_child(agent, child))
        case "failed":
            return Outcome.failed(_told(agent, row, result), "system")
        case "interrupted":
            return Outcome.interrupted(_told(agent, row, result))
        case "raises":
            raise InternalError(f"run {result.run_id!r} ended {row.reason!r}, expected it to raise")


def _told(agent: str, row: ChildEndRow, result: RunResult) -> str:
    """Return why there is no result, and what the child had said."""
    reason = "" if result.halt is None else f" It was told: {result.halt.message}"
    words = "" if result.text is None else f" Its last words were: {result.text}"
    return f"The agent {agent!r} {row.text}{reason}{words}"
