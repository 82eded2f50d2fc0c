"""What a store of checkpoints promises. Every implementation passes one suite of tests.

One writer at a time: a worker takes a run's lease, commits under its fence, and gives it back.
What the store holds is a chain of revisions; a commit follows the last one or is refused, and
earlier ones stay readable. Cancellation is as for a store of receipts: a method has written
nothing, or it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import attrs

from harness._durable import RunKey, RunLease
from harness._events import StopReason
from harness._usage import Usage
from harness.checkpoints._record import Checkpoint, CheckpointStatus, Commit

__all__ = ["CheckpointStore", "StoredRun"]


@attrs.frozen(kw_only=True)
class StoredRun:
    """A run as a listing shows it."""

    key: RunKey
    revision: int
    status: CheckpointStatus
    stop_reason: StopReason | None
    turns: int
    usage: Usage
    questions: tuple[str, ...]
    """What it waits for: the texts of its open questions."""
    owner: str | None
    """Who holds its lease; None if nobody does, or the lease is over."""
    changed_at: datetime
    """By the store's clock, with a time zone."""


class CheckpointStore(Protocol):
    """Keeps runs. All methods raise `StoreError` if the database cannot be used."""

    async def create_run(self, key: RunKey, checkpoint: Checkpoint) -> None:
        """Store a new run, which nobody holds. Its revision may be any: a fork starts at 0.

        Raises:
            RunExistsError: there is one of this key.
            ValueError: the checkpoint is of another run than *key*.
        """
        ...

    async def load_run(self, key: RunKey, *, revision: int | None = None) -> Checkpoint:
        """Return the last revision of a run, or an earlier one.

        Raises:
            RunNotFoundError: there is no such run, or no such revision.
            RecordError: what is stored does not load.
        """
        ...

    async def acquire_run(self, key: RunKey, *, owner: str, seconds: float) -> RunLease:
        """Take a run that nobody holds, or whose lease is over; its fence grows by one.

        Raises:
            RunNotFoundError: there is no such run.
            RunBusyError: somebody holds it, *owner* itself included.
        """
        ...

    async def renew_run(self, lease: RunLease) -> bool:
        """Make the lease last for its seconds from now; False if it is no longer held."""
        ...

    async def release_run(self, lease: RunLease) -> None:
        """Give a run back; nothing happens if it is no longer held."""
        ...

    async def commit_run(self, lease: RunLease, commit: Commit) -> None:
        """Store the next revision. A lease that is over may commit until somebody else takes it.

        Raises:
            LeaseLostError: somebody else has taken over.
            StaleRevisionError: it does not follow the stored revision.
            ValueError: it keeps more messages than there are, or is of another run.
        """
        ...

    async def list_runs(
        self, tenant: str, *, status: CheckpointStatus | None = None
    ) -> Sequence[StoredRun]:
        """Return the runs of a tenant, in the order in which they were created."""
        ...
