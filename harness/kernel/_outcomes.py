"""What left a tool decides its outcome.

A call runs in its own shielded scope, so a cancellation that is not ours cannot be mistaken for
one that is: our own is absorbed by the scope (``cut``), and one that comes out all the same is
a library's leaked cancellation or a foreign framework's. The table covers what may come out,
with and without a stop; a fatal error is an exception that the toolset calls fatal.

An error that leaves a call after it was cut is still that call's error: it returned control
with more to say than "I was cancelled", and the model may read it.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from harness._errors import error_text, leaf_errors
from harness._messages import INTERRUPTED_TEXT, FailureKind, OutcomeKind
from harness._toolset import Outcome

__all__ = [
    "OUTCOME_ROWS",
    "Left",
    "OutcomeRow",
    "judge_outcome",
    "time_limit_text",
    "what_was_raised",
]

Left: TypeAlias = Literal["exception", "fatal", "cancellation", "exit", "cut"]


@attrs.frozen
class OutcomeRow:
    """One row: what left the tool, whether a stop had arrived, and what that means."""

    left: Left
    stopped: bool
    kind: OutcomeKind
    failure_kind: FailureKind | None
    text: Literal["error", "interrupted", "time_limit", "stray"]
    ends_run: bool = False


OUTCOME_ROWS: tuple[OutcomeRow, ...] = (
    OutcomeRow("exception", False, "failed", None, "error"),
    OutcomeRow("exception", True, "failed", None, "error"),
    OutcomeRow("fatal", False, "interrupted", "interrupted", "interrupted", ends_run=True),
    OutcomeRow("fatal", True, "interrupted", "interrupted", "interrupted", ends_run=True),
    OutcomeRow("cancellation", False, "failed", "system", "stray"),
    OutcomeRow("cancellation", True, "interrupted", "interrupted", "interrupted"),
    OutcomeRow("exit", False, "interrupted", "interrupted", "interrupted", ends_run=True),
    OutcomeRow("exit", True, "interrupted", "interrupted", "interrupted", ends_run=True),
    OutcomeRow("cut", False, "interrupted", "interrupted", "time_limit"),
    OutcomeRow("cut", True, "interrupted", "interrupted", "interrupted"),
)
"""What each thing that may leave a tool is taken for; a value is what it says."""

_ROWS: Final = {(row.left, row.stopped): row for row in OUTCOME_ROWS}

_STRAY_TEXT = "The tool was cancelled by something else than this run, and did not finish."


def what_was_raised(error: BaseException) -> Left:
    """Say which kind of thing *error* is; a group is the gravest of its leaves.

    A cancellation beside real errors is not what ended the call, so it does not count. What is
    neither an exception nor a cancellation is meant for whoever runs the program: an interrupt,
    a request to exit, the verdict of a test framework.
    """
    kinds = {_kind_of(each) for each in leaf_errors(error)}
    order: tuple[Left, ...] = ("exit", "exception", "cancellation")
    return next(kind for kind in order if kind in kinds)


def _kind_of(leaf: BaseException) -> Left:
    if isinstance(leaf, Exception):
        return "exception"
    # By name, since a foreign framework is not imported to ask it.
    names = {each.__name__ for each in type(leaf).__mro__}
    return "cancellation" if names & {"Cancelled", "CancelledError"} else "exit"


def judge_outcome(
    left: Left,
    *,
    stopped: bool,
    error: BaseException | None = None,
    time_limit: float | None = None,
    abandoned: bool = False,
) -> tuple[Outcome, OutcomeRow]:
    """Return the outcome of a call that did not return, and the row that says so."""
    row = _ROWS[left, stopped]
    texts = {
        "interrupted": INTERRUPTED_TEXT,
        "stray": _STRAY_TEXT,
        "time_limit": time_limit_text(time_limit),
        "error": "" if error is None else error_text(error),
    }
    outcome = Outcome(
        kind=row.kind,
        failure_kind=row.failure_kind,
        error=texts[row.text],
        abandoned=abandoned and row.kind == "interrupted",
    )
    return outcome, row


def time_limit_text(seconds: float | None) -> str:
    """Return what a model is told of a call that ran past its own time limit."""
    limit = "its time limit" if seconds is None else f"its time limit of {seconds:g} s"
    return (
        f"Outcome unknown: this call ran past its deadline ({limit}) and was cut. "
        "Its effects may be complete, partial or absent; check before doing it again."
    )
