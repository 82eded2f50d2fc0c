"""Where the endpoints of a route come from: a plan's candidates, and a model behind each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from harness._model import ModelLike
from harness.routing import (
    Availability,
    Available,
    CanonicalModelId,
    PlannerTransport,
    ProviderId,
    Requirements,
    Resolution,
    RouteCandidate,
    Unserved,
    capability_set,
)

__all__ = ["ModelTransport", "Transport"]


class Transport(PlannerTransport, Protocol):
    """One provider: what it would serve a model with, and the model that does."""

    def endpoint(self, candidate: RouteCandidate) -> ModelLike:
        """Return the model behind *candidate*, which this transport resolved. No I/O."""
        ...


def _models(models: Mapping[str, ModelLike]) -> dict[CanonicalModelId, ModelLike]:
    if not isinstance(models, Mapping):
        raise TypeError(f"models is {models!r}, expected a mapping of canonical ids to models")
    for name, model in models.items():
        if not callable(getattr(model, "complete", model)):
            raise TypeError(f"the model of {name!r} is {model!r}, expected a Model or a function")
    return {CanonicalModelId(name): model for name, model in models.items()}


def _available() -> Availability:
    return Available()


@attrs.frozen(eq=False)
class ModelTransport:
    """A provider whose models are at hand::

        ModelTransport("azure", {"openai/gpt-5": ChatModel("my-deployment", base_url=…)})

    Any model can be one: of a remote provider, a plain function, another route.

    Raises:
        TypeError, ValueError: an id or a model is not what it should be; the error names it.
    """

    id: ProviderId = attrs.field(converter=ProviderId)
    """The provider's id."""
    models: Mapping[CanonicalModelId, ModelLike] = attrs.field(converter=_models)
    """The models by their canonical ids; a model's ``name``, if it has one, is what the provider
    calls it."""
    credential_source: str = attrs.field(default="platform", kw_only=True)
    """Whose key it is that the models use."""
    credential_scope: str | None = attrs.field(default=None, kw_only=True)
    """Which one of that source; no secret. Endpoints of one scope share a circuit."""
    capabilities: frozenset[str] = attrs.field(
        default=frozenset(), kw_only=True, converter=capability_set
    )
    """What the models can do; a route may require some of it."""
    max_completion_tokens: int | None = attrs.field(default=None, kw_only=True)
    """The most tokens that they write; None is not known."""
    availability: Callable[[], Availability] = attrs.field(default=_available, kw_only=True)
    """Asked before each completion. Synchronous, no I/O."""

    def __attrs_post_init__(self) -> None:
        for model_id in self.models:
            self._candidate(model_id)  # what cannot be a candidate is refused here and now

    def get_availability(self) -> Availability:
        """Say whether the provider can be asked."""
        return self.availability()

    def resolve_candidate(
        self, canonical_model_id: CanonicalModelId, requirements: Requirements
    ) -> Resolution:
        """Return the endpoint of a model that is at hand."""
        if canonical_model_id not in self.models:
            return Unserved()
        return self._candidate(canonical_model_id)

    def endpoint(self, candidate: RouteCandidate) -> ModelLike:
        """Return the model behind *candidate*."""
        return self.models[candidate.canonical_model_id]

    def _candidate(self, model_id: CanonicalModelId) -> RouteCandidate:
        name: object = getattr(self.models[model_id], "name", None)
        invocation = name if isinstance(name, str) and name else str(model_id)
        return RouteCandidate(
            provider_id=self.id,
            canonical_model_id=model_id,
            provider_invocation_model=invocation,
            credential_source=self.credential_source,
            credential_scope=self.credential_scope,
            capabilities=self.capabilities,
            max_completion_tokens=self.max_completion_tokens,
            binding_fingerprint=f"{self.id}/{invocation}",
        )
