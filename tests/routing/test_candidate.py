"""One endpoint: a value that holds what it was given, and no more than that."""

import enum
from typing import Any

import attrs
import pytest
from hypothesis import given

from harness._json import canonical_text
from harness.routing import CanonicalModelId, PricingBasis, ProviderId, RouteCandidate
from tests.strategies import route_candidates

FIELDS: dict[str, Any] = {
    "provider_id": ProviderId("a"),
    "canonical_model_id": CanonicalModelId("m/large"),
    "provider_invocation_model": "large-2026",
    "credential_source": "tenant",
    "credential_scope": "t1",
    "credit_eligible": False,
    "capabilities": frozenset({"vision", "chat_completions"}),
    "max_completion_tokens": 4096,
    "pricing_basis": PricingBasis(kind="list_price", terms={"output": 2.5, "input": 1}),
    "binding_fingerprint": "a#1",
}


@pytest.mark.rule("R-ROUTE-03", "R-ROUTE-04")
def test_a_candidate_reads_back_equal_and_can_be_a_key() -> None:
    one, other = RouteCandidate(**FIELDS), RouteCandidate(**FIELDS)
    assert {name: getattr(one, name) for name in FIELDS} == FIELDS
    assert one == other
    assert {one: 1}[other] == 1
    assert attrs.evolve(one, credential_scope="t2") != one
    assert attrs.evolve(one, credential_scope=None) != one


@pytest.mark.rule("R-ROUTE-03")
def test_what_is_most_often_the_case_need_not_be_said() -> None:
    named = {"provider_id", "canonical_model_id", "provider_invocation_model"}
    needed = {name: FIELDS[name] for name in named | {"binding_fingerprint"}}
    made = RouteCandidate(**needed)
    assert (made.credential_source, made.credential_scope) == ("platform", None)
    assert made.credit_eligible
    assert (made.capabilities, made.max_completion_tokens) == (frozenset(), None)
    assert made.pricing_basis == PricingBasis(kind="provider_reported")
    for name in needed:
        with pytest.raises(TypeError, match=name):
            RouteCandidate(**{each: needed[each] for each in needed if each != name})


@pytest.mark.rule("R-ROUTE-01", "R-ROUTE-03", "R-ROUTE-05")
@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("provider_id", "a", TypeError),
        ("provider_id", CanonicalModelId("a/b"), TypeError),
        ("canonical_model_id", "m/large", TypeError),
        ("provider_invocation_model", "", ValueError),
        ("provider_invocation_model", None, TypeError),
        ("credential_source", " ", ValueError),
        ("credential_source", 1, TypeError),
        ("credential_scope", "", ValueError),
        ("credential_scope", "a\nb", ValueError),
        ("credential_scope", 1, TypeError),
        ("credit_eligible", 1, TypeError),
        ("max_completion_tokens", 0, ValueError),
        ("max_completion_tokens", -1, ValueError),
        ("max_completion_tokens", True, TypeError),
        ("max_completion_tokens", 1.5, TypeError),
        ("pricing_basis", "provider_reported", TypeError),
        ("pricing_basis", None, TypeError),
        ("binding_fingerprint", "", ValueError),
        ("binding_fingerprint", b"a", TypeError),
    ],
)
def test_a_wrong_field_is_named_with_its_value(
    field: str, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error, match=rf"^RouteCandidate\.{field} is ") as caught:
        RouteCandidate(**{**FIELDS, field: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("value", "error"),
    [("chat", TypeError), (None, TypeError), ([1], TypeError), ([""], ValueError)],
)
def test_capabilities_are_several_texts(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^(the capabilities are|a capability is) .*, expected"):
        RouteCandidate(**{**FIELDS, "capabilities": value})


class Capability(enum.StrEnum):
    VISION = "vision"
    CHAT = "chat_completions"


def test_members_of_an_enumeration_count_as_their_texts() -> None:
    made = RouteCandidate(**{**FIELDS, "capabilities": Capability, "credential_source": "tenant"})
    assert made == RouteCandidate(**FIELDS)
    assert repr(made) == repr(RouteCandidate(**FIELDS))


@pytest.mark.rule("R-ROUTE-05")
def test_a_pricing_basis_of_any_kind_is_carried() -> None:
    basis = PricingBasis(kind="never heard of", terms={"b": None, "a": True})
    assert RouteCandidate(**{**FIELDS, "pricing_basis": basis}).pricing_basis is basis
    assert basis == PricingBasis(kind="never heard of", terms=[("a", True), ("b", None)])
    assert basis.terms == (("a", True), ("b", None))
    assert basis.to_json() == {"kind": "never heard of", "terms": {"a": True, "b": None}}


@pytest.mark.parametrize(
    "terms", [{"a": []}, {"a": float("nan")}, {"a": object()}, {1: 2}, {"": 1}, {"a": "\ud800"}]
)
def test_the_terms_of_a_price_are_scalars_of_json(terms: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="pricing term|not JSON"):
        PricingBasis(kind="list_price", terms=terms)


@given(route_candidates())
def test_a_candidate_has_one_repr_and_json_of_its_own(made: RouteCandidate) -> None:
    copied = RouteCandidate(**attrs.asdict(made, recurse=False))
    assert copied == made
    assert repr(copied) == repr(made)
    assert canonical_text(copied.to_json()) == canonical_text(made.to_json())
    assert set(made.to_json()) == {field.name for field in attrs.fields(RouteCandidate)}
