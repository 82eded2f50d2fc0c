"""The store in PostgreSQL as a program meets it: threads, processes, a server that goes away."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from harness._durable import ReceiptClaim, ReceiptKey, RunKey
from harness._errors import LeaseLostError, NotJSONError, RunBusyError, StoreError
from harness._messages import success_envelope
from harness._toolset import Outcome, Suspend
from harness.stores import PostgresStore, open_postgres_store
from scripts.postgres_server import PostgresServer, running_postgres
from tests.stores.conformance import CALL, KEY, Store, a_checkpoint, a_commit, a_head, texts
from tests.stores.killed import check_what_a_killed_worker_was_told
from tests.stores.postgres_worker import paying, run_to_its_end

ROOT: Final = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that tests stop."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def own_url(own_server: PostgresServer) -> Iterator[str]:
    own_server.start()
    yield own_server.url
    own_server.start()
    _execute(own_server.url, "DROP SCHEMA IF EXISTS harness CASCADE")


def _execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for each in statements:
            connection.execute(each)


def _ask(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def _worker(url: str, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stores.postgres_worker", url, what],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# -- the extra ---------------------------------------------------------------------------------


@pytest.mark.rule("R-STORE-22")
@pytest.mark.parametrize("missing", ["psycopg", "psycopg_binary", ""])
def test_the_driver_is_imported_when_a_store_is_opened_and_not_before(missing: str) -> None:
    text = f"""
import sys
import harness.stores
import trio
assert not [name for name in sys.modules if name.startswith("psycopg")]
if {missing!r}:
    sys.modules[{missing!r}] = None
async def main():
    try:
        async with harness.stores.open_postgres_store("postgresql://nobody@127.0.0.1:1/x"):
            pass
    except Exception as error:
        print(error.code, error)
trio.run(main)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=ROOT,
        env={**os.environ, "PSYCOPG_IMPL": "binary"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    if missing:
        assert done.stdout.startswith("extra.missing ")
        assert "trio-harness[postgres]" in done.stdout
    else:
        assert done.stdout.startswith("store.unreachable ")


# -- opening and leaving -----------------------------------------------------------------------


@pytest.mark.rule("R-STORE-05")
async def test_a_store_is_refused_after_its_block(postgres_url: str) -> None:
    async with open_postgres_store(postgres_url) as store:
        await store.create_run(KEY, a_checkpoint("hi"))
    uses: list[Callable[[], object]] = [
        lambda: store.load_run(KEY),
        lambda: store.list_runs("tenant"),
        lambda: store.claim_receipt(CALL, effect="opaque", owner="x", seconds=1),
    ]
    for use in uses:
        with pytest.raises(StoreError) as caught:
            await use()  # type: ignore[misc]  # each is a method of the store
        assert caught.value.code == "store.closed"


async def test_what_the_block_raises_leaves_as_itself(postgres_url: str) -> None:
    error = LookupError("mine")
    with pytest.raises(LookupError) as caught:
        async with open_postgres_store(postgres_url):
            raise error
    assert caught.value is error


@pytest.mark.rule("R-STORE-05")
async def test_when_the_block_is_left_what_has_begun_is_written(postgres_url: str) -> None:
    ends: dict[int, str] = {}

    async def create(store: Store, number: int) -> None:
        key = RunKey(tenant="tenant", run_id=str(number))
        try:
            await store.create_run(key, a_checkpoint(head=a_head(run_id=key.run_id)))
            ends[number] = "stored"
        except StoreError as error:
            ends[number] = error.code

    with psycopg.connect(postgres_url) as lock:
        async with trio.open_nursery() as outside:
            async with open_postgres_store(postgres_url, connections=2) as store:
                lock.execute("LOCK harness.runs IN EXCLUSIVE MODE")
                for number in range(6):
                    outside.start_soon(create, store, number)  # noqa: ASYNC111  # the point
                await trio.sleep(0.2)
                outside.start_soon(trio.to_thread.run_sync, partial(_release, lock, 0.3))
            # The block has been left while two waited for the lock, and four for a connection.
            assert _ask(postgres_url, "SELECT count(*) FROM harness.runs") == 2
    async with open_postgres_store(postgres_url) as store:
        stored = {int(each.key.run_id) for each in await store.list_runs("tenant")}
    assert stored == {number for number, end in ends.items() if end == "stored"}
    assert sorted(ends.values()) == ["store.closed"] * 4 + ["stored"] * 2


def _release(lock: psycopg.Connection[object], seconds: float) -> None:
    time.sleep(seconds)
    lock.rollback()


@pytest.mark.rule("R-STORE-22")
async def test_no_connection_and_no_thread_is_left(postgres_url: str) -> None:
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mine'"
    url = make_conninfo(postgres_url, application_name="mine")
    async with open_postgres_store(url, connections=3) as store:
        async with trio.open_nursery() as nursery:
            for _ in range(9):
                nursery.start_soon(store.list_runs, "tenant")
        assert 1 <= int(str(_ask(postgres_url, mine))) <= 3
    give_up_at = time.monotonic() + 5
    while _ask(postgres_url, mine):
        assert time.monotonic() < give_up_at
        await trio.sleep(0.01)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"connections": 0}, r"^open_postgres_store connections is 0, expected at least 1$"),
        ({"connections": True}, r"^open_postgres_store connections is True, "),
        ({"patience": 0}, r"^open_postgres_store patience is 0, expected "),
        ({"patience": float("nan")}, r"^open_postgres_store patience is nan, expected "),
    ],
)
async def test_what_is_out_of_bounds_is_refused(
    postgres_url: str, more: dict[str, float], says: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        async with open_postgres_store(postgres_url, **more):  # type: ignore[arg-type]  # the point
            pass


async def test_an_address_that_cannot_be_read_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match=r"^the address of the store cannot be read, ") as caught:
        async with open_postgres_store("postgresql://me:secret@h:x:y?a"):
            pass
    assert "secret" not in str(caught.value)


