"""Which providers may serve a model and its fallback, and in which order."""

import random
from typing import Any, get_args

import pytest

from harness._errors import PlanError
from harness.routing import (
    Available,
    CanonicalModelId,
    Declined,
    Only,
    Ordered,
    Policy,
    ProviderId,
    Requirements,
    RoutePlan,
    RouteSkip,
    RouteStage,
    SkipCode,
    Unavailable,
    Unserved,
    build_route_plan,
)
from tests.routing.endpoints import LARGE, SMALL, endpoint
from tests.routing.shops import GHOST, A, B, C, Shop, codes, plan, providers, shops


@pytest.mark.rule("R-ROUTE-15")
def test_the_policy_gives_the_order() -> None:
    for order in ([A, B, C], [C, B, A]):
        assert providers(plan(shops("a", "b", "c"), policies={LARGE: Ordered(order)})) == order
    assert providers(plan(shops("a", "b", "c"), policies={LARGE: Only(B)})) == ["b"]


@pytest.mark.rule("R-ROUTE-16")
def test_registration_changes_nothing() -> None:
    transports = shops("a", "b", "c")
    policies: dict[CanonicalModelId, Policy] = {LARGE: Ordered([C, A, GHOST, B])}
    expected = plan(transports, policies=policies)
    shuffled = random.Random(5)
    for _ in range(20):
        shuffled.shuffle(transports)
        assert plan(transports, policies=policies) == expected


@pytest.mark.rule("R-ROUTE-17")
@pytest.mark.parametrize(("fallback", "asked"), [(None, 1), (LARGE, 1), (SMALL, 2)])
def test_the_policy_is_asked_once_for_each_model(
    fallback: CanonicalModelId | None, asked: int
) -> None:
    seen: list[CanonicalModelId] = []

    def policy_for(model: CanonicalModelId) -> Policy:
        seen.append(model)
        return Ordered([A, B])

    build_route_plan(
        LARGE, transports=shops("a", "b"), policy_for=policy_for, fallback_model=fallback
    )
    assert seen == [LARGE, SMALL][:asked]


@pytest.mark.rule("R-ROUTE-18")
def test_a_provider_counts_once_and_one_that_nobody_knows_is_named() -> None:
    planned = plan(shops("a", "b"), policies={LARGE: Ordered([A, B, A, GHOST, GHOST])})
    assert providers(planned) == ["a", "b"]
    assert codes(planned) == [(0, "ghost", "unregistered_provider")]


@pytest.mark.rule("R-ROUTE-19")
@pytest.mark.parametrize("availability", [Available(), Unavailable("down")])
def test_only_means_nobody_else(availability: object) -> None:
    transports = [Shop(A, availability=availability), *shops("b")]
    planned = plan(transports, policies={LARGE: Only(A)})
    assert providers(planned) == (["a"] if availability == Available() else [])
    assert transports[1].asked == []


@pytest.mark.rule("R-ROUTE-20")
def test_the_fence_of_the_model_is_round_its_fallback_too() -> None:
    policies: dict[CanonicalModelId, Policy] = {LARGE: Only(A), SMALL: Ordered([B, A])}
    planned = plan(shops("a", "b"), fallback=SMALL, policies=policies)
    assert [providers(planned, stage) for stage in (0, 1)] == [["a"], ["a"]]
    assert planned.skips == (
        RouteSkip(stage=1, provider_id=B, code="fenced", reason="the route may use a only"),
    )
    elsewhere: dict[CanonicalModelId, Policy] = {LARGE: Only(A), SMALL: Only(B)}
    assert providers(plan(shops("a", "b"), fallback=SMALL, policies=elsewhere), 1) == []
    own: dict[CanonicalModelId, Policy] = {LARGE: Ordered([A, B]), SMALL: Only(B)}
    assert providers(plan(shops("a", "b"), fallback=SMALL, policies=own), 0) == ["a", "b"]


