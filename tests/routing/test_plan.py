"""A plan: how it reads, and what holds whatever the transports answer."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._json import canonical_text, encode
from harness.routing import (
    Available,
    CanonicalModelId,
    Declined,
    Only,
    Ordered,
    Policy,
    Requirements,
    RouteCandidate,
    RoutePlan,
    RouteStage,
    Unavailable,
    Unserved,
    build_route_plan,
)
from tests.routing.endpoints import LARGE, SMALL, endpoint
from tests.routing.shops import GHOST, KEY, A, B, Shop, plan, providers, shops
from tests.strategies import counts_of_tokens, model_ids, provider_ids, route_candidates

ROOT = Path(__file__).parents[2]


@pytest.mark.rule("R-ROUTE-25")
def test_without_anything_left_out_there_are_no_skips() -> None:
    planned = plan(shops("a", "b"), fallback=SMALL)
    assert planned.skips == ()
    assert [providers(planned, stage) for stage in (0, 1)] == [["a", "b"], ["a", "b"]]


@pytest.mark.rule("R-ROUTE-26")
def test_a_plan_is_frozen_through_and_through() -> None:
    planned = plan(shops("a", "b"))
    stage = planned.plan.stages[0]
    for record in (planned, planned.plan, stage, stage.candidates[0]):
        for field in attrs.fields(type(record)):
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                setattr(record, field.name, None)
    assert isinstance(stage.candidates[0].capabilities, frozenset)
    held: list[RouteCandidate] = [endpoint("a")]
    kept = RouteStage(canonical_model_id=LARGE, candidates=held)
    held.clear()
    assert kept.candidates == (endpoint("a"),)
    assert len({planned, plan(shops("a", "b"))}) == 1


@pytest.mark.rule("R-ROUTE-27")
def test_no_key_of_a_transport_is_in_a_plan() -> None:
    planned = plan([*shops("a"), Shop(B, availability=Unavailable("down"))], fallback=SMALL)
    for shown in (repr(planned), str(planned.plan), canonical_text(planned.to_json())):
        assert KEY not in shown


@pytest.mark.rule("R-ROUTE-27")
def test_a_plan_reads_as_one_line() -> None:
    planned = plan([*shops("a", "b")], fallback=SMALL, policies={SMALL: Only(GHOST)})
    assert str(planned.plan) == "m/large at a, b, else m/small at no provider"
    assert str(RoutePlan(stages=())) == "no model"
    assert list(map(str, planned.skips)) == [
        "ghost left out of stage 1: no transport has this id (unregistered_provider)"
    ]


@pytest.mark.rule("R-ROUTE-28")
def test_the_json_of_a_plan_is_what_the_plan_is() -> None:
    shop = Shop(A, answer=lambda model: endpoint("a", model, capabilities=["z", "a", "m"]))
    planned = plan([shop], policies={LARGE: Ordered([A, GHOST])})
    assert json.loads(encode(planned.to_json())) == {
        "plan": {
            "stages": [
                {
                    "canonical_model_id": "m/large",
                    "candidates": [
                        {
                            "provider_id": "a",
                            "canonical_model_id": "m/large",
                            "provider_invocation_model": "m/large@a",
                            "credential_source": "platform",
                            "credential_scope": None,
                            "credit_eligible": True,
                            "capabilities": ["a", "m", "z"],
                            "max_completion_tokens": None,
                            "pricing_basis": {"kind": "provider_reported", "terms": {}},
                            "binding_fingerprint": "a#1",
                        }
                    ],
                }
            ]
        },
        "skips": [
            {
                "stage": 0,
                "provider_id": "ghost",
                "code": "unregistered_provider",
                "reason": "no transport has this id",
            }
        ],
    }


SHOWS_A_PLAN = """\
from harness._json import encode_text
from harness.routing import *
capabilities = {f"capability_{number}" for number in range(20)}
class Shop:
    id = ProviderId("a")
    def get_availability(self):
        return Available()
    def resolve_candidate(self, model, requirements):
        return RouteCandidate(
            provider_id=self.id,
            canonical_model_id=model,
            provider_invocation_model="m",
            capabilities=capabilities,
            pricing_basis=PricingBasis(kind="k", terms=dict.fromkeys(capabilities)),
            binding_fingerprint="f",
        )
