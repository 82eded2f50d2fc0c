"""Which providers may serve a model, and in which order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import attrs

from harness.routing import _checks as checks
from harness.routing._ids import ProviderId

__all__ = ["Only", "Ordered", "Policy"]


def _provider_ids(providers: Iterable[ProviderId]) -> tuple[ProviderId, ...]:
    if isinstance(providers, str) or not isinstance(providers, Iterable):
        raise TypeError(f"the providers are {providers!r}, expected several provider ids")
    found = tuple(providers)
    for each in found:
        if not isinstance(each, ProviderId):
            raise TypeError(f"a provider is {each!r}, expected a ProviderId")
    return found


@attrs.frozen
class Ordered:
    """These providers, one after the other. One that is named again counts at its first place."""

    providers: tuple[ProviderId, ...] = attrs.field(converter=_provider_ids)


@attrs.frozen
class Only:
    """This provider and no other, not even for a fallback model: a fence, not a preference."""

    provider: ProviderId = attrs.field(validator=checks.instance_of(ProviderId))


Policy: TypeAlias = "Ordered | Only"
