"""Who started whom: the lineage of a run, from the root of its tree to itself.

A lineage is a value that is made once, when its run begins, and handed down: nobody has to know
the whole tree to say where a run stands in it. It goes through JSON, for a child that runs in
another process. There it is untrusted text, so what is read is checked as a whole: a depth that
does not fit the path would let a run start children that the rule forbids.

A child's run id is derived from its place: the parent's run, the agent, the arguments of the call,
and how many equal calls came before. Drawn at random, it would be a new one whenever a turn is made
again after a crash; the receipts of the first attempt would not be found, and its effects happen
twice.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import attrs
import msgspec

from harness._arguments import call_digest
from harness._chain import ChainRef
from harness._errors import RecordError
from harness._json import JSON, converted, digest
from harness._toolset import Batch, ToolCall
from harness.transcript import calls_in

__all__ = ["chain_from_json", "chain_to_json", "child_run_id", "descend_chain", "root_chain"]

_Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]


def root_chain(run_id: str, agent: str) -> ChainRef:
    """Return the lineage of the run *run_id* of *agent*, which nobody started.

    Raises:
        ValueError: a name is empty.
    """
    return _checked(ChainRef(root_run_id=run_id, run_id=run_id, path=(agent,)))


def descend_chain(chain: ChainRef, run_id: str, agent: str) -> ChainRef:
    """Return the lineage of the run *run_id* of *agent*, started by the run that *chain* is of.

    Raises:
        ValueError: a name is empty, or *run_id* is one of the runs that *chain* names.
    """
    if run_id and run_id in (chain.root_run_id, chain.parent_run_id, chain.run_id):
        raise ValueError(f"the child's run id is {run_id!r}, expected one that is new in {chain}")
    return _checked(
        ChainRef(
            root_run_id=chain.root_run_id,
            run_id=run_id,
            parent_run_id=chain.run_id,
            depth=chain.depth + 1,
            path=(*chain.path, agent),
        )
    )


def child_run_id(agent: str, batch: Batch, call: ToolCall) -> str:
    """Return the id of the run of *agent* that *call* of *batch* starts: the same in a retry."""
    place: list[JSON] = [batch.run_id, agent, call_digest(call), _equal_calls_before(batch, call)]
    return f"{agent}_{digest(place)[:32]}"


def _equal_calls_before(batch: Batch, call: ToolCall) -> int:
    """Return how many calls like *call* the run had made when it made this one."""
    same = call_digest(call)
    asked = batch.messages[: len(batch.messages) - 1]
    earlier = [*calls_in(asked), *(each for each in batch.calls if each.index < call.index)]
    # By name first: reading the arguments of every call of a long run would take time.
    count = sum(each.name == call.name and call_digest(each) == same for each in earlier)
    return count + batch.forgotten.get(same, 0)


# -- JSON --------------------------------------------------------------------------------------


class _Chain(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A lineage as it is stored."""

    root_run_id: _Text
    run_id: _Text
    parent_run_id: _Text | None
    depth: Annotated[int, msgspec.Meta(ge=0)]
    path: list[_Text]


def chain_to_json(chain: ChainRef) -> dict[str, JSON]:
    """Return *chain* as a JSON object."""
    return {**attrs.asdict(chain), "path": list(chain.path)}


def chain_from_json(value: object) -> ChainRef:
    """Return the lineage that `chain_to_json` made *value* of.

    Raises:
        RecordError: it is no such object, or its fields do not fit together; it has the path.
    """
    stored = converted(value, _Chain)
    try:
        return _checked(
            ChainRef(
                root_run_id=stored.root_run_id,
                run_id=stored.run_id,
                parent_run_id=stored.parent_run_id,
                depth=stored.depth,
                path=tuple(stored.path),
            )
        )
    except ValueError as error:
        raise RecordError(str(error)) from None


def _checked(chain: ChainRef) -> ChainRef:
    """Return *chain* if its fields fit together."""
    names: tuple[object, ...] = (chain.root_run_id, chain.run_id, *chain.path)
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"a name is empty or no text in {chain}, expected texts")
    if len(chain.path) != chain.depth + 1:
        raise ValueError(
            f"the path has {len(chain.path)} agents at depth {chain.depth}, "
            f"expected {chain.depth + 1}"
        )
    at_root = chain.depth == 0
    if (chain.parent_run_id is None) != at_root or (chain.run_id == chain.root_run_id) != at_root:
        text = f"run {chain.run_id!r} is at depth {chain.depth} below {chain.parent_run_id!r}"
        raise ValueError(f"{text} of the tree {chain.root_run_id!r}, expected a root at depth 0")
    if chain.depth and (chain.parent_run_id == chain.root_run_id) != (chain.depth == 1):
        text = f"the parent of {chain.run_id!r} at depth {chain.depth} is {chain.parent_run_id!r}"
        raise ValueError(f"{text}, expected the root {chain.root_run_id!r} just at depth 1")
    if chain.run_id == chain.parent_run_id:
        raise ValueError(f"run {chain.run_id!r} is its own parent, expected another")
    return chain
