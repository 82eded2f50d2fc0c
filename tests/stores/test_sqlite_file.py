"""A file that is foreign, newer, damaged or out of reach: a clear error, or the right answer."""

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

from harness._durable import RunKey
from harness._errors import StoreError
from harness.stores import open_sqlite_store
from harness.stores._sqlite_file import APPLICATION_ID, SCHEMA_VERSION
from tests.stores.conformance import CALL, KEY, Store, a_checkpoint, a_commit, a_head, texts

TENANT: Final = KEY.tenant


async def _fill(path: Path) -> None:
    """Make a store with some of everything."""
    async with open_sqlite_store(path) as store:
        for number in range(4):
            key = RunKey(tenant=TENANT, run_id=f"run {number}")
            head = a_head(run_id=key.run_id)
            await store.create_run(key, a_checkpoint("long " * 900, "short", head=head))
            lease = await store.acquire_run(key, owner="somebody", seconds=0.001)
            for revision in range(1, 4):
                commit = a_commit(revision, revision, "word", "猫" * 700, run_id=key.run_id)
                await store.commit_run(lease, commit)
        claimed = await store.claim_receipt(CALL, effect="opaque", owner="me", seconds=0.001)
        assert claimed.claim is not None
        await store.settle_receipt(claimed.claim, "completed", ["paid", "x" * 3_000])


async def _told(store: Store) -> list[object]:
    """Return all that a store tells."""
    listed = await store.list_runs(TENANT)
    told: list[object] = [*listed, *await store.list_receipts(TENANT)]
    for number in range(4):
        key = RunKey(tenant=TENANT, run_id=f"run {number}")
        told += [await store.load_run(key, revision=revision) for revision in range(4)]
    told.append(await store.claim_receipt(CALL, effect="opaque", owner="x", seconds=0.001))
    return told


async def _told_by(path: Path) -> list[object]:
    async with open_sqlite_store(path) as store:
        return await _told(store)


async def _refused(path: Path, *, create: bool = True) -> StoreError:
    with pytest.raises(StoreError) as caught:
        async with open_sqlite_store(path, create=create, patience=0.2):
            pass
    assert repr(str(path)) in str(caught.value)
    return caught.value


def _names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.fixture
def full(quick_folder: Path) -> Path:
    path = quick_folder / "full.db"
    trio.run(_fill, path)
    assert _names(quick_folder) == ["full.db"]
    return path


# -- new files ---------------------------------------------------------------------------------


async def test_a_new_file_says_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_sqlite_store(path):
        pass
    assert path.read_bytes()[68:72] == b"hrns"
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    async with open_sqlite_store(path, create=False) as store:
        assert not await store.list_runs(TENANT)


async def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=memory&x#%41 猫.db"
    async with open_sqlite_store(str(path)) as store:
        await store.create_run(KEY, a_checkpoint("hi"))
    assert path.is_file()
    async with open_sqlite_store(path) as store:
        assert (await store.load_run(KEY)).messages == texts("hi")


async def test_a_file_that_is_to_be_there_is_not_made(tmp_path: Path) -> None:
    assert (await _refused(tmp_path / "none.db", create=False)).code == "store.unreachable"
    assert not _names(tmp_path)
    assert (await _refused(tmp_path / "nowhere" / "store.db")).code == "store.unreachable"


async def test_several_open_a_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def use(number: int) -> None:
        async with open_sqlite_store(path) as store:
            key = RunKey(tenant=TENANT, run_id=str(number))
            await store.create_run(key, a_checkpoint(head=a_head(run_id=key.run_id)))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(use, number)
    async with open_sqlite_store(path) as store:
        assert len(await store.list_runs(TENANT)) == 8


@pytest.mark.parametrize("patience", [-1, float("nan"), float("inf"), True])
async def test_patience_is_a_number_of_seconds(tmp_path: Path, patience: float) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^open_sqlite_store patience is "):
        async with open_sqlite_store(tmp_path / "store.db", patience=patience):
            pass
    assert not _names(tmp_path)


# -- files of others ---------------------------------------------------------------------------


