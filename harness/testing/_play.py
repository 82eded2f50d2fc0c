"""Play a scenario once, and stop it at one point.

A trio instrument counts the moments before and after each step of the scenario's own tasks and
makes the cut at one of them. trio drops an instrument that raises, with a line in the log; ours
keeps its errors, and they are raised when the run is over.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs
import trio
from trio.abc import Instrument

from harness.testing._frames import place, task_name
from harness.testing._scene import Scenario, Scene
from harness.testing._schedule import Schedule
from harness.testing._virtual import run_virtual

__all__ = ["BEFORE_START", "Playing", "Step", "play"]

Step: TypeAlias = tuple[Literal["resume", "park"], str]
"""The moment before or after a step of a task, and the task's name and number."""

BEFORE_START: Final = -1


@attrs.define(kw_only=True, eq=False)
class Playing:
    """One playing of a scenario."""

    seed: Schedule
    at: int | None
    """The cut: a step's number, `BEFORE_START`, or None for no cut."""
    locate: bool = False
    """Whether to note where each task stands, which takes several times as long."""
    scene: Scene = attrs.field(factory=Scene, init=False)
    trace: list[Step] = attrs.field(factory=list, init=False)
    """All steps, or those up to and with the cut."""
    places: list[str] = attrs.field(factory=list, init=False)
    """For each step of the trace where the task stood, if that was to be noted."""


def play(scenario: Scenario, playing: Playing) -> None:
    """Play *scenario* in virtual time, as *playing* says, and fill in the rest of it.

    What the scenario raised is in the scene.

    Raises:
        DeadlockError: the scenario could not go on.
        LeftoverError: it left something behind.
        BaseException: what the act of the cut raised.
    """
    scene = playing.scene
    points = _CutPoints(playing)

    async def main() -> None:
        try:
            with trio.CancelScope() as cut:
                points.begin(cut)
                try:
                    await scenario(scene)
                finally:
                    points.end()
            if cut.cancelled_caught:
                scene.outcome = "cancelled"
        # The end of a run, and nobody to go on: whether this was expected is for the judge to say.
        except BaseException as error:  # noqa: ASYNC103, BLE001
            scene.outcome = "raised"
            scene.error = error

    run_virtual(main, seed=playing.seed, instruments=[points])
    if points.errors:
        raise points.errors[0]


class _CutPoints(Instrument):
    """Counts the steps of the scenario's tasks, and makes the cut."""

    def __init__(self, playing: Playing) -> None:
        self.errors: list[BaseException] = []
        self._playing = playing
        self._root: trio.lowlevel.Task | None = None
        self._cut = trio.CancelScope()
        self._names: dict[trio.lowlevel.Task, str] = {}

    def begin(self, cut: trio.CancelScope) -> None:
        """Count from here on: the current task and all that it will start."""
        self._cut = cut
        self._root = trio.lowlevel.current_task()
        self._root.name = "scenario"
        self._names = {self._root: self._root.name}
        if self._playing.at == BEFORE_START:
            self._playing.scene.stop(cut.cancel)

    def end(self) -> None:
        """Count no more."""
        self._root = None

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        nursery = task.parent_nursery
        if self._root is not None and nursery is not None and nursery.parent_task in self._names:
            # Numbered in the order of their making: many tasks of one name are the usual case.
            self._names[task] = f"{task_name(task)}#{len(self._names)}"

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._count("resume", task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._count("park", task)

    def _count(self, moment: Literal["resume", "park"], task: trio.lowlevel.Task) -> None:
        at, trace = self._playing.at, self._playing.trace
        if self._root is None or task not in self._names or (at is not None and len(trace) > at):
            return
        try:
            trace.append((moment, self._names[task]))
            if self._playing.locate:
                self._playing.places.append(f"{moment} {self._names[task]}, {place(task)}")
            if at is not None and len(trace) > at:
                self._playing.scene.stop(self._cut.cancel)
        except BaseException as error:  # noqa: ASYNC103, BLE001  # raised by `play`
            self.errors.append(error)
