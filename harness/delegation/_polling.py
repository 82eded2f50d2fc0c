"""When to look again at a child that runs elsewhere.

A child in the same process needs no looking after: it is awaited. One on another machine tells
nobody when it is done, so it is asked, often at first and more and more rarely, and not for ever.
A schedule only counts; whoever polls sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from harness._bounds import check_amount, check_seconds

__all__ = ["PollSchedule", "PollStep", "create_poll_schedule"]


@attrs.frozen(kw_only=True)
class PollStep:
    """What to do before the next look."""

    action: Literal["wait", "give_up"]
    seconds: float = 0.0
    """How long to wait."""


_GIVE_UP = PollStep(action="give_up")


@attrs.define(eq=False)
class PollSchedule:
    """Waits that grow, and an end. Made by `create_poll_schedule`."""

    _first: float
    _factor: float
    _maximum: float
    _budget: float
    _random: Callable[[], float] | None
    _delay: float = attrs.field(init=False)
    _waited: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.reset()

    def next(self) -> PollStep:
        """Return the next step: a wait, or ``give_up`` from the end of the budget on for ever."""
        left = self._budget - self._waited
        if left <= 0:
            return _GIVE_UP
        share = 1.0 if self._random is None else self._drawn(self._random)
        seconds = self._delay * share
        self._delay = min(self._delay * self._factor, self._maximum)
        if seconds >= left:
            seconds, self._waited = left, self._budget
        else:
            self._waited += seconds
        return PollStep(action="wait", seconds=seconds)

    def reset(self) -> None:
        """Start again at the first delay; what was waited is not given back."""
        self._delay = min(self._first, self._maximum)

    def __repr__(self) -> str:
        return f"<PollSchedule waited={self._waited:g} of {self._budget:g} s>"

    @staticmethod
    def _drawn(random: Callable[[], float]) -> float:
        """Return how much of a delay is waited: from half of it up to all of it."""
        number: object = random()
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(f"the random source gave {number!r}, expected a number from 0 to 1")
        if not 0 <= number <= 1:
            raise ValueError(f"the random source gave {number!r}, expected a number from 0 to 1")
        return 1 - number / 2


def create_poll_schedule(
    first: float = 1.0,
    factor: float = 2.0,
    *,
    maximum: float = 30.0,
    budget: float = 3_600.0,
    random: Callable[[], float] | None = None,
) -> PollSchedule:
    """Return a schedule of waits; their sum is *budget*, the last one shortened to fit.

    Args:
        first: The first wait, in seconds.
        factor: How much longer each wait is than the one before.
        maximum: The longest wait, in seconds.
        budget: All waits together, in seconds.
        random: Numbers from 0 to 1: each wait is then somewhere between its half and its whole,
            so that pollers that began together drift apart. None: each wait as it is.

    Raises:
        TypeError, ValueError: a time is no positive number of seconds (*budget* may be 0), or
            *factor* is below 1.
    """
    if check_amount("factor", factor) < 1:
        raise ValueError(f"factor is {factor!r}, expected at least 1")
    return PollSchedule(
        check_seconds("first", first, zero=False),
        float(factor),
        check_seconds("maximum", maximum, zero=False),
        check_seconds("budget", budget),
        random,
    )
