"""May this run start another? A table, asked in order, before anything of the child exists.

A model that can start agents starts too many of them sooner or later: one that calls itself, a
fan-out at every level, a tree that no budget was meant for. Each of these has a limit. The host
measures and this judges; the answer to a model is a sentence that says what is the matter, and to
a host a code, so that nobody has to match prose.

The order is that of what can be done about it. An agent that may never be started is named
first, and a limit that will be free again later comes after one that will not. What was measured
badly refuses: a count that is no count must not pass for a small one.

Rejected: waiting in line for a free place. The parent's model sees a call that does not come
back, holds its turn open, and two parents that wait for each other's children would do so for
ever. A refusal is an answer, and the model can do the work itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Literal, TypeAlias

import attrs

from harness._bounds import check_count
from harness._chain import ChainRef
from harness._messages import FailureKind
from harness.delegation._lineage import descend_chain

__all__ = [
    "ADMISSION_ROWS",
    "AdmissionRow",
    "ChainRule",
    "ChildAdmitted",
    "ChildRefused",
    "RefusalCode",
    "admit_child_run",
]

RefusalCode: TypeAlias = Literal[
    "bad_measurement", "agent_not_allowed", "recursion", "depth", "live_children", "tree_size"
]


def _names(value: Collection[str] | None) -> frozenset[str] | None:
    if isinstance(value, str):
        raise TypeError(f"ChainRule.allowed_agents is {value!r}, expected several names or None")
    return None if value is None else frozenset(value)


@attrs.frozen(kw_only=True)
class ChainRule:
    """What a run may start.

    Raises:
        TypeError, ValueError: a limit is no count.
    """

    max_depth: int = attrs.field(default=3)
    """How deep a child may stand; the root is at 0, so 0 forbids all children."""
    max_live_children: int = attrs.field(default=5)
    """How many children of one run may be going on at a time."""
    max_runs_in_tree: int = attrs.field(default=25)
    """How many runs a tree may have had, the root and those that ended with them."""
    allow_recursion: bool = attrs.field(default=False)
    """Whether an agent may stand below itself."""
    allowed_agents: frozenset[str] | None = attrs.field(default=None, converter=_names)
    """Who may be started; None is anybody."""

    @max_depth.validator
    @max_live_children.validator
    @max_runs_in_tree.validator
    def _check_count(self, field: attrs.Attribute[int], value: object) -> None:
        check_count(f"ChainRule.{field.name}", value)

    @allow_recursion.validator
    def _check_flag(self, _: object, value: object) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"ChainRule.allow_recursion is {value!r}, expected a bool")


@attrs.frozen(kw_only=True)
class ChildAdmitted:
    """The child may begin."""

    chain: ChainRef
    """The child's lineage."""


@attrs.frozen(kw_only=True)
class ChildRefused:
    """The child may not begin."""

    code: RefusalCode
    text: str
    """For the model."""
    kind: FailureKind
    """What the call fails with."""


@attrs.frozen(kw_only=True)
class _Asked:
    """A child that is asked for, and what was measured."""

    chain: ChainRef
    agent: str
    rule: ChainRule
    live_children: object
    runs_in_tree: object

    @property
    def depth(self) -> int:
        return self.chain.depth + 1


@attrs.frozen
class AdmissionRow:
    """One reason to refuse a child."""

    code: RefusalCode
    kind: FailureKind
    when: str
    refuses: Callable[[_Asked], bool] = attrs.field(repr=False)
    text: Callable[[_Asked], str] = attrs.field(repr=False)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _reached(value: object, limit: int) -> bool:
    return isinstance(value, int) and value >= limit


ADMISSION_ROWS: Final = (
    AdmissionRow(
        "bad_measurement",
        "system",
        "a measurement is no count",
        lambda asked: not (_is_count(asked.live_children) and _is_count(asked.runs_in_tree)),
        lambda asked: "nobody knows how many agents are at work",
    ),
    AdmissionRow(
        "agent_not_allowed",
        "authz",
        "``allowed_agents`` does not name it",
        lambda asked: (
            asked.rule.allowed_agents is not None and asked.agent not in asked.rule.allowed_agents
        ),
        lambda asked: "it may not be started from here",
    ),
    AdmissionRow(
        "recursion",
        "authz",
        "it stands in its own path, and ``allow_recursion`` is off",
        lambda asked: not asked.rule.allow_recursion and asked.agent in asked.chain.path,
        lambda asked: "it is at work above this run already, and may not be started below itself",
    ),
    AdmissionRow(
        "depth",
        "authz",
        "it would stand below ``max_depth``",
        lambda asked: asked.depth > asked.rule.max_depth,
        lambda asked: (
            f"it would be {asked.depth} levels down, and at most {asked.rule.max_depth} are allowed"
        ),
    ),
    AdmissionRow(
        "live_children",
        "conflict",
        "``max_live_children`` of its parent's are going on",
        lambda asked: _reached(asked.live_children, asked.rule.max_live_children),
        lambda asked: (
            f"{asked.live_children} agents of this run are at work, which is as many as may be; "
            "call it again once one of them has ended"
        ),
    ),
    AdmissionRow(
        "tree_size",
        "authz",
        "the tree has had ``max_runs_in_tree`` runs",
        lambda asked: _reached(asked.runs_in_tree, asked.rule.max_runs_in_tree),
        lambda asked: (
            f"{asked.rule.max_runs_in_tree} runs belong to this task, which is as many as may be"
        ),
    ),
)
"""Every reason to refuse a child; the first that holds is told."""


def admit_child_run(
    chain: ChainRef,
    agent: str,
    rule: ChainRule,
    *,
    run_id: str,
    live_children: object,
    runs_in_tree: object,
) -> ChildAdmitted | ChildRefused:
    """Say whether the run that *chain* is of may start *agent* as the run *run_id*.

    Args:
        chain: The lineage of who asks.
        agent: Who would be started.
        rule: What is allowed.
        run_id: The child's.
        live_children: How many children of the asking run are going on.
        runs_in_tree: How many runs the tree has had so far, its root with them.

    Raises:
        ValueError: *agent* is empty, or *run_id* is one of the runs that *chain* names.
    """
    child = descend_chain(chain, run_id, agent)
    asked = _Asked(
        chain=chain,
        agent=agent,
        rule=rule,
        live_children=live_children,
        runs_in_tree=runs_in_tree,
    )
    for row in ADMISSION_ROWS:
        if row.refuses(asked):
            text = f"The agent {agent!r} was not started: {row.text(asked)}."
            return ChildRefused(code=row.code, text=text, kind=row.kind)
    return ChildAdmitted(chain=child)
