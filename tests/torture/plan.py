"""What the runs of the torture test do: decided by a run's name alone, so that all agree on it.

A worker, and whoever comes after it, and the judge ask here what a turn of a run calls. A turn that
is made again has the same calls, in another order and under other ids, as a model would do it.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final, Literal, TypeAlias

import attrs

from harness.receipts import tool_call_args_hash

__all__ = [
    "EFFECTS",
    "Ask",
    "Group",
    "ToolName",
    "args_hash",
    "gets_replies",
    "parts_of",
    "planned_calls",
    "planned_turn",
    "planned_turns",
]

ToolName: TypeAlias = Literal[
    "pay", "attempt", "crash", "confirm", "build", "look", "ask", "nap"
]  # fmt: skip
Group: TypeAlias = tuple[str, str, str]
"""Calls that nobody can tell apart: the run, the tool and the item."""

EFFECTS: Final[dict[str, Literal["none", "resumable", "opaque"]]] = {
    "pay": "opaque",
    "attempt": "opaque",
    "crash": "opaque",
    "confirm": "opaque",
    "build": "resumable",
    "look": "none",
    "ask": "none",
    "nap": "none",
}
"""The tools: *pay* acts; *attempt* acts, or says that it failed and did nothing; *crash* raises,
and may have acted; *confirm* asks, and acts once it has its reply; *build* acts part by part;
*look* reads; *ask* and *nap* pause the run."""

_OFTEN: Final[tuple[ToolName, ...]] = (
    "pay", "pay", "pay", "pay", "attempt", "attempt", "build", "build", "look", "crash",
)  # fmt: skip
_PAUSE: Final = 0.2
"""How often a turn pauses the run."""
_AGAIN: Final = 0.35
"""How often a call is equal to others of its run."""


@attrs.frozen
class Ask:
    """One call that a plan has."""

    tool: str
    item: str


def planned_turns(run_id: str) -> int:
    """Return how many turns with calls the run has; one with its answer follows."""
    return _random(run_id).randint(2, 5)


def planned_turn(run_id: str, turn: int) -> tuple[Ask, ...]:
    """Return what turn *turn* of the run calls; nothing if that is past its last."""
    if turn >= planned_turns(run_id):
        return ()
    rng = _random(f"{run_id}/{turn}")
    asks: list[Ask] = []
    for index in range(rng.randint(1, 4)):
        again = rng.random() < _AGAIN
        item = f"again-{rng.randrange(2)}" if again else f"{turn}.{index}"
        asks.append(Ask(rng.choice(_OFTEN), item))
        if again and rng.random() < 0.5:
            asks.append(asks[-1])
    if rng.random() < _PAUSE:
        asks.append(Ask(rng.choice(("ask", "confirm", "nap")), f"{turn}.pause"))
    return tuple(asks)


def planned_calls(run_id: str) -> Counter[Group]:
    """Return how often the run makes each of its calls."""
    return Counter(
        (run_id, ask.tool, ask.item)
        for turn in range(planned_turns(run_id))
        for ask in planned_turn(run_id, turn)
    )


def parts_of(item: str) -> int:
    """Return how many parts *build* has to do for an item."""
    return _random(item).randint(2, 4)


def gets_replies(run_id: str) -> bool:
    """Whether anybody answers what the run asks; some are left waiting."""
    return _random(f"{run_id}/replies").random() < 0.8


def args_hash(item: str) -> str:
    """Return the hash that stands in the receipts of calls for this item."""
    return tool_call_args_hash({"item": item})


def _random(name: str) -> random.Random:
    return random.Random(name)
