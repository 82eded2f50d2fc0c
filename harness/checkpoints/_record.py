"""What a checkpoint holds: a run between two legs, ready for any process to go on with.

A checkpoint is a small head and the messages. A commit is a new head, how many of the messages
still stand, and those that come after them; so a commit costs what its turn added, whatever the
length of the transcript, and a checkpoint followed by a commit is the next checkpoint.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

from harness._events import StopReason
from harness._json import JSON
from harness._messages import Message
from harness.kernel import Limits, Pause, RunStats, RunUsage, Used

__all__ = [
    "Checkpoint",
    "CheckpointHead",
    "CheckpointRef",
    "CheckpointStatus",
    "Commit",
    "Position",
]

CheckpointStatus: TypeAlias = Literal["ready", "waiting_for_reply", "waiting_for_wake", "finished"]


@attrs.frozen(kw_only=True)
class CheckpointRef:
    """One revision of one run."""

    run_id: str
    revision: int


@attrs.frozen(kw_only=True)
class Position:
    """How far a run has come: the fields of `RunState` that count."""

    leg: int = 0
    turn: int = 0
    tool_calls: int = 0
    calls_taken: int = 0
    usage: RunUsage = attrs.field(factory=RunUsage)
    below: Used = attrs.field(factory=Used)
    compactions: int = 0
    forgotten: dict[str, int] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class CheckpointHead:
    """A checkpoint without its messages."""

    run_id: str
    revision: int
    """0 for a run that was created, then one more for each commit."""
    parent: CheckpointRef | None
    """What it was forked from."""
    status: CheckpointStatus
    stop_reason: StopReason | None
    """Why it is finished; None unless it is."""
    limits: Limits
    position: Position
    stats: RunStats
    """Cumulative, over all legs."""
    pause: Pause | None
    bindings: JSON
    """The host's: what it pins of configuration and environment."""

    @property
    def open_call_ids(self) -> tuple[str, ...]:
        """Calls without a result."""
        return () if self.pause is None else self.pause.open


@attrs.frozen(kw_only=True)
class Commit:
    """What a boundary changed."""

    head: CheckpointHead
    keep: int
    """So many of the messages before still stand."""
    tail: tuple[Message, ...]
    """What follows them."""


@attrs.frozen(kw_only=True)
class Checkpoint:
    """A run between two legs. A value: nothing changes it, and what is made of it is a copy."""

    head: CheckpointHead
    messages: tuple[Message, ...]

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.head.run_id

    @property
    def revision(self) -> int:
        """How many commits there were."""
        return self.head.revision

    @property
    def status(self) -> CheckpointStatus:
        """What the run needs to go on, if anything."""
        return self.head.status

    def after(self, commit: Commit) -> Checkpoint:
        """Return the checkpoint that *commit* makes of this one."""
        return Checkpoint(
            head=commit.head,
            messages=(*self.messages[: commit.keep], *copy.deepcopy(commit.tail)),
        )

    def commit_to(self, later: Checkpoint) -> Commit:
        """Return the commit that makes *later* of this one."""
        keep = _common(self.messages, later.messages)
        return Commit(head=later.head, keep=keep, tail=later.messages[keep:])


def _common(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return how many messages at the start are equal."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
