"""From an exception to the failure of an attempt: who is asked, in which order, and what counts."""

import itertools
from collections.abc import Callable
from typing import Any, cast, get_args

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from harness._errors import (
    AttemptSuperseded,
    CompletionDefectError,
    ErrorCategory,
    ErrorKind,
    HarnessError,
    ProviderError,
    RouteError,
    RunTimeoutError,
    StreamStalled,
    StructuredOutputError,
)
from harness._shield import only_cancelled
from harness.routing import (
    DISPOSITIONS,
    AttemptError,
    ClassificationPorts,
    ProviderId,
    TransportFailure,
    category_of_status,
    classify_attempt_error,
    failure_disposition,
)
from tests.routing.endpoints import target


class ResetError(Exception):
    """The host's transport lost its connection, or gave up because it was told to."""


class GaveUpError(ResetError):
    """The latter."""


def facts(error: AttemptError) -> tuple[ErrorKind, ErrorCategory, int | None, float | None]:
    return error.kind, error.category, error.status_code, error.retry_after


def ports(
    failure: TransportFailure | None = None,
    *,
    status: Callable[[int, ProviderId], ErrorCategory | None] = lambda _, __: None,
    aborts: tuple[type[Exception], ...] = (),
) -> ClassificationPorts:
    """A host that knows its own `ResetError`."""
    return ClassificationPorts(
        as_transport_failure=lambda error: failure if isinstance(error, ResetError) else None,
        categorize_status=status,
        abort_types=aborts,
    )


BUSY = TransportFailure(kind="http", status_code=503, retry_after=7)


# -- the host's own exceptions -----------------------------------------------------------------


@pytest.mark.rule("R-CLASS-01", "R-CLASS-02")
def test_a_host_says_what_its_exception_is() -> None:
    error = ResetError("key")
    seen = classify_attempt_error(error, target("b"), ports(BUSY))
    assert facts(seen) == ("http", "server_error", 503, 7)
    assert seen.cause is error
    assert seen.target == target("b")


@pytest.mark.rule("R-CLASS-02")
@pytest.mark.parametrize("kind", get_args(ErrorKind))
def test_a_host_may_name_any_kind_and_the_category_follows(kind: ErrorKind) -> None:
    failure = TransportFailure(kind=kind, status_code=429 if kind == "http" else None)
    seen = classify_attempt_error(ResetError(), target(), ports(failure))
    expected = {
        "http": "rate_limited",
        "network": "unreachable",
        "stall": "stalled",
        "defect": "defect",
        "abort": "aborted",
        "internal": "client_error",
    }
    assert (seen.kind, seen.category) == (kind, expected[kind])


@pytest.mark.rule("R-CLASS-02")
def test_a_host_goes_before_what_our_own_error_says() -> None:
    class OddError(ResetError, ProviderError):
        pass

    error = OddError("no", kind="network", category="unreachable", phase="connect")
    assert facts(classify_attempt_error(error, target(), ports()))[0] == "network"
    assert facts(classify_attempt_error(error, target(), ports(BUSY)))[0] == "http"


@pytest.mark.rule("R-CLASS-05", "R-CLASS-02")
@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError(),
        ConnectionResetError(),
        TimeoutError(),
        HarnessError(),
        RunTimeoutError("the run"),
        ExceptionGroup("", [ValueError(), ResetError()]),
    ],
)
def test_what_nobody_recognises_is_a_bug_and_goes_no_further(error: Exception) -> None:
    seen = classify_attempt_error(error, target(), ports(BUSY))
    assert facts(seen) == ("internal", "client_error", None, None)
    assert seen.cause is error
    row = failure_disposition(seen)
    assert (row.retry_same, row.traverse, row.breaker) == (False, False, "none")


# -- what a status means -----------------------------------------------------------------------


def one_gateway(status: int, provider: ProviderId) -> ErrorCategory | None:
    return "provider_bad_request" if (status, provider) == (403, "gateway") else None


@pytest.mark.rule("R-CLASS-03")
def test_a_host_may_say_what_a_status_means_at_one_provider() -> None:
    denied = TransportFailure(kind="http", status_code=403)
    here = classify_attempt_error(
        ResetError(), target("gateway"), ports(denied, status=one_gateway)
    )
    elsewhere = classify_attempt_error(ResetError(), target("b"), ports(denied, status=one_gateway))
    assert (here.category, failure_disposition(here).breaker) == ("provider_bad_request", "none")
    assert (elsewhere.category, failure_disposition(elsewhere).breaker) == ("credential", "open")


