"""Judge one playing of a scenario, and say what was wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from traceback import format_exception_only
from typing import Final, TypeAlias

import attrs

from harness.testing._errors import ScenarioFailedError, UnrepeatableError
from harness.testing._play import Playing, Step, play
from harness.testing._scene import Invariant, Scenario, called
from harness.testing._schedule import Schedule

__all__ = ["Errors", "Judge"]

Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]

_SHOWN: Final = 12
"""How many steps a message shows."""


@attrs.frozen(kw_only=True, eq=False)
class Judge:
    """Plays one scenario again and again, and judges each playing."""

    scenario: Scenario
    invariants: Sequence[Invariant]
    raises: Errors

    def play(self, seed: Schedule, at: int | None, course: Sequence[Step] | None = None) -> Playing:
        """Play it, and return if the end is sound.

        *course* are the steps that it took uncut; None if nobody knows yet.

        Raises:
            ScenarioFailedError: it is not.
            UnrepeatableError: the steps up to the cut are not those of *course*.
        """
        playing = Playing(seed=seed, at=at)
        try:
            play(self.scenario, playing)
            self._check(playing, course)
        except (UnrepeatableError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._failure(seed, at, error) from error  # noqa: ASYNC104  # the run is over
        return playing

    def _check(self, playing: Playing, course: Sequence[Step] | None) -> None:
        if course is not None:
            _check_course(playing, course if playing.at is None else course[: playing.at + 1])
        scene = playing.scene
        if scene.error is not None and not _only(scene.error, self.raises):
            raise scene.error
        scene.judge()
        for invariant in self.invariants:
            called(invariant, scene)

    def _failure(self, seed: Schedule, at: int | None, error: BaseException) -> ScenarioFailedError:
        """Say which cut failed, how the scenario came to it, and how to play just this one."""
        places = self._places(seed, at)
        what = "".join(format_exception_only(error)).rstrip()
        if at is None:
            lines = [f"uncut, seed {seed!r}: {what}"]
        else:
            lines = [f"cut {at}, seed {seed!r}: {what}"]
            lines.append(f"(to play it alone: only={at}, seeds=[{seed!r}])")
        if places:
            lines.append("last steps, the latest first:")
            lines += [f"  {place}" for place in places[: -1 - _SHOWN : -1]]
        return ScenarioFailedError("\n".join(lines), seed=seed, cut=at, trace=places)

    def _places(self, seed: Schedule, at: int | None) -> list[str]:
        """Play it once more, slowly, to see where the tasks stand."""
        playing = Playing(seed=seed, at=at, locate=True)
        with suppress(Exception):  # the first error is the one that counts
            play(self.scenario, playing)
        return playing.places


def _check_course(playing: Playing, course: Sequence[Step]) -> None:
    """Raise if the steps taken are not those of *course*."""
    if playing.trace == course:
        return
    steps = zip_longest(playing.trace, course, fillvalue=("the", "end"))
    at, (seen, expected) = next(each for each in enumerate(steps) if each[1][0] != each[1][1])
    raise UnrepeatableError(
        f"under seed {playing.seed!r} step {at} was {' '.join(seen)}, expected "
        f"{' '.join(expected)} as before: the scenario is not the same each time"
    )


def _only(error: BaseException, kinds: Errors) -> bool:
    """Whether *error* is one of *kinds*, or a group of nothing else."""
    if isinstance(error, kinds):
        return True
    return isinstance(error, BaseExceptionGroup) and all(
        _only(each, kinds) for each in error.exceptions
    )
