"""Where a run stands in a tree of runs."""

from __future__ import annotations

import attrs

from harness._bounds import check_count

__all__ = ["ChainRef"]


@attrs.frozen(kw_only=True)
class ChainRef:
    """The lineage of a run, from the root of its tree to itself."""

    root_run_id: str
    run_id: str
    parent_run_id: str | None = None
    depth: int = attrs.field(default=0)
    """0 is the root."""
    path: tuple[str, ...] = ()
    """Names of the agents, the root's first and the run's own last."""

    @depth.validator
    def _check_depth(self, _: object, value: object) -> None:
        check_count("ChainRef.depth", value)
