"""A turn's stream as a model sees it that is called by another model.

A model around a model knows more than the inner one: how long this endpoint may keep an attempt
waiting, what else is at work. The inner one opens its attempts as ever. So the outer one hands it
a view of the same stream.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import attrs

from harness._events import Event
from harness._model import Assembly, Attempt, ModelTurn, ResetReason, StreamBudgets, TurnStream
from harness._usage import Usage

__all__ = ["ForwardingStream"]


@attrs.define(eq=False)
class ForwardingStream:
    """A `TurnStream` that passes everything on, to derive from.

    Args:
        stream: where everything goes.
        budgets: those of every attempt that is opened without any.
    """

    _stream: TurnStream
    _budgets: StreamBudgets | None = None
    opened: int = attrs.field(default=0, init=False)
    """How many attempts were opened here; 0 means that the model did not stream."""

    def number_attempt(self) -> int:
        """Return the number of the next attempt."""
        return self._stream.number_attempt()

    def attempt(
        self,
        reason: ResetReason | None = None,
        budgets: StreamBudgets | None = None,
        number: int | None = None,
    ) -> AbstractAsyncContextManager[Attempt]:
        """Open an attempt, see `harness.TurnStream`."""
        self.opened += 1
        return self._stream.attempt(reason, budgets or self._budgets, number)

    def progress(self, output_tokens: int) -> None:
        """Report how many tokens came so far."""
        self._stream.progress(output_tokens)

    def tell(self, event: Event) -> None:
        """Send an event, stamped as the run's own."""
        self._stream.tell(event)

    def spend(self, usage: Usage) -> None:
        """Count spend that belongs to no turn."""
        self._stream.spend(usage)

    def drop(self, turn: ModelTurn, reason: ResetReason) -> None:
        """Say that a reply is not used."""
        self._stream.drop(turn, reason)

    @property
    def produced_output(self) -> bool:
        """Whether something left the turn that cannot be taken back."""
        return self._stream.produced_output

    @property
    def assembly(self) -> Assembly:
        """How the replies of the turn are put together and judged."""
        return self._stream.assembly

    @property
    def budgets(self) -> StreamBudgets:
        """How long an attempt that brings no budgets of its own may wait."""
        return self._budgets or self._stream.budgets
