"""What a scenario tells those who judge it.

A scenario is an async function that is run many times, each time anew, and stopped somewhere
else each time. Whatever it makes, it makes itself; what it wants judged afterwards, it hands to
its `Scene`: a check of its own, an object for a ready invariant, a note that work has started.

A check is registered before what it checks can go wrong, since a scenario that is cut never
comes to a later line.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Literal, TypeAlias, TypeVar

import attrs

from harness.testing._errors import FindingError

__all__ = ["Invariant", "Scenario", "Scene", "SceneOutcome", "Start", "called"]

T = TypeVar("T")

SceneOutcome: TypeAlias = Literal["completed", "cancelled", "raised"]


@attrs.frozen(kw_only=True)
class Start:
    """A piece of work that began."""

    name: str
    after_stop: bool
    """Whether the scenario had been stopped by then."""


@attrs.define(eq=False)
class Scene:
    """One playing of a scenario: a blackboard between it and its judges.

    The first four attributes are set when it is over, for the judges.
    """

    outcome: SceneOutcome = attrs.field(default="completed", init=False)
    """How it ended; ``cancelled`` if the cut's own cancellation came out of it."""
    error: BaseException | None = attrs.field(default=None, init=False)
    """What came out of it, if it ``raised``."""
    stopped: bool = attrs.field(default=False, init=False)
    """Whether the cut was made. True from that very moment on."""
    act: Callable[[], object] | None = attrs.field(default=None, init=False)
    """What was done at the cut; None means that the enclosing scope was cancelled."""
    starts: list[Start] = attrs.field(factory=list, init=False)
    """What `started` was told, in order."""
    _next_act: Callable[[], object] | None = attrs.field(default=None, init=False)
    _checks: list[Callable[[], object]] = attrs.field(factory=list, init=False)
    _kept: dict[type, object] = attrs.field(factory=dict, init=False)

    def on_cut(self, act: Callable[[], object]) -> None:
        """From now on, the cut calls *act* instead of cancelling the scope around the scenario.

        *act* is synchronous: ``run.abort``, the cancelling of an inner scope, the moving of a
        deadline. It is called between two task steps, at most once.
        """
        self._next_act = act

    def afterwards(self, check: Callable[[], object]) -> Callable[[], object]:
        """Call *check* when the scenario is over, however it ended. Usable as a decorator.

        It is called outside of trio and fails by raising, an `AssertionError` for example. One
        that is async, or yields, is refused then: nothing would run it.
        """
        self._checks.append(check)
        return check

    def keep(self, value: T) -> T:
        """Hand *value* to the invariants, which find it by its class; returns it.

        Raises:
            ValueError: an object of this class has been kept already.
        """
        if type(value) in self._kept:
            raise ValueError(f"a second {type(value).__name__} was kept, expected one per class")
        self._kept[type(value)] = value
        return value

    def kept(self, kind: type[T]) -> T | None:
        """Return the object of class *kind* that the scenario kept; for invariants.

        None means that it was cut before it came to that.

        Raises:
            LookupError: it ran to its end and kept none.
        """
        for value in self._kept.values():
            if isinstance(value, kind):
                return value
        if self.outcome == "completed":
            raise LookupError(f"no {kind.__name__} was kept, expected scene.keep(...) with one")
        return None

    def started(self, name: str) -> None:
        """Note that the work called *name* starts now."""
        self.starts.append(Start(name=name, after_stop=self.stopped))

    def stop(self, cancel: Callable[[], object]) -> None:
        """Make the cut: do what the scenario chose, else *cancel*. Called by who plays it."""
        self.stopped = True
        self.act = self._next_act
        (self.act or cancel)()

    def judge(self) -> None:
        """Call the scenario's own checks. Called by who plays it."""
        for check in self._checks:
            called(check)


Scenario: TypeAlias = Callable[[Scene], Awaitable[object]]
Invariant: TypeAlias = Callable[[Scene], object]
"""A claim about every playing of a scenario; it fails by raising.

It is a plain function. One that is async, or yields, is refused: nothing would run it.
"""


def called(check: Callable[..., object], *args: object) -> object:
    """Return what *check* returns for *args*.

    Raises:
        FindingError: it is async, or yields, so nothing of it has run.
    """
    value = check(*args)
    if isinstance(value, (Awaitable, Generator, AsyncGenerator)):
        if isinstance(value, (Coroutine, Generator)):
            value.close()  # or it warns, somewhere else and later, that nobody awaited it
        raise FindingError(
            f"{check!r} returned {value!r}, expected a check that is over when it returns"
        )
    return value
