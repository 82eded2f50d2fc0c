"""Tests for agents, on trio: scripted models, fake tools, and a proof that stopping is safe.

What proves this package proves yours too::

    async def scenario(scene: Scene) -> None:
        kit = run_harness(
            [tool_call_turn([tool_call("search"), tool_call("book")]), final_answer("Booked.")],
            tools=[slow_tool(2, "search"), slow_tool(5, "book")],
            scene=scene,
        )
        await kit.run("Book me a room.")

    def test_booking_can_be_cancelled_anywhere() -> None:
        cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=25)

Everything runs in virtual time and in one fixed order of tasks, so a failure repeats. The pytest
plugin is `harness.testing.pytest_plugin`; it is not imported here.
"""

from harness._ids import counting_ids
from harness.testing._claims import (
    assert_answers_truthful,
    assert_calls_answered_once,
    assert_channels_ended,
    assert_events_balance,
    assert_no_permit_held,
    assert_provider_valid,
    assert_transcript_settled,
)
from harness.testing._cut import CutReport, cancel_everywhere
from harness.testing._errors import (
    DeadlockError,
    FindingError,
    LeftoverError,
    ScenarioFailedError,
    ScriptError,
    ScriptExhausted,
    UnrepeatableError,
    VacuousError,
)
from harness.testing._explore import ScheduleReport, explore_schedules
from harness.testing._harness import RunHarness, run_harness
from harness.testing._invariants import (
    RUN_INVARIANTS,
    answers_truthful,
    calls_answered_once,
    events_balance,
    no_permit_held,
    nothing_started_after_stop,
    transcript_settled,
)
from harness.testing._leftovers import assert_no_tasks_left
from harness.testing._models import ScriptedModel, scripted_model
from harness.testing._record import RecordingSink, record_events, recording_sink
from harness.testing._scene import Invariant, Scenario, Scene, Start
from harness.testing._schedule import Schedule, schedule, schedules
from harness.testing._script import (
    ScriptItem,
    Streamed,
    Timed,
    final_answer,
    streamed,
    tool_call,
    tool_call_turn,
)
from harness.testing._tools import (
    BlockingTool,
    FakeTool,
    HeldTool,
    Visit,
    blocking_tool,
    counting_tool,
    failing_tool,
    held_tool,
    slow_tool,
    stubborn_tool,
    timed,
)
from harness.testing._virtual import run_virtual

__all__ = [
    "RUN_INVARIANTS",
    "BlockingTool",
    "CutReport",
    "DeadlockError",
    "FakeTool",
    "FindingError",
    "HeldTool",
    "Invariant",
    "LeftoverError",
    "RecordingSink",
    "RunHarness",
    "Scenario",
    "ScenarioFailedError",
    "Scene",
    "Schedule",
    "ScheduleReport",
    "ScriptError",
    "ScriptExhausted",
    "ScriptItem",
    "ScriptedModel",
    "Start",
    "Streamed",
    "Timed",
    "UnrepeatableError",
    "VacuousError",
    "Visit",
    "answers_truthful",
    "assert_answers_truthful",
    "assert_calls_answered_once",
    "assert_channels_ended",
    "assert_events_balance",
    "assert_no_permit_held",
    "assert_no_tasks_left",
    "assert_provider_valid",
    "assert_transcript_settled",
    "blocking_tool",
    "calls_answered_once",
    "cancel_everywhere",
    "counting_ids",
    "counting_tool",
    "events_balance",
    "explore_schedules",
    "failing_tool",
    "final_answer",
    "held_tool",
    "no_permit_held",
    "nothing_started_after_stop",
    "record_events",
    "recording_sink",
    "run_harness",
    "run_virtual",
    "schedule",
    "schedules",
    "scripted_model",
    "slow_tool",
    "streamed",
    "stubborn_tool",
    "timed",
    "tool_call",
    "tool_call_turn",
    "transcript_settled",
]
