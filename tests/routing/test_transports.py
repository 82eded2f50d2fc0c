"""What a plan asks of transports, and what it makes of their answers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._errors import PlanError
from harness.routing import (
    Available,
    CanonicalModelId,
    Declined,
    Only,
    Requirements,
    RouteCandidate,
    RouteSkip,
    Unavailable,
    Unserved,
    build_route_plan,
)
from tests.routing.endpoints import LARGE, SMALL, endpoint
from tests.routing.shops import A, B, C, Shop, codes, plan, providers, shops
from tests.strategies import route_candidates


@pytest.mark.rule("R-ROUTE-06", "R-ROUTE-07")
def test_a_transport_needs_three_members_and_no_running_loop() -> None:
    class Bare:
        id = A

        def get_availability(self) -> Available:
            return Available()

        def resolve_candidate(self, model: CanonicalModelId, _: Requirements) -> RouteCandidate:
            return endpoint("a", model)

    assert providers(plan([Bare()])) == ["a"]


@pytest.mark.rule("R-ROUTE-07")
def test_a_transport_is_told_the_model_and_what_is_needed() -> None:
    shop = Shop(A)
    needed = Requirements(capabilities=["chat_completions"], max_completion_tokens=5)
    plan([shop], fallback=SMALL, requirements=needed)
    assert shop.asked == [(LARGE, needed), (SMALL, needed)]


@pytest.mark.rule("R-ROUTE-08", "R-ROUTE-25")
def test_a_transport_serves_declines_or_does_not_know_the_model() -> None:
    serving = Shop(A)
    declining = Shop(B, answer=lambda _: Declined("sold out"))
    ignorant = Shop(C, answer=lambda _: Unserved())
    planned = plan([serving, declining, ignorant])
    assert providers(planned) == ["a"]
    assert planned.skips == (RouteSkip(stage=0, provider_id=B, code="declined", reason="sold out"),)


@pytest.mark.rule("R-ROUTE-09")
def test_an_unavailable_transport_is_left_out_and_asked_nothing_more() -> None:
    def raising(_: CanonicalModelId) -> object:
        raise AssertionError("asked all the same")

    away = Shop(A, answer=raising, availability=Unavailable("maintenance until nine"))
    planned = plan([away, Shop(B)])
    assert providers(planned) == ["b"]
    assert [(each.code, each.reason) for each in planned.skips] == [
        ("unavailable", "maintenance until nine")
    ]
    assert away.asked == []


@pytest.mark.rule("R-ROUTE-10")
def test_what_a_transport_or_a_policy_raises_leaves_the_planner() -> None:
    broken = LookupError("no such table")

    def raising(_: CanonicalModelId) -> Any:
        raise broken

    with pytest.raises(LookupError) as caught:
        plan([Shop(A, answer=raising)])
    assert caught.value is broken
    with pytest.raises(LookupError) as caught:
        build_route_plan(LARGE, transports=[], policy_for=raising)
    assert caught.value is broken


@pytest.mark.rule("R-ROUTE-11")
@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (endpoint("a", SMALL), "'a' answered with 'm/small' at 'a', expected 'm/large' at 'a'"),
        (endpoint("b", LARGE), "'a' answered with 'm/large' at 'b', expected 'm/large' at 'a'"),
        (None, "'a' answered None for 'm/large', expected a RouteCandidate, Declined or Unserved"),
    ],
)
def test_an_answer_to_another_question_is_refused(answer: object, seen: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan([Shop(A, answer=lambda _: answer)])
    assert str(caught.value) == seen


def test_an_availability_is_one_of_two() -> None:
    with pytest.raises(PlanError, match=r"^the availability of 'a' is True, expected Available or"):
        plan([Shop(A, availability=True)])


def test_two_transports_with_one_id_are_refused() -> None:
    with pytest.raises(PlanError, match=r"^two transports have the id 'a', expected one of each$"):
        plan(shops("a", "b", "a"))


@pytest.mark.rule("R-ROUTE-01")
@pytest.mark.parametrize("odd", ["a", Shop, object()])
def test_a_transport_has_a_checked_id(odd: Any) -> None:
    with pytest.raises(TypeError, match=r"^the id of a \w+ is .*, expected a ProviderId$"):
        build_route_plan(LARGE, transports=[odd], policy_for=lambda _: Only(A))


@pytest.mark.rule("R-ROUTE-01")
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"primary_model": "m/large"}, "primary_model"),
        ({"primary_model": None}, "primary_model"),
        ({"fallback_model": "m/small"}, "fallback_model"),
        ({"fallback_model": ""}, "fallback_model"),
        ({"requirements": None}, "requirements"),
        ({"requirements": {"vision"}}, "requirements"),
    ],
)
def test_the_planner_takes_no_raw_text(arguments: dict[str, Any], name: str) -> None:
    given: dict[str, Any] = {"primary_model": LARGE, "transports": shops("a"), **arguments}
    with pytest.raises(TypeError, match=rf"^{name} is .*, expected (CanonicalModelId|Requirem)"):
        build_route_plan(policy_for=lambda _: Only(A), **given)


# -- requirements ------------------------------------------------------------------------------


@pytest.mark.rule("R-ROUTE-12")
@given(st.lists(route_candidates(model=LARGE), max_size=3, unique_by=lambda each: each.provider_id))
def test_without_requirements_every_candidate_is_taken(made: list[RouteCandidate]) -> None:
    planned = plan([Shop(each.provider_id, answer=lambda _, each=each: each) for each in made])  # type: ignore[misc]  # the default binds it
    assert planned.plan.stages[0].candidates == tuple(made)
    assert planned.skips == ()


@pytest.mark.rule("R-ROUTE-13")
def test_what_a_candidate_cannot_do_is_named_in_order() -> None:
    shop = Shop(A, answer=lambda model: endpoint("a", model, capabilities=["chat_completions"]))
    needed = Requirements(capabilities={"vision", "chat_completions", "json", "audio"})
    planned = plan([shop], requirements=needed)
    assert planned.skips == (
        RouteSkip(
            stage=0,
            provider_id=A,
            code="missing_capability",
            reason="it cannot do audio, json, vision",
        ),
    )
    assert providers(plan([shop], requirements=Requirements(capabilities=["chat_completions"])))


@pytest.mark.rule("R-ROUTE-14")
@pytest.mark.parametrize(
    ("limit", "wanted", "taken"),
    [
        (None, 100, True),
        (99, 100, False),
        (100, 100, True),
        (101, 100, True),
        (1, None, True),
        (None, None, True),
    ],
)
def test_room_for_tokens_counts_where_both_numbers_are_known(
    limit: int | None, wanted: int | None, taken: bool
) -> None:
    shop = Shop(A, answer=lambda model: endpoint("a", model, max_completion_tokens=limit))
    planned = plan([shop], requirements=Requirements(max_completion_tokens=wanted))
    assert providers(planned) == (["a"] if taken else [])
    assert codes(planned) == ([] if taken else [(0, "a", "max_completion_tokens")])
    if not taken:
        assert planned.skips[0].reason == "it writes 99 tokens at most, not 100"


@pytest.mark.parametrize("value", [True, 0, -1, 1.5, float("nan")])
def test_a_requirement_is_checked_where_it_is_made(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^Requirements\.max_completion_tokens is "):
        Requirements(max_completion_tokens=value)
    with pytest.raises(TypeError, match=r"^the capabilities are 'vision', expected a set of texts"):
        Requirements(capabilities="vision")
