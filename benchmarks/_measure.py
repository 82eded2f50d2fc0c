"""Two ways of doing the same work, timed in turn: A B A B.

Each sample is the thread's CPU time, which a busy machine disturbs less than wall time. A figure
is the median of the ratios of neighbouring samples, with their quartiles.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import attrs
import trio

__all__ = ["Figure", "Work", "compare"]

Work: TypeAlias = Callable[[], Awaitable[float]]
"""Does the work once and returns the CPU seconds of the part that counts."""


@attrs.frozen(kw_only=True)
class Figure:
    """One measured ratio."""

    name: str
    ratio: float
    q1: float
    q3: float
    ours: float
    """Median CPU seconds."""
    baseline: float
    n: int

    def __str__(self) -> str:
        return (
            f"{self.name:<22} {self.ratio:5.2f} x   [{self.q1:.2f} to {self.q3:.2f}, n={self.n}]   "
            f"{self.ours * 1e3:9.3f} ms against {self.baseline * 1e3:9.3f} ms"
        )


def compare(name: str, ours: Work, baseline: Work, *, samples: int) -> Figure:
    """Time *ours* against *baseline*; one warm-up of each does not count."""
    pairs = [(trio.run(ours), trio.run(baseline)) for _ in range(samples + 1)][1:]
    ratios = sorted(mine / theirs for mine, theirs in pairs)
    q1, median, q3 = statistics.quantiles(ratios, n=4) if samples > 1 else ratios * 3
    return Figure(
        name=name,
        ratio=median,
        q1=q1,
        q3=q3,
        ours=statistics.median(mine for mine, _ in pairs),
        baseline=statistics.median(theirs for _, theirs in pairs),
        n=samples,
    )


@attrs.define(eq=False)
class Stopwatch:
    """CPU time of this thread between `start` and `stop`, without collections of other garbage."""

    _began: float = 0.0

    def start(self) -> None:
        """Begin."""
        gc.collect()
        self._began = time.thread_time()

    def stop(self) -> float:
        """Return the seconds since `start`."""
        return time.thread_time() - self._began
