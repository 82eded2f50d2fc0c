"""Endpoints and failures that the tests of routing speak of."""

from collections.abc import Iterable

from harness.routing import (
    AttemptCursor,
    AttemptTarget,
    CanonicalModelId,
    ProviderId,
    RouteCandidate,
)

LARGE = CanonicalModelId("m/large")
SMALL = CanonicalModelId("m/small")

FIRST = AttemptCursor(stage=0, candidate=0, retry=0, ordinal=0)


def endpoint(
    provider: str = "a",
    model: CanonicalModelId = LARGE,
    *,
    capabilities: Iterable[str] = (),
    max_completion_tokens: int | None = None,
    credential_scope: str | None = None,
) -> RouteCandidate:
    return RouteCandidate(
        provider_id=ProviderId(provider),
        canonical_model_id=model,
        provider_invocation_model=f"{model}@{provider}",
        credential_scope=credential_scope,
        capabilities=frozenset(capabilities),
        max_completion_tokens=max_completion_tokens,
        binding_fingerprint=f"{provider}#1",
    )


def target(provider: str = "a", *, cursor: AttemptCursor = FIRST) -> AttemptTarget:
    return AttemptTarget.of(endpoint(provider), cursor=cursor, duration=1.5)
