"""Whether one more skill may be loaded.

Each loaded skill takes room in every request from then on. Two things bound it: how many there
are, and how long they are together. The host measures and this module judges; a measure that it
leaves out leaves its bound out, so that the cheap one can be asked about before the costly one is
taken. A measure that makes no sense refuses, since nonsense is no evidence of room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, Protocol

import attrs

from harness._bounds import check_count
from harness.skills._skill import tokens_of

__all__ = [
    "ACTIVE_SKILLS",
    "BODY_TOKENS",
    "SkillAdmission",
    "admit_skill_load",
    "estimate_skill_body_tokens",
]

ACTIVE_SKILLS: Final = 8
"""Skills that may be loaded at a time."""
BODY_TOKENS: Final = 24_000
"""Tokens that their bodies may have together."""


@attrs.frozen(kw_only=True)
class SkillAdmission:
    """The verdict on loading a skill."""

    reason: str = ""
    """Why not, for the model to read; empty if it may."""

    @property
    def admitted(self) -> bool:
        """Whether it may be loaded."""
        return not self.reason


class _HasBody(Protocol):
    @property
    def body(self) -> str: ...


def admit_skill_load(
    active_count: object = None,
    projected_body_tokens: object = None,
    *,
    most_active: int = ACTIVE_SKILLS,
    most_tokens: int = BODY_TOKENS,
) -> SkillAdmission:
    """Judge whether one more skill may be loaded.

    Args:
        active_count: how many are loaded already; None leaves this bound out.
        projected_body_tokens: how long the bodies would be with the new one; None likewise.
        most_active: loaded skills at which another is refused.
        most_tokens: tokens above which it is refused.

    Raises:
        TypeError, ValueError: a bound is no count. A bad measure does not raise, it refuses.
    """
    check_count("most_active", most_active)
    check_count("most_tokens", most_tokens)
    for measure in (active_count, projected_body_tokens):
        if measure is not None and not _is_measure(measure):
            return SkillAdmission(
                reason=f"No skill can be loaded now: there is no telling how much room is left "
                f"(it was measured as {measure!r:.50})."
            )
    if active_count is not None and active_count >= most_active:  # type: ignore[operator]  # a number
        return SkillAdmission(
            reason=f"The skill was not loaded: {active_count} of at most {most_active} skills are "
            "loaded already. Go on with those."
        )
    if projected_body_tokens is not None and projected_body_tokens > most_tokens:  # type: ignore[operator]  # a number
        return SkillAdmission(
            reason=f"The skill was not loaded: with it the loaded skills would take about "
            f"{projected_body_tokens} of at most {most_tokens} tokens. Go on with those that are "
            "loaded."
        )
    return SkillAdmission()


def estimate_skill_body_tokens(instructions: Iterable[_HasBody]) -> int:
    """Return about how many tokens the bodies of *instructions* have together."""
    return tokens_of(sum(len(each.body) for each in instructions))


def _is_measure(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not math.isnan(value) and value >= 0
