"""How often a turn reports its progress.

A count of tokens changes with every chunk, and a live indicator needs a few of them a second. So
the first count of a turn is told at once, then at most one each quarter of a second, always the
newest, and at the end of the turn whatever was held back: what is told grows with time and not
with tokens, and the last thing told is true. A timer that tells a held count when its quarter of a
second is over was turned down: it would cost a task, and a count that waits for the next chunk is
late only while nothing happens.
"""

from __future__ import annotations

import math
from typing import Final

import attrs

__all__ = ["PROGRESS_INTERVAL", "ProgressGate"]

PROGRESS_INTERVAL: Final = 0.25
"""Seconds between two reports of one turn."""


@attrs.define(eq=False)
class ProgressGate:
    """Lets the counts of one turn through, or holds them back."""

    _opens_at: float = attrs.field(default=-math.inf, init=False)
    _held: int | None = attrs.field(default=None, init=False)

    def report(self, count: int, now: float) -> int | None:
        """Return *count* if it is to be told at *now*; None holds it back."""
        if now < self._opens_at:
            self._held = count
            return None
        self._opens_at = now + PROGRESS_INTERVAL
        self._held = None
        return count

    def last(self) -> int | None:
        """Return the count that was held back, if any, for the end of the turn."""
        held, self._held = self._held, None
        return held
