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

__all__ = ["Budget", "Limits", "Used"]


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
class Used:
    """What a run has used, or all the runs below it, over all legs. Counted in place."""

    turns: int = 0
    tool_calls: int = 0
    usage: Usage = attrs.field(factory=Usage)
    runs: int = 0


@attrs.define(eq=False)
class Budget:
    """A ledger: limits, what was used of them, and the ledger above."""

    limits: Limits = attrs.field()
    parent: Budget | None = attrs.field(default=None, kw_only=True)
    live_children: int = attrs.field(default=0, init=False)
    """Runs directly below that are going on."""
    _own: Used = attrs.field(factory=Used, init=False, repr=False)
    _below: Used = attrs.field(factory=Used, init=False, repr=False)

    @limits.validator
    def _check_limits(self, _: object, value: object) -> None:
        if not isinstance(value, Limits):
            raise TypeError(f"Budget.limits is {value!r}, expected Limits")

    @parent.validator
    def _check_parent(self, _: object, value: object) -> None:
        if value is not None and not isinstance(value, Budget):
            raise TypeError(f"Budget.parent is {value!r}, expected a Budget or None")

    @property
    def turns(self) -> int:
        """Turns taken on this ledger and below it."""
        return self._own.turns + self._below.turns

    @property
    def tool_calls(self) -> int:
        """Calls taken on this ledger and below it."""
        return self._own.tool_calls + self._below.tool_calls

    @property
    def usage(self) -> Usage:
        """What was spent on this ledger and below it."""
        return self._own.usage + self._below.usage

    @property
    def runs(self) -> int:
        """Runs that were started on this ledger or below it, its own with them."""
        return 1 + self._below.runs

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
        for each in self._accounts():
            each.turns += 1

    def give_back_turn(self) -> None:
        """Take back a turn that did not come to an end."""
        for each in self._accounts():
            each.turns -= 1

    def take_calls(self, count: int) -> bool:
        """Count the calls of a batch, all or none; False if a limit forbids them."""
        for ledger in self._ledgers():
            limit = ledger.limits.tool_calls
            if ledger._spent or (limit is not None and ledger.tool_calls + count > limit):
                return False
        for each in self._accounts():
            each.tool_calls += count
        return True

    def post(self, usage: Usage) -> None:
        """Add spend, here and in every ledger above."""
        for each in self._accounts():
            each.usage += usage

    def begin_leg(self, *, first: bool) -> None:
        """Count a leg that begins, in the ledgers above; a run's *first* is a new run there."""
        if self.parent is not None:
            self.parent.live_children += 1
        for each in self._accounts():
            each.runs += first

    def end_leg(self) -> None:
        """Count a leg that has ended."""
        if self.parent is not None:
            self.parent.live_children -= 1

    def carry_over(self, *, turns: int, tool_calls: int, usage: Usage, below: Used) -> None:
        """Enter what earlier legs of the run and the runs *below* it used; those above knew it.

        From here on *below* is counted on in place.
        """
        self._own = Used(turns=turns, tool_calls=tool_calls, usage=usage)
        self._below = below

    @property
    def _spent(self) -> bool:
        limits = self.limits
        return _reached(self.usage.tokens, limits.tokens) or _reached(
            self.usage.cost_cents, limits.cost_cents
        )

    def _accounts(self) -> Iterator[Used]:
        """Yield where something that the run does is counted: its own, and below each above."""
        above = self._ledgers()
        yield next(above)._own
        for each in above:
            yield each._below

    def _ledgers(self) -> Iterator[Budget]:
        each: Budget | None = self
        while each is not None:
            yield each
            each = each.parent


def _reached(used: float, limit: float | None) -> bool:
    return limit is not None and used >= limit