@pytest.mark.rule("R-CLASS-03")
@pytest.mark.parametrize("status", [*range(99, 610), 0, 1000])
def test_otherwise_a_status_means_what_the_table_says(status: int) -> None:
    failure = TransportFailure(kind="http", status_code=status)
    ours = ProviderError(
        "no", kind="http", category="client_error", phase="headers", status_code=status
    )
    for error in (ResetError(), ours):
        seen = classify_attempt_error(error, target(), ports(failure))
        assert seen.category == category_of_status(status)


@pytest.mark.rule("R-CLASS-07")
@pytest.mark.parametrize("kind", get_args(ErrorKind))
def test_only_a_reply_with_a_status_is_asked_about(kind: ErrorKind) -> None:
    asked: list[tuple[int, ProviderId]] = []

    def status(number: int, provider: ProviderId) -> None:
        asked.append((number, provider))

    failure = TransportFailure(kind=kind, status_code=503)
    classify_attempt_error(ResetError(), target(), ports(failure, status=status))
    assert asked == ([(503, "a")] if kind == "http" else [])


@pytest.mark.rule("R-CLASS-07")
@pytest.mark.parametrize("answer", ["weird", "unreachable", "", 5])
def test_a_category_that_no_status_has_is_refused(answer: ErrorCategory) -> None:
    with pytest.raises(ValueError, match=r"^categorize_status returned .* for 503 of 'a', ") as it:
        classify_attempt_error(ResetError(), target(), ports(BUSY, status=lambda _, __: answer))
    assert repr(answer) in str(it.value)


@pytest.mark.rule("R-CLASS-07")
def test_what_a_port_raises_is_raised() -> None:
    broken = KeyError("no such gateway")

    def raising(*_: object) -> None:
        raise broken

    deaf = ClassificationPorts(as_transport_failure=raising)
    for each in (deaf, ports(BUSY, status=raising)):
        with pytest.raises(KeyError) as caught:
            classify_attempt_error(ResetError(), target(), each)
        assert caught.value is broken


def test_a_port_that_answers_something_else_is_refused() -> None:
    odd = ClassificationPorts(as_transport_failure=cast(Any, lambda _: "network"))
    with pytest.raises(TypeError, match=r"^as_transport_failure returned 'network', expected "):
        classify_attempt_error(ResetError(), target(), odd)


# -- our own errors ----------------------------------------------------------------------------


