"""What a run commits at its boundary: the new head, and what changed in its transcript.

At each settled point what has changed since the last commit is taken down and stored, and only
then does the run go on. Transcripts only grow, so a commit is what stands behind the last one, and
costs what its turn added. Two things change what is before the end: a late answer, which is put in
its place behind the message that asked, and a compaction, after which nothing stands.

Rejected: comparing the two transcripts. It finds the same place without knowing why, and reads
the whole transcript at every turn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Literal

import attrs

from harness._json import JSON, ROOM, check_json
from harness._messages import Message
from harness.checkpoints._codec import status_of_pause
from harness.checkpoints._operations import position_of
from harness.checkpoints._ports import CommitPort
from harness.checkpoints._record import Checkpoint, CheckpointHead, CheckpointStatus, Commit
from harness.kernel import RunState, RunStats, SettledTurn

__all__ = ["Commits"]


@attrs.define(eq=False)
class Commits:
    """The boundary of a run from a checkpoint: what was committed, and what comes next."""

    _port: CommitPort
    _capture: Callable[[], JSON]
    _base: RunStats
    """The figures of the legs before."""
    head: CheckpointHead
    _messages: list[Message]
    """As committed."""
    _stable: int = attrs.field(init=False)
    """So many messages at the start will not change, but for a compaction."""

    def __attrs_post_init__(self) -> None:
        self._stable = _stable(self._messages, self.head)

    @classmethod
    def since(
        cls, checkpoint: Checkpoint, port: CommitPort, capture: Callable[[], JSON]
    ) -> Commits:
        """Return the commits that follow *checkpoint*."""
        head = checkpoint.head
        return cls(port, capture, head.stats, head, list(checkpoint.messages))

    async def boundary(self, step: SettledTurn) -> Literal["continue", "checkpoint"]:
        """Commit what has changed, then say whether the run goes on."""
        commit = self._next(step)
        verdict = await self._port(commit)
        # It has been stored: from here on it is what the run falls back to.
        self._messages[commit.keep :] = commit.tail
        self.head = commit.head
        self._stable = _stable(self._messages, self.head)
        return verdict

    def checkpoint(self) -> Checkpoint:
        """Return what was committed last."""
        return Checkpoint(head=self.head, messages=tuple(copy.deepcopy(self._messages)))

    def total(self, stats: RunStats) -> RunStats:
        """Return *stats* of this leg together with those of the legs before."""
        total = copy.deepcopy(self._base)
        total.fold_leg(stats)
        return total

    def _next(self, step: SettledTurn) -> Commit:
        state = step.state
        compacted = state.compactions != self.head.position.compactions
        keep = 0 if compacted else self._stable
        status = _status(step, state)
        head = attrs.evolve(
            self.head,
            revision=self.head.revision + 1,
            status=status,
            stop_reason=step.stop_reason if status == "finished" else None,
            position=position_of(state),
            stats=self.total(step.stats),
            pause=copy.deepcopy(state.pause),
            bindings=self._captured(),
        )
        return Commit(head=head, keep=keep, tail=tuple(copy.deepcopy(state.messages[keep:])))

    def _captured(self) -> JSON:
        bindings = self._capture()
        check_json(bindings, room=ROOM)
        return copy.deepcopy(bindings)


def _status(step: SettledTurn, state: RunState) -> CheckpointStatus:
    if step.decision == "finished":
        return "finished"
    return status_of_pause(state.pause) or "ready"


def _stable(messages: Sequence[Message], head: CheckpointHead) -> int:
    """Return how many messages stand: all, or those up to the one whose answers come late."""
    place = len(messages)
    if head.open_call_ids:
        while not messages[place - 1].get("tool_calls"):
            place -= 1
    return place
