"""Identifiers, from a source that can be replaced.

An id source is a function from a prefix to a new text that starts with it. The default draws
random ids; a test passes `counting_ids()`, so that the same script gives the same ids.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["IdSource", "counting_ids", "random_id"]

IdSource: TypeAlias = Callable[[str], str]


def random_id(prefix: str) -> str:
    """Return ``<prefix>_<32 hexadecimal digits of a random UUID>``.

    Without the dashes: ``call_`` and a UUID with them is 41 characters, and the strictest
    provider takes call ids of 40.
    """
    return f"{prefix}_{uuid.uuid4().hex}"


def counting_ids() -> IdSource:
    """Return a source of ``<prefix>_1``, ``<prefix>_2``, …, counted over all prefixes."""
    numbers = itertools.count(1)
    return lambda prefix: f"{prefix}_{next(numbers)}"
