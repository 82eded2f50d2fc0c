"""What a reply says about its consumption.

Usage only tells; it decides nothing about the reply. So one that makes no sense (a negative
count, a text) is left out, and the reply stands.
"""

from __future__ import annotations

from typing import Final

from harness._json import JSON
from harness._usage import Usage

__all__ = ["read_usage"]

_MOST: Final = 2**53
"""A count beyond what every JSON reader keeps exact is no count."""


def read_usage(value: JSON) -> Usage | None:
    """Return the usage in *value*, a reply's usage object, or None if it holds none.

    Costs are not read: providers count them in different currencies.
    """
    if not isinstance(value, dict):
        return None
    counts = [value.get(key) for key in ("prompt_tokens", "completion_tokens")]
    if all(count is None for count in counts):
        return None
    prompt, completion = (0 if count is None else _count(count) for count in counts)
    if prompt is None or completion is None:
        return None
    return Usage(input=prompt, cached_input=min(_cached(value), prompt), output=completion)


def _cached(usage: dict[str, JSON]) -> int:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if cached is None:
        cached = usage.get("prompt_cache_hit_tokens")
    return _count(cached) or 0


def _count(value: JSON) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST else None
