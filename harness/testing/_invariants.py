"""Ready invariants for scenarios that run a `RunHarness`.

Give them to `cancel_everywhere` or `explore_schedules`; the scenario makes its harness with
``run_harness(turns, scene=scene)``. Each holds trivially for a playing that was cut before there
was a harness.
"""

from __future__ import annotations

from typing import Final

from harness.kernel import RunState
from harness.testing._claims import (
    assert_answers_truthful,
    assert_calls_answered_once,
    assert_events_balance,
    assert_no_permit_held,
    assert_provider_valid,
    assert_transcript_settled,
)
from harness.testing._errors import FindingError
from harness.testing._harness import RunHarness, run_harness
from harness.testing._scene import Invariant, Scene

__all__ = [
    "RUN_INVARIANTS",
    "answers_truthful",
    "calls_answered_once",
    "events_balance",
    "no_permit_held",
    "nothing_started_after_stop",
    "transcript_settled",
]


def transcript_settled(scene: Scene) -> None:
    """Every transcript is settled; one without open calls is valid for strict providers."""
    for state in _kit(scene).states:
        open_calls = _open_calls(state)
        assert_transcript_settled(state.messages, open_calls)
        if not open_calls:
            assert_provider_valid(state.messages)


def calls_answered_once(scene: Scene) -> None:
    """Every call has one answer, but for open ones, and every answer a call."""
    for state in _kit(scene).states:
        assert_calls_answered_once(state.messages, _open_calls(state))


def answers_truthful(scene: Scene) -> None:
    """No call that started is said not to have run, and no other to be interrupted."""
    kit = _kit(scene)
    for state in kit.states:
        assert_answers_truthful(state.messages, kit.ran)


def nothing_started_after_stop(scene: Scene) -> None:
    """No work that the scene was told of started once the cut had been made.

    Strict: a task that was to run on in that very moment must have looked for the stop.
    """
    late = [start.name for start in scene.starts if start.after_stop]
    if late:
        raise FindingError(f"{late} started after the stop, expected nothing to")


def no_permit_held(scene: Scene) -> None:
    """Every permit was given back."""
    assert_no_permit_held(_kit(scene).limiters)


def events_balance(scene: Scene) -> None:
    """What was told to have started was told to have finished."""
    assert_events_balance(_kit(scene).events)


RUN_INVARIANTS: Final[tuple[Invariant, ...]] = (
    transcript_settled,
    calls_answered_once,
    answers_truthful,
    nothing_started_after_stop,
    no_permit_held,
    events_balance,
)
"""All of them."""


def _kit(scene: Scene) -> RunHarness:
    """Return the harness of the scene, or one that nothing was done with."""
    return scene.kept(RunHarness) or run_harness([])


def _open_calls(state: RunState) -> tuple[str, ...]:
    return () if state.pause is None else state.pause.open
