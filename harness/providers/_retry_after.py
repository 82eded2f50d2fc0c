"""How long a provider asks to be left alone, from its headers.

Python's own number parsers accept signs, exponents, underscores, foreign digits and ``nan``; a
header that holds one of these says nothing. The value has no ceiling here, since the standard
sets none: whoever waits for it clamps it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["read_retry_after"]

_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]+)?")


def read_retry_after(
    headers: Iterable[tuple[str, str]], wall_clock: Callable[[], datetime] | None = None
) -> float | None:
    """Return the seconds that *headers* ask for, or None.

    ``retry-after-ms`` goes before ``Retry-After``, and the first usable value wins. An HTTP date
    is read only with a *wall_clock*, which returns an aware datetime; a date in the past is 0.
    """
    milliseconds: list[float | None] = []
    seconds: list[float | None] = []
    for name, value in headers:
        if name.lower() == "retry-after-ms":
            number = _number(value)
            milliseconds.append(None if number is None else number / 1000)
        elif name.lower() == "retry-after":
            number = _number(value)
            seconds.append(_until(value, wall_clock) if number is None else number)
    return next((each for each in milliseconds + seconds if each is not None), None)


def _number(value: str) -> float | None:
    text = value.strip(" \t")
    return float(text) if _NUMBER.fullmatch(text) else None


def _until(value: str, wall_clock: Callable[[], datetime] | None) -> float | None:
    if wall_clock is None:
        return None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:  # the oldest of the three spellings has no zone, and means UTC
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - wall_clock()).total_seconds())
