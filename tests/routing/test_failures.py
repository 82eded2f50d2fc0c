"""What follows from a failure: the whole table, and the value that it is asked about."""

import itertools
import json
import pickle
from typing import Any, cast, get_args

import attrs
import pytest
from hypothesis import given

from harness._errors import ErrorCategory, ErrorKind
from harness._json import encode_text
from harness.routing import (
    DISPOSITIONS,
    AttemptCursor,
    AttemptError,
    AttemptTarget,
    Disposition,
    failure_disposition,
)
from tests.routing.endpoints import FIRST, endpoint, target
from tests.strategies import attempt_errors

KEY = "sk-0123456789abcdef"

EXPECTED: dict[tuple[ErrorKind, ErrorCategory], tuple[bool, bool, str]] = {
    # same endpoint again, then others, what the circuit hears
    ("http", "server_error"): (False, True, "count"),
    ("http", "rate_limited"): (False, True, "count"),
    ("http", "credential"): (False, True, "open"),
    ("http", "provider_bad_request"): (False, True, "none"),
    ("http", "client_error"): (False, False, "none"),
    ("network", "unreachable"): (False, True, "count"),
    ("stall", "stalled"): (False, True, "count"),
    ("defect", "defect"): (True, True, "none"),
    ("abort", "aborted"): (False, False, "none"),
    ("internal", "client_error"): (False, False, "none"),
}
"""The contract's table, written again without the code's."""

PAIRS = list(itertools.product(get_args(ErrorKind), get_args(ErrorCategory)))


def failed(kind: ErrorKind, category: ErrorCategory, **facts: Any) -> AttemptError:
    return AttemptError(**{"kind": kind, "category": category, "target": target(), **facts})


@pytest.mark.rule("R-FAIL-01")
@pytest.mark.parametrize(("kind", "category"), PAIRS)
def test_each_kind_and_category_has_its_disposition_or_is_no_failure(
    kind: ErrorKind, category: ErrorCategory
) -> None:
    if (kind, category) not in EXPECTED:
        with pytest.raises(ValueError, match=rf"^the failure is of kind '{kind}' and category "):
            failed(kind, category)
        return
    row = failure_disposition(failed(kind, category))
    assert (row.kind, row.category) == (kind, category)
    assert (row.retry_same, row.traverse, row.breaker) == EXPECTED[kind, category]


@pytest.mark.rule("R-FAIL-01")
def test_the_table_has_each_row_once_and_says_why() -> None:
    assert [(row.kind, row.category) for row in DISPOSITIONS] == list(EXPECTED)
    assert len({row.why for row in DISPOSITIONS}) == len(DISPOSITIONS)
    assert {row.kind for row in DISPOSITIONS} == set(get_args(ErrorKind))
    assert {row.category for row in DISPOSITIONS} == set(get_args(ErrorCategory))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        DISPOSITIONS[0].traverse = False  # type: ignore[misc]  # the point


@pytest.mark.rule("R-FAIL-01")
@given(attempt_errors())
def test_nothing_but_kind_and_category_decides(error: AttemptError) -> None:
    bare = failed(error.kind, error.category)
    assert failure_disposition(error) is failure_disposition(bare)
    assert isinstance(failure_disposition(error), Disposition)


@pytest.mark.rule("R-FAIL-02")
def test_what_the_endpoint_answered_never_counts_against_it() -> None:
    silent = {row.category for row in DISPOSITIONS if row.breaker == "none"}
    assert silent == {"defect", "provider_bad_request", "client_error", "aborted"}
    assert failure_disposition(failed("defect", "defect")).breaker == "none"


def test_only_a_failure_has_a_disposition() -> None:
    with pytest.raises(TypeError, match=r"^the failure is .*, expected an AttemptError$"):
        failure_disposition(cast(AttemptError, ConnectionError("reset")))


# -- the value ---------------------------------------------------------------------------------


@pytest.mark.rule("R-FAIL-03")
def test_what_the_cause_says_is_not_told() -> None:
    error = failed("http", "credential", status_code=401, retry_after=2, cause=KeyError(KEY))
    assert KEY not in repr(error)
    assert KEY not in str(error)
    assert "cause=KeyError" in repr(error)
    assert KEY not in encode_text(error.to_json())
    assert "cause" not in error.to_json()
    assert error.cause is not None
    assert error.cause.args == (KEY,)


def test_a_failure_reads_as_one_line() -> None:
    error = failed("http", "server_error", status_code=503, cause=OSError(KEY))
    assert str(error) == "m/large at a: http server_error 503 after 1.5 s"
    assert str(failed("stall", "stalled")) == "m/large at a: stall stalled after 1.5 s"


@pytest.mark.rule("R-FAIL-03")
def test_a_failure_is_plain_json() -> None:
    error = failed("network", "unreachable", retry_after=2.5)
    assert json.loads(encode_text(error.to_json())) == {
        "kind": "network",
        "category": "unreachable",
        "status_code": None,
        "retry_after": 2.5,
        "target": {
            "cursor": {"stage": 0, "candidate": 0, "retry": 0, "ordinal": 0},
            "provider_id": "a",
            "canonical_model_id": "m/large",
            "provider_invocation_model": "m/large@a",
            "duration": 1.5,
        },
    }
    assert "cause=None" in repr(error)


@given(attempt_errors())
def test_failures_that_say_the_same_are_equal_whatever_raised_them(error: AttemptError) -> None:
    other = attrs.evolve(error, cause=None)
    assert other == error
    assert hash(other) == hash(error)
    assert other.to_json() == error.to_json()
    assert attrs.evolve(error, retry_after=(error.retry_after or 0) + 1) != error
    assert pickle.loads(pickle.dumps(other)) == other


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("status_code", True, TypeError),
        ("status_code", -1, ValueError),
        ("status_code", 2.5, TypeError),
        ("retry_after", True, TypeError),
        ("retry_after", float("nan"), ValueError),
        ("retry_after", float("inf"), ValueError),
        ("retry_after", -1.0, ValueError),
        ("target", FIRST, TypeError),
        ("target", None, TypeError),
        ("cause", "reset", TypeError),
    ],
)
def test_a_wrong_field_is_named_with_its_value(
    field: str, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error, match=rf"^AttemptError\.{field} is ") as caught:
        failed("http", "server_error", **{field: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("field", ["stage", "candidate", "retry", "ordinal"])
@pytest.mark.parametrize("value", [True, -1, 0.5, None])
def test_a_cursor_counts(field: str, value: object) -> None:
    fields: dict[str, Any] = {**attrs.asdict(FIRST), field: value}
    with pytest.raises((TypeError, ValueError), match=rf"^AttemptCursor\.{field} is "):
        AttemptCursor(**fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cursor", None),
        ("provider_id", "a"),
        ("canonical_model_id", "m/large"),
        ("provider_invocation_model", ""),
        ("duration", float("inf")),
        ("duration", -0.5),
    ],
)
def test_a_target_is_an_endpoint_and_a_time(field: str, value: object) -> None:
    fields: dict[str, Any] = {**attrs.asdict(target(), recurse=False), field: value}
    with pytest.raises((TypeError, ValueError), match=rf"^AttemptTarget\.{field} is "):
        AttemptTarget(**fields)


def test_a_target_is_made_of_a_candidate() -> None:
    made = AttemptTarget.of(endpoint("b"), cursor=FIRST, duration=0)
    assert made == AttemptTarget(
        cursor=FIRST,
        provider_id=endpoint("b").provider_id,
        canonical_model_id=endpoint("b").canonical_model_id,
        provider_invocation_model="m/large@b",
        duration=0,
    )
