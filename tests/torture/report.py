"""A verdict, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from harness._json import JSON
from tests.torture.driver import Verdict

__all__ = ["as_json", "as_lines"]

_SHOWN = 20
"""How many breaches are shown in full."""


def as_json(verdict: Verdict) -> JSON:
    """Return *verdict* as JSON, its breaches in full."""
    figures = attrs.asdict(verdict.figures)
    return {
        "seed": verdict.seed,
        "seconds": round(verdict.seconds, 1),
        "figures": {name: _plain(value) for name, value in figures.items()},
        "breaches": [f"{each.rule}: {each.text}" for each in verdict.breaches],
    }


def as_lines(verdict: Verdict) -> Iterator[str]:
    """Yield a small table of *verdict*, and its first breaches."""
    figures = verdict.figures
    rows = [
        ("seconds", f"{verdict.seconds:.0f}, seed {verdict.seed}"),
        ("done to workers", _counts(figures.blows)),
        ("kills between claim and settlement", str(figures.kills_in_calls)),
        ("work", _counts(figures.work)),
        ("left in doubt, reported", f"{figures.doubts}, {figures.reported} to who came after"),
        ("writes refused to the overtaken", _counts(figures.refused)),
        ("errors that workers met", _counts(figures.errors)),
        ("parts done by the overtaken", str(figures.overtaken)),
        ("duplicates", str(figures.duplicates)),
        ("losses", str(figures.losses)),
        ("breaches", str(len(verdict.breaches))),
    ]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        yield f"{name:<{width}}  {text}"
    for each in verdict.breaches[:_SHOWN]:
        yield f"{each.rule}: {each.text}"
    if len(verdict.breaches) > _SHOWN:
        yield f"and {len(verdict.breaches) - _SHOWN} more"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def _plain(value: object) -> JSON:
    if isinstance(value, dict):
        return {str(name): int(count) for name, count in value.items()}
    assert isinstance(value, int)
    return value
