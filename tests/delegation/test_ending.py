"""What each end of a child is to the call that it ran in."""

from typing import get_args

import pytest

from harness import (
    Halt,
    Limits,
    RunResult,
    RunState,
    RunStats,
    Suspend,
    assistant_message,
    user_message,
)
from harness.delegation import CHILD_END_ROWS
from harness.delegation._ending import outcome_of_child
from harness.delegation._question import paused_child
from harness.errors import InternalError
from harness.events import StopReason
from harness.kernel import Pause
from harness.testing import tool_call

REASONS: tuple[StopReason, ...] = get_args(StopReason)


def ended(reason: StopReason, **fields: object) -> RunResult:
    call = tool_call("ask", id="1")
    state = RunState(
        run_id="r",
        messages=[user_message("Go."), assistant_message(None, [call])],
        pause=Pause(open=("1",), suspends={"1": Suspend.answer("Really?")}),
    )
    return RunResult(run_id="r", stop_reason=reason, state=state, stats=RunStats(), **fields)  # type: ignore[arg-type]  # fields by name


@pytest.mark.rule("R-CHILD-14")
def test_every_end_has_one_row() -> None:
    assert sorted(row.reason for row in CHILD_END_ROWS) == sorted(REASONS)


@pytest.mark.rule("R-CHILD-14")
@pytest.mark.parametrize("reason", REASONS)
def test_every_end_is_what_its_row_says(reason: StopReason) -> None:
    [row] = [each for each in CHILD_END_ROWS if each.reason == reason]
    result = ended(reason, text="So far.")
    if row.end == "raises":
        with pytest.raises(
            InternalError, match=rf"^run 'r' ended '{reason}', expected it to raise$"
        ):
            outcome_of_child("clerk", result, Limits())
        return
    outcome = outcome_of_child("clerk", result, Limits(turns=7))
    match row.end:
        case "completed":
            assert (outcome.kind, outcome.data, outcome.suspend) == ("completed", "So far.", None)
        case "asks":
            assert outcome.suspend is not None
            assert (outcome.kind, outcome.suspend.question) == ("completed", "Really?")
            assert paused_child(outcome.suspend.payload).checkpoint.head.limits == Limits(turns=7)
        case _:
            assert outcome.kind == row.end
            assert outcome.error == (f"The agent 'clerk' {row.text} Its last words were: So far.")
    assert (row.text == "") == (row.end in ("completed", "asks"))


@pytest.mark.rule("R-CHILD-14")
def test_only_what_was_cut_is_of_unknown_effect() -> None:
    ends = {row.reason: row.end for row in CHILD_END_ROWS}
    assert [reason for reason, end in ends.items() if end == "interrupted"] == [
        "aborted",
        "deadline",
    ]
    assert [reason for reason, end in ends.items() if end == "completed"] == ["done"]


@pytest.mark.rule("R-CHILD-14")
def test_a_halt_says_why_and_silence_says_nothing() -> None:
    outcome = outcome_of_child(
        "clerk", ended("halted", halt=Halt(code="x", message="Enough.")), Limits()
    )
    assert outcome.error == (
        "The agent 'clerk' was halted before it was done. What it did by then stands. "
        "It was told: Enough."
    )


@pytest.mark.rule("R-CHILD-13")
def test_an_object_outranks_the_text_that_it_was_read_from() -> None:
    assert outcome_of_child("clerk", ended("done", text="{}", parsed={"a": 1}), Limits()).data == {
        "a": 1
    }
    assert outcome_of_child("clerk", ended("done"), Limits()).data is None
