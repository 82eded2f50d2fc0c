"""One endpoint's circuit: a table, and the machine that reads it.

An endpoint that fails again and again is left alone for a while, so that a route passes over it
at once instead of waiting for it to fail once more. When the cooldown is over, one call is let
through to find out; until it has ended, everybody else still passes by. `BREAKER_ROWS` has a row
for each state and each thing that can happen in it, so nothing is left to chance or to the order
of conditions.

What a call reports counts only in the state in which it was let through. Every change of the state
therefore takes the next number (`Circuit.generation`), a call remembers the number it was admitted
under, and an outcome with another number is *late*. It says how the endpoint was, not how it is: a
late success must not close a circuit that has been opened since, nor a late failure use up a
probe. One thing it may still bring is news: a time to wait, which moves the end of a cooldown that
is running.

Rejected: a window of failures by time, or a rate. Both need a history per endpoint, and a route
that asks an endpoint twice an hour would never fill one. Rejected too: a task that turns an open
circuit into a half-open one when its time comes. Time is looked at when somebody asks, so a breaker
needs no task, and an endpoint that nobody asks for costs nothing.
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

import attrs

from harness._bounds import check_count, check_seconds

__all__ = [
    "BREAKER_ROWS",
    "BreakerRow",
    "Circuit",
    "CircuitAction",
    "CircuitEvent",
    "CircuitState",
    "CircuitTerms",
    "breaker_row",
]

CircuitState: TypeAlias = Literal["closed", "open", "half_open", "probing"]
"""``half_open``: the cooldown is over; ``probing``: a call has been let through to find out."""
CircuitEvent: TypeAlias = Literal["asked", "succeeded", "failed", "broke", "released", "late"]
"""``broke``: a failure that opens at once, or the last one of the count; ``released``: a call
ended and says nothing about the endpoint; ``late``: one that was let through in another state."""
CircuitAction: TypeAlias = Literal["admit", "refuse", "reset", "count", "trip", "lengthen", "none"]
"""``trip``: begin a cooldown; ``lengthen``: move its end to where the failure asks for, if that is
later; ``reset``: clear the count."""


@attrs.frozen
class BreakerRow:
    """One row: what an event does in a state, and which state follows."""

    state: CircuitState
    event: CircuitEvent
    then: CircuitState
    action: CircuitAction
    why: str


BREAKER_ROWS: Final = (
    BreakerRow("closed", "asked", "closed", "admit", "the endpoint is well, as far as we know"),
    BreakerRow("closed", "succeeded", "closed", "reset", "only failures in a row count"),
    BreakerRow("closed", "failed", "closed", "count", "it may have been chance"),
    BreakerRow("closed", "broke", "open", "trip", "it is down, or the key is void"),
    BreakerRow("closed", "released", "closed", "none", "nothing was learnt"),
    BreakerRow("closed", "late", "closed", "none", "the endpoint has been found well since"),
    BreakerRow("open", "asked", "open", "refuse", "the cooldown runs"),
    BreakerRow("open", "succeeded", "open", "none", "no call is let through, so it began before"),
    BreakerRow("open", "failed", "open", "lengthen", "it is known to be down, but until when?"),
    BreakerRow("open", "broke", "open", "lengthen", "the same"),
    BreakerRow("open", "released", "open", "none", "nothing was learnt"),
    BreakerRow("open", "late", "open", "lengthen", "calls that were on their way still tell"),
    BreakerRow("half_open", "asked", "probing", "admit", "one call finds out"),
    BreakerRow("half_open", "succeeded", "half_open", "none", "it began before; a probe must tell"),
    BreakerRow("half_open", "failed", "half_open", "none", "it began before; the probe is free"),
    BreakerRow("half_open", "broke", "half_open", "none", "the same"),
    BreakerRow("half_open", "released", "half_open", "none", "nothing was learnt"),
    BreakerRow("half_open", "late", "half_open", "none", "it began before; the probe is free"),
    BreakerRow("probing", "asked", "probing", "refuse", "one call is enough to find out"),
    BreakerRow("probing", "succeeded", "closed", "reset", "the endpoint is back"),
    BreakerRow("probing", "failed", "open", "trip", "it is not back: a full cooldown again"),
    BreakerRow("probing", "broke", "open", "trip", "the same"),
    BreakerRow("probing", "released", "half_open", "none", "the next caller finds out"),
    BreakerRow("probing", "late", "probing", "none", "the probe is another call's"),
)
"""What happens to a circuit: a row for each state and event."""

_ROWS: Final = {(row.state, row.event): row for row in BREAKER_ROWS}


def breaker_row(state: CircuitState, event: CircuitEvent) -> BreakerRow:
    """Return what *event* does in *state*."""
    return _ROWS[state, event]


@attrs.frozen(kw_only=True)
class CircuitTerms:
    """When a circuit opens, and for how long.

    Raises:
        TypeError, ValueError: a term is no count or no positive, finite number of seconds, or the
            ceiling is below the cooldown.
    """

    failures: int = attrs.field()
    """So many counted failures in a row open it."""
    cooldown: float = attrs.field()
    """Seconds."""
    max_cooldown: float = attrs.field()
    """Seconds; no endpoint can ask to be left alone for longer."""

    def __attrs_post_init__(self) -> None:
        check_count("failures", self.failures, least=1)
        check_seconds("cooldown", self.cooldown, zero=False)
        check_seconds("max_cooldown", self.max_cooldown, zero=False)
        if self.max_cooldown < self.cooldown:
            raise ValueError(
                f"max_cooldown is {self.max_cooldown!r}, "
                f"expected at least the cooldown of {self.cooldown!r}"
            )


@attrs.define(eq=False)
class Circuit:
    """The state of one endpoint. Synchronous, and without a clock."""

    _terms: CircuitTerms
    failures: int = attrs.field(default=0, init=False)
    """Failures since the last success."""
    generation: int = attrs.field(default=0, init=False)
    """How often the state has changed."""
    _state: CircuitState = attrs.field(default="closed", init=False)
    _until: float = attrs.field(default=-math.inf, init=False)

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to remember."""
        return self._state == "closed" and not self.failures

    def state(self, now: float) -> CircuitState:
        """Return the state at *now*: an open circuit is half-open once its time is over."""
        return "half_open" if self._state == "open" and now >= self._until else self._state

    def retry_at(self, now: float) -> float | None:
        """Return the end of the cooldown; None if there is none."""
        return self._until if self.state(now) == "open" else None

    def ask(self, now: float) -> bool:
        """Let a call through, or do not."""
        return self._apply("asked", now) == "admit"

    def succeed(self, now: float, *, generation: int) -> None:
        """Hear of a call that was answered."""
        self._apply(self._timely("succeeded", generation), now)

    def fail(
        self, now: float, *, generation: int, at_once: bool, retry_after: float | None
    ) -> None:
        """Hear of a call that failed. *at_once*: one such failure is enough."""
        last = at_once or self.failures + 1 >= self._terms.failures
        event = self._timely("broke" if last else "failed", generation)
        self._apply(event, now, retry_after or 0.0)

    def release(self, *, generation: int) -> None:
        """Hear of a call that ended and says nothing."""
        # No row for a release depends on how late it is: the time is not asked for.
        self._apply(self._timely("released", generation), -math.inf)

    def _timely(self, event: CircuitEvent, generation: int) -> CircuitEvent:
        return event if generation == self.generation else "late"

    def _apply(self, event: CircuitEvent, now: float, retry_after: float = 0.0) -> CircuitAction:
        row = breaker_row(self.state(now), event)
        asked_for = min(retry_after, self._terms.max_cooldown)
        if row.action == "reset":
            self.failures = 0
        elif row.action in ("count", "trip"):
            self.failures += 1
        if row.action == "trip":
            self._until = now + max(self._terms.cooldown, asked_for)
        elif row.action == "lengthen":
            self._until = max(self._until, now + asked_for)
        if row.then != row.state:
            self._state = row.then
            self.generation += 1
        return row.action