# -- a server that is not there ----------------------------------------------------------------


@pytest.mark.rule("R-STORE-20")
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@127.0.0.1:1/x",
        "postgresql://me:secret@nowhere.invalid/x",
        "postgresql://me:secret@%2Fnowhere/x",
    ],
)
async def test_a_server_that_is_not_there_is_told_at_once(url: str) -> None:
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        async with open_postgres_store(url):
            pass
    assert caught.value.code == "store.unreachable"
    assert "secret" not in str(caught.value)
    assert time.monotonic() - started < 4


@pytest.mark.rule("R-STORE-20")
async def test_a_server_that_has_gone_is_waited_for_as_long_as_the_patience(
    own_server: PostgresServer, own_url: str
) -> None:
    async with open_postgres_store(own_url, patience=0.5) as store:
        await store.create_run(KEY, a_checkpoint("hi"))
        await trio.to_thread.run_sync(own_server.stop)
        started = time.monotonic()
        with pytest.raises(StoreError) as caught:
            await store.load_run(KEY)
        assert caught.value.code == "store.unreachable"
        assert time.monotonic() - started < 4
        await trio.to_thread.run_sync(own_server.start)
        assert (await store.load_run(KEY)).messages == texts("hi")


@pytest.mark.rule("R-STORE-19")
@pytest.mark.slow
async def test_a_server_that_restarts_in_the_middle_gives_no_wrong_answer(
    own_server: PostgresServer, own_url: str
) -> None:
    executed: list[ReceiptKey] = []
    settled: dict[ReceiptKey, str] = {}
    committed: dict[str, int] = {}
    calls = [attrs.evolve(CALL, occurrence=number) for number in range(3000)]

    async def work(store: Store, owner: str) -> None:
        key = RunKey(tenant="tenant", run_id=owner)
        await store.create_run(key, a_checkpoint(head=a_head(run_id=owner)))
        lease = await store.acquire_run(key, owner=owner, seconds=600)
        for revision in range(1, len(calls)):
            if done:
                break
            call = calls[revision]
            claimed = await store.claim_receipt(
                call, effect="opaque", owner=f"{owner} {revision}", seconds=600, run=lease
            )
            if claimed.claim is not None:
                executed.append(call)
                if await store.settle_receipt(claimed.claim, "completed", owner):
                    settled[call] = owner
            await store.commit_run(lease, a_commit(revision, revision - 1, "x", run_id=owner))
            committed[owner] = revision

    done = False
    async with (
        open_postgres_store(own_url, patience=60, connections=3) as one,
        open_postgres_store(own_url, patience=60, connections=3) as other,
        trio.open_nursery() as nursery,
    ):
        for number in range(6):
            nursery.start_soon(work, (one, other)[number % 2], f"worker {number}")
        for _ in range(5):
            await trio.sleep(0.4)
            await trio.to_thread.run_sync(own_server.restart)
        done = True
    assert len(executed) == len(set(executed)) > 50
    async with open_postgres_store(own_url) as store:
        receipts = {each.key: each for each in await store.list_receipts("tenant")}
        assert set(receipts) == set(settled) == set(executed)
        for call, owner in settled.items():
            assert (receipts[call].status, receipts[call].attempt) == ("completed", 1)
            assert receipts[call].result == owner
        for owner, revision in committed.items():
            loaded = await store.load_run(RunKey(tenant="tenant", run_id=owner))
            assert (loaded.revision, len(loaded.messages)) == (revision, revision)