def _sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.rule("R-STORE-07")
@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes(b"SQLite format 3\x00" + b"no" * 500),
        lambda path: path.write_text("A diary.\n" * 200),
        lambda path: path.write_bytes(b"x"),
        lambda path: _sql(path, "CREATE TABLE notes (body)"),
        lambda path: _sql(path, "PRAGMA application_id = 7"),
        lambda path: _sql(path, "PRAGMA user_version = 1"),
        lambda path: _sql(path, "CREATE TABLE runs (x)", "PRAGMA user_version = 1"),
    ],
    ids=["torn header", "text", "a byte", "tables", "application", "version", "same name"],
)
async def test_a_foreign_file_is_refused_and_left_alone(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "store.db"
    make(path)
    before = path.read_bytes()
    assert (await _refused(path)).code == "store.foreign"
    assert path.read_bytes() == before
    assert _names(tmp_path) == ["store.db"]


@pytest.mark.rule("R-STORE-07")
async def test_a_folder_and_a_pipe_are_no_stores(tmp_path: Path) -> None:
    assert (await _refused(tmp_path)).code == "store.foreign"
    os.mkfifo(tmp_path / "pipe")
    assert (await _refused(tmp_path / "pipe")).code == "store.foreign"


async def test_a_path_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^open_sqlite_store path is .*expected one without a"):
        async with open_sqlite_store(tmp_path / "store\x00.db"):
            pass
    (tmp_path / "file").write_text("x")
    assert (await _refused(tmp_path / "file" / "store.db")).code == "store.unreachable"


@pytest.mark.rule("R-STORE-07")
def test_a_newer_file_is_refused_and_left_alone(full: Path) -> None:
    _sql(full, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = full.read_bytes()
    error = trio.run(_refused, full)
    assert error.code == "store.newer"
    assert f"is of version {SCHEMA_VERSION + 1}, expected at most {SCHEMA_VERSION}" in str(error)
    assert full.read_bytes() == before


@pytest.mark.rule("R-STORE-07")
@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 0",
        "PRAGMA user_version = -1",
        "DROP TABLE receipts",
        "CREATE TABLE more (x)",
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
        "ALTER TABLE runs ADD COLUMN more",
    ],
)
async def test_a_file_of_ours_with_other_tables_is_damaged(full: Path, statement: str) -> None:
    _sql(full, statement)
    assert (await _refused(full)).code == "store.corrupt"


async def test_statistics_that_sqlite_keeps_are_no_damage(full: Path) -> None:
    _sql(full, "ANALYZE")
    assert await _told_by(full)


# -- damage ------------------------------------------------------------------------------------


@pytest.mark.rule("R-STORE-08")
@pytest.mark.slow
def test_a_bit_that_flips_anywhere_is_found_or_does_no_harm(full: Path, quick_folder: Path) -> None:
    content, expected = full.read_bytes(), trio.run(_told_by, full)
    offsets = [*range(100), *random.Random(5).sample(range(100, len(content)), 300)]
    found = _ends(
        (_flipped(content, offset, offset % 8) for offset in offsets), quick_folder, expected
    )
    assert found["store.corrupt"] > 150
    assert set(found) <= {"store.corrupt", "store.foreign", "store.newer", "right"}


@pytest.mark.rule("R-STORE-08")
@pytest.mark.slow
def test_a_file_that_was_cut_off_is_found(full: Path, quick_folder: Path) -> None:
    content, expected = full.read_bytes(), trio.run(_told_by, full)
    lengths = [*range(1, 100, 9), *range(100, len(content), 911), len(content) - 1]
    found = _ends((content[:length] for length in lengths), quick_folder, expected)
    assert set(found) == {"store.corrupt", "store.foreign"}


@pytest.mark.rule("R-STORE-08")
def test_tables_that_are_no_text_are_found(full: Path) -> None:
    full.write_bytes(full.read_bytes().replace(b"CREATE TABLE heads", b"CREATE \xd5ABLE heads"))
    assert trio.run(_refused, full).code == "store.corrupt"


@pytest.mark.rule("R-STORE-08")
async def test_an_index_that_lost_an_entry_is_found(full: Path) -> None:
    _sql(
        full,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master"
        " WHERE name = 'sqlite_autoindex_receipts_1') WHERE name = 'sqlite_autoindex_runs_1'",
    )
    assert (await _refused(full)).code == "store.corrupt"


