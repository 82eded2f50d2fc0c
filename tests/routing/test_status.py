"""What a status means: the whole table, against the sentence it stands for."""

import pytest

from harness._errors import ErrorCategory
from harness.routing import DISPOSITIONS, STATUS_ROWS, category_of_status


def category_by_the_rule(status: int) -> ErrorCategory:
    """The contract's sentence, written again without the table."""
    if status in (401, 402, 403):
        return "credential"
    if status in (404, 410):
        return "provider_bad_request"
    if status == 429:
        return "rate_limited"
    if status in (408, 425) or 500 <= status <= 599 or 200 <= status <= 299:
        return "server_error"
    return "client_error"


@pytest.mark.rule("R-PROV-14")
def test_every_status_has_its_category() -> None:
    seen = {status: category_of_status(status) for status in range(1200)}
    assert seen == {status: category_by_the_rule(status) for status in range(1200)}


def test_each_row_of_the_table_is_reachable_and_says_why() -> None:
    firsts = [
        next(row for row in STATUS_ROWS if row.first <= status <= row.last)
        for row in STATUS_ROWS
        for status in (row.first if row.first != 400 else 418,)
    ]
    assert firsts == list(STATUS_ROWS)
    assert all(row.why for row in STATUS_ROWS)


def test_every_category_of_a_status_is_one_that_a_route_can_decide_on() -> None:
    decided = {row.category for row in DISPOSITIONS if row.kind == "http"}
    assert {row.category for row in STATUS_ROWS} == decided
