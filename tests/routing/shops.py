"""Transports that do as they are told, and plans made of them."""

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from harness.routing import (
    Available,
    CanonicalModelId,
    Ordered,
    PlannedRoute,
    PlannerTransport,
    Policy,
    ProviderId,
    Requirements,
    SkipCode,
    build_route_plan,
)
from tests.routing.endpoints import LARGE, endpoint

KEY = "sk-0123456789abcdef"

A, B, C, GHOST = map(ProviderId, ["a", "b", "c", "ghost"])


@attrs.define(eq=False)
class Shop:
    """A transport that serves what it is told to, and notes what it was asked."""

    id: ProviderId = attrs.field(converter=ProviderId)
    answer: Callable[[CanonicalModelId], object] | None = None
    availability: object = attrs.field(factory=Available)
    key: str = KEY
    asked: list[tuple[CanonicalModelId, Requirements]] = attrs.field(factory=list)

    def get_availability(self) -> Any:
        return self.availability

    def resolve_candidate(self, model: CanonicalModelId, requirements: Requirements) -> Any:
        self.asked.append((model, requirements))
        return self.would_answer(model)

    def would_answer(self, model: CanonicalModelId) -> object:
        return endpoint(self.id, model) if self.answer is None else self.answer(model)


def shops(*providers: str) -> list[Shop]:
    return [Shop(ProviderId(each)) for each in providers]


def plan(
    transports: Iterable[PlannerTransport],
    *,
    fallback: CanonicalModelId | None = None,
    policies: dict[CanonicalModelId, Policy] | None = None,
    requirements: Requirements = Requirements(),  # noqa: B008  # frozen
) -> PlannedRoute:
    """Plan `LARGE`; without *policies*, the transports are tried in their own order."""
    transports = list(transports)
    own = Ordered([each.id for each in transports])
    return build_route_plan(
        LARGE,
        transports=transports,
        policy_for=lambda model: (policies or {}).get(model, own),
        fallback_model=fallback,
        requirements=requirements,
    )


def providers(planned: PlannedRoute, stage: int = 0) -> list[str]:
    return [each.provider_id for each in planned.plan.stages[stage].candidates]


def codes(planned: PlannedRoute) -> list[tuple[int, str, SkipCode]]:
    return [(each.stage, each.provider_id, each.code) for each in planned.skips]
