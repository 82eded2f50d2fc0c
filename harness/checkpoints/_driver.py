"""Running from a checkpoint, and committing as the run goes on.

There is one loop, and it is the kernel's: what is here sits in its boundary (`_commits`). What was
not reached is not stored: an abort, a deadline, a cancellation and an error leave the last commit
as it is.

A stored run is the same under a lease. Each leg is numbered by the lease's fence, so that no two
legs have one number, even if the first of them died before it committed anything.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Literal, TypedDict, Unpack, cast

import attrs
import trio

from harness._durable import RunKey, RunLease
from harness._errors import LeaseLostError, RunUseError, StoreError, leaf_errors
from harness._events import StopReason
from harness._json import JSON
from harness._shield import only_cancelled, run_shielded
from harness.checkpoints._codec import check_checkpoint
from harness.checkpoints._commits import Commits
from harness.checkpoints._operations import (
    CheckpointInput,
    apply_checkpoint_input,
    fork_checkpoint,
    state_of,
)
from harness.checkpoints._ports import CommitPort, Restore, Restored, RestoreStored
from harness.checkpoints._record import Checkpoint, CheckpointStatus, Commit
from harness.checkpoints._store import CheckpointStore
from harness.kernel import (
    Budget,
    Emitter,
    Limits,
    Run,
    RunOptions,
    RunResult,
    RunStats,
    answered,
    open_run,
)
from harness.receipts import hold_lease

__all__ = [
    "CheckpointedRun",
    "LegOptions",
    "apply_stored_input",
    "fork_stored",
    "open_from_checkpoint",
    "open_stored_run",
    "run_from_checkpoint",
    "run_stored",
]

_RELEASE: Final = 5.0
"""Seconds that giving a run back may take once a stop has arrived; its lease ends by itself."""
_INPUT: Final = 10.0
"""Seconds of the lease under which input is applied: two short transactions."""

_REASONS: Final[dict[CheckpointStatus, StopReason]] = {
    "waiting_for_reply": "waiting_for_reply",
    "waiting_for_wake": "resuming_later",
}


class LegOptions(TypedDict, total=False):
    """What belongs to one leg, and is no part of a checkpoint; as `open_run` takes it."""

    deadline: float | None
    events: Emitter | None
    budget: Budget | None


@attrs.frozen(kw_only=True)
class CheckpointedRun:
    """How a leg from a checkpoint ended."""

    stop_reason: StopReason
    checkpoint: Checkpoint
    """The last that was committed; what the leg began with if nothing was."""
    stats: RunStats
    """This leg's figures."""
    total: RunStats
    """All legs' figures, this one's with them."""
    result: RunResult | None
    """None if the checkpoint was not ready, so that there was nothing to run."""


@asynccontextmanager
async def _opened(
    checkpoint: Checkpoint, restore: Restore, commit: CommitPort, leg: LegOptions
) -> AsyncIterator[tuple[Run, Commits]]:
    if checkpoint.status != "ready":
        raise RunUseError(
            f"run {checkpoint.run_id!r} is {checkpoint.status}, expected one that is ready"
        )
    check_checkpoint(checkpoint)
    async with restore(checkpoint) as given:
        restored = answered("restore", given, Restored)
        commits = Commits.since(checkpoint, commit, restored.capture_bindings)
        limits = checkpoint.head.limits
        own: dict[str, object] = {"limits": limits, "boundary": commits.boundary, **leg}
        for name in own:
            if name in restored.options:
                raise TypeError(f"{name!r} is among the restored options, expected it elsewhere")
        options = cast("RunOptions", {**restored.options, **own})
        async with open_run(restored.model, state_of(checkpoint), **options) as run:
            yield run, commits


@asynccontextmanager
async def open_from_checkpoint(
    checkpoint: Checkpoint, restore: Restore, commit: CommitPort, **leg: Unpack[LegOptions]
) -> AsyncIterator[Run]:
    """Run the next leg of *checkpoint* beside the block, as `open_run` does.

    Args:
        checkpoint: one that is ready.
        restore: opens what its bindings describe, for as long as the leg lasts.
        commit: awaited at each settled boundary before the run goes on. It stores the commit, and
            answers ``"continue"``, or ``"checkpoint"`` to end the leg there as ``checkpointed``.
        leg: what belongs to this leg: deadline, events, the ledger above.

    Raises:
        RunUseError: the checkpoint waits for something, or is finished.
        RecordError: its parts do not fit together.
        TypeError: the restored options have limits, a boundary, or what *leg* has.
        BaseException: as `open_run`, and what *restore* and *commit* raise.
    """
    async with _opened(checkpoint, restore, commit, leg) as (run, _):
        yield run


async def run_from_checkpoint(
    checkpoint: Checkpoint, restore: Restore, commit: CommitPort, **leg: Unpack[LegOptions]
) -> CheckpointedRun:
    """Run the next leg of *checkpoint* to its end: `open_from_checkpoint` without the block.

    One that waits or is finished asks nobody anything, and returns at once. A checkpoint;
    a cancellation settles the transcript, commits nothing more, and is raised.
    """
    if checkpoint.status != "ready":
        return _not_run(checkpoint)
    async with _opened(checkpoint, restore, commit, leg) as (run, commits):
        await run.wait()
    return _ended(run, commits)


def _not_run(checkpoint: Checkpoint) -> CheckpointedRun:
    head = checkpoint.head
    return CheckpointedRun(
        stop_reason=head.stop_reason or _REASONS[head.status],
        checkpoint=checkpoint,
        stats=RunStats(),
        total=copy.deepcopy(head.stats),
        result=None,
    )


