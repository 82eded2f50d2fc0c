"""What headers say about waiting."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.routing import clamp_retry_after, retry_after_from_headers

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def clock() -> datetime:
    return NOW


@pytest.mark.rule("R-RETRY-01", "R-RETRY-02", "R-PROV-12")
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        (" 7\t", 7.0),
        ("1.5", 1.5),
        ("999999", 999999.0),
        ("1_000", None),
        ("1e3", None),
        ("-5", None),
        ("+5", None),
        ("nan", None),
        ("inf", None),
        ("1234567890123", None),
        ("１２", None),
        ("", None),
        ("soon", None),
        ("5 6", None),
        ("5\n", None),
    ],
)
def test_a_delay_is_plain_digits(value: str, seconds: float | None) -> None:
    assert retry_after_from_headers([("Retry-After", value)], clock) == seconds


@pytest.mark.rule("R-RETRY-05", "R-PROV-12")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([("retry-after", "10"), ("RETRY-AFTER-MS", "1500")], 1.5),
        ([("retry-after", "10"), ("retry-after-ms", "soon")], 10.0),
        ([("retry-after", "soon"), ("retry-after", "3"), ("retry-after", "4")], 3.0),
        ([("x-retry-after", "3")], None),
        ([], None),
    ],
)
def test_milliseconds_go_first_and_the_first_usable_value_wins(
    headers: list[tuple[str, str]], seconds: float | None
) -> None:
    assert retry_after_from_headers(headers) == seconds


@pytest.mark.rule("R-RETRY-03", "R-RETRY-04", "R-PROV-12")
@pytest.mark.parametrize(
    "value",
    [
        "Mon, 30 Nov 2026 12:01:30 GMT",
        "Monday, 30-Nov-26 12:01:30 GMT",
        "Mon Nov 30 12:01:30 2026",
    ],
)
def test_a_date_in_any_of_its_spellings_counts_from_the_clock(value: str) -> None:
    assert retry_after_from_headers([("retry-after", value)], clock) == 90.0
    assert retry_after_from_headers([("retry-after", value)]) is None
    later = NOW + timedelta(hours=1)
    assert retry_after_from_headers([("retry-after", value)], lambda: later) == 0.0


@pytest.mark.rule("R-RETRY-04", "R-PROV-12")
@pytest.mark.parametrize("value", ["Mon, 31 Feb 2026 12:00:00 GMT", "Mon, 30 Nov 99999 1:1:1 GMT"])
def test_an_impossible_date_says_nothing(value: str) -> None:
    assert retry_after_from_headers([("retry-after", value)], clock) is None


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, [0-9]+ [A-Z][a-z]{2} [0-9:+-]* ?[A-Z0-9+-]*"))
def test_no_header_fails(value: str) -> None:
    seconds = retry_after_from_headers([("retry-after", value)], clock)
    assert seconds is None or seconds >= 0


@pytest.mark.rule("R-RETRY-05")
def test_headers_may_be_a_mapping_and_the_case_of_a_name_says_nothing() -> None:
    assert retry_after_from_headers({"RETRY-after": "10"}) == 10.0
    assert retry_after_from_headers({"Retry-After": "10", "Retry-After-MS": "1500"}) == 1.5
    assert retry_after_from_headers(iter([("Retry-After", "10")])) == 10.0
    assert retry_after_from_headers({}) is None


@pytest.mark.rule("R-RETRY-03")
def test_a_clock_without_a_zone_is_refused() -> None:
    date = [("retry-after", "Mon, 30 Nov 2026 12:01:30 GMT")]
    with pytest.raises(ValueError, match=r"^the wall clock says .*, expected a datetime with a zo"):
        retry_after_from_headers(date, lambda: NOW.replace(tzinfo=None))


@pytest.mark.rule("R-RETRY-06")
def test_the_ceiling_is_set_by_whoever_waits() -> None:
    seconds = retry_after_from_headers([("Retry-After", "999999")])
    assert seconds == 999999.0
    assert clamp_retry_after(seconds, 60) == 60.0
    assert clamp_retry_after(5.5, 60) == 5.5
    assert clamp_retry_after(None, 60) is None


@pytest.mark.rule("R-RETRY-06")
@pytest.mark.parametrize("number", [True, float("nan"), float("inf"), -1])
def test_a_wait_and_its_ceiling_are_finite_seconds(number: float) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^maximum is "):
        clamp_retry_after(5, number)
    with pytest.raises((TypeError, ValueError), match=r"^value is "):
        clamp_retry_after(number, 5)
