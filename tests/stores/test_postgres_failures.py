import pytest

from harness._errors import StoreError
from harness.stores import POSTGRES_FAILURES, PostgresFailure
from harness.stores._postgres_failures import find_failure, store_error


def _error(state: str | None) -> StoreError:
    return store_error(LookupError("what it\n  says"), state, "the store at 'x'")


@pytest.mark.rule("R-STORE-21")
@pytest.mark.parametrize("row", POSTGRES_FAILURES, ids=lambda row: row.state)
def test_each_row_is_what_its_code_means(row: PostgresFailure) -> None:
    error = _error(row.state)
    assert error.code == row.code
    assert str(error) == f"the store at 'x' {row.what}: what it says"


@pytest.mark.rule("R-STORE-21")
@pytest.mark.parametrize(
    ("state", "code"),
    [
        (None, "store.unreachable"),
        ("08006", "store.unreachable"),
        ("57P01", "store.unreachable"),
        ("57P03", "store.unreachable"),
        ("25P03", "store.unreachable"),
        ("28P01", "store.unreachable"),
        ("57014", "store.busy"),
        ("55P03", "store.busy"),
        ("40P01", "store.busy"),
        ("40001", "store.busy"),
        ("53300", "store.busy"),
        ("53100", "store.full"),
        ("54000", "store.full"),
        ("25006", "store.read_only"),
        ("42501", "store.read_only"),
        ("58P01", "store.corrupt"),
        ("58030", "store.unreachable"),
        ("XX001", "store.corrupt"),
        ("42P01", "store.corrupt"),
        ("23505", "store.corrupt"),
        ("", "store.corrupt"),
    ],
)
def test_the_longest_beginning_counts(state: str | None, code: str) -> None:
    assert find_failure(state).code == code


@pytest.mark.rule("R-STORE-21")
def test_no_beginning_is_there_twice_and_every_code_is_a_store_errors() -> None:
    states = [row.state for row in POSTGRES_FAILURES]
    assert len(set(states)) == len(states)
    known = (StoreError.__doc__ or "").replace("\n", " ")
    for row in POSTGRES_FAILURES:
        assert f"``{row.code}``" in known
