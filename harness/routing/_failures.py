"""What follows from a failed attempt: one table.

A route has three ways on from a failure, in this order: ask the same endpoint once more, ask the
next provider (and then the next model), or give up. Besides, the endpoint's circuit hears of it
or does not. Which of these follows depends on what failed and on nothing else, so it is a pure
function of the error, and no transport can have it otherwise.

Three lines of thought give the rows. What the *endpoint* did (it was down, slow, at its limit)
counts against it and another may do better. What the *key* may not do will not change by asking
again, so the circuit opens at once. What the *request* or we ourselves did wrong goes with us to
every other endpoint, so asking there only repeats it. A defect is in none of them: the endpoint
answered, and the next answer may be good. It never counts against the endpoint, since one odd
prompt makes many of them and would close it for all who share the key.

Rejected: letting the error itself carry what follows. Two transports would then answer the same
status in two ways, and nobody could read off what a route does.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from harness._errors import ErrorCategory, ErrorKind
from harness._json import JSON
from harness.routing import _checks as checks
from harness.routing._candidate import RouteCandidate
from harness.routing._ids import CanonicalModelId, ProviderId

__all__ = [
    "DISPOSITIONS",
    "AttemptCursor",
    "AttemptError",
    "AttemptTarget",
    "BreakerEffect",
    "Disposition",
    "failure_disposition",
]

BreakerEffect: TypeAlias = Literal["count", "open", "none"]
"""Count a failure of the endpoint, open its circuit at once, or say nothing about its health."""


@attrs.frozen(kw_only=True)
class Disposition:
    """One row: what follows from a failure of this kind and category."""

    kind: ErrorKind
    category: ErrorCategory
    retry_same: bool
    """Ask the same endpoint again, as often as the route allows."""
    traverse: bool
    """Then go on: to the next provider, and after the last one to the next model."""
    breaker: BreakerEffect
    why: str


DISPOSITIONS: Final = (
    Disposition(
        kind="http",
        category="server_error",
        retry_same=False,
        traverse=True,
        breaker="count",
        why="the server failed; another may not",
    ),
    Disposition(
        kind="http",
        category="rate_limited",
        retry_same=False,
        traverse=True,
        breaker="count",
        why="too many requests here; a time to wait lengthens the cooldown",
    ),
    Disposition(
        kind="http",
        category="credential",
        retry_same=False,
        traverse=True,
        breaker="open",
        why="the key does not work here, and will not if it is asked again",
    ),
    Disposition(
        kind="http",
        category="provider_bad_request",
        retry_same=False,
        traverse=True,
        breaker="none",
        why="this provider cannot take the request; it is well",
    ),
    Disposition(
        kind="http",
        category="client_error",
        retry_same=False,
        traverse=False,
        breaker="none",
        why="the request is wrong at every provider",
    ),
    Disposition(
        kind="network",
        category="unreachable",
        retry_same=False,
        traverse=True,
        breaker="count",
        why="the connection failed; another may not",
    ),
    Disposition(
        kind="stall",
        category="stalled",
        retry_same=False,
        traverse=True,
        breaker="count",
        why="the answer did not come in time",
    ),
    Disposition(
        kind="defect",
        category="defect",
        retry_same=True,
        traverse=True,
        breaker="none",
        why="the endpoint answered, and the next answer may be good",
    ),
    Disposition(
        kind="abort",
        category="aborted",
        retry_same=False,
        traverse=False,
        breaker="none",
        why="somebody gave the attempt up; it did not fail",
    ),
    Disposition(
        kind="internal",
        category="client_error",
        retry_same=False,
        traverse=False,
        breaker="none",
        why="a bug of ours or of the host's; it would only be repeated",
    ),
)
"""What follows from every failure that there is; a pair of kind and category has one row."""

_ROWS: Final = {(row.kind, row.category): row for row in DISPOSITIONS}


@attrs.frozen(kw_only=True)
class AttemptCursor:
    """Which attempt of an execution it is; all counts are from 0."""

    stage: int = attrs.field(validator=checks.count)
    """Place of the model in the plan."""
    candidate: int = attrs.field(validator=checks.count)
    """Place of the endpoint in its stage."""
    retry: int = attrs.field(validator=checks.count)
    """How often this endpoint was tried before."""
    ordinal: int = attrs.field(validator=checks.count)
    """How many attempts came before it, of the whole execution."""

    def to_json(self) -> dict[str, JSON]:
        """Return the cursor as JSON."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class AttemptTarget:
    """Which endpoint an attempt asked, and for how long."""

    cursor: AttemptCursor = attrs.field(validator=checks.instance_of(AttemptCursor))
    provider_id: ProviderId = attrs.field(validator=checks.instance_of(ProviderId))
    canonical_model_id: CanonicalModelId = attrs.field(
        validator=checks.instance_of(CanonicalModelId)
    )
    provider_invocation_model: str = attrs.field(converter=checks.plain, validator=checks.text)
    duration: float = attrs.field(validator=checks.seconds)
    """Seconds from its start to its failure."""

    @classmethod
    def of(
        cls, candidate: RouteCandidate, *, cursor: AttemptCursor, duration: float
    ) -> AttemptTarget:
        """Return the target of an attempt that asked *candidate*."""
        return cls(
            cursor=cursor,
            provider_id=candidate.provider_id,
            canonical_model_id=candidate.canonical_model_id,
            provider_invocation_model=candidate.provider_invocation_model,
            duration=duration,
        )

    def to_json(self) -> dict[str, JSON]:
        """Return the target as JSON."""
        return {
            "cursor": self.cursor.to_json(),
            "provider_id": str(self.provider_id),
            "canonical_model_id": str(self.canonical_model_id),
            "provider_invocation_model": self.provider_invocation_model,
            "duration": self.duration,
        }