@pytest.mark.rule("R-STORE-20")
async def test_a_lock_that_somebody_keeps_is_not_waited_for_without_end(postgres_url: str) -> None:
    async with open_postgres_store(postgres_url, patience=0.3) as store:
        await store.create_run(KEY, a_checkpoint())
        with psycopg.connect(postgres_url) as lock:
            lock.execute("SELECT 1 FROM harness.runs FOR UPDATE")
            started = time.monotonic()
            with pytest.raises(StoreError) as caught:
                await store.acquire_run(KEY, owner="me", seconds=9)
            assert caught.value.code == "store.busy"
            assert "is locked by somebody else" in str(caught.value)
            assert 0.2 < time.monotonic() - started < 4
            assert (await store.load_run(KEY)).revision == 0  # to read takes no lock
        assert (await store.acquire_run(KEY, owner="me", seconds=9)).fence == 1


@pytest.mark.rule("R-STORE-20")
async def test_a_database_that_may_not_be_written_is_told(postgres_url: str) -> None:
    async with open_postgres_store(postgres_url, connections=1) as store:
        await store.create_run(KEY, a_checkpoint("hi"))
        readonly = make_conninfo(postgres_url, options="-c default_transaction_read_only=on")
        with pytest.raises(StoreError) as caught:
            async with open_postgres_store(readonly):
                pass
        assert caught.value.code == "store.read_only"


# -- cancellation ------------------------------------------------------------------------------


@pytest.mark.rule("R-STORE-04")
async def test_a_cancellation_at_any_moment_leaves_no_doubt(postgres_url: str) -> None:
    """With real threads, in real time: whatever returned is stored, and nothing else."""
    told: set[str] = set()
    async with open_postgres_store(postgres_url, connections=2) as store:

        async def create(number: int, after: float) -> None:
            key = RunKey(tenant="tenant", run_id=str(number))
            with trio.move_on_after(after):
                await store.create_run(key, a_checkpoint(head=a_head(run_id=key.run_id)))
                told.add(key.run_id)

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(create, number, number % 60 * 0.005)
        stored = {each.key.run_id for each in await store.list_runs("tenant")}
    assert stored == told
    assert 0 < len(told) < 300


# -- the database's clock ----------------------------------------------------------------------


@pytest.mark.rule("R-STORE-11")
async def test_leases_run_by_the_databases_clock(postgres_url: str) -> None:
    async with open_postgres_store(postgres_url) as store:
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