def _ended(run: Run, commits: Commits) -> CheckpointedRun:
    return CheckpointedRun(
        stop_reason=run.result.stop_reason,
        checkpoint=commits.checkpoint(),
        stats=run.stats,
        total=commits.total(run.stats),
        result=run.result,
    )


# -- stored runs ---------------------------------------------------------------------------------


@asynccontextmanager
async def open_stored_run(
    store: CheckpointStore,
    key: RunKey,
    restore: RestoreStored,
    *,
    owner: str,
    seconds: float = 30.0,
    **leg: Unpack[LegOptions],
) -> AsyncIterator[Run]:
    """Run the next leg of a stored run beside the block, under a lease, and commit it there.

    Args:
        store: where the run is.
        key: which one.
        restore: as for `open_from_checkpoint`; it gets the lease too, for `with_receipts`.
        owner: who this worker is, unique to its process.
        seconds: how long the lease lasts. It is renewed while the block lasts.
        leg: what belongs to this leg.

    Raises:
        RunNotFoundError: there is no such run.
        RunBusyError: another worker holds it.
        RunUseError: it waits for something, or is finished.
        LeaseLostError: another worker has taken over; the leg was cancelled and the block cut.
        BaseException: as `open_from_checkpoint`, and what the store raises.
    """
    async with (
        _held(store, key, owner, seconds) as (lease, checkpoint),
        _opened_stored(store, lease, checkpoint, restore, leg) as (run, _),
    ):
        yield run


async def run_stored(
    store: CheckpointStore,
    key: RunKey,
    restore: RestoreStored,
    *,
    owner: str,
    seconds: float = 30.0,
    **leg: Unpack[LegOptions],
) -> CheckpointedRun:
    """Run the next leg of a stored run to its end: `open_stored_run` without the block.

    One that waits or is finished asks nobody anything, and returns at once.
    """
    async with _held(store, key, owner, seconds) as (lease, checkpoint):
        if checkpoint.status != "ready":
            return _not_run(checkpoint)
        async with _opened_stored(store, lease, checkpoint, restore, leg) as (run, commits):
            await run.wait()
        return _ended(run, commits)


@asynccontextmanager
async def _held(
    store: CheckpointStore, key: RunKey, owner: str, seconds: float
) -> AsyncIterator[tuple[RunLease, Checkpoint]]:
    """Hold the lease of a run for a block, and give it back."""
    began = trio.current_time()
    lease = await store.acquire_run(key, owner=owner, seconds=seconds)
    lost, cut = LeaseLostError(key.run_id, owner=owner), True
    try:
        async with hold_lease(
            partial(store.renew_run, lease), seconds=seconds, since=began
        ) as held:
            try:
                yield lease, await store.load_run(key)
                cut = False
            except BaseException as error:
                # Who has lost the run must hear of that, whatever else went wrong on the way out.
                told = any(isinstance(each, LeaseLostError) for each in leaf_errors(error))
                if not held.lost or told or only_cancelled(error):
                    raise
                raise lost from error  # noqa: ASYNC104  # a failure outweighs a cancellation
    finally:
        await _release(store, lease)  # noqa: ASYNC102  # shielded there, and bounded
    if held.lost and cut:
        raise lost from held.error


@asynccontextmanager
async def _opened_stored(
    store: CheckpointStore,
    lease: RunLease,
    checkpoint: Checkpoint,
    restore: RestoreStored,
    leg: LegOptions,
) -> AsyncIterator[tuple[Run, Commits]]:
    async def commit(each: Commit) -> Literal["continue"]:
        await store.commit_run(lease, each)
        return "continue"

    # A run that was begun elsewhere comes with more legs than this store has fences.
    at = checkpoint.head.position
    position = attrs.evolve(at, leg=max(lease.fence - 1, at.leg))
    numbered = attrs.evolve(checkpoint, head=attrs.evolve(checkpoint.head, position=position))
    async with _opened(numbered, lambda each: restore(each, lease), commit, leg) as opened:
        yield opened


async def _release(store: CheckpointStore, lease: RunLease) -> None:
    """Give a run back; for a ``finally``. What it cannot do in time, the end of the lease does."""
    try:
        await run_shielded(
            partial(store.release_run, lease), give_up_at=lambda: trio.current_time() + _RELEASE
        )
    except StoreError:
        pass  # nobody is waiting for an answer, and the lease ends by itself
    except BaseException as error:  # noqa: ASYNC103  # raised again at the next checkpoint
        if not only_cancelled(error):
            raise


async def apply_stored_input(
    store: CheckpointStore, key: RunKey, given: CheckpointInput, *, owner: str
) -> Checkpoint:
    """Apply input to a stored run that nobody holds, and return its new checkpoint.

    Raises:
        RunNotFoundError, RunBusyError: there is no such run, or a worker holds it.
        CheckpointInputError: it takes no such input now; nothing was stored.
        LeaseLostError, StaleRevisionError: it took so long that another has been faster.
    """
    async with _held(store, key, owner, _INPUT) as (lease, before):
        after = apply_checkpoint_input(before, given)
        await store.commit_run(lease, before.commit_to(after))
        return after


async def fork_stored(
    store: CheckpointStore,
    source: Checkpoint,
    key: RunKey,
    *,
    limits: Limits,
    bindings: JSON,
) -> Checkpoint:
    """Store a fork of *source* as a new run; see `fork_checkpoint`.

    Raises:
        RunExistsError: there is a run of this key.
    """
    forked = fork_checkpoint(source, key.run_id, limits=limits, bindings=bindings)
    await store.create_run(key, forked)
    return forked
