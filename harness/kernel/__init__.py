"""The kernel: runs, and what a host gives them."""

from harness.kernel._deadline import RunDeadline, classify_run_failure
from harness.kernel._emitter import Emitter
from harness.kernel._heartbeat import Flush, Heartbeat
from harness.kernel._limiters import Limiters
from harness.kernel._limits import Budget, Limits, Used
from harness.kernel._outcomes import OUTCOME_ROWS, OutcomeRow
from harness.kernel._ports import (
    Boundary,
    Compaction,
    Compactor,
    Decision,
    Journal,
    SettledTurn,
    StepDecision,
    Supervisor,
    answered,
)
from harness.kernel._run import DEFAULT_DEADLINE, Run, RunInput, RunOptions, open_run, run
from harness.kernel._start import state_from
from harness.kernel._state import Pause, RunResult, RunState, RunUsage
from harness.kernel._stats import RunStats, ToolStats
from harness.kernel._stop import STOP_ORDER, StopRow
from harness.kernel._turn import as_model, check_answer

__all__ = [
    "DEFAULT_DEADLINE",
    "OUTCOME_ROWS",
    "STOP_ORDER",
    "Boundary",
    "Budget",
    "Compaction",
    "Compactor",
    "Decision",
    "Emitter",
    "Flush",
    "Heartbeat",
    "Journal",
    "Limiters",
    "Limits",
    "OutcomeRow",
    "Pause",
    "Run",
    "RunDeadline",
    "RunInput",
    "RunOptions",
    "RunResult",
    "RunState",
    "RunStats",
    "RunUsage",
    "SettledTurn",
    "StepDecision",
    "StopRow",
    "Supervisor",
    "ToolStats",
    "Used",
    "answered",
    "as_model",
    "check_answer",
    "classify_run_failure",
    "open_run",
    "run",
    "state_from",
]
