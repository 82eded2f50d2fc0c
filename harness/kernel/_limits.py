"""What a run may use, and the ledger of what it has used.

A tree of runs has one ledger. Each run has a `Budget` of its own whose parent is the budget of
the run above; whatever is spent is posted to all of them in one step, so a parent knows of it
before the child's result is in. Turns and calls are taken before they happen and are exact.
Tokens and cost are known only afterwards: they pass a limit by at most the completions then in
progress. Reserving a guess up front was rejected: with a limit of 1,000 tokens and 25 children
it either starves 24 of them or is passed all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from harness._bounds import check_amount, check_count
from harness._usage import Usage
from harness.kernel._stop import Fact

__all__ = ["Below", "Budget", "Limits"]


@attrs.frozen(kw_only=True)
class Limits:
    """Limits of a run over all its legs; None means no limit."""

    turns: int | None = attrs.field(default=30)
    tool_calls: int | None = attrs.field(default=None)
    tokens: int | None = attrs.field(default=None)
    """Input and output together."""
    cost_cents: float | None = attrs.field(default=None)

    @turns.validator
    @tool_calls.validator
    @tokens.validator
    def _check_count(self, field: attrs.Attribute[int | None], value: object) -> None:
        if value is not None:
            check_count(f"Limits.{field.name}", value)

    @cost_cents.validator
    def _check_cost(self, _: object, value: object) -> None:
        if value is not None:
            check_amount("Limits.cost_cents", value)


@attrs.define
class Below:
    """What the runs below a run have used, over all its legs. Counted in place, by its ledger."""

    turns: int = 0
    tool_calls: int = 0
    usage: Usage = attrs.field(factory=Usage)
    runs: int = 0


@attrs.define(eq=False)
class Budget:
    """A ledger: limits, what was used of them, and the ledger above."""

    limits: Limits = attrs.field()
    parent: Budget | None = attrs.field(default=None, kw_only=True)
    turns: int = attrs.field(default=0, init=False)
    tool_calls: int = attrs.field(default=0, init=False)
    usage: Usage = attrs.field(factory=Usage, init=False)
    runs: int = attrs.field(default=1, init=False)
    """Runs that were started on this ledger or below it, its own with them."""
    live_children: int = attrs.field(default=0, init=False)
    """Runs directly below that are going on."""
    _below: Below = attrs.field(factory=Below, init=False, repr=False)
    """The part of it that was not the run's own."""

    @limits.validator
    def _check_limits(self, _: object, value: object) -> None:
        if not isinstance(value, Limits):
            raise TypeError(f"Budget.limits is {value!r}, expected Limits")

    @parent.validator
    def _check_parent(self, _: object, value: object) -> None:
        if value is not None and not isinstance(value, Budget):
            raise TypeError(f"Budget.parent is {value!r}, expected a Budget or None")

    def lack(self) -> Fact | None:
        """Say what forbids another model call: own turns, or anything else here or above."""
        if _reached(self.turns, self.limits.turns):
            return "no_turns"
        if any(each._spent for each in self._ledgers()):
            return "no_budget"
        if any(_reached(each.turns, each.limits.turns) for each in self._ledgers()):
            return "no_budget"
        return None

    def take_turn(self) -> None:
        """Count a turn that is about to begin; `lack` was asked in the same step."""
        for each in self._ledgers():
            each.turns += 1
        for each in self._above():
            each._below.turns += 1

    def give_back_turn(self) -> None:
        """Take back a turn that did not come to an end."""
        for each in self._ledgers():
            each.turns -= 1
        for each in self._above():
            each._below.turns -= 1

    def take_calls(self, count: int) -> bool:
        """Count the calls of a batch, all or none; False if a limit forbids them."""
        for each in self._ledgers():
            limit = each.limits.tool_calls
            if each._spent or (limit is not None and each.tool_calls + count > limit):
                return False
        for each in self._ledgers():
            each.tool_calls += count
        for each in self._above():
            each._below.tool_calls += count
        return True

    def post(self, usage: Usage) -> None:
        """Add spend, here and in every ledger above."""
        for each in self._ledgers():
            each.usage += usage
        for each in self._above():
            each._below.usage += usage

    def begin_leg(self, *, first: bool) -> None:
        """Count a leg that begins, in the ledgers above; a run's *first* is a new run there."""
        if self.parent is not None:
            self.parent.live_children += 1
            for each in self._above():
                each.runs += first
                each._below.runs += first

    def end_leg(self) -> None:
        """Count a leg that has ended."""
        if self.parent is not None:
            self.parent.live_children -= 1

    def carry_over(self, *, turns: int, tool_calls: int, usage: Usage, below: Below) -> None:
        """Enter what earlier legs of the run and the runs *below* it used; those above knew it.

        From here on *below* is counted on in place.
        """
        self._below = below
        self.turns, self.tool_calls = turns + below.turns, tool_calls + below.tool_calls
        self.usage, self.runs = usage + below.usage, 1 + below.runs

    @property
    def _spent(self) -> bool:
        limits = self.limits
        return _reached(self.usage.tokens, limits.tokens) or _reached(
            self.usage.cost_cents, limits.cost_cents
        )

    def _ledgers(self) -> Iterator[Budget]:
        yield self
        yield from self._above()

    def _above(self) -> Iterator[Budget]:
        each = self.parent
        while each is not None:
            yield each
            each = each.parent


def _reached(used: float, limit: float | None) -> bool:
    return limit is not None and used >= limit
