"""What a try at an endpoint ends with, and what the execution of a plan ends with."""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias, TypeVar

import attrs

from harness._bounds import check_count, check_seconds
from harness._errors import ErrorCategory, RouteFailure
from harness.routing import _checks as checks
from harness.routing._candidate import RouteCandidate
from harness.routing._failures import AttemptCursor, AttemptError
from harness.routing._ids import ProviderId

__all__ = [
    "AttemptFailure",
    "AttemptRecord",
    "AttemptSuccess",
    "Fallback",
    "Hedge",
    "RouteFailed",
    "RouteServed",
    "TryOutcome",
]

T_co = TypeVar("T_co", covariant=True)

Fallback: TypeAlias = Literal["provider", "model"]
"""What stood in: another endpoint for the model that was asked for, or another model."""
TryOutcome: TypeAlias = Literal["served", "failed", "superseded", "cancelled", "refused"]
"""``superseded``: given up, as another try answered first; ``cancelled``: given up, as the whole
execution was ended, by another try or from outside;
``refused``: the endpoint's circuit let no call through, so none was made."""


@attrs.frozen(kw_only=True)
class Hedge:
    """When a further endpoint is tried beside one that is at work and silent.

    Raises:
        TypeError, ValueError: a field is out of its bounds; the error names it.
    """

    after: float = attrs.field()
    """Seconds without an answer since the latest try began."""
    most: int = attrs.field(default=2)
    """So many tries are at work at once, the first one included."""

    def __attrs_post_init__(self) -> None:
        check_seconds("after", self.after)
        check_count("most", self.most, least=2)


@attrs.frozen
class AttemptSuccess(Generic[T_co]):
    """A try has served."""

    value: T_co


@attrs.frozen
class AttemptFailure:
    """A try has failed."""

    error: AttemptError = attrs.field(validator=checks.instance_of(AttemptError))
    produced_output: bool = attrs.field(default=False, validator=checks.instance_of(bool))
    """Whether something left that cannot be taken back: then nothing further is tried."""


@attrs.frozen(kw_only=True)
class AttemptRecord:
    """One line of the trace: a try that ended, or an endpoint that was passed over."""

    cursor: AttemptCursor
    """Of an endpoint that was passed over: the one that the try would have had."""
    provider_id: ProviderId
    outcome: TryOutcome
    category: ErrorCategory | None
    """What a failed try failed with."""
    duration: float
    """Seconds; 0 if there was no try."""


@attrs.frozen(kw_only=True)
class RouteServed(Generic[T_co]):
    """An endpoint of the plan has served."""

    value: T_co
    candidate: RouteCandidate
    fallback: Fallback | None
    """None if it was the first endpoint of the plan's first model, retries included."""
    trace: tuple[AttemptRecord, ...]
    """In the order in which the tries ended."""


@attrs.frozen(kw_only=True)
class RouteFailed:
    """No endpoint of the plan has served."""

    reason: RouteFailure
    error: AttemptError | None
    """What the last try failed with; None if there was none."""
    retry_after: float | None
    """With ``circuits_open``: seconds until the first of the cooldowns ends. None if not even
    that is known, since all that was refused waits for probes of others."""
    trace: tuple[AttemptRecord, ...]
    """In the order in which the tries ended."""
