"""Why a leg ends: one ordered table.

At each point where a leg could end, several things may be true at once: the last turn was
allowed, somebody asked for a stop, a tool asked a question. The reason that is reported is the
first row of the table whose fact holds. A person who stopped a run reads ``aborted`` and not
that there was no room left; a question that is open outranks a wake, since somebody must act.

Rejected: deciding at each point with its own chain of conditions. The order then exists only as
the order of lines in the loop, and two of them would disagree before long.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import attrs

from harness._events import StopReason

__all__ = ["STOP_ORDER", "Fact", "StopRow", "StopSignal", "first_reason"]

Fact: TypeAlias = Literal[
    "failed",
    "cancelled",
    "aborted",
    "out_of_time",
    "halted",
    "refused",
    "open_calls",
    "stop_asked",
    "wakes",
    "no_turns",
    "no_budget",
    "checkpoint",
    "finished",
]


@attrs.frozen
class StopRow:
    """One row: a fact, and what it is reported as."""

    fact: Fact
    reason: StopReason
    meaning: str


STOP_ORDER: tuple[StopRow, ...] = (
    StopRow("failed", "failed", "a port or a fatal tool raised"),
    StopRow("cancelled", "cancelled", "a scope around the run was cancelled"),
    StopRow("aborted", "aborted", "`abort()` came before the deadline"),
    StopRow("out_of_time", "deadline", "the run's deadline passed"),
    StopRow("halted", "halted", "the model port returned a `Halt`"),
    StopRow("refused", "budget", "a batch was refused, since a limit was spent"),
    StopRow("open_calls", "waiting_for_reply", "a call waits for an answer from outside"),
    StopRow("stop_asked", "aborted", "a soft stop, or the supervisor said stop"),
    StopRow("wakes", "resuming_later", "a tool scheduled its own resume"),
    StopRow("no_turns", "turn_limit", "the turns are used up and work is left"),
    StopRow("no_budget", "budget", "tokens, cost, or an outer budget are used up"),
    StopRow("checkpoint", "checkpointed", "the boundary port said so"),
    StopRow("finished", "done", "the model asked for nothing more"),
)
"""Every way in which a leg may end, the foremost first."""


def first_reason(*facts: Fact | None) -> StopReason | None:
    """Return what the foremost of *facts* is reported as; None if there is none."""
    for row in STOP_ORDER:
        if row.fact in facts:
            return row.reason
    return None


assert {row.fact for row in STOP_ORDER} == set(get_args(Fact))


@attrs.define(eq=False)
class StopSignal:
    """What has asked a leg to stop, and who asked first."""

    deadline: float
    aborted: bool = False
    """`abort()` owns the stop: it came first, and not after the deadline."""
    message: str | None = None
    soft: bool = False
    """Stop after this turn."""
    grace_cap: float = math.inf
    """No call in flight may go on for longer than this, whatever its policy says."""

    def abort(self, message: str | None, grace: float | None, *, now: float) -> None:
        """Note an abort. A later one can only shorten the grace."""
        if not self.aborted and now <= self.deadline:
            self.aborted = True
            self.message = message
        if grace is not None:
            self.grace_cap = min(self.grace_cap, grace)
