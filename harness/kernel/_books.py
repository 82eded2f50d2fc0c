"""What a leg writes down as it goes.

The run's totals, the leg's own figures, the ledger that limits both, and the voice that tells of
them are changed together or not at all; no method here is a checkpoint, so they are never seen
apart.
"""

from __future__ import annotations

import attrs

from harness._errors import MissingPortError, MisuseError
from harness._events import CallRejected, Event, Failure
from harness._model import ModelTurn
from harness._usage import Usage
from harness.kernel._emitter import EventSource
from harness.kernel._limits import Budget
from harness.kernel._state import RunState
from harness.kernel._stats import RunStats

__all__ = ["Books"]


@attrs.define(eq=False)
class Books:
    """A leg's books."""

    state: RunState
    stats: RunStats
    budget: Budget
    source: EventSource

    def tell(self, event: Event) -> None:
        """Send an event, stamped as the leg's own."""
        self.source.tell(event)

    def report(self, error: MisuseError | MissingPortError) -> None:
        """Tell of a misuse that does not end the run."""
        self.source.tell(CallRejected(failure=Failure.of(error)))

    def turn_id(self, turn: int) -> str:
        """Return the id of turn number *turn*, told apart from its like in another leg."""
        return f"{self.state.run_id}:{self.state.leg}:{turn}"

    def count_turn(self, finished: ModelTurn) -> None:
        """Count a completion that came to its end; the budget counted it when it began."""
        self.state.turn += 1
        self.state.usage = self.state.usage.after_turn(finished.usage)
        self.stats.fold_turn(finished.usage)
        self.budget.post(finished.usage)

    def spend(self, usage: Usage) -> None:
        """Count spend that is no turn."""
        self.state.usage = self.state.usage.after_spend(usage)
        self.stats.fold_spend(usage)
        self.budget.post(usage)
