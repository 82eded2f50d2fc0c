"""What a plan asks of a transport: can you be had, and what would you serve this model with?

Both questions are answered at once and without I/O: a plan is made before every completion. What
a host must find out by asking somebody, it finds out before it plans.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import attrs

from harness.routing import _checks as checks
from harness.routing._candidate import RouteCandidate, capability_set, shown_set
from harness.routing._ids import CanonicalModelId, ProviderId

__all__ = [
    "Availability",
    "Available",
    "Declined",
    "PlannerTransport",
    "Requirements",
    "Resolution",
    "Unavailable",
    "Unserved",
]


@attrs.frozen(kw_only=True)
class Requirements:
    """What a completion needs of its endpoint.

    Raises:
        TypeError, ValueError: a field is not what it should be; the error names it.
    """

    capabilities: frozenset[str] = attrs.field(
        default=frozenset(), converter=capability_set, repr=shown_set
    )
    """All of these."""
    max_completion_tokens: int | None = attrs.field(default=None, validator=checks.optional_tokens)
    """Room for so many tokens; None asks for none in particular."""


@attrs.frozen
class Available:
    """The transport can be asked."""


@attrs.frozen
class Unavailable:
    """The transport cannot be asked now, and is passed over."""

    reason: str = attrs.field(converter=checks.plain, validator=checks.text)


@attrs.frozen
class Declined:
    """The transport knows the model and will not serve it."""

    reason: str = attrs.field(converter=checks.plain, validator=checks.text)


@attrs.frozen
class Unserved:
    """The transport does not know the model."""


Availability: TypeAlias = "Available | Unavailable"
Resolution: TypeAlias = "RouteCandidate | Declined | Unserved"


class PlannerTransport(Protocol):
    """One provider, as a plan sees it. Synchronous, no I/O; what it raises leaves the planner."""

    @property
    def id(self) -> ProviderId:
        """The provider's id."""
        ...

    def get_availability(self) -> Availability:
        """Say whether it can be asked. If not, nothing else is asked of it."""
        ...

    def resolve_candidate(
        self, canonical_model_id: CanonicalModelId, requirements: Requirements
    ) -> Resolution:
        """Say what it would serve the model with. What does not meet *requirements* is left out
        by the planner; they are given so that a transport with several bindings can choose one.
        """
        ...
