"""A route, decided before anything is called.

A plan is a value: for the model that was asked for, and then for its fallback, the endpoints that
may be tried, in order. All that can be known beforehand is decided here, once, and each provider
that was left out is a skip with its reason, so that "why was it not tried" has an answer that can
be read. What remains for the run is to walk the plan.

The order is the policy's alone. Rejected: letting price, availability or registration reorder
it. A host that reads its policy then no longer knows what happens, and the clever order is one
that nobody decided. Rejected too: leaving an empty stage out, since the number of a stage says
whether the model that was asked for or its fallback has served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

import attrs

from harness._errors import PlanError, shown
from harness._json import JSON
from harness.routing import _checks as checks
from harness.routing._candidate import RouteCandidate
from harness.routing._ids import CanonicalModelId, ProviderId
from harness.routing._policy import Only, Ordered, Policy
from harness.routing._transports import (
    Available,
    Declined,
    PlannerTransport,
    Requirements,
    Unavailable,
    Unserved,
)

__all__ = [
    "PlannedRoute",
    "RoutePlan",
    "RouteSkip",
    "RouteStage",
    "SkipCode",
    "build_route_plan",
]

SkipCode: TypeAlias = Literal[
    "unregistered_provider",
    "unavailable",
    "declined",
    "missing_capability",
    "max_completion_tokens",
    "fenced",
]
"""Why a provider was left out: the first of these that holds."""


def _as_candidates(values: Iterable[RouteCandidate]) -> tuple[RouteCandidate, ...]:
    return tuple(values)


def _as_stages(values: Iterable[RouteStage]) -> tuple[RouteStage, ...]:
    return tuple(values)


@attrs.frozen(kw_only=True)
class RouteStage:
    """One model of a plan and the endpoints that may serve it, in order.

    Raises:
        TypeError, ValueError: a candidate is none, or is of another model.
    """

    canonical_model_id: CanonicalModelId = attrs.field(
        validator=checks.instance_of(CanonicalModelId)
    )
    candidates: tuple[RouteCandidate, ...] = attrs.field(converter=_as_candidates)

    @candidates.validator
    def _check_candidates(self, _: object, value: tuple[object, ...]) -> None:
        for each in value:
            if not isinstance(each, RouteCandidate):
                raise TypeError(f"a candidate is {each!r}, expected a RouteCandidate")
            if each.canonical_model_id != self.canonical_model_id:
                raise ValueError(
                    f"a candidate is for {each.canonical_model_id!r}, "
                    f"expected one for {self.canonical_model_id!r}"
                )

    def __str__(self) -> str:
        providers = ", ".join(each.provider_id for each in self.candidates)
        return f"{self.canonical_model_id} at {providers or 'no provider'}"

    def to_json(self) -> dict[str, JSON]:
        """Return the stage as JSON, the same in every process."""
        return {
            "canonical_model_id": str(self.canonical_model_id),
            "candidates": [each.to_json() for each in self.candidates],
        }


@attrs.frozen(kw_only=True)
class RoutePlan:
    """The stages of a route: the model that was asked for, then what may stand in for it.

    Frozen through and through, and free of secrets: it may be logged and stored.

    Raises:
        TypeError: a stage is none.
    """

    stages: tuple[RouteStage, ...] = attrs.field(converter=_as_stages)

    @stages.validator
    def _check_stages(self, _: object, value: tuple[object, ...]) -> None:
        for each in value:
            if not isinstance(each, RouteStage):
                raise TypeError(f"a stage is {each!r}, expected a RouteStage")

    def __str__(self) -> str:
        return ", else ".join(map(str, self.stages)) or "no model"

    def to_json(self) -> dict[str, JSON]:
        """Return the plan as JSON, the same in every process."""
        return {"stages": [each.to_json() for each in self.stages]}


@attrs.frozen(kw_only=True)
class RouteSkip:
    """A provider that was left out of a stage, and why."""

    stage: int
    provider_id: ProviderId
    code: SkipCode
    reason: str
    """For a person."""

    def __str__(self) -> str:
        return f"{self.provider_id} left out of stage {self.stage}: {self.reason} ({self.code})"

    def to_json(self) -> dict[str, JSON]:
        """Return the skip as JSON."""
        return {
            "stage": self.stage,
            "provider_id": str(self.provider_id),
            "code": self.code,
            "reason": self.reason,
        }


@attrs.frozen(kw_only=True)
class PlannedRoute:
    """A plan, and what was left out of it."""

    plan: RoutePlan
    skips: tuple[RouteSkip, ...]
    """By stage, then in the order of its policy."""

    def to_json(self) -> dict[str, JSON]:
        """Return both as JSON, the same in every process."""
        return {
            "plan": self.plan.to_json(),
            "skips": [each.to_json() for each in self.skips],
        }


def build_route_plan(
    primary_model: CanonicalModelId,
    *,
    transports: Iterable[PlannerTransport],
    policy_for: Callable[[CanonicalModelId], Policy],
    fallback_model: CanonicalModelId | None = None,
    requirements: Requirements = Requirements(),  # noqa: B008  # frozen
) -> PlannedRoute:
    """Return the plan for a model, and what was left out of it.

    *policy_for* is asked once for each model. A fallback that is the model itself is none. What a
    transport or a policy raises is raised.

    Raises:
        TypeError: an argument is of another type, a raw text for example.
        PlanError: a transport or a policy answered what it may not, or two transports have one id.
    """
    _check("primary_model", primary_model, CanonicalModelId)
    _check("requirements", requirements, Requirements)
    models = [primary_model]
    if fallback_model is not None:
        _check("fallback_model", fallback_model, CanonicalModelId)
        if fallback_model != primary_model:
            models.append(fallback_model)
    registered = _by_id(transports)
    policies = [_policy_for(model, policy_for) for model in models]
    fence = policies[0].provider if isinstance(policies[0], Only) else None
    sieve = _Sieve(registered=registered, requirements=requirements, fence=fence)
    stages: list[RouteStage] = []
    skips: list[RouteSkip] = []
    for number, (model, policy) in enumerate(zip(models, policies, strict=True)):
        candidates: list[RouteCandidate] = []
        for provider_id in _providers(policy):
            found = sieve.look(provider_id, model)
            if isinstance(found, RouteCandidate):
                candidates.append(found)
            elif found is not None:
                code, reason = found
                skips.append(
                    RouteSkip(stage=number, provider_id=provider_id, code=code, reason=reason)
                )
        stages.append(RouteStage(canonical_model_id=model, candidates=candidates))
    return PlannedRoute(plan=RoutePlan(stages=stages), skips=tuple(skips))


def _check(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}, expected {kind.__name__}")


def _by_id(transports: Iterable[PlannerTransport]) -> dict[ProviderId, PlannerTransport]:
    registered: dict[ProviderId, PlannerTransport] = {}
    for transport in transports:
        provider_id: object = getattr(transport, "id", None)
        if not isinstance(provider_id, ProviderId):
            raise TypeError(  # not its repr, which may hold a key
                f"the id of a {type(transport).__name__} is {shown(provider_id)}, "
                "expected a ProviderId"
            )
        if provider_id in registered:
            raise PlanError(f"two transports have the id {provider_id!r}, expected one of each")
        registered[provider_id] = transport
    return registered


def _policy_for(
    model: CanonicalModelId, policy_for: Callable[[CanonicalModelId], Policy]
) -> Policy:
    policy: object = policy_for(model)
    if not isinstance(policy, Ordered | Only):
        raise PlanError(f"the policy for {model!r} is {shown(policy)}, expected Ordered or Only")
    return policy


def _providers(policy: Policy) -> Iterable[ProviderId]:
    """Return each provider of *policy* once, in its order."""
    return dict.fromkeys((policy.provider,) if isinstance(policy, Only) else policy.providers)


@attrs.frozen(kw_only=True)
class _Sieve:
    """What an endpoint has to get through to be in a plan."""

    registered: Mapping[ProviderId, PlannerTransport]
    requirements: Requirements
    fence: ProviderId | None
    """The only provider, if the policy of the model that was asked for says so."""

    def look(
        self, provider_id: ProviderId, model: CanonicalModelId
    ) -> RouteCandidate | tuple[SkipCode, str] | None:
        """Return the candidate, the first reason to leave it out, or None if it is unknown there.

        The order of these questions is part of the contract: a provider has one reason.
        """
        transport = self.registered.get(provider_id)
        if transport is None:
            return "unregistered_provider", "no transport has this id"
        found: object = transport.get_availability()
        if isinstance(found, Unavailable):
            return "unavailable", found.reason
        if not isinstance(found, Available):
            raise PlanError(
                f"the availability of {provider_id!r} is {shown(found)}, "
                "expected Available or Unavailable"
            )
        found = transport.resolve_candidate(model, self.requirements)
        if isinstance(found, Unserved):
            return None
        if isinstance(found, Declined):
            return "declined", found.reason
        if not isinstance(found, RouteCandidate):
            raise PlanError(
                f"{provider_id!r} answered {shown(found)} for {model!r}, "
                "expected a RouteCandidate, Declined or Unserved"
            )
        if (found.provider_id, found.canonical_model_id) != (provider_id, model):
            raise PlanError(
                f"{provider_id!r} answered with {found.canonical_model_id!r} at "
                f"{found.provider_id!r}, expected {model!r} at {provider_id!r}"
            )
        return self._shortcoming(found) or found

    def _shortcoming(self, candidate: RouteCandidate) -> tuple[SkipCode, str] | None:
        missing = sorted(self.requirements.capabilities - candidate.capabilities)
        if missing:
            return "missing_capability", f"it cannot do {', '.join(missing)}"
        wanted, most = self.requirements.max_completion_tokens, candidate.max_completion_tokens
        if wanted is not None and most is not None and wanted > most:
            return "max_completion_tokens", f"it writes {most} tokens at most, not {wanted}"
        if self.fence is not None and candidate.provider_id != self.fence:
            return "fenced", f"the route may use {self.fence} only"
        return None
