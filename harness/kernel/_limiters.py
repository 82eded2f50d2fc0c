"""Permits: how many calls of a pool run at a time.

A pool is a name with a limiter. A call takes a permit of its pool, then one of the total; a
call without a pool takes none, so that a call which waits for other calls cannot starve them.
Pools that nobody configured come and go with the calls that use them: a shared `Limiters` does
not grow with the names that models make up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import trio

from harness._bounds import check_count

__all__ = ["Limiters", "Permit"]


@attrs.define(eq=False)
class _Pool:
    limiter: trio.CapacityLimiter
    claims: int = 0
    """Permits taken and waited for."""
    configured: bool = False


@attrs.define(eq=False)
class Permit:
    """The right to run one call; the borrower in its limiters. Releasing it twice is no error."""

    _limiters: Limiters
    _name: str | None
    _held: list[trio.CapacityLimiter] = attrs.field(factory=list, init=False)
    _claimed: bool = attrs.field(default=False, init=False)

    def take_nowait(self) -> bool:
        """Take the permit if it is free; is no checkpoint."""
        try:
            for limiter in self._claim():
                limiter.acquire_on_behalf_of_nowait(self)
                self._held.append(limiter)
        except trio.WouldBlock:
            self.release()
            return False
        return True

    async def take(self) -> None:
        """Wait in line for the permit. A checkpoint; on cancellation nothing is taken."""
        try:
            for limiter in self._claim():
                await limiter.acquire_on_behalf_of(self)
                self._held.append(limiter)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give back what was taken, once; is no checkpoint."""
        for limiter in reversed(self._held):
            limiter.release_on_behalf_of(self)
        self._held.clear()
        if self._claimed:
            self._claimed = False
            self._limiters._unclaim(self._name)

    def _claim(self) -> list[trio.CapacityLimiter]:
        self._claimed = True
        return self._limiters._claim(self._name)


class Limiters:
    """Limits on calls in flight, by pool; may be shared by runs or a whole service.

    Args:
        default: permits of a pool that *pools* does not name.
        pools: permits by pool name, or a `trio.CapacityLimiter` of the caller's.
        total: permits over all pools together; None is no such limit.
    """

    def __init__(
        self,
        default: int = 5,
        *,
        pools: Mapping[str, int | trio.CapacityLimiter] | None = None,
        total: int | None = None,
    ) -> None:
        self._default = check_count("Limiters.default", default, least=1)
        self._total: trio.CapacityLimiter | None = None
        if total is not None:
            self._total = trio.CapacityLimiter(check_count("Limiters.total", total, least=1))
        self._pools: dict[str, _Pool] = {}
        for name, permits in (pools or {}).items():
            self._pools[name] = _Pool(_limiter(name, permits), configured=True)

    def permit(self, pool: str | None) -> Permit:
        """Return a permit of *pool*, not yet taken."""
        return Permit(self, pool)

    @property
    def borrowed(self) -> int:
        """Permits taken at this moment, over all pools."""
        return sum(pool.limiter.borrowed_tokens for pool in self._pools.values())

    def __repr__(self) -> str:
        total = math.inf if self._total is None else self._total.total_tokens
        return f"<Limiters default={self._default} total={total} borrowed={self.borrowed}>"

    def _claim(self, name: str | None) -> list[trio.CapacityLimiter]:
        if name is None:
            return []
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = _Pool(trio.CapacityLimiter(self._default))
        pool.claims += 1
        return [pool.limiter] if self._total is None else [pool.limiter, self._total]

    def _unclaim(self, name: str | None) -> None:
        if name is None:
            return
        pool = self._pools[name]
        pool.claims -= 1
        if not pool.claims and not pool.configured:
            del self._pools[name]


def _limiter(name: str, permits: int | trio.CapacityLimiter) -> trio.CapacityLimiter:
    if isinstance(permits, trio.CapacityLimiter):
        return permits
    return trio.CapacityLimiter(check_count(f"Limiters.pools[{name!r}]", permits, least=1))