@pytest.mark.rule("R-STORE-11")
async def test_a_lease_is_counted_from_after_the_wait_for_a_lock(postgres_url: str) -> None:
    async with open_postgres_store(postgres_url) as store:
        await store.create_run(KEY, a_checkpoint())
        with ExitStack() as stack, trio.fail_after(10):
            lock = stack.enter_context(psycopg.connect(postgres_url))
            lock.execute("SELECT 1 FROM harness.runs FOR UPDATE")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(store.acquire_run, KEY, owner="me", seconds=5))
                await trio.sleep(0.5)
                now = lock.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
                ((waited_until,),) = now.fetchall()
                lock.rollback()
    until = _ask(postgres_url, "SELECT lease_until FROM harness.runs")
    assert isinstance(until, float)
    assert until > waited_until + 5


# -- processes that are killed -----------------------------------------------------------------


@pytest.mark.rule("R-STORE-03")
@pytest.mark.slow
def test_what_a_killed_worker_was_told_is_there(postgres_url: str) -> None:
    for round_number in range(4):
        run_id = f"run {round_number}"
        with _worker(postgres_url, run_id) as worker:
            check_what_a_killed_worker_was_told(
                worker, run_id, partial(open_postgres_store, postgres_url), after=round_number
            )


# -- settling within the tool's transaction ----------------------------------------------------


async def _claim(store: Store) -> ReceiptClaim:
    claimed = await store.claim_receipt(CALL, effect="opaque", owner="me", seconds=60)
    assert claimed.claim is not None
    return claimed.claim


def _payments(url: str) -> list[object]:
    with psycopg.connect(url) as connection:
        return [amount for (amount,) in connection.execute("SELECT amount FROM payments")]


@pytest.fixture
def bank(postgres_url: str) -> str:
    _execute(postgres_url, "CREATE TABLE payments (amount int)")
    return postgres_url


@pytest.mark.rule("R-STORE-25")
@pytest.mark.parametrize("died", ["settled", "committed"])
async def test_effect_and_receipt_are_committed_together(bank: str, died: str) -> None:
    def die() -> None:
        with _worker(bank, "pay") as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            assert worker.stdout.readline() == "settled\n"
            if died == "committed":
                worker.stdin.write("go on\n")
                worker.stdin.flush()
                assert worker.stdout.readline() == "committed\n"
            worker.send_signal(signal.SIGKILL)

    await trio.to_thread.run_sync(die)
    assert _payments(bank) == ([900] if died == "committed" else [])
    async with open_postgres_store(bank) as store:
        (left,) = await store.list_receipts("tenant")
        told = await run_to_its_end(paying(store, bank, then=len))
        (receipt,) = await store.list_receipts("tenant")
    if died == "committed":
        assert (left.status, _payments(bank)) == ("completed", [900])
        assert (receipt, told) == (left, success_envelope({"paid": 900}))
    else:
        assert (left.status, _payments(bank)) == ("running", [])
        assert (receipt.status, receipt.attempt) == ("ambiguous", 1)
        assert "Outcome unknown" in told


@pytest.mark.rule("R-STORE-25")
async def test_a_tool_that_settles_itself_is_answered_and_replayed_alike(bank: str) -> None:
    async with open_postgres_store(bank) as store:
        steps: list[str] = []
        told = [await run_to_its_end(paying(store, bank, then=steps.append)) for _ in range(2)]
        (receipt,) = await store.list_receipts("tenant")
    assert told == [success_envelope({"paid": 900})] * 2
    assert (steps, _payments(bank)) == (["settled", "committed"], [900])
    assert (receipt.status, receipt.attempt, receipt.result) == ("completed", 1, {"paid": 900})


@pytest.mark.rule("R-STORE-25")
@pytest.mark.parametrize(
    "settings", [{}, {"autocommit": True, "row_factory": dict_row}], ids=["plain", "odd"]
)
async def test_what_a_tool_has_settled_is_settled_once_more_with_what_it_returns(
    bank: str, settings: dict[str, bool]
) -> None:
    async with open_postgres_store(bank) as store:
        claim = await _claim(store)
        with (
            psycopg.connect(bank, **settings) as connection,  # type: ignore[arg-type]  # its own
            connection.transaction(),
        ):
            connection.execute("INSERT INTO payments VALUES (900)")
            store.settle_receipt_within(connection, claim, {"paid": 900})
            assert (await store.list_receipts("tenant"))[0].status == "running"
        assert _payments(bank) == [900]
        assert await store.settle_receipt(claim, "completed", {"paid": 900})
        assert not await store.settle_receipt(claim, "completed", {"paid": 901})
        assert not await store.settle_receipt(claim, "failed", {"paid": 900})


