"""How long an attempt may wait for its provider.

A client's own timeouts cover the way to the first byte, and a provider that stops in the middle of
an answer keeps a run waiting for ever. How much silence is too much depends on what it is silent
about. A model may think for minutes, and a slow one may take as long to begin; once it answers, it
answers steadily. So there are three budgets:

* until the **first answer**, and again from each piece of reasoning on, a generous one: thinking
  is healthy as long as it moves, also between two stretches of the answer;
* from each piece of the answer to the next, the **gap**, a tight one;
* for the whole attempt an **absolute** one that nothing moves.

What is neither answer nor reasoning moves nothing. A comment that keeps a connection alive proves
that a proxy lives, not that a model works, and counting it as life was turned down: behind such a
proxy no budget would ever run out.

Times are trio's, as arguments: nothing here waits.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from harness._errors import RunUseError, StallBudget, StreamStalled
from harness._model import Chunk, StreamBudgets

__all__ = ["ChunkKind", "Pace", "chunk_kind"]

ChunkKind: TypeAlias = Literal["answer", "reasoning", "none"]


def chunk_kind(chunk: Chunk) -> ChunkKind:
    """Return what *chunk* is to the budgets; one that holds both is an answer."""
    if chunk.text or chunk.refusal or chunk.calls:
        return "answer"
    return "reasoning" if chunk.reasoning else "none"


@attrs.define(eq=False)
class Pace:
    """The budgets of one attempt. `open` it, `observe` each chunk, and ask for the `deadline`."""

    _budgets: StreamBudgets
    _opened_at: float | None = attrs.field(default=None, init=False)
    _phase: Literal["first_answer", "gap"] = attrs.field(default="first_answer", init=False)
    _since: float = attrs.field(default=0.0, init=False)
    """When the budget of the present phase began to count."""
    _reasoning_seen: bool = attrs.field(default=False, init=False)
    _answer_seen: bool = attrs.field(default=False, init=False)

    def open(self, now: float) -> None:
        """Begin to count; what was before does not.

        Raises:
            RunUseError: it was opened before.
        """
        if self._opened_at is not None:
            raise RunUseError("the pace was opened again, expected one opening for each attempt")
        self._opened_at = self._since = now

    def observe(self, kind: ChunkKind, now: float) -> bool:
        """Note a chunk that came at *now*; return whether the deadline may have come closer.

        Raises:
            RunUseError: nothing has been opened.
        """
        if self._opened_at is None:
            raise RunUseError(f"a chunk ({kind}) came before the opening, expected that first")
        if kind == "none":
            return False
        self._since = now
        if kind == "answer":
            closer = self._phase == "first_answer"
            self._phase = "gap"
            self._answer_seen = True
            return closer
        self._phase = "first_answer"
        self._reasoning_seen = True
        return False

    @property
    def deadline(self) -> float:
        """When the next budget runs out.

        Raises:
            RunUseError: nothing has been opened.
        """
        ends_at = self._opening() + self._budgets.absolute
        return min(self._since + self._phase_budget(), ends_at)

    def stall(self, now: float) -> StreamStalled | None:
        """Return which budget has run out at *now*, if one has; of two, that of the phase.

        Raises:
            RunUseError: nothing has been opened.
        """
        opened_at = self._opening()
        if self._since + self._phase_budget() <= now:
            return self._report(self._phase, self._phase_budget(), now)
        if opened_at + self._budgets.absolute <= now:
            return self._report("absolute", self._budgets.absolute, now)
        return None

    def _phase_budget(self) -> float:
        return self._budgets.gap if self._phase == "gap" else self._budgets.first_answer

    def _opening(self) -> float:
        if self._opened_at is None:
            raise RunUseError("the pace has not been opened, expected that first")
        return self._opened_at

    def _report(self, budget: StallBudget, seconds: float, now: float) -> StreamStalled:
        return StreamStalled(
            budget,
            seconds=seconds,
            elapsed=now - self._opening(),
            reasoning_seen=self._reasoning_seen,
            answer_seen=self._answer_seen,
        )