@pytest.mark.rule("R-STORE-08")
@pytest.mark.parametrize("table", ["runs", "heads", "messages", "receipts"])
async def test_a_row_that_was_changed_is_found_when_it_is_read(full: Path, table: str) -> None:
    change = {
        "runs": "fence = fence + 1",
        "heads": "messages = messages - 1",
        "messages": "body = x'5b5d'",
        "receipts": "attempt = attempt + 1",
    }[table]
    _sql(full, f"UPDATE {table} SET {change}")
    assert (await _refused(full)).code == "store.corrupt"
    async with open_sqlite_store(full, verify=False) as store:
        with pytest.raises(StoreError, match=rf"a row of {table} does not match") as caught:
            await _told(store)
        assert caught.value.code == "store.corrupt"


@pytest.mark.rule("R-STORE-08")
@pytest.mark.parametrize("table", ["heads", "messages"])
async def test_a_row_that_is_missing_is_found_when_it_is_read(full: Path, table: str) -> None:
    _sql(full, f"DELETE FROM {table}")
    async with open_sqlite_store(full) as store:
        with pytest.raises(StoreError) as caught:
            await store.load_run(RunKey(tenant=TENANT, run_id="run 1"))
        assert caught.value.code == "store.corrupt"
        assert "missing" in str(caught.value)


def _flipped(content: bytes, offset: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[offset] ^= 1 << bit
    return bytes(changed)


def _ends(files: Iterator[bytes], folder: Path, expected: list[object]) -> dict[str, int]:
    """Return how often a file was refused with each code, or told the truth."""
    ends: dict[str, int] = {}

    async def look_at_each() -> None:
        for number, content in enumerate(files):
            path = folder / f"{number}.db"
            path.write_bytes(content)
            try:
                told = await _told_by(path)
            except StoreError as error:
                end = error.code
            else:
                end = "right" if told == expected else f"wrong: file {number}"
            ends[end] = ends.get(end, 0) + 1
            path.unlink()

    trio.run(look_at_each)
    return ends


# -- out of reach ------------------------------------------------------------------------------

_AS_NOBODY: Final = """
import os, sys, trio
from harness._errors import StoreError
from harness.stores import open_sqlite_store

async def look(path):
    try:
        async with open_sqlite_store(path, patience=0.2):
            print("opened")
    except StoreError as error:
        print(error.code)

if os.geteuid() == 0:
    os.setuid(65534)
trio.run(look, sys.argv[1])
"""


def _as_nobody(path: Path) -> str:
    """Return what becomes of opening a file without the rights of its owner or of root."""
    ended = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, str(path)], capture_output=True, text=True, check=False
    )
    assert not ended.stderr
    return str(ended.stdout).strip()


@pytest.mark.rule("R-STORE-06")
@pytest.mark.slow
def test_a_file_or_folder_that_is_read_only_says_so(full: Path, quick_folder: Path) -> None:
    quick_folder.chmod(0o777)
    full.chmod(0o444)
    assert _as_nobody(full) == "store.read_only"
    full.chmod(0o666)
    assert _as_nobody(full) == "opened"
    quick_folder.chmod(0o555)
    assert _as_nobody(full) == "store.read_only"
    assert _as_nobody(quick_folder / "new.db") == "store.read_only"
    full.chmod(0)
    assert _as_nobody(full) == "store.read_only"
    quick_folder.chmod(0)
    assert _as_nobody(full) == "store.unreachable"
    quick_folder.chmod(0o755)
    assert trio.run(_told_by, full)


@pytest.mark.rule("R-STORE-06")
async def test_a_file_that_is_locked_for_too_long_says_so(full: Path) -> None:
    connection = sqlite3.connect(full, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert (await _refused(full)).code == "store.busy"
    connection.execute("ROLLBACK")
    async with open_sqlite_store(full, patience=0.2) as store:
        connection.execute("BEGIN IMMEDIATE")
        key = RunKey(tenant=TENANT, run_id="run 0")
        with pytest.raises(StoreError) as caught:
            await store.acquire_run(key, owner="me", seconds=1)
        assert caught.value.code == "store.busy"
        assert (await store.load_run(key)).revision == 3  # readers are in nobody's way
        connection.execute("ROLLBACK")
        assert (await store.acquire_run(key, owner="me", seconds=1)).fence == 2
    connection.close()
