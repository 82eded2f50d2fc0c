"""Names that every provider takes, for tools that were named by somebody else.

A remote tool may be called ``files/read.all``, or like a tool of another server; a provider
takes 64 letters, digits, ``_`` and ``-``, and each name once. So a tool is given a name, and its
own is kept for the call.

The name must not depend on chance. A transcript speaks of it, a prompt cache holds it, and a
server may list its tools in another order each time it is started. So who keeps a contested name
is decided by the servers' order and the tools' own names, never by the order of a listing: first
those whose own name needed no change, then the others. Whoever comes too late gets a few digits
of a hash of what it is. Numbers would be shorter, and would shift when a tool goes.

A name that was given stays given: `taken` are those of an earlier listing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

__all__ = ["LONGEST_NAME", "Origin", "assign_names", "fit_name"]

LONGEST_NAME: Final = 64

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS: Final = 6


@attrs.frozen
class Origin:
    """Where a tool comes from; there is one of each."""

    server: str
    tool: str
    """Its own name, which its server knows it by."""


def fit_name(name: str) -> str:
    """Return *name* with an underscore for each character that providers refuse, cut to fit."""
    return _UNFIT.sub("_", name[:LONGEST_NAME]) or "tool"


def assign_names(
    wanted: Iterable[tuple[Origin, str]], taken: Mapping[Origin, str] | None = None
) -> dict[Origin, str]:
    """Return a name for each origin, all different: the one it wants, as far as that can be.

    Args:
        wanted: Origins, servers in their order, each with the name it wants, prefix and all.
        taken: Names given before, which are kept by those that still want one.
    """
    want = dict(wanted)
    names = {origin: name for origin, name in (taken or {}).items() if origin in want}
    used = set((taken or {}).values())
    ranks: dict[str, int] = {}
    for origin in want:
        ranks.setdefault(origin.server, len(ranks))

    def place(origin: Origin) -> tuple[bool, int, str]:
        return fit_name(want[origin]) != want[origin], ranks[origin.server], origin.tool

    for origin in sorted(want.keys() - names.keys(), key=place):
        name, tries = fit_name(want[origin]), 0
        while name in used:
            name = _hashed(fit_name(want[origin]), origin, tries)
            tries += 1
        used.add(name)
        names[origin] = name
    return {origin: names[origin] for origin in want}


def _hashed(name: str, origin: Origin, tries: int) -> str:
    text = "\0".join([origin.server, origin.tool, str(tries)]).encode(errors="replace")
    digits = hashlib.sha256(text).hexdigest()[:_DIGITS]
    return f"{name[: LONGEST_NAME - _DIGITS - 1]}_{digits}"
