"""The plan of the runs: everybody reads the same, and all that is to be tried is in it."""

from __future__ import annotations

from collections import Counter

from tests.torture.plan import (
    EFFECTS,
    gets_replies,
    planned_calls,
    planned_turn,
    planned_turns,
)

RUNS = [f"run-{number}" for number in range(200)]


def test_a_plan_is_its_names_alone() -> None:
    assert planned_turn("run-1", 0) == planned_turn("run-1", 0)
    assert planned_calls("run-1") != planned_calls("run-2")


def test_a_run_ends_after_its_last_planned_turn() -> None:
    for run_id in RUNS:
        turns = planned_turns(run_id)
        assert all(planned_turn(run_id, turn) for turn in range(turns))
        assert planned_turn(run_id, turns) == ()


def test_every_tool_is_called_and_every_kind_of_effect_is_left() -> None:
    tools = Counter(tool for run_id in RUNS for _, tool, _ in planned_calls(run_id))
    assert set(tools) == set(EFFECTS)


def test_some_calls_are_equal_within_a_turn_and_over_turns() -> None:
    def repeats(run_id: str, turn: int) -> bool:
        asks = planned_turn(run_id, turn)
        return len(set(asks)) < len(asks)

    within = [run_id for run_id in RUNS if any(repeats(run_id, turn) for turn in range(5))]
    over = [
        run_id for run_id in RUNS if set(planned_turn(run_id, 0)) & set(planned_turn(run_id, 1))
    ]
    assert within
    assert over


def test_some_runs_are_left_without_replies() -> None:
    assert {gets_replies(run_id) for run_id in RUNS} == {True, False}