@pytest.mark.rule("R-STORE-25")
async def test_a_tool_that_was_overtaken_commits_nothing(bank: str) -> None:
    async with open_postgres_store(bank) as store:
        claim = await _claim(store)
        _execute(bank, "UPDATE harness.receipts SET lease_until = 0")
        other = await store.claim_receipt(CALL, effect="opaque", owner="other", seconds=1)
        assert other.action == "ambiguous"
        with pytest.raises(LeaseLostError) as caught, psycopg.connect(bank) as connection:
            connection.execute("INSERT INTO payments VALUES (900)")
            store.settle_receipt_within(connection, claim, {"paid": 900})
        assert (caught.value.run_id, caught.value.owner) == ("run", "me")
        assert _payments(bank) == []


@pytest.mark.rule("R-STORE-25")
async def test_a_claim_that_comes_while_a_tool_commits_waits_for_it(bank: str) -> None:
    async with open_postgres_store(bank) as store:
        claim = await _claim(store)
        _execute(bank, "UPDATE harness.receipts SET lease_until = 0")
        actions: list[str] = []

        async def take_over() -> None:
            answer = await store.claim_receipt(CALL, effect="opaque", owner="other", seconds=1)
            actions.append(answer.action)

        async with trio.open_nursery() as nursery:
            with psycopg.connect(bank) as connection:
                store.settle_receipt_within(connection, claim, {"paid": 900})
                nursery.start_soon(take_over)
                await trio.sleep(0.2)
                assert actions == []
        assert actions == ["replay"]


@pytest.mark.rule("R-STORE-25")
async def test_only_a_success_is_settled_and_only_within_a_transaction(bank: str) -> None:
    async with open_postgres_store(bank) as store:
        claim = await _claim(store)
        with psycopg.connect(bank) as connection:
            for outcome in (
                Outcome.failed("no money"),
                Outcome.completed(suspend=Suspend(kind="answer", question="Pay?")),
            ):
                with pytest.raises(ValueError, match=r"^the result is Outcome.*, expected that of"):
                    store.settle_receipt_within(connection, claim, outcome)
            with pytest.raises(NotJSONError):
                store.settle_receipt_within(connection, claim, {1: 2})  # type: ignore[dict-item]  # the point
        with (
            psycopg.connect(bank, autocommit=True) as connection,
            pytest.raises(ValueError, match=r"^the connection is in no transaction, expected "),
        ):
            store.settle_receipt_within(connection, claim, None)
        assert (await store.list_receipts("tenant"))[0].status == "running"


# -- what a commit costs -----------------------------------------------------------------------


@pytest.mark.rule("R-STORE-09")
async def test_a_commit_writes_what_it_adds_whatever_the_transcripts_length(
    postgres_url: str,
) -> None:
    def written() -> int:
        return int(str(_ask(postgres_url, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")))

    async def cost(store: PostgresStore, length: int) -> int:
        """Return the bytes of log that fifty commits to a run of some length write."""
        key = RunKey(tenant="tenant", run_id=str(length))
        words = [f"message {number} " * 5 for number in range(length)]
        await store.create_run(key, a_checkpoint(*words, head=a_head(run_id=key.run_id)))
        lease = await store.acquire_run(key, owner="me", seconds=60)
        before = written()
        for revision in range(1, 51):
            added = a_commit(revision, length + revision - 1, "added", run_id=key.run_id)
            await store.commit_run(lease, added)
        return written() - before

    async with open_postgres_store(postgres_url) as store:
        short, long = await cost(store, 10), await cost(store, 10_000)
    assert long < 2 * short
    assert short < 50 * 20_000
