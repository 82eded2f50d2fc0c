"""Which providers may serve a model, and in which order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import attrs

from harness.routing._ids import ProviderId

__all__ = ["Only", "Ordered", "Policy"]


def _provider_ids(providers: Iterable[str]) -> tuple[ProviderId, ...]:
    if isinstance(providers, str) or not isinstance(providers, Iterable):
        raise TypeError(f"the providers are {providers!r}, expected several provider ids")
    return tuple(map(ProviderId, providers))


@attrs.frozen
class Ordered:
    """These providers, one after the other. One that is named again counts at its first place."""

    providers: tuple[ProviderId, ...] = attrs.field(converter=_provider_ids)


@attrs.frozen
class Only:
    """This provider and no other, not even for a fallback model: a fence, not a preference."""

    provider: ProviderId = attrs.field(converter=ProviderId)


Policy: TypeAlias = "Ordered | Only"