def _shown_type(cause: BaseException | None) -> str:
    return repr(cause) if cause is None else type(cause).__name__


@attrs.frozen(kw_only=True)
class AttemptError:
    """Why an attempt failed, in terms that a route decides on: a value, raised by nobody.

    What the cause says is neither in the repr nor in the JSON, since it may quote a key.

    Raises:
        TypeError, ValueError: a field is not what it should be, or there is no row in
            `DISPOSITIONS` for the kind and the category.
    """

    kind: ErrorKind
    category: ErrorCategory = attrs.field()
    status_code: int | None = attrs.field(default=None, validator=checks.optional_count)
    """The status of the reply, if there was one."""
    retry_after: float | None = attrs.field(default=None, validator=checks.optional_seconds)
    """Seconds that the provider asked to be left alone for; not clamped."""
    target: AttemptTarget = attrs.field(validator=checks.instance_of(AttemptTarget))
    cause: BaseException | None = attrs.field(default=None, eq=False, repr=_shown_type)
    """What was raised; not a part of what makes two failures equal."""

    @category.validator
    def _check_pair(self, _: object, value: object) -> None:
        if (self.kind, value) not in _ROWS:
            raise ValueError(
                f"the failure is of kind {self.kind!r} and category {value!r}, "
                f"expected one of {list(_ROWS)}"
            )

    @cause.validator
    def _check_cause(self, _: object, value: object) -> None:
        if value is not None and not isinstance(value, BaseException):
            raise TypeError(f"AttemptError.cause is {value!r}, expected an exception or None")

    def __str__(self) -> str:
        status = "" if self.status_code is None else f" {self.status_code}"
        return (
            f"{self.target.canonical_model_id} at {self.target.provider_id}: "
            f"{self.kind} {self.category}{status} after {self.target.duration:g} s"
        )

    def to_json(self) -> dict[str, JSON]:
        """Return the error as JSON, without its cause."""
        return {
            "kind": self.kind,
            "category": self.category,
            "status_code": self.status_code,
            "retry_after": self.retry_after,
            "target": self.target.to_json(),
        }


def failure_disposition(error: AttemptError) -> Disposition:
    """Return what follows from *error*.

    Raises:
        TypeError: it is no `AttemptError`.
    """
    if not isinstance(error, AttemptError):
        raise TypeError(f"the failure is {error!r}, expected an AttemptError")
    return _ROWS[error.kind, error.category]
