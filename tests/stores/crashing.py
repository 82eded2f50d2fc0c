"""A worker that commits and claims as fast as it can, and tells what it was told. To be killed."""

import sys

import trio

from harness._durable import ReceiptKey, RunKey
from harness.stores import open_sqlite_store
from tests.stores.conformance import a_checkpoint, a_commit, a_head


async def main(*args: str) -> None:
    path, run_id = args
    key = RunKey(tenant="tenant", run_id=run_id)
    async with open_sqlite_store(path) as store:
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


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
