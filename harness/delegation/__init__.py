"""Runs inside runs: who may start one, and an agent as a tool of another."""

from harness._chain import ChainRef
from harness.delegation._admission import (
    ADMISSION_ROWS,
    AdmissionRow,
    ChainRule,
    ChildAdmitted,
    ChildRefused,
    RefusalCode,
    admit_child_run,
)
from harness.delegation._child import UNNAMED_ROOT, as_tool
from harness.delegation._delegate import Delegate
from harness.delegation._ending import CHILD_END_ROWS, ChildEndRow
from harness.delegation._lineage import (
    chain_from_json,
    chain_to_json,
    child_run_id,
    descend_chain,
    root_chain,
)
from harness.delegation._polling import PollSchedule, PollStep, create_poll_schedule
from harness.delegation._question import ChildQuestion, asked_by

__all__ = [
    "ADMISSION_ROWS",
    "CHILD_END_ROWS",
    "UNNAMED_ROOT",
    "AdmissionRow",
    "ChainRef",
    "ChainRule",
    "ChildAdmitted",
    "ChildEndRow",
    "ChildQuestion",
    "ChildRefused",
    "Delegate",
    "PollSchedule",
    "PollStep",
    "RefusalCode",
    "admit_child_run",
    "as_tool",
    "asked_by",
    "chain_from_json",
    "chain_to_json",
    "child_run_id",
    "create_poll_schedule",
    "descend_chain",
    "root_chain",
]
