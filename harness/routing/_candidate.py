"""One endpoint that could serve a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs

from harness._json import JSON, check_json
from harness.routing import _checks as checks
from harness.routing._ids import CanonicalModelId, ProviderId

__all__ = ["PricingBasis", "PricingTerm", "RouteCandidate", "capability_set", "shown_set"]

PricingTerm: TypeAlias = "str | int | float | bool | None"
"""A scalar of JSON."""


def capability_set(names: Iterable[str]) -> frozenset[str]:
    """Return *names* as a set.

    Raises:
        TypeError: it is one text, which would be a set of letters, or holds what is no text.
        ValueError: a name is blank or cannot be seen.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"the capabilities are {names!r}, expected a set of texts")
    found = [checks.plain(name) for name in names]
    for name in found:
        checks.check_text("a capability", name)
    return frozenset(found)


def shown_set(names: frozenset[str]) -> str:
    """Return the repr of *names* in an order that is the same in every process."""
    return "{" + ", ".join(map(repr, sorted(names))) + "}"


def _pairs(
    terms: Mapping[str, PricingTerm] | Iterable[tuple[str, PricingTerm]],
) -> tuple[tuple[str, PricingTerm], ...]:
    pairs = dict(terms)
    for name, value in pairs.items():
        checks.check_text("a pricing term", name)
        if not isinstance(value, str | int | float | None):
            raise TypeError(f"the pricing term {name!r} is {value!r}, expected a scalar of JSON")
    check_json(pairs)
    return tuple(sorted(pairs.items(), key=lambda pair: pair[0]))


@attrs.frozen(kw_only=True)
class PricingBasis:
    """What a candidate's price rests on. Carried from the transport to the host, never read."""

    kind: str = attrs.field(converter=checks.plain, validator=checks.text)
    """For example ``provider_reported``."""
    terms: tuple[tuple[str, PricingTerm], ...] = attrs.field(default=(), converter=_pairs)
    """What belongs to it, by name; a mapping is taken as well."""

    def to_json(self) -> dict[str, JSON]:
        """Return the basis as JSON."""
        return {"kind": self.kind, "terms": dict(self.terms)}


@attrs.frozen(kw_only=True)
class RouteCandidate:
    """One endpoint: who serves the model, under which name, with whose key. Holds no secret.

    Raises:
        TypeError, ValueError: a field is not what it should be; the error names it.
    """

    provider_id: ProviderId = attrs.field(validator=checks.instance_of(ProviderId))
    canonical_model_id: CanonicalModelId = attrs.field(
        validator=checks.instance_of(CanonicalModelId)
    )
    provider_invocation_model: str = attrs.field(converter=checks.plain, validator=checks.text)
    """What this provider calls the model."""
    credential_source: str = attrs.field(
        default="platform", converter=checks.plain, validator=checks.text
    )
    """Whose key it is, for example ``platform`` or ``tenant``."""
    credential_scope: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(checks.plain),
        validator=attrs.validators.optional(checks.text),
    )
    """Which one of that source: opaque, and no secret, since it stands in the breaker's keys."""
    credit_eligible: bool = attrs.field(default=True, validator=checks.instance_of(bool))
    """Whether the host's credits may pay for it. Carried, never read."""
    capabilities: frozenset[str] = attrs.field(
        default=frozenset(), converter=capability_set, repr=shown_set
    )
    """What it can do, for example ``chat_completions``."""
    max_completion_tokens: int | None = attrs.field(default=None, validator=checks.optional_tokens)
    """The most tokens that it writes; None is not known."""
    pricing_basis: PricingBasis = attrs.field(
        default=PricingBasis(kind="provider_reported"), validator=checks.instance_of(PricingBasis)
    )
    binding_fingerprint: str = attrs.field(converter=checks.plain, validator=checks.text)
    """Opaque text that names this very binding of provider, model and key. Carried, never read."""

    def to_json(self) -> dict[str, JSON]:
        """Return the candidate as JSON, the same in every process."""
        return {
            "provider_id": str(self.provider_id),
            "canonical_model_id": str(self.canonical_model_id),
            "provider_invocation_model": self.provider_invocation_model,
            "credential_source": self.credential_source,
            "credential_scope": self.credential_scope,
            "credit_eligible": self.credit_eligible,
            "capabilities": [*sorted(self.capabilities)],
            "max_completion_tokens": self.max_completion_tokens,
            "pricing_basis": self.pricing_basis.to_json(),
            "binding_fingerprint": self.binding_fingerprint,
        }
