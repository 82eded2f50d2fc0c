"""``harness run --store``: the same run, kept, so that a killed process loses nothing of it.

What a run is bound to are the options that say whom it asks and what it may call. They are stored
with it, so ``--resume`` needs no more than its id; an option that is given all the same counts, and
is what is stored from then on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from harness._bounds import check_seconds
from harness._cli._models import default_url, models_of
from harness._cli._store import Store, key_of, open_store, owner_name
from harness._cli._tools import tools_of
from harness._durable import RunKey, RunLease
from harness._errors import RunBusyError, UsageError
from harness._events import StopReason
from harness._ids import random_id
from harness._json import JSON
from harness._messages import user_message
from harness.checkpoints import (
    Checkpoint,
    Restored,
    WakeInput,
    apply_stored_input,
    create_checkpoint,
    open_stored_run,
)
from harness.kernel import Limits, Run
from harness.receipts import with_receipts

__all__ = ["NotReadyError", "open_stored"]

_PINNED: Final = "model base_url key_env stream hedge first_answer gap tools mcp skills".split()
"""The options that a run is bound to."""

_LATER: Final = 0.05
"""Seconds after the end of a lease at which it is asked for again."""


class NotReadyError(UsageError):
    """A run that is to be resumed has nothing to do; `reason` is how its last leg ended."""

    code = "run.not_ready"

    def __init__(self, run_id: str, reason: StopReason, needs: str) -> None:
        self.run_id = run_id
        self.reason = reason
        super().__init__(f"run {run_id!r} has ended {reason!r}, expected {needs}")


@asynccontextmanager
async def open_stored(
    options: argparse.Namespace, limits: Limits, deadline: float | None
) -> AsyncIterator[Run]:
    """Create a run in the store, or resume one, and run a leg of it beside the block.

    Raises:
        NotReadyError: the run to be resumed waits for somebody, or is finished.
        HarnessError: the store or the run cannot be used.
        ValueError, TypeError, OSError, ImportError, AttributeError: what it is bound to cannot be.
    """
    # A new run is not stored before what it is bound to was found.
    begun = (models_of(options), tools_of(options)) if options.resume is None else None

    @asynccontextmanager
    async def restore(checkpoint: Checkpoint, lease: RunLease) -> AsyncIterator[Restored]:
        bound = _bound(options, checkpoint.head.bindings)
        found_models, found_tools = begun or (models_of(bound), tools_of(bound))
        async with found_models.open() as model, found_tools.open() as tools:
            kept = with_receipts(
                tools, store, tenant=key.tenant, lease=lease, seconds=lease.seconds
            )
            yield Restored(
                model=model, options={"tools": kept}, capture_bindings=lambda: _bindings(bound)
            )

    async with open_store(options.store, create=options.resume is None) as store:
        seconds = check_seconds("--lease", options.lease, zero=False)
        key = await (_created(store, options, limits) if begun else _resumed(store, options))
        print(f"harness run: {key.run_id} is kept in {options.store}", file=sys.stderr)
        async with open_stored_run(
            store, key, restore, owner=owner_name(), seconds=seconds, deadline=deadline
        ) as run:
            yield run


async def _created(store: Store, options: argparse.Namespace, limits: Limits) -> RunKey:
    key = key_of(options, random_id("run"))
    checkpoint = create_checkpoint(
        key.run_id, [user_message(options.question)], limits=limits, bindings=_bindings(options)
    )
    await store.create_run(key, checkpoint)
    return key


async def _resumed(store: Store, options: argparse.Namespace) -> RunKey:
    """Return the run to resume; whoever resumes one that waits for its time has waited."""
    key = key_of(options, options.resume)
    await _wait_until_free(store, key)
    head = (await store.load_run(key)).head
    if head.status == "waiting_for_reply":
        raise NotReadyError(key.run_id, "waiting_for_reply", "an answer: harness reply")
    if head.status == "finished":
        turns, most = head.position.turn, head.limits.turns
        used_up = most is not None and turns >= most
        needs = (
            "harness fork --max-turns, and harness reply to that" if used_up else "harness reply"
        )
        raise NotReadyError(key.run_id, head.stop_reason or "done", needs)
    if head.status == "waiting_for_wake":
        await apply_stored_input(store, key, WakeInput(), owner=owner_name())
    return key


async def _wait_until_free(store: Store, key: RunKey) -> None:
    """Return once nobody holds the run: a process that was killed holds it until its lease is over.

    Raises:
        RunBusyError: it is held anew after that, so somebody is at it.
    """
    try:
        lease = await _probed(store, key)
    except RunBusyError as busy:
        print(f"harness run: {busy}; waiting for that", file=sys.stderr)
        await trio.sleep(busy.seconds + _LATER)
        lease = await _probed(store, key)
    await store.release_run(lease)


async def _probed(store: Store, key: RunKey) -> RunLease:
    return await store.acquire_run(key, owner=owner_name(), seconds=1)


def _bindings(options: argparse.Namespace) -> JSON:
    bound: dict[str, JSON] = {name: getattr(options, name) for name in _PINNED}
    bound["base_url"] = options.base_url or [default_url()]
    return bound


def _bound(options: argparse.Namespace, bindings: JSON) -> argparse.Namespace:
    """Return *options* with what they leave out taken from *bindings*."""
    if (
        not isinstance(bindings, dict)
        or set(bindings) != set(_PINNED)
        or not all(map(_is_option, bindings.values()))
    ):
        raise ValueError(f"the run is bound to {bindings!r}, expected a run of this command")
    given = {name: value for name, value in vars(options).items() if value is not None}
    return argparse.Namespace(**{**vars(options), **bindings, **given})


def _is_option(value: JSON) -> bool:
    """Whether an option of the command line can have this value."""
    if isinstance(value, list):
        return all(isinstance(each, str) for each in value)
    return value is None or isinstance(value, bool | float | int)
