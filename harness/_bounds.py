"""Checks for the numbers that bound something.

Every time, count and amount that limits the work is checked where it enters, by one of these
functions. ``True`` is not a number here, NaN compares with nothing and would switch a
limit off without a word, and infinity means "no limit" only where a parameter says so.
"""

from __future__ import annotations

import math

__all__ = ["check_amount", "check_count", "check_instant", "check_seconds"]


def check_seconds(name: str, value: object, *, zero: bool = True, infinite: bool = False) -> float:
    """Return *value* as seconds.

    Raises:
        TypeError: it is no real number (``bool`` is none).
        ValueError: it is NaN, negative, infinite or zero where these are not allowed.
    """
    number = _real(name, value, "seconds")
    if math.isnan(number) or number < 0 or (number == 0 and not zero):
        least = "not negative" if zero else "positive"
        raise ValueError(f"{name} is {value!r}, expected seconds that are {least}")
    if math.isinf(number) and not infinite:
        raise ValueError(f"{name} is {value!r}, expected a finite number of seconds")
    return number


def check_count(name: str, value: object, *, least: int = 0) -> int:
    """Return *value* as a count.

    Raises:
        TypeError: it is no ``int`` (``bool`` is none).
        ValueError: it is below *least*.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}, expected an int")
    if value < least:
        raise ValueError(f"{name} is {value!r}, expected at least {least}")
    return value


def check_amount(name: str, value: object) -> float:
    """Return *value* as a finite amount that is not negative (a cost, for example).

    Raises:
        TypeError: it is no real number (``bool`` is none).
        ValueError: it is NaN, infinite or negative.
    """
    number = _real(name, value, "a number")
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{name} is {value!r}, expected a finite number that is not negative")
    return number


def check_instant(name: str, value: object) -> float:
    """Return *value* as a point on trio's clock; ``math.inf`` means never.

    Raises:
        TypeError: it is no real number (``bool`` is none).
        ValueError: it is NaN.
    """
    number = _real(name, value, "a trio time")
    if math.isnan(number):
        raise ValueError(f"{name} is {value!r}, expected a trio time")
    return number


def _real(name: str, value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}, expected {expected}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large, expected {expected}") from None
