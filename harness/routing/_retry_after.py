"""How long a provider asks to be left alone, from its headers.

Python's own number parsers accept signs, exponents, underscores, foreign digits and ``nan``; a
header that holds one of these says nothing. The value has no ceiling here, since the standard
sets none: whoever waits for it clamps it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from harness._bounds import check_seconds

__all__ = ["clamp_retry_after", "retry_after_from_headers"]

_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]+)?")


def retry_after_from_headers(
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    wall_clock: Callable[[], datetime] | None = None,
) -> float | None:
    """Return the seconds that *headers* ask for, or None; not clamped.

    ``retry-after-ms`` goes before ``Retry-After``, and the first usable value wins. A date is
    read only with a *wall_clock*; one in the past is 0.

    Raises:
        ValueError: *wall_clock* returned a datetime without a zone.
    """
    milliseconds: list[float | None] = []
    seconds: list[float | None] = []
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        if name.lower() == "retry-after-ms":
            number = _number(value)
            milliseconds.append(None if number is None else number / 1000)
        elif name.lower() == "retry-after":
            number = _number(value)
            seconds.append(_until(value, wall_clock) if number is None else number)
    return next((each for each in milliseconds + seconds if each is not None), None)


def clamp_retry_after(value: float | None, maximum: float) -> float | None:
    """Return *value*, but not more than *maximum*; None stays None.

    Raises:
        TypeError, ValueError: one of them is no finite number of seconds.
    """
    most = check_seconds("maximum", maximum)
    return None if value is None else min(check_seconds("value", value), most)


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
    now = wall_clock()
    if now.tzinfo is None:
        raise ValueError(f"the wall clock says {now!r}, expected a datetime with a zone")
    return max(0.0, (date - now).total_seconds())
