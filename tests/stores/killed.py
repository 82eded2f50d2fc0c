"""A worker that is killed in the middle of its work, and what the store must hold of it then."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import trio

from harness._durable import ReceiptKey, RunKey
from tests.stores.conformance import Store, a_checkpoint, a_commit, a_head, texts


async def commit_until_killed(store: Store, run_id: str) -> None:
    """Commit and claim as fast as it goes, and tell what the store has told."""
    key = RunKey(tenant="tenant", run_id=run_id)
    await store.create_run(key, a_checkpoint(head=a_head(run_id=run_id)))
    lease = await store.acquire_run(key, owner=run_id, seconds=60)
    for revision in range(1, 10_000):
        commit = a_commit(revision, revision - 1, f"{revision} " * 300, run_id=run_id)
        await store.commit_run(lease, commit)
        print("committed", revision, flush=True)
        call = ReceiptKey(
            tenant="tenant", run_id=run_id, tool="t", args_hash="h", occurrence=revision
        )
        claimed = await store.claim_receipt(
            call, effect="opaque", owner=run_id, seconds=60, run=lease
        )
        assert claimed.claim is not None
        print("claimed", revision, flush=True)
        await store.settle_receipt(claimed.claim, "completed", revision)
        print("settled", revision, flush=True)


def check_what_a_killed_worker_was_told(
    worker: subprocess.Popen[str],
    run_id: str,
    open_store: Callable[[], AbstractAsyncContextManager[Store]],
    *,
    after: int,
) -> None:
    """Kill *worker* a little later in each round, and look for all that it was told."""
    assert worker.stdout is not None
    told = "".join(worker.stdout.readline() for _ in range(20 + 7 * after))
    time.sleep(0.003 * after)
    worker.send_signal(signal.SIGKILL)
    told += worker.communicate()[0]
    whole_lines, _, _ = told.rpartition("\n")
    lines = [line.split() for line in whole_lines.splitlines()]
    trio.run(_look, open_store, run_id, lines)


async def _look(
    open_store: Callable[[], AbstractAsyncContextManager[Store]],
    run_id: str,
    told: Sequence[Sequence[str]],
) -> None:
    last = {word: int(number) for word, number in told}
    async with open_store() as store:
        loaded = await store.load_run(RunKey(tenant="tenant", run_id=run_id))
        receipts = await store.list_receipts("tenant", run_id=run_id)
    assert last["committed"] <= loaded.revision <= last["committed"] + 1
    words = [f"{revision} " * 300 for revision in range(1, loaded.revision + 1)]
    assert loaded.messages == texts(*words)
    assert last["claimed"] <= len(receipts) <= last["claimed"] + 1
    settled = [each.result for each in receipts if each.status == "completed"]
    assert settled == list(range(1, len(settled) + 1))
    assert last["settled"] <= len(settled) <= last["settled"] + 1
