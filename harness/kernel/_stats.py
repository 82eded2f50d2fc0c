"""What a leg did and spent: this leg's share, while `RunState` has the run's totals."""

from __future__ import annotations

import attrs

from harness._usage import Usage

__all__ = ["RunStats", "ToolStats"]


@attrs.define
class ToolStats:
    """One tool's share."""

    calls: int = 0
    failures: int = 0
    """Calls that ended as anything but completed."""
    time: float = 0.0
    """Sum of the calls' durations in seconds; calls in parallel add up."""


@attrs.define
class RunStats:
    """Live figures of a leg, folded in place, so they survive every exit."""

    turns: int = 0
    tool_calls: int = 0
    """Calls whose function was entered; `RunState.tool_calls` counts those asked for."""
    usage: Usage = attrs.field(factory=Usage)
    """Turns and auxiliary spend together."""
    model_time: float = 0.0
    """Seconds spent waiting for the model, cut completions and compactions included."""
    tool_time: float = 0.0
    """Seconds in which a batch's calls ran; calls in parallel count once."""
    per_tool: dict[str, ToolStats] = attrs.field(factory=dict)
    abandoned: int = 0
    """Calls answered while their thread still ran."""

    def fold_turn(self, usage: Usage) -> None:
        """Count one finished turn."""
        self.turns += 1
        self.usage += usage

    def fold_spend(self, usage: Usage, model_time: float = 0.0) -> None:
        """Count spend that is no turn: a lost attempt, a compaction."""
        self.usage += usage
        self.model_time += model_time

    def fold_call(self, name: str, *, failed: bool, duration: float) -> None:
        """Count one call that ended; it was counted in `tool_calls` when it was entered."""
        tool = self.per_tool.setdefault(name, ToolStats())
        tool.calls += 1
        tool.failures += failed
        tool.time += duration

    def fold_leg(self, leg: RunStats) -> None:
        """Add the figures of a leg that has ended."""
        self.turns += leg.turns
        self.tool_calls += leg.tool_calls
        self.usage += leg.usage
        self.model_time += leg.model_time
        self.tool_time += leg.tool_time
        self.abandoned += leg.abandoned
        for name, other in leg.per_tool.items():
            tool = self.per_tool.setdefault(name, ToolStats())
            tool.calls += other.calls
            tool.failures += other.failures
            tool.time += other.time
