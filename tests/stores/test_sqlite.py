"""The store in a file as a program meets it: threads, processes, crashes, a disk that fills."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from harness._durable import ReceiptKey, RunKey
from harness._errors import RunBusyError, StoreError
from harness.stores import SQLiteStore, open_sqlite_store
from harness.stores._sqlite_rows import SQLiteRows
from tests.stores.conformance import CALL, KEY, Store, a_checkpoint, a_commit, a_head, texts
from tests.stores.killed import check_what_a_killed_worker_was_told

HERE: Final = Path(__file__).parent


# -- opening and leaving -----------------------------------------------------------------------


@pytest.mark.rule("R-STORE-05")
async def test_a_store_outlives_nothing_and_is_refused_after_its_block(tmp_path: Path) -> None:
    async with open_sqlite_store(tmp_path / "store.db") as store:
        await store.create_run(KEY, a_checkpoint("hi"))
    uses: list[Callable[[], object]] = [
        lambda: store.load_run(KEY),
        lambda: store.list_runs("tenant"),
        lambda: store.create_run(KEY, a_checkpoint()),
        lambda: store.claim_receipt(CALL, effect="opaque", owner="x", seconds=1),
    ]
    for use in uses:
        with pytest.raises(StoreError) as caught:
            await use()  # type: ignore[misc]  # each is a method of the store
        assert caught.value.code == "store.closed"


async def test_what_the_block_raises_leaves_as_itself(tmp_path: Path) -> None:
    error = LookupError("mine")
    with pytest.raises(LookupError) as caught:
        async with open_sqlite_store(tmp_path / "store.db"):
            raise error
    assert caught.value is error


@pytest.mark.rule("R-STORE-05")
async def test_when_the_block_is_left_what_was_taken_is_written(tmp_path: Path) -> None:
    ends: dict[int, str] = {}

    async def create(store: Store, number: int) -> None:
        key = RunKey(tenant="tenant", run_id=str(number))
        try:
            await store.create_run(key, a_checkpoint(head=a_head(run_id=key.run_id)))
            ends[number] = "stored"
        except StoreError as error:
            ends[number] = error.code

    path = tmp_path / "store.db"
    async with trio.open_nursery() as outside, open_sqlite_store(path) as store:
        outside.start_soon(create, store, 0)  # noqa: ASYNC111  # used after it, as a test of that
        await wait_all_tasks_blocked()  # it has been taken
        for number in range(1, 5):
            outside.start_soon(create, store, number)  # noqa: ASYNC111  # the same
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
    async with open_sqlite_store(path) as store:
        stored = {int(each.key.run_id) for each in await store.list_runs("tenant")}
    assert stored == {number for number, end in ends.items() if end == "stored"}
    assert set(ends.values()) <= {"stored", "store.closed"}
    assert ends[0] == "stored"


@pytest.mark.rule("R-STORE-04")
async def test_a_cancellation_at_any_moment_leaves_no_doubt(tmp_path: Path) -> None:
    """With real threads, in real time: whatever returned is stored, and nothing else."""
    told: set[str] = set()
    async with open_sqlite_store(tmp_path / "store.db") as store:

        async def create(number: int, after: float) -> None:
            key = RunKey(tenant="tenant", run_id=str(number))
            with trio.move_on_after(after):
                await store.create_run(key, a_checkpoint(head=a_head(run_id=key.run_id)))
                told.add(key.run_id)

        async with trio.open_nursery() as nursery:
            for number in range(400):
                nursery.start_soon(create, number, number % 40 * 0.0005)
        stored = {each.key.run_id for each in await store.list_runs("tenant")}
    assert stored == told
    assert len(told) > 0


# -- the database's clock ----------------------------------------------------------------------


@pytest.mark.rule("R-STORE-11")
async def test_leases_run_by_the_databases_clock(tmp_path: Path) -> None:
    async with open_sqlite_store(tmp_path / "store.db") as store:
        await store.create_run(KEY, a_checkpoint())
        await store.acquire_run(KEY, owner="first", seconds=0.3)
        started, fence = time.monotonic(), 0
        while not fence:
            try:
                fence = (await store.acquire_run(KEY, owner="second", seconds=60)).fence
            except RunBusyError as error:
                await trio.sleep(error.seconds)
        assert fence == 2
        assert time.monotonic() - started > 0.25
        (listed,) = await store.list_runs("tenant")
        assert abs((datetime.now(UTC) - listed.changed_at).total_seconds()) < 30


# -- several processes -------------------------------------------------------------------------


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE.parent.parent)}


@pytest.mark.rule("R-STORE-01")
@pytest.mark.slow
def test_of_two_processes_each_call_is_executed_by_one(tmp_path: Path) -> None:
    path, calls = tmp_path / "store.db", 200
    workers = [
        subprocess.Popen(
            [sys.executable, str(HERE / "claiming.py"), str(path), owner, str(calls)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        for owner in ("ann", "bob")
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdin is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    got = [[int(line) for line in worker.communicate()[0].split()] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert sorted([*got[0], *got[1]]) == list(range(calls))

    async def settled() -> dict[str, list[int]]:
        by: dict[str, list[int]] = {"ann": [], "bob": []}
        async with open_sqlite_store(path) as store:
            for each in await store.list_receipts("tenant"):
                assert (each.status, each.result) == ("completed", each.owner)
                by[each.owner].append(each.key.occurrence)
        return by

    by = trio.run(settled)
    assert [sorted(by["ann"]), sorted(by["bob"])] == [sorted(each) for each in got]


@pytest.mark.rule("R-STORE-03")
@pytest.mark.slow
def test_what_a_killed_worker_was_told_is_there(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for round_number in range(6):
        run_id = f"run {round_number}"
        worker = subprocess.Popen(
            [sys.executable, str(HERE / "crashing.py"), str(path), run_id],
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        check_what_a_killed_worker_was_told(
            worker, run_id, partial(open_sqlite_store, path), after=round_number
        )


# -- a disk that fills -------------------------------------------------------------------------


async def _limit(store: SQLiteStore, more_pages: int) -> None:
    """Give the file only so many pages more."""

    def limit(rows: SQLiteRows) -> None:
        (pages,) = rows.connection.execute("PRAGMA page_count").fetchone()
        rows.connection.execute(f"PRAGMA max_page_count = {pages + more_pages}")

    await store._write(limit)


@pytest.mark.rule("R-STORE-06")
async def test_a_full_disk_is_an_error_and_then_the_store_goes_on(tmp_path: Path) -> None:
    async with open_sqlite_store(tmp_path / "store.db") as store:
        await store.create_run(KEY, a_checkpoint("hi"))
        lease = await store.acquire_run(KEY, owner="me", seconds=60)
        await _limit(store, 2)
        with pytest.raises(StoreError) as caught:
            await store.commit_run(lease, a_commit(1, 1, "x" * 100_000))
        assert caught.value.code == "store.full"
        assert (await store.load_run(KEY)).messages == texts("hi")
        assert await store.renew_run(lease)  # what needs no room
        await _limit(store, 1_000)
        await store.commit_run(lease, a_commit(1, 1, "x" * 100_000))
        assert (await store.load_run(KEY)).revision == 1


@pytest.mark.rule("R-STORE-06")
async def test_one_that_does_not_fit_takes_no_other_with_it(tmp_path: Path) -> None:
    ends: dict[str, str] = {}
    async with open_sqlite_store(tmp_path / "store.db") as store:
        await store.create_run(KEY, a_checkpoint())
        await _limit(store, 4)

        async def settle(key: ReceiptKey, result: str) -> None:
            claimed = await store.claim_receipt(key, effect="opaque", owner="me", seconds=9)
            assert claimed.claim is not None
            try:
                assert await store.settle_receipt(claimed.claim, "completed", result)
                ends[key.tool] = "settled"
            except StoreError as error:
                ends[key.tool] = error.code

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(settle, attrs.evolve(CALL, tool=f"small {number}"), "x")
            nursery.start_soon(settle, attrs.evolve(CALL, tool="big"), "x" * 100_000)
    assert ends.pop("big") == "store.full"
    assert set(ends.values()) == {"settled"}
    assert len(ends) == 10


# -- what a commit costs -----------------------------------------------------------------------


@pytest.mark.rule("R-STORE-09")
async def test_a_commit_writes_what_it_adds_whatever_the_transcripts_length(
    tmp_path: Path,
) -> None:
    async def cost(store: Store, length: int) -> int:
        """Return the bytes that ten commits to a run of some length write."""
        key = RunKey(tenant="tenant", run_id=str(length))
        words = [f"message {number} " * 5 for number in range(length)]
        await store.create_run(key, a_checkpoint(*words, head=a_head(run_id=key.run_id)))
        lease = await store.acquire_run(key, owner="me", seconds=60)
        written = 0
        for revision in range(1, 11):
            _empty_log(path)
            added = a_commit(revision, length + revision - 1, "added", run_id=key.run_id)
            await store.commit_run(lease, added)
            written += path.with_name("store.db-wal").stat().st_size
        return written

    path = tmp_path / "store.db"
    async with open_sqlite_store(path) as store:
        short, long = await cost(store, 10), await cost(store, 10_000)
    assert long < 1.5 * short
    assert short < 10 * 10 * 4096


def _empty_log(path: Path) -> None:
    """Bring all of the log into the file, so that what is written next is all that is in it."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
