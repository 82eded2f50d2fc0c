import sqlite3
from pathlib import Path

import pytest

from harness._errors import StoreError
from harness.stores import SQLITE_FAILURES, SQLiteFailure
from harness.stores._sqlite_failures import store_error


def _error(number: int | None, text: str = "what SQLite says") -> StoreError:
    error = sqlite3.OperationalError(text)
    if number is not None:
        error.sqlite_errorcode = number
    return store_error(error, Path("/there/store.db"))


@pytest.mark.rule("R-STORE-06")
@pytest.mark.parametrize("row", SQLITE_FAILURES, ids=lambda row: row.name)
def test_each_row_is_what_its_number_means(row: SQLiteFailure) -> None:
    error = _error(row.number)
    assert error.code == row.code
    assert str(error) == f"the store at '/there/store.db' {row.what}: what SQLite says"


@pytest.mark.rule("R-STORE-06")
def test_every_number_has_a_meaning_and_an_extended_one_that_of_its_kind() -> None:
    special = {row.number for row in SQLITE_FAILURES if row.number > 0xFF}
    plain = {row.number: row.code for row in SQLITE_FAILURES}
    for number in range(1, 27):
        for extended in (number, number | 1 << 8, number | 30 << 8):
            if extended not in special:
                assert _error(extended).code == plain.get(number, "store.corrupt")


@pytest.mark.rule("R-STORE-06")
def test_an_error_without_a_number_is_damage() -> None:
    error = _error(None, "Could not decode to UTF-8 column")
    assert error.code == "store.corrupt"
    assert "Could not decode" in str(error)


@pytest.mark.rule("R-STORE-06")
def test_no_number_is_there_twice_and_every_code_is_a_store_errors() -> None:
    numbers = [row.number for row in SQLITE_FAILURES]
    assert len(set(numbers)) == len(numbers)
    known = (StoreError.__doc__ or "").replace("\n", " ")
    for row in SQLITE_FAILURES:
        assert f"``{row.code}``" in known
