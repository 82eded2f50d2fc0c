"""What this package raises.

::

    UsageError
    ├── ScriptError             a script that could not be played as it stands
    └── ScriptExhausted         a model was asked for more turns than its script has
    FindingError                a test found something: also an AssertionError
    ├── ScenarioFailedError       one playing of a scenario broke a claim
    ├── VacuousError              nothing was tried, so nothing was shown
    ├── UnrepeatableError         the same schedule led to another course
    ├── DeadlockError             every task waited, and nothing could wake any
    └── LeftoverError             a run left something behind
"""

from __future__ import annotations

from collections.abc import Sequence

from harness._errors import HarnessError, UsageError

__all__ = [
    "DeadlockError",
    "FindingError",
    "LeftoverError",
    "ScenarioFailedError",
    "ScriptError",
    "ScriptExhausted",
    "UnrepeatableError",
    "VacuousError",
]


class ScriptError(UsageError, ValueError):
    """A script cannot be played as it stands."""

    code = "testing.script"


class ScriptExhausted(UsageError):  # noqa: N818  # a fact about the script, as its name says
    """A model was asked for turn number *turn*, counted from 0; its script has *turns* of them."""

    code = "testing.script-exhausted"

    def __init__(self, turn: int, turns: int) -> None:
        self.turn = turn
        self.turns = turns
        super().__init__(f"turn {turn} was asked for, expected no more than {turns} turns")


class FindingError(HarnessError, AssertionError):
    """A test found that a claim does not hold."""

    code = "testing.finding"


class ScenarioFailedError(FindingError):
    """One playing of a scenario broke a claim; the claim's own error is the cause."""

    code = "testing.scenario"

    def __init__(
        self, message: str, *, seed: object, cut: int | None, trace: Sequence[str]
    ) -> None:
        self.seed = seed
        """The schedule it was played under."""
        self.cut = cut
        """Number of the task step at which it was stopped; -1 is before its start, None means
        that it was not stopped at all."""
        self.trace = tuple(trace)
        """The steps of its tasks up to the cut, the last one last."""
        super().__init__(message)


class VacuousError(FindingError):
    """Nothing was tried, or less than was asked for, so nothing was shown."""

    code = "testing.vacuous"


class UnrepeatableError(FindingError):
    """The same schedule led to another course of events, so no cut can be trusted."""

    code = "testing.unrepeatable"


class DeadlockError(FindingError):
    """Every task waited, and nothing could ever have woken one of them."""

    code = "testing.deadlock"

    def __init__(self, waiting: Sequence[str]) -> None:
        self.waiting = tuple(waiting)
        """Each task, and where it waited."""
        lines = "".join(f"\n  {each}" for each in self.waiting)
        super().__init__(f"every task waits and nothing can wake one, expected progress:{lines}")


class LeftoverError(FindingError):
    """A run left something behind: a task, an async generator, an unclosed resource."""

    code = "testing.leftover"

    def __init__(self, leftovers: Sequence[str]) -> None:
        self.leftovers = tuple(leftovers)
        super().__init__(f"left behind, expected nothing: {'; '.join(self.leftovers)}")
