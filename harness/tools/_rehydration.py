"""From stored names of plugins to those that can be live again.

What a session stored is a hint. The plugin may have been renamed since, retired, or may need a
server that is down just now. A model that is shown a tool which cannot be called is worse off
than one that is not shown it, so whatever does not resolve is dropped, with its reason, and the
session goes on without. Nothing here fails a run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

import attrs

from harness._errors import shown

__all__ = ["DroppedName", "Rehydration", "Resolve", "rehydrate_activation"]

Resolve: TypeAlias = Callable[[str], Awaitable[bool | str]]
"""Whether a plugin can be live, asked by its canonical name: True, or the reason why not.

It may wait, to reconnect. Reasons are ``unknown``, ``unavailable``, ``unreachable``, or the
host's own. False stands for ``unavailable``, and whatever it raises for ``unreachable``.
"""


@attrs.frozen(kw_only=True)
class DroppedName:
    """A name that was not kept."""

    name: str
    """As it was stored."""
    reason: str


@attrs.frozen(kw_only=True)
class Rehydration:
    """What became of some stored names."""

    active: tuple[str, ...] = ()
    """The canonical names of what is live, each once, in the order of the stored ones."""
    dropped: tuple[DroppedName, ...] = ()
    """In order too; of several names of one plugin, the first."""


async def rehydrate_activation(
    names: Iterable[object], *, canonicalize_name: Callable[[str], str], resolve: Resolve
) -> Rehydration:
    """Return which of *names* can be live. Never raises for one that cannot.

    Each plugin is resolved once, one after the other. It is a checkpoint if *resolve* is; a
    cancellation passes through. A stored value that is no text is dropped as ``unknown``.

    Raises:
        TypeError: *resolve* answered something else.
    """
    asked: set[str] = set()
    active: list[str] = []
    dropped: list[DroppedName] = []
    for stored in names:
        if not isinstance(stored, str):
            dropped.append(DroppedName(name=shown(stored), reason="unknown"))
            continue
        name = canonicalize_name(stored)
        if name in asked:
            continue
        asked.add(name)
        reason = await _reason_against(name, resolve)
        if reason is None:
            active.append(name)
        else:
            dropped.append(DroppedName(name=stored, reason=reason))
    return Rehydration(active=tuple(active), dropped=tuple(dropped))


async def _reason_against(name: str, resolve: Resolve) -> str | None:
    try:
        answer: object = await resolve(name)
    except Exception:  # noqa: BLE001  # foreign code; that it failed is the answer
        return "unreachable"
    if answer is True:
        return None
    if answer is False:
        return "unavailable"
    if isinstance(answer, str) and answer:
        return answer
    raise TypeError(f"resolve({name!r}) answered {shown(answer)}, expected True or a reason")