@pytest.mark.rule("R-ROUTE-21", "R-ROUTE-23")
@pytest.mark.parametrize(
    ("fallback", "models"), [(None, [LARGE]), (SMALL, [LARGE, SMALL]), (LARGE, [LARGE])]
)
def test_a_stage_for_the_model_and_one_for_its_fallback(
    fallback: CanonicalModelId | None, models: list[CanonicalModelId]
) -> None:
    stages = plan(shops("a"), fallback=fallback).plan.stages
    assert [each.canonical_model_id for each in stages] == models


@pytest.mark.rule("R-ROUTE-22")
def test_a_plan_made_by_hand_may_have_any_number_of_stages() -> None:
    stages = [
        RouteStage(canonical_model_id=model, candidates=[endpoint("a", model)])
        for model in (LARGE, SMALL, LARGE)
    ]
    assert RoutePlan(stages=stages).stages == tuple(stages)
    assert RoutePlan(stages=[]).stages == ()


@pytest.mark.rule("R-ROUTE-23")
def test_an_empty_stage_keeps_its_place() -> None:
    def small_only(model: CanonicalModelId) -> object:
        return endpoint("a", model) if model == SMALL else Unserved()

    stages = plan([Shop(A, answer=small_only)], fallback=SMALL).plan.stages
    assert stages[0] == RouteStage(canonical_model_id=LARGE, candidates=())
    assert stages[1].candidates == (endpoint("a", SMALL),)


@pytest.mark.rule("R-ROUTE-24")
def test_the_first_reason_is_the_one_that_is_told() -> None:
    """Each of the reasons is taken away in turn, and the next one appears."""

    def declining(_: CanonicalModelId) -> object:
        return Declined("sold out")

    def small(model: CanonicalModelId) -> object:
        return endpoint("b", model, max_completion_tokens=1)

    def able(model: CanonicalModelId) -> object:
        return endpoint("b", model, max_completion_tokens=1, capabilities=["vision"])

    def large(model: CanonicalModelId) -> object:
        return endpoint("b", model, capabilities=["vision"])

    away = Unavailable("down")
    worse_and_better: list[list[Shop]] = [
        [],
        [Shop(B, availability=away, answer=declining)],
        [Shop(B, answer=declining)],
        [Shop(B, answer=small)],
        [Shop(B, answer=able)],
        [Shop(B, answer=large)],
    ]
    needed = Requirements(capabilities=["vision"], max_completion_tokens=2)
    policies: dict[CanonicalModelId, Policy] = {LARGE: Only(GHOST), SMALL: Only(B)}
    seen = [
        codes(plan(registered, fallback=SMALL, policies=policies, requirements=needed))
        for registered in worse_and_better
    ]
    first = (0, "ghost", "unregistered_provider")
    assert seen == [[first, (1, "b", code)] for code in get_args(SkipCode)]


@pytest.mark.parametrize("policy", [None, [A, B], A, Ordered])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(PlanError, match=r"^the policy for 'm/large' is .*, expected Ordered or On"):
        build_route_plan(LARGE, transports=shops("a"), policy_for=lambda _: policy)


@pytest.mark.rule("R-ROUTE-01")
def test_a_policy_checks_its_ids() -> None:
    assert isinstance(Only("a").provider, ProviderId)
    assert all(isinstance(each, ProviderId) for each in Ordered(["a", B]).providers)
    raw: list[Any] = ["A b", "", 5, None, [A]]
    for value in raw:
        with pytest.raises((TypeError, ValueError), match=r"^the provider id is "):
            Only(value)
        with pytest.raises((TypeError, ValueError), match=r"^the provider id is "):
            Ordered([A, value])
    for alone in ("a", 5, None, A):  # an id is a text, and a text is not several
        with pytest.raises(TypeError, match=r"^the providers are .*, expected several provider id"):
            Ordered(alone)  # type: ignore[arg-type]
