"""What a provider's answer says went wrong."""

import json
import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._json import JSON
from harness.providers._failures import (
    QUOTE_LENGTH,
    Redaction,
    WireError,
    body_failure,
    error_in,
    status_failure,
)

KEY = "sk-0123456789abcdef"
NOTHING = Redaction([])


@pytest.mark.rule("R-PROV-10")
@pytest.mark.parametrize(
    ("value", "message", "code"),
    [
        ({"error": {"message": "No", "code": "invalid_key", "type": "auth"}}, "No", "invalid_key"),
        ({"error": {"message": "No", "code": None, "type": "auth"}}, "No", "auth"),
        ({"error": {"message": "No", "code": 503, "type": "busy"}}, "No", "busy"),
        ({"error": {"message": "No", "code": 400, "status": "INVALID"}}, "No", "INVALID"),
        ({"error": {"message": "No", "code": 503}}, "No", "503"),
        ({"error": {"message": "No", "code": True}}, "No", None),
        ({"error": {"code": 7}}, '{"code":7}', "7"),
        ({"error": {"message": {"a": 1}}}, '{"a":1}', None),
        ({"error": "No", "code": "bad"}, "No", "bad"),
        ({"error": True, "message": "No"}, "No", None),
        ({"error": ["No"]}, '["No"]', None),
        ([{"error": {"message": "No", "code": 429}}], "No", "429"),
        ({"object": "error", "message": "No", "code": 40}, "No", "40"),
    ],
)
def test_an_error_object_is_found_in_its_spellings(
    value: JSON, message: str, code: str | None
) -> None:
    found = error_in(value)
    assert found is not None
    assert (found.message, found.code, found.theirs) == (message, code, True)


@pytest.mark.rule("R-PROV-10")
@pytest.mark.parametrize(
    "value",
    [None, 5, "error", [], [5], {}, {"error": None}, {"error": {}}, {"error": ""}, {"error": False},
     {"object": "chat.completion.chunk", "choices": []}],
)  # fmt: skip
def test_an_empty_error_is_none(value: JSON) -> None:
    assert error_in(value) is None


@pytest.mark.rule("R-PROV-14")
def test_a_status_failure_has_all_that_routing_needs() -> None:
    error = status_failure(
        429,
        [("Retry-After", "7")],
        b'{"error": {"message": "Slow down", "type": "rate_limit_error"}}',
        redact=NOTHING,
    )
    assert str(error) == (
        "the provider answered with status 429 and said 'Slow down', expected a completion"
    )
    assert (error.kind, error.category, error.phase) == ("http", "rate_limited", "headers")
    assert (error.status_code, error.retry_after) == (429, 7.0)
    assert error.provider_code == "rate_limit_error"
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


@pytest.mark.rule("R-PROV-25")
@pytest.mark.parametrize(
    ("status", "headers", "seen"),
    [
        (308, [("Location", "https://h/v2")], "status 308, a redirect to 'https://h/v2', expected"),
        (302, [("location", "/a"), ("Location", "/b")], "status 302, a redirect to '/a', expected"),
        (301, [("Location", "/" + "x" * 9999)], f"a redirect to '/{'x' * (QUOTE_LENGTH - 1)}…', e"),
        (302, [("Location", f"/?k={KEY}")], "a redirect to '/?k=[redacted]', expected"),
        (304, [], "status 304, expected"),
        (400, [("Location", "/a")], "status 400, expected"),
    ],
)
def test_a_redirect_names_where_it_led(
    status: int, headers: list[tuple[str, str]], seen: str
) -> None:
    error = status_failure(status, iter(headers), b"", redact=Redaction([KEY]))
    assert seen in str(error)


@pytest.mark.rule("R-PROV-12")
def test_a_date_to_wait_for_is_read_with_the_clock_that_was_given() -> None:
    error = status_failure(
        503,
        [("Retry-After", "Mon, 30 Nov 2026 12:00:30 GMT")],
        b"",
        redact=NOTHING,
        wall_clock=lambda: datetime(2026, 11, 30, 12, tzinfo=UTC),
    )
    assert error.retry_after == 30.0
    assert str(error) == "the provider answered with status 503, expected a completion"


@pytest.mark.rule("R-PROV-14")
@pytest.mark.parametrize(
    ("body", "said", "code"),
    [
        (b"<html>Bad gateway</html>\n", "'<html>Bad gateway</html>'", None),
        (b'{"detail": "Not found"}', "'Not found'", None),
        (b'{"message": "No", "type": "bad"}', "'No'", "bad"),
        (b'{"a": 1}', "'{\"a\":1}'", None),
        (b"null", "'null'", None),
        (b"\xff\xfe", "'\ufffd\ufffd'", None),
        (b'{"error": {"mess', '\'{"error": {"mess\'', None),
    ],
)
def test_any_body_of_an_error_is_quoted(body: bytes, said: str, code: str | None) -> None:
    error = status_failure(500, [], body, redact=NOTHING)
    assert f" and said {said}, expected" in str(error)
    assert error.provider_code == code


@pytest.mark.rule("R-PROV-10")
def test_an_error_inside_a_success_counts_by_its_status_and_keeps_its_code() -> None:
    found = WireError("Rate limited", theirs=True, code="429")
    error = body_failure(found, status=200, phase="stream", redact=NOTHING)
    assert str(error) == "the provider reported 'Rate limited', expected a completion"
    assert (error.kind, error.category, error.phase) == ("http", "server_error", "stream")
    assert (error.status_code, error.retry_after, error.provider_code) == (200, None, "429")


@pytest.mark.rule("R-PROV-15")
@given(st.text(max_size=600), st.text(max_size=600), st.sampled_from([401, 500]), st.booleans())
def test_no_secret_is_left_in_an_error_wherever_it_is_echoed(
    before: str, after: str, status: int, quoted: bool
) -> None:
    redact = Redaction([KEY])
    text = f"{before}{KEY}{after}"
    body = json.dumps({"error": {"message": text, "code": text}}) if quoted else text
    error = status_failure(status, [], body.encode(errors="replace"), redact=redact)
    told = body_failure(
        WireError(text, theirs=True, code=text), status=200, phase="stream", redact=redact
    )
    for each in (error, told):
        shown = f"{each!r} {each.provider_code}"
        # Not even the part of it that a bound would leave.
        assert not any(KEY[:length] in shown for length in range(8, len(KEY) + 1))
        assert len(str(each)) <= 4 * QUOTE_LENGTH + 100  # a repr may need four for one


@pytest.mark.rule("R-PROV-15")
def test_a_long_text_is_cut() -> None:
    error = status_failure(500, [], b"x" * 10_000, redact=NOTHING)
    assert f"'{'x' * QUOTE_LENGTH}…'" in str(error)
    assert len(str(error)) < QUOTE_LENGTH + 100


def test_the_longer_of_two_secrets_goes_first_and_a_placeholder_is_none() -> None:
    redact = Redaction(["none", KEY[:10], KEY])
    assert redact(f"none {KEY} {KEY[:10]}") == "none [redacted] [redacted]"
    assert KEY not in repr(redact)
