"""Making a schema, and refusing one: whose it is, of which version, whether its tables are ours."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo

from harness._errors import StoreError
from harness.stores import open_postgres_store
from tests.stores.conformance import KEY, a_checkpoint, texts

pytestmark = pytest.mark.postgres


def _execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        last = [connection.execute(each) for each in statements][-1]
        return last.fetchall() if last.description else []


async def _refused(url: str, **more: Any) -> StoreError:
    with pytest.raises(StoreError) as caught:
        async with open_postgres_store(url, **more):
            pass
    return caught.value


async def _make(url: str) -> None:
    async with open_postgres_store(url) as store:
        await store.create_run(KEY, a_checkpoint("hi"))


@pytest.mark.rule("R-STORE-23")
async def test_of_many_that_open_a_new_schema_at_once_all_find_one(postgres_url: str) -> None:
    loaded: list[object] = []

    async def use(number: int) -> None:
        async with open_postgres_store(postgres_url, connections=1) as store:
            if number == 0:
                await store.create_run(KEY, a_checkpoint("hi"))
            while not await store.list_runs("tenant"):  # noqa: ASYNC110  # nobody is told
                await trio.sleep(0.01)
            loaded.append((await store.load_run(KEY)).messages)

    async with trio.open_nursery() as nursery:
        for number in range(12):
            nursery.start_soon(use, number)
    assert loaded == [texts("hi")] * 12


@pytest.mark.rule("R-STORE-23")
@pytest.mark.slow
def test_of_many_processes_that_open_a_new_schema_at_once_none_fails(postgres_url: str) -> None:
    text = f"""
import trio
from harness.stores import open_postgres_store
async def main():
    async with open_postgres_store({postgres_url!r}):
        print("open")
input()
trio.run(main)
"""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    assert [worker.communicate()[:2] for worker in workers] == [("open\n", "")] * 4


@pytest.mark.rule("R-STORE-24")
@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ("UPDATE harness.store SET version = 99", "store.newer", "is of version 99, expected at "),
        ("UPDATE harness.store SET version = 0", "store.corrupt", "is of version 0, expected 1"),
        ("UPDATE harness.store SET application = 'x'", "store.foreign", "belongs to ['x'], "),
        ("DELETE FROM harness.store", "store.foreign", "belongs to [], expected "),
        ("DROP TABLE harness.store", "store.foreign", "has the tables ['heads', 'messages', "),
        ("DROP TABLE harness.receipts", "store.corrupt", "it lacks ('receipts', "),
        ("ALTER TABLE harness.runs DROP owner", "store.corrupt", "('runs', 'owner', 'text')"),
        ("ALTER TABLE harness.runs ALTER fence TYPE int", "store.corrupt", "('runs', 'fence', "),
    ],
)
async def test_a_schema_that_is_not_ours_any_more_is_refused(
    postgres_url: str, change: str, code: str, says: str
) -> None:
    await _make(postgres_url)
    _execute(postgres_url, change)
    error = await _refused(postgres_url)
    assert error.code == code
    assert says in str(error)


@pytest.mark.rule("R-STORE-24")
@pytest.mark.parametrize(
    "made",
    ["TABLE odd.theirs ()", "TABLE odd.store (version int)", "VIEW odd.v AS SELECT 1 AS n"],
)
async def test_a_schema_of_somebody_else_is_refused_and_not_touched(
    postgres_url: str, made: str
) -> None:
    _execute(postgres_url, "CREATE SCHEMA odd", f"CREATE {made}")
    relations = "SELECT relname FROM pg_class WHERE relnamespace = 'odd'::regnamespace"
    before = _execute(postgres_url, relations)
    assert (await _refused(postgres_url, schema="odd")).code == "store.foreign"
    assert _execute(postgres_url, relations) == before


@pytest.mark.rule("R-STORE-23")
@pytest.mark.parametrize("schema", ["harness", 'q"u.o te', "Ünï", "select", "{schema}%s", "x" * 63])
async def test_stores_in_schemas_of_any_name_do_not_meet(postgres_url: str, schema: str) -> None:
    _execute(postgres_url, 'CREATE SCHEMA "select"')  # one that is there and empty will do
    async with (
        open_postgres_store(postgres_url, schema=schema) as store,
        open_postgres_store(postgres_url, schema="another") as another,
    ):
        await store.create_run(KEY, a_checkpoint("hi"))
        assert not await another.list_runs("tenant")
        assert (await store.load_run(KEY)).messages == texts("hi")
    assert (schema,) in _execute(postgres_url, "SELECT nspname FROM pg_namespace")


@pytest.mark.parametrize("schema", ["", "x" * 64, "Ü" * 32, "a\x00b"])
async def test_a_name_that_the_database_would_change_is_refused(
    postgres_url: str, schema: str
) -> None:
    with pytest.raises(ValueError, match=r"^the schema is .*, expected 1 to 63 bytes$"):
        async with open_postgres_store(postgres_url, schema=schema):
            pass


@pytest.mark.rule("R-STORE-24")
async def test_a_user_who_may_make_nothing_can_use_a_store_that_is_there(
    postgres_url: str,
) -> None:
    await _make(postgres_url)
    rights = "SELECT, INSERT, UPDATE, DELETE"
    _execute(
        postgres_url,
        "DROP ROLE IF EXISTS worker",
        "CREATE ROLE worker LOGIN",
        "GRANT USAGE ON SCHEMA harness TO worker",
        f"GRANT {rights} ON ALL TABLES IN SCHEMA harness TO worker",
    )
    url = make_conninfo(postgres_url, user="worker")
    try:
        async with open_postgres_store(url) as store:
            lease = await store.acquire_run(KEY, owner="me", seconds=9)
            assert await store.renew_run(lease)
        error = await _refused(url, schema="another")
        assert error.code == "store.read_only"
    finally:
        _execute(postgres_url, "DROP OWNED BY worker", "DROP ROLE worker")


@pytest.mark.rule("R-STORE-24")
@pytest.mark.parametrize(
    ("damage", "use"),
    [
        ("DELETE FROM harness.heads", lambda store: store.load_run(KEY)),
        ("DELETE FROM harness.heads", lambda store: store.list_runs("tenant")),
        ("DELETE FROM harness.messages", lambda store: store.load_run(KEY)),
        ("DROP TABLE harness.receipts", lambda store: store.list_receipts("tenant")),
    ],
)
async def test_what_has_got_lost_is_missed(
    postgres_url: str, damage: str, use: Callable[[Any], Any]
) -> None:
    async with open_postgres_store(postgres_url) as store:
        await store.create_run(KEY, a_checkpoint("hi"))
        _execute(postgres_url, damage)
        with pytest.raises(StoreError) as caught:
            await use(store)
    assert caught.value.code == "store.corrupt"


@pytest.mark.rule("R-STORE-20")
async def test_who_makes_a_schema_is_not_waited_for_without_end(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('trio-harness store harness', 0))"
        )
        assert (await _refused(postgres_url, patience=0.3)).code == "store.busy"
    await _make(postgres_url)
