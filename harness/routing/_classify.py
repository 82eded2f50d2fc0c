"""From an exception to the failure of an attempt.

The questions are asked in a fixed order, and the first that is answered counts.

1. *Is it a failure at all?* A cancellation, an interrupt and an exit are no ``Exception``. They
   belong to whoever asked for them, so they are raised again as the same object; so is a group
   that holds one, whatever else is in it, since to judge the rest would be to swallow it. That
   needs no knowledge of trio: its cancellation is no ``Exception`` on purpose.
2. *Did somebody give the attempt up?* An abort is looked for before any port is asked. A host's
   transport may raise the same class for "cancelled by us" as for "reset by the peer", and an
   abort that counts as a failure closes a healthy endpoint for everybody.
3. *Does the host know it?* Its port comes before our own errors, so that it can say better.
4. *Is it ours?* A `ProviderError` says by itself what it is.

What is left is a bug, of ours or of the host's. It is ``internal`` and goes no further: to ask
every provider in turn would only repeat it. Rejected: counting an unknown exception as a network
failure. It hides the bug behind a fallback and opens the circuits of endpoints that are well.

A group with one error in it is that error, since nurseries wrap what they raise. One with several
is asked about as a whole: which of them counts cannot be known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import attrs

from harness._errors import (
    AttemptSuperseded,
    ErrorCategory,
    ErrorKind,
    ProviderError,
    leaf_errors,
    shown,
)
from harness.routing import _checks as checks
from harness.routing._failures import DISPOSITIONS, AttemptError, AttemptTarget
from harness.routing._ids import ProviderId
from harness.routing._status import category_of_status

__all__ = [
    "ClassificationPorts",
    "StatusCategorizer",
    "TransportFailure",
    "classify_attempt_error",
]

_KINDS: Final = tuple(dict.fromkeys(row.kind for row in DISPOSITIONS))
_OF_HTTP: Final = tuple(row.category for row in DISPOSITIONS if row.kind == "http")
_OF_OTHERS: Final = {row.kind: row.category for row in DISPOSITIONS if row.kind != "http"}
"""A failure of another kind than ``http`` has one category."""


@attrs.frozen(kw_only=True)
class TransportFailure:
    """What a host says about an exception of its own transport.

    Raises:
        TypeError, ValueError: a field is not what it should be, or the kind is ``http`` and the
            status is missing.
    """

    kind: ErrorKind = attrs.field()
    status_code: int | None = attrs.field(default=None, validator=checks.optional_count)
    """The status of the reply, if there was one."""
    retry_after: float | None = attrs.field(default=None, validator=checks.optional_seconds)
    """Seconds that the provider asked to be left alone for."""

    @kind.validator
    def _check_kind(self, _: object, value: object) -> None:
        if value not in _KINDS:
            raise ValueError(f"TransportFailure.kind is {value!r}, expected one of {list(_KINDS)}")

    @status_code.validator
    def _check_status(self, _: object, value: object) -> None:
        if value is None and self.kind == "http":
            raise ValueError("TransportFailure.status_code is None, expected that of the reply")


StatusCategorizer: TypeAlias = Callable[[int, ProviderId], "ErrorCategory | None"]


def _recognises_nothing(_: Exception) -> TransportFailure | None:
    return None


def _keeps_the_table(_: int, __: ProviderId) -> ErrorCategory | None:
    return None


def _as_types(types: Iterable[type[Exception]]) -> tuple[type[Exception], ...]:
    return tuple(types)


@attrs.frozen(kw_only=True)
class ClassificationPorts:
    """What a host knows about its transports. Synchronous; what a port raises is raised.

    Raises:
        TypeError: an abort type is no class of exceptions.
    """

    as_transport_failure: Callable[[Exception], TransportFailure | None] = _recognises_nothing
    """Say what an exception of the host's transport is, or None to any other."""
    categorize_status: StatusCategorizer = _keeps_the_table
    """Say what a status means at one provider, or None to keep what it means anywhere."""
    abort_types: tuple[type[Exception], ...] = attrs.field(default=(), converter=_as_types)
    """The exceptions by which the host's transport says that it was told to give up."""

    @abort_types.validator
    def _check_types(self, _: object, value: tuple[object, ...]) -> None:
        for each in value:
            if not (isinstance(each, type) and issubclass(each, Exception)):
                raise TypeError(f"an abort type is {each!r}, expected a class of exceptions")


def classify_attempt_error(
    error: BaseException,
    target: AttemptTarget,
    ports: ClassificationPorts = ClassificationPorts(),
) -> AttemptError:
    """Return what *error* is as the failure of an attempt; its cause is what was judged.

    Raises:
        BaseException: *error* itself, if it is or holds a cancellation, an interrupt or an exit.
        TypeError, ValueError: a port answered what it may not.
    """
    leaves = tuple(leaf_errors(error))
    judged = leaves[0] if len(leaves) == 1 else error
    if not isinstance(judged, Exception):  # nor is a group that holds what is none
        raise error
    if all(_is_abort(each, ports) for each in leaves):
        return AttemptError(kind="abort", category="aborted", target=target, cause=judged)
    found = _recognised(judged, ports)
    if found is None:
        return AttemptError(kind="internal", category="client_error", target=target, cause=judged)
    return AttemptError(
        kind=found.kind,
        category=_category(found, target.provider_id, ports),
        status_code=found.status_code,
        retry_after=found.retry_after,
        target=target,
        cause=judged,
    )


def _is_abort(error: BaseException, ports: ClassificationPorts) -> bool:
    if isinstance(error, (AttemptSuperseded, *ports.abort_types)):
        return True
    return isinstance(error, ProviderError) and error.kind == "abort"


def _recognised(
    error: Exception, ports: ClassificationPorts
) -> TransportFailure | ProviderError | None:
    found: object = ports.as_transport_failure(error)
    if found is None:
        return error if isinstance(error, ProviderError) else None
    if not isinstance(found, TransportFailure):
        raise TypeError(
            f"as_transport_failure returned {shown(found)}, expected a TransportFailure or None"
        )
    return found


def _category(
    found: TransportFailure | ProviderError, provider_id: ProviderId, ports: ClassificationPorts
) -> ErrorCategory:
    if found.kind != "http":
        return _OF_OTHERS[found.kind]
    if found.status_code is None:  # of ours only, and it has a category of its own
        assert isinstance(found, ProviderError)
        return found.category
    category = ports.categorize_status(found.status_code, provider_id)
    if category is None:
        return category_of_status(found.status_code)
    if category not in _OF_HTTP:
        raise ValueError(
            f"categorize_status returned {category!r} for {found.status_code} of "
            f"{provider_id!r}, expected None or one of {list(_OF_HTTP)}"
        )
    return category