planned = build_route_plan(
    CanonicalModelId("m/large"), transports=[Shop()], policy_for=lambda _: Only(Shop.id)
)
print(encode_text(planned.to_json()), planned)
"""


@pytest.mark.rule("R-ROUTE-28")
def test_a_plan_is_shown_the_same_in_every_process() -> None:
    shown = {
        subprocess.run(
            [sys.executable, "-c", SHOWS_A_PLAN],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(shown) == 1
    assert '"capabilities":["capability_0","capability_1","capability_10"' in shown.pop()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: RoutePlan(stages=cast(Any, [LARGE])), TypeError),
        (lambda: RouteStage(canonical_model_id=LARGE, candidates=cast(Any, ["a"])), TypeError),
        (lambda: RouteStage(canonical_model_id=cast(Any, "m/large"), candidates=[]), TypeError),
        (
            lambda: RouteStage(canonical_model_id=SMALL, candidates=[endpoint("a", LARGE)]),
            ValueError,
        ),
    ],
)
def test_a_plan_made_by_hand_is_checked(make: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error, match=r" is .*, expected "):
        make()


# -- any transports, any policies --------------------------------------------------------------

CAPABILITIES = ["chat_completions", "vision"]

policies = st.builds(Ordered, st.lists(provider_ids, max_size=5)) | st.builds(Only, provider_ids)


@st.composite
def any_shops(draw: st.DrawFn) -> list[Shop]:
    made = []
    for provider in draw(st.lists(provider_ids, unique=True, max_size=4)):
        answers: dict[CanonicalModelId, object] = {
            model: draw(
                st.sampled_from([Unserved(), Declined("no")])
                | route_candidates(provider=provider, model=model)
            )
            for model in (LARGE, SMALL)
        }
        availability = draw(st.sampled_from([Available(), Available(), Unavailable("down")]))
        made.append(Shop(provider, answer=answers.__getitem__, availability=availability))
    return made


def in_order(order: Sequence[object], those: Sequence[object]) -> bool:
    places = [order.index(each) for each in those]
    return places == sorted(places)


@pytest.mark.rule("R-ROUTE-15", "R-ROUTE-19", "R-ROUTE-20", "R-ROUTE-24")
@given(
    any_shops(),
    st.fixed_dictionaries({LARGE: policies, SMALL: policies}),
    st.sampled_from([None, LARGE, SMALL]),
    st.builds(
        Requirements,
        capabilities=st.sets(st.sampled_from(CAPABILITIES)),
        max_completion_tokens=counts_of_tokens,
    ),
    st.randoms(use_true_random=False),
)
def test_whatever_the_transports_answer_a_plan_keeps_its_word(
    transports: list[Shop],
    policies: dict[CanonicalModelId, Policy],
    fallback: CanonicalModelId | None,
    needed: Requirements,
    order: random.Random,
) -> None:
    planned = plan(transports, fallback=fallback, policies=policies, requirements=needed)
    fence = policies[LARGE].provider if isinstance(policies[LARGE], Only) else None  # type: ignore[union-attr]  # narrowed by value
    for number, stage in enumerate(planned.plan.stages):
        policy = policies[stage.canonical_model_id]
        named = [policy.provider] if isinstance(policy, Only) else list(policy.providers)
        served = [each.provider_id for each in stage.candidates]
        skipped = [each.provider_id for each in planned.skips if each.stage == number]
        assert len(set(served + skipped)) == len(served + skipped)  # nobody twice, one reason each
        assert in_order(named, served)
        assert in_order(named, skipped)
        assert fence is None or set(served) <= {fence}
        for candidate in stage.candidates:
            assert candidate.capabilities >= needed.capabilities
            wanted, most = needed.max_completion_tokens, candidate.max_completion_tokens
            assert wanted is None or most is None or wanted <= most
        # Whoever is in neither said that it does not know the model.
        by_id = {each.id: each for each in transports}
        for absent in set(named) - set(served) - set(skipped):
            assert by_id[absent].would_answer(stage.canonical_model_id) == Unserved()
    order.shuffle(transports)
    again = plan(transports, fallback=fallback, policies=policies, requirements=needed)
    assert again == planned
    assert encode(again.to_json()) == encode(planned.to_json())
    assert repr(again) == repr(planned)


@given(model_ids, model_ids, policies)
def test_no_transport_at_all_is_a_plan_of_nothing(
    primary: CanonicalModelId, fallback: CanonicalModelId, policy: Policy
) -> None:
    planned = build_route_plan(
        primary, transports=[], policy_for=lambda _: policy, fallback_model=fallback
    )
    assert len(planned.plan.stages) == (1 if primary == fallback else 2)
    assert all(stage.candidates == () for stage in planned.plan.stages)
    assert {each.code for each in planned.skips} <= {"unregistered_provider"}
