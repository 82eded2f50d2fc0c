"""What a request comes to when the line to the server is cut at its end."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo

from harness._durable import ReceiptClaim, RunKey, RunLease
from harness._errors import LeaseLostError, RunBusyError, StoreError
from harness.stores import MemoryStore, PostgresStore, _postgres_requests, open_postgres_store
from harness.stores._postgres_requests import PostgresServer
from tests.stores.conformance import (
    CALL,
    KEY,
    Clock,
    Store,
    a_checkpoint,
    a_commit,
    a_head,
)
from tests.stores.cutting import Line, When, open_line

pytestmark = pytest.mark.postgres


@pytest.fixture
def line(postgres_url: str) -> Iterator[Line]:
    with open_line(postgres_url) as opened:
        yield opened


@attrs.frozen
class Place:
    """A store, and what a worker has got from it."""

    store: Store
    lease: RunLease
    claim: ReceiptClaim

    async def shown(self) -> list[object]:
        listed = [*await self.store.list_runs("tenant"), *await self.store.list_receipts("tenant")]
        return [*listed, await self.store.load_run(KEY)]


OTHER: Final = RunKey(tenant="tenant", run_id="other")
FREE: Final = attrs.evolve(KEY, run_id="free")
NEW: Final = attrs.evolve(CALL, tool="new")
DOUBTFUL: Final = attrs.evolve(CALL, tool="doubtful")

USES: Final[dict[str, Callable[[Place], Awaitable[object]]]] = {
    "create": lambda at: at.store.create_run(OTHER, a_checkpoint(head=a_head(run_id="other"))),
    "acquire": lambda at: at.store.acquire_run(FREE, owner="me", seconds=10),
    "renew": lambda at: at.store.renew_run(at.lease),
    "release": lambda at: at.store.release_run(at.lease),
    "commit": lambda at: at.store.commit_run(at.lease, a_commit(1, 0, "hi")),
    "claim": lambda at: at.store.claim_receipt(
        NEW, effect="opaque", owner="me", seconds=5, run=at.lease
    ),
    "doubt": lambda at: at.store.claim_receipt(DOUBTFUL, effect="opaque", owner="me", seconds=5),
    "renew claim": lambda at: at.store.renew_receipt(at.claim),
    "settle": lambda at: at.store.settle_receipt(at.claim, "completed", {"paid": 3}),
    "by hand": lambda at: at.store.settle_receipt_by_hand(DOUBTFUL, "failed", None),
}

CUTS: Final[list[list[When]]] = [
    ["before"],
    ["meanwhile"],
    ["after"],
    ["after", "after"],  # the second meets the question what came of the first
    ["before", "after"],
    ["before", "before", "meanwhile"],
    ["before", "never", "before"],  # the second try of the request itself is cut
    ["before", "never", "meanwhile"],
    ["before", "never", "after"],
]


async def _place(store: Store, clock: Clock) -> Place:
    await store.create_run(KEY, a_checkpoint())
    await store.create_run(FREE, a_checkpoint(head=a_head(run_id="free")))
    lease = await store.acquire_run(KEY, owner="me", seconds=60)
    await store.claim_receipt(DOUBTFUL, effect="opaque", owner="gone", seconds=1)
    claimed = await store.claim_receipt(CALL, effect="opaque", owner="me", seconds=60)
    assert claimed.claim is not None
    clock.now += 5
    return Place(store, lease, claimed.claim)


@asynccontextmanager
async def _opened(line: Line, clock: Clock) -> AsyncIterator[PostgresStore]:
    async with open_postgres_store(line.url, clock=clock, connections=1) as store:
        yield store


@pytest.mark.rule("R-STORE-19")
@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize("use", USES)
async def test_a_request_whose_end_was_cut_is_carried_out_once_and_answered(
    line: Line, use: str, cuts: list[When]
) -> None:
    clock = Clock()
    model = await _place(MemoryStore(clock=clock, wall_clock=clock), clock)
    expected = await USES[use](model)
    clock = Clock()
    async with _opened(line, clock) as store:
        place = await _place(store, clock)
        line.cuts = list(cuts)
        answer = await USES[use](place)
        assert line.cuts == []
        assert answer == expected
        assert await place.shown() == await model.shown()


@pytest.mark.rule("R-STORE-19")
async def test_a_commit_that_was_overtaken_since_is_still_known(line: Line) -> None:
    """Another worker takes the run over before the first hears that its commit is there."""
    clock = Clock()
    async with _opened(line, clock) as store, _opened(line, clock) as other:
        place = await _place(store, clock)
        with psycopg.connect(line.url) as between:
            # Whoever asks for a token waits until the other worker is done.
            between.execute(
                "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$"
            )
            between.execute(
                "CREATE TRIGGER wait BEFORE INSERT ON harness.requests "
                "FOR EACH ROW WHEN (NOT NEW.done) EXECUTE FUNCTION wait()"
            )
            between.commit()
            between.execute("SELECT pg_advisory_xact_lock(7)")
            line.cuts = ["after"]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(place.store.commit_run, place.lease, a_commit(1, 0, "first"))
                with trio.fail_after(10):
                    while line.cuts:  # noqa: ASYNC110  # it is another thread that cuts
                        await trio.sleep(0.01)
                    await trio.sleep(0.3)
                clock.now += 100
                lease = await other.acquire_run(KEY, owner="other", seconds=60)
                await other.commit_run(lease, a_commit(2, 1, "second"))
                between.commit()
        assert (await store.load_run(KEY)).revision == 2


@pytest.mark.rule("R-STORE-20")
async def test_who_cannot_learn_what_came_of_a_request_is_told_so(line: Line) -> None:
    clock = Clock()
    async with open_postgres_store(line.url, clock=clock, patience=0.5) as store:
        place = await _place(store, clock)
        line.cuts = ["before"] * 100
        with pytest.raises(
            StoreError, match="it is not known whether it has been written$"
        ) as caught:
            await place.store.commit_run(place.lease, a_commit(1, 0, "hi"))
        assert caught.value.code == "store.unreachable"
        line.cuts = []
        assert (await store.load_run(KEY)).revision == 0


@pytest.mark.rule("R-STORE-03")
@pytest.mark.parametrize(
    ("asked", "got"), [("off", "on"), ("on", "on"), ("local", "local"), ("remote_apply",) * 2]
)
def test_a_commit_is_durable_whatever_the_server_is_set_to(
    postgres_url: str, asked: str, got: str
) -> None:
    url = make_conninfo(postgres_url, options=f"-c synchronous_commit={asked}")
    server = PostgresServer(url=url, schema="harness", patience=1.5)
    with server.connect() as connection:
        server.begin(connection)
        shown = {
            name: connection.execute(f"SHOW {name}".encode()).fetchall()[0][0]
            for name in ("synchronous_commit", "lock_timeout", "statement_timeout")
        }
        connection.execute("COMMIT")
    assert shown == {
        "synchronous_commit": got,
        "lock_timeout": "1500ms",
        "statement_timeout": "3s",
    }


@pytest.mark.rule("R-STORE-19")
async def test_tokens_that_nobody_asks_for_are_removed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres_requests, "_PRUNE", 3)
    count = (
        "SELECT count(*), min(at) > clock_timestamp() - interval '2 hours' FROM harness.requests"
    )
    async with open_postgres_store(postgres_url) as store:
        await store.create_run(KEY, a_checkpoint())
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("UPDATE harness.requests SET at = at - interval '3 hours'")
            for number in range(3):
                lease = await store.acquire_run(KEY, owner=str(number), seconds=9)
                await store.release_run(lease)
            assert connection.execute(count).fetchall() == [(6, True)]


@pytest.mark.rule("R-STORE-12")
async def test_a_claim_waits_for_a_worker_that_is_taking_over_its_run(postgres_url: str) -> None:
    async with open_postgres_store(postgres_url) as store:
        await store.create_run(KEY, a_checkpoint())
        lease = await store.acquire_run(KEY, owner="me", seconds=60)
        refused: list[LeaseLostError] = []

        async def claim() -> None:
            try:
                await store.claim_receipt(CALL, effect="opaque", owner="x", seconds=9, run=lease)
            except LeaseLostError as error:
                refused.append(error)

        with psycopg.connect(postgres_url) as other:
            other.execute("UPDATE harness.runs SET fence = fence + 1, owner = 'other'")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(claim)
                await trio.sleep(0.3)
                other.commit()
        assert len(refused) == 1
        assert await store.list_receipts("tenant") == []


@pytest.mark.rule("R-STORE-12")
async def test_nobody_takes_over_a_run_while_a_claim_for_it_is_written(postgres_url: str) -> None:
    async with open_postgres_store(postgres_url) as store:
        await store.create_run(KEY, a_checkpoint())
        lease = await store.acquire_run(KEY, owner="me", seconds=60)
        steps: list[str] = []

        async def claim() -> None:
            await store.claim_receipt(CALL, effect="opaque", owner="x", seconds=9, run=lease)
            steps.append("claimed")

        async def release() -> None:
            await store.release_run(lease)
            steps.append("released")

        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK harness.receipts IN EXCLUSIVE MODE")  # so that the claim takes long
            async with trio.open_nursery() as nursery:
                nursery.start_soon(claim)
                await trio.sleep(0.2)
                nursery.start_soon(release)
                await trio.sleep(0.2)
                assert steps == []
                other.commit()
        assert steps == ["claimed", "released"]


async def _lost(answer: Awaitable[object]) -> object:
    try:
        return await answer
    except (LeaseLostError, RunBusyError) as error:
        return type(error)


@pytest.mark.rule("R-STORE-01")
@pytest.mark.parametrize(
    ("use", "answer"),
    [
        ("acquire", RunBusyError),
        ("renew", False),
        ("commit", LeaseLostError),
        ("renew claim", False),
        ("settle", False),
    ],
)
async def test_a_method_waits_for_another_that_is_writing_and_sees_what_it_wrote(
    postgres_url: str, use: str, answer: object
) -> None:
    clock = Clock()
    async with open_postgres_store(postgres_url, clock=clock) as store:
        place = await _place(store, clock)
        answers: list[object] = []

        async def work() -> None:
            answers.append(await _lost(USES[use](place)))

        with psycopg.connect(postgres_url) as other:
            other.execute(
                "UPDATE harness.runs SET fence = fence + 1, owner = 'other', lease_until = 'inf'"
            )
            other.execute("UPDATE harness.receipts SET attempt = attempt + 1, owner = 'other'")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work)
                await trio.sleep(0.2)
                assert answers == []
                other.commit()
        assert answers == [answer]
        with psycopg.connect(postgres_url) as other:
            owners = other.execute("SELECT owner FROM harness.runs").fetchall()
            assert owners == [("other",)] * 2
