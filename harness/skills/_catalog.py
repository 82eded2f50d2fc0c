"""What a model is told of the skills that it could load, within a budget.

The catalog is the tier that is always visible, so it is the one that has to stay small. A skill
that finds no room keeps its name in it: a name is enough to ask for a skill, and one that is not
seen can never be asked for. So entries are judged in order, each against what is left. One that
is too long is shortened to its name and costs nothing, and shorter ones behind it still fit.

The parts are values. Which words go around them is the host's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import attrs

from harness._bounds import check_amount
from harness.skills._skill import SkillSummary, tokens_of

__all__ = [
    "CATALOG_TOKENS",
    "CatalogEntry",
    "SkillCatalog",
    "catalog_line_tokens",
    "partition_skill_catalog",
]

CATALOG_TOKENS: Final = 2_000
"""Tokens for all loadable entries together, unless a host says otherwise."""


@attrs.frozen(kw_only=True)
class CatalogEntry:
    """A skill that can be loaded."""

    summary: SkillSummary
    name_only: bool = False
    """There was no room for more than its name."""


@attrs.frozen(kw_only=True)
class SkillCatalog:
    """Every skill, in one of two parts."""

    active: tuple[SkillSummary, ...]
    """Those that are loaded."""
    loadable: tuple[CatalogEntry, ...]

    @property
    def truncated(self) -> bool:
        """Whether some entry is only a name."""
        return any(each.name_only for each in self.loadable)


def catalog_line_tokens(summary: SkillSummary) -> int:
    """Return about how many tokens a line with everything about *summary* takes."""
    line = f"- {summary.name}: {summary.description} {summary.when_to_use}".rstrip()
    return tokens_of(len(line))


def partition_skill_catalog(
    active: Collection[str],
    available: Iterable[SkillSummary],
    *,
    budget: float = CATALOG_TOKENS,
    cost: Callable[[SkillSummary], float] = catalog_line_tokens,
) -> SkillCatalog:
    """Part *available* into what is loaded and what could be.

    Args:
        active: refs of the skills that are loaded.
        available: every skill, in the order in which it is to be listed.
        budget: tokens for the loadable entries together.
        cost: how many of them an entry takes that is shown in full.

    Raises:
        TypeError, ValueError: the budget or a cost is no finite amount.
    """
    left = check_amount("budget", budget)
    loaded: list[SkillSummary] = []
    loadable: list[CatalogEntry] = []
    for summary in available:
        if summary.ref in active:
            loaded.append(summary)
            continue
        price = check_amount(f"the cost of {summary.name!r}", cost(summary))
        fits = price <= left
        left -= price if fits else 0
        loadable.append(CatalogEntry(summary=summary, name_only=not fits))
    return SkillCatalog(active=tuple(loaded), loadable=tuple(loadable))
