"""An agent as another one may call it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from harness._bounds import check_seconds
from harness._model import ModelLike
from harness._toolset import Toolset
from harness.delegation._admission import ChainRule
from harness.kernel import Compactor, Limiters, Limits
from harness.tools import Tool

__all__ = ["Delegate"]


@attrs.frozen(kw_only=True, eq=False)
class Delegate:
    """An agent that another one may call: who it is, what it has, and what it may use."""

    name: str
    """What the calling model knows it by; a tool's name."""
    description: str
    """What the calling model is told of it."""
    model: ModelLike = attrs.field(repr=False)
    tools: Toolset | Sequence[Tool] = attrs.field(default=(), repr=False)
    """Shared by all its runs: nothing in them should belong to one."""
    instructions: str | None = attrs.field(default=None, repr=False)
    """Its system message."""
    limits: Limits = attrs.field(factory=Limits)
    """Of one task, over all its legs; what it uses counts in the caller's ledger too."""
    time_limit: float | None = attrs.field(default=None)
    """Seconds of each of its legs; None is as long as its caller has."""
    rule: ChainRule = attrs.field(factory=ChainRule)
    """What is asked before it may begin."""
    limiters: Limiters | None = attrs.field(default=None, repr=False)
    """Permits for its calls; None gives each child its own."""
    compactor: Compactor | None = attrs.field(default=None, repr=False)
    """Who shrinks its transcript when that has grown too long."""

    @time_limit.validator
    def _check_time_limit(self, _: object, value: object) -> None:
        if value is not None:
            check_seconds("Delegate.time_limit", value, zero=False)