@pytest.mark.rule("R-CLASS-05")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            ProviderError(
                "no",
                kind="http",
                category="rate_limited",
                phase="headers",
                status_code=429,
                retry_after=3.0,
            ),
            ("http", "rate_limited", 429, 3.0),
        ),
        (
            ProviderError("no", kind="network", category="unreachable", phase="connect"),
            ("network", "unreachable", None, None),
        ),
        (
            ProviderError("no", kind="http", category="credential", phase="headers"),
            ("http", "credential", None, None),
        ),
        (
            StreamStalled("gap", seconds=30, elapsed=31, reasoning_seen=False, answer_seen=True),
            ("stall", "stalled", None, None),
        ),
        (CompletionDefectError("empty", "nothing"), ("defect", "defect", None, None)),
        (StructuredOutputError("{", "no JSON"), ("defect", "defect", None, None)),
        (RouteError("empty_plan", "nobody"), ("network", "unreachable", None, None)),
        (AttemptSuperseded(0, by=1), ("abort", "aborted", None, None)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_our_own_errors_need_no_port(error: HarnessError, expected: tuple[object, ...]) -> None:
    assert facts(classify_attempt_error(error, target())) == expected
    assert facts(classify_attempt_error(error, target(), ports(BUSY))) == expected


# -- aborts ------------------------------------------------------------------------------------


@pytest.mark.rule("R-CLASS-04", "R-CLASS-06")
@pytest.mark.parametrize(
    "error",
    [
        GaveUpError(),
        AttemptSuperseded(0, by=1),
        ProviderError("no", kind="abort", category="aborted", phase="stream"),
        ExceptionGroup("", [GaveUpError()]),
        ExceptionGroup(
            "", [GaveUpError(), ExceptionGroup("", [AttemptSuperseded(0, by=1), GaveUpError()])]
        ),
    ],
)
def test_an_abort_is_seen_before_any_port_can_claim_it(error: Exception) -> None:
    def claims(_: Exception) -> TransportFailure:
        return BUSY

    eager = ClassificationPorts(as_transport_failure=claims, abort_types=(GaveUpError,))
    seen = classify_attempt_error(error, target(), eager)
    assert facts(seen) == ("abort", "aborted", None, None)


@pytest.mark.rule("R-CLASS-06")
def test_without_its_type_listed_an_abort_of_the_host_is_what_its_port_says() -> None:
    assert classify_attempt_error(GaveUpError(), target(), ports(BUSY)).kind == "http"
    assert (
        classify_attempt_error(GaveUpError(), target(), ports(BUSY, aborts=(GaveUpError,))).kind
        == "abort"
    )


@pytest.mark.rule("R-CLASS-06")
def test_a_group_is_an_abort_only_if_all_of_it_is() -> None:
    mixed = ExceptionGroup("", [GaveUpError(), ValueError()])
    seen = classify_attempt_error(mixed, target(), ports(BUSY, aborts=(GaveUpError,)))
    assert (seen.kind, seen.cause) == ("internal", mixed)


@pytest.mark.rule("R-CLASS-06")
@pytest.mark.parametrize(
    "abort", [BaseException, KeyboardInterrupt, trio.Cancelled, 5, GaveUpError()]
)
def test_what_is_no_class_of_exceptions_is_no_abort_type(abort: object) -> None:
    with pytest.raises(TypeError, match=r"^an abort type is .*, expected a class of exceptions$"):
        ClassificationPorts(abort_types=cast(Any, (abort,)))


# -- what is no failure at all -----------------------------------------------------------------


@pytest.mark.rule("R-CLASS-06")
async def test_a_cancellation_comes_out_as_it_went_in() -> None:
    seen: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except BaseException as error:  # noqa: ASYNC103, BLE001  # it is raised again, by what is tested
            seen.append(error)
            classify_attempt_error(error, target(), ports(BUSY, aborts=(Exception,)))
    assert scope.cancelled_caught
    assert only_cancelled(seen[0])
    for group in (
        BaseExceptionGroup("", seen),
        BaseExceptionGroup("", [BaseExceptionGroup("", seen), *seen]),
        BaseExceptionGroup("", [*seen, GaveUpError()]),
    ):
        with pytest.raises(BaseExceptionGroup) as caught:  # noqa: ASYNC401  # the very object
            classify_attempt_error(group, target(), ports(BUSY, aborts=(Exception,)))
        assert caught.value is group


@pytest.mark.rule("R-CLASS-06")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_comes_out_as_it_went_in(kind: type[BaseException]) -> None:
    alone = kind()
    for error in (
        alone,
        BaseExceptionGroup("", [alone]),
        BaseExceptionGroup("", [alone, ResetError()]),
    ):
        with pytest.raises(BaseException) as caught:  # noqa: PT011  # the object is compared
            classify_attempt_error(error, target(), ports(BUSY, aborts=(Exception,)))
        assert caught.value is error


leaves = st.sampled_from([ResetError, GaveUpError, ValueError, KeyboardInterrupt]).map(
    lambda kind: kind()
)


@given(st.recursive(leaves, lambda inner: st.lists(inner, min_size=1, max_size=3).map(
    lambda errors: BaseExceptionGroup("", errors)), max_leaves=6))  # fmt: skip
def test_a_group_counts_as_what_is_in_it(error: BaseException) -> None:
    def flat(each: BaseException) -> list[BaseException]:
        if not isinstance(each, BaseExceptionGroup):
            return [each]
        return list(itertools.chain.from_iterable(map(flat, each.exceptions)))

    kinds = {type(each) for each in flat(error)}
    if KeyboardInterrupt in kinds:
        with pytest.raises(type(error)) as caught:
            classify_attempt_error(error, target(), ports(BUSY, aborts=(GaveUpError,)))
        assert caught.value is error
        return
    seen = classify_attempt_error(error, target(), ports(BUSY, aborts=(GaveUpError,)))
    alone = len(flat(error)) == 1
    expected = (
        "abort" if kinds == {GaveUpError} else "http" if alone and kinds == {ResetError} else None
    )
    assert seen.kind == (expected or "internal")
    assert seen.cause is (flat(error)[0] if alone else error)


# -- what a host may say -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "weird"},
        {"kind": "http"},
        {"kind": "http", "status_code": True},
        {"kind": "http", "status_code": -5},
        {"kind": "network", "retry_after": float("nan")},
        {"kind": "network", "retry_after": float("inf")},
        {"kind": "network", "retry_after": -1},
        {"kind": "network", "retry_after": True},
    ],
)
def test_a_transport_failure_is_checked_where_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^TransportFailure\.\w+ is "):
        TransportFailure(**fields)


def test_every_category_can_be_reached() -> None:
    reached: set[tuple[ErrorKind, ErrorCategory]] = set()
    for kind in get_args(ErrorKind):
        for status in (400, 401, 404, 429, 500):
            failure = TransportFailure(kind=kind, status_code=status)
            seen = classify_attempt_error(ResetError(), target(), ports(failure))
            reached.add((seen.kind, seen.category))
    assert reached == {(row.kind, row.category) for row in DISPOSITIONS}
