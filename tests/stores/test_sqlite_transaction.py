"""Pieces of work in one transaction: who is refused with whom."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness._errors import StoreError
from harness.stores._sqlite_file import SQLiteFile
from harness.stores._sqlite_rows import SQLiteRows
from harness.stores._sqlite_transaction import Answer, Work, read, write_together


@pytest.fixture
def file(tmp_path: Path) -> SQLiteFile:
    return SQLiteFile(path=tmp_path / "store.db", patience=0.1)


@pytest.fixture
def connection(file: SQLiteFile) -> Iterator[sqlite3.Connection]:
    with closing(file.open(create=True, verify=True)) as opened:
        opened.execute("CREATE TABLE notes (word UNIQUE)")
        yield opened


def _note(word: str, then: Exception | None = None, times: int = 1) -> Work[str]:
    def work(rows: SQLiteRows) -> str:
        rows.connection.execute("INSERT INTO notes VALUES (?)", (word * times,))
        if then is not None:
            raise then
        return word

    return work


def _notes(connection: sqlite3.Connection) -> set[str]:
    return {word for (word,) in connection.execute("SELECT word FROM notes")}


@pytest.mark.rule("R-STORE-02")
def test_all_is_written_in_one_transaction(
    connection: sqlite3.Connection, file: SQLiteFile
) -> None:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    works = [_note(word) for word in "abc"]
    assert write_together(connection, file, works) == [Answer(word) for word in "abc"]
    assert statements.count("BEGIN IMMEDIATE") == statements.count("COMMIT") == 1
    assert _notes(connection) == set("abc")


@pytest.mark.rule("R-STORE-02")
def test_what_one_refuses_is_undone_and_the_others_stand(
    connection: sqlite3.Connection, file: SQLiteFile
) -> None:
    error = LookupError("no")
    works = [_note("a"), _note("b", then=error), _note("c")]
    answers = write_together(connection, file, works)
    assert answers == [Answer("a"), Answer(error=error), Answer("c")]
    assert _notes(connection) == {"a", "c"}


@pytest.mark.rule("R-STORE-02")
def test_after_an_error_of_the_database_each_is_tried_alone(
    connection: sqlite3.Connection, file: SQLiteFile
) -> None:
    answers = write_together(connection, file, [_note("a"), _note("a"), _note("b")])
    assert [each.value for each in answers] == ["a", None, "b"]
    assert isinstance(answers[1].error, StoreError)
    assert _notes(connection) == {"a", "b"}


@pytest.mark.rule("R-STORE-06")
def test_what_does_not_fit_is_refused_and_what_fits_is_written(
    connection: sqlite3.Connection, file: SQLiteFile
) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    answers = write_together(
        connection, file, [_note("a"), _note("big", times=100_000), _note("b")]
    )
    assert [each.value for each in answers] == ["a", None, "b"]
    assert isinstance(answers[1].error, StoreError)
    assert answers[1].error.code == "store.full"
    connection.execute("PRAGMA max_page_count = 1000000")
    assert write_together(connection, file, [_note("big", times=100_000)]) == [Answer("big")]


@pytest.mark.rule("R-STORE-06")
def test_who_waited_for_a_lock_in_vain_is_not_tried_again(
    connection: sqlite3.Connection, file: SQLiteFile
) -> None:
    with closing(file.connect()) as other:
        other.execute("BEGIN IMMEDIATE")
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        answers = write_together(connection, file, [_note(word) for word in "abc"])
        for answer in answers:
            assert isinstance(answer.error, StoreError)
            assert answer.error.code == "store.busy"
        assert statements.count("BEGIN IMMEDIATE") <= 1
        assert len({id(answer.error) for answer in answers}) == 3  # each task raises its own
        other.execute("ROLLBACK")
    assert not _notes(connection)
    assert write_together(connection, file, [_note("a")]) == [Answer("a")]


@pytest.mark.parametrize("leave", [KeyboardInterrupt, SystemExit])
def test_nothing_is_written_if_it_is_left_in_the_middle(
    connection: sqlite3.Connection, file: SQLiteFile, leave: Callable[[], BaseException]
) -> None:
    def work(_: SQLiteRows) -> None:
        raise leave()

    with pytest.raises((KeyboardInterrupt, SystemExit)):
        write_together(connection, file, [_note("a"), work])
    assert not connection.in_transaction
    assert not _notes(connection)


def test_what_is_read_is_read_at_one_moment(
    connection: sqlite3.Connection, file: SQLiteFile
) -> None:
    def work(rows: SQLiteRows) -> tuple[set[str], set[str]]:
        before = _notes(rows.connection)
        write_together(connection, file, [_note("late")])
        return before, _notes(rows.connection)

    with closing(file.connect()) as other:
        assert read(other, file, work) == (set(), set())
        assert not other.in_transaction
    assert _notes(connection) == {"late"}


def test_the_clock_is_read_once_the_lock_is_held(
    connection: sqlite3.Connection, file: SQLiteFile
) -> None:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    write_together(connection, file, [_note("a")])
    assert statements[0] == "BEGIN IMMEDIATE"
    assert statements[1].startswith("SELECT (julianday('now')")
