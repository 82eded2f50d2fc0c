"""Lineages: from the root down, and through JSON."""

import json
from collections.abc import Callable
from typing import cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import JSON, Batch, Message, ToolCall, assistant_message, user_message
from harness._arguments import call_digest
from harness.delegation import (
    ChainRef,
    chain_from_json,
    chain_to_json,
    child_run_id,
    descend_chain,
    root_chain,
)
from harness.errors import RecordError
from harness.testing import tool_call
from harness.transcript import calls_of
from tests.strategies import anything, texts

named = texts.filter(bool)


@st.composite
def chains(draw: st.DrawFn) -> ChainRef:
    """A lineage of some depth."""
    ids = draw(st.lists(named, min_size=1, max_size=5, unique=True))
    chain = root_chain(ids[0], draw(named))
    for each in ids[1:]:
        chain = descend_chain(chain, each, draw(named))
    return chain


@pytest.mark.rule("R-CHILD-01")
def test_a_root_stands_at_depth_nought_below_nobody() -> None:
    assert root_chain("r", "planner") == ChainRef(
        root_run_id="r", run_id="r", parent_run_id=None, depth=0, path=("planner",)
    )


@pytest.mark.rule("R-CHILD-01")
def test_a_lineage_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        root_chain("r", "planner").depth = 3  # type: ignore[misc]  # what the test is about


@pytest.mark.rule("R-CHILD-02")
def test_each_level_is_one_deeper_in_the_same_tree() -> None:
    root = root_chain("r", "planner")
    child = descend_chain(root, "c", "clerk")
    grandchild = descend_chain(child, "g", "scribe")
    assert (child.depth, grandchild.depth) == (1, 2)
    assert (child.parent_run_id, grandchild.parent_run_id) == ("r", "c")
    assert {each.root_run_id for each in (root, child, grandchild)} == {"r"}
    assert grandchild.path == ("planner", "clerk", "scribe")


@pytest.mark.rule("R-CHILD-02")
@pytest.mark.parametrize("run_id", ["r", "c", "g"])
def test_a_run_stands_in_its_lineage_once(run_id: str) -> None:
    chain = descend_chain(descend_chain(root_chain("r", "a"), "c", "b"), "g", "c")
    with pytest.raises(ValueError, match=rf"^the child's run id is '{run_id}', expected one that"):
        descend_chain(chain, run_id, "d")


@pytest.mark.rule("R-CHILD-01", "R-CHILD-02")
@pytest.mark.parametrize("name", ["", None, 3])
def test_a_name_is_a_text(name: object) -> None:
    text = cast(str, name)
    makers: list[Callable[[], ChainRef]] = [
        lambda: root_chain(text, "a"),
        lambda: root_chain("r", text),
        lambda: descend_chain(root_chain("r", "a"), text, "b"),
        lambda: descend_chain(root_chain("r", "a"), "c", text),
    ]
    for make in makers:
        with pytest.raises(ValueError, match=r"^a name is empty or no text in .*, expected texts$"):
            make()


# -- JSON --------------------------------------------------------------------------------------


@pytest.mark.rule("R-CHILD-06")
@given(chains())
def test_a_lineage_goes_through_json(chain: ChainRef) -> None:
    assert chain_from_json(json.loads(json.dumps(chain_to_json(chain)))) == chain


GOOD: dict[str, JSON] = {
    "root_run_id": "r",
    "run_id": "g",
    "parent_run_id": "c",
    "depth": 2,
    "path": ["a", "b", "c"],
}


@pytest.mark.rule("R-CHILD-06")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"colour": 1}, ""),
        ({"depth": "2"}, "$.depth"),
        ({"depth": True}, "$.depth"),
        ({"depth": 2.5}, "$.depth"),
        ({"depth": -1}, "$.depth"),
        ({"depth": 1}, ""),
        ({"depth": 3}, ""),
        ({"root_run_id": ""}, "$.root_run_id"),
        ({"run_id": None}, "$.run_id"),
        ({"run_id": "r"}, ""),
        ({"run_id": "c"}, ""),
        ({"parent_run_id": ""}, "$.parent_run_id"),
        ({"parent_run_id": None}, ""),
        ({"parent_run_id": "r"}, ""),
        ({"path": ["a", 1, "c"]}, "$.path[1]"),
        ({"path": ["a", "b", ""]}, "$.path[2]"),
        ({"path": ["a"]}, ""),
        ({"path": "abc"}, "$.path"),
        ({"depth": 1, "path": ["a", "b"]}, ""),
        ({"depth": 0, "path": ["a"]}, ""),
        ({"depth": 0, "path": ["a"], "parent_run_id": None}, ""),
    ],
)
def test_a_lineage_that_does_not_fit_is_refused_with_the_place(
    change: dict[str, JSON], path: str
) -> None:
    assert chain_from_json(GOOD).depth == 2
    with pytest.raises(RecordError) as caught:
        chain_from_json({**GOOD, **change})
    assert caught.value.path == path


@pytest.mark.rule("R-CHILD-06")
@pytest.mark.parametrize("field", GOOD)
def test_every_field_is_needed(field: str) -> None:
    with pytest.raises(RecordError, match=rf"missing required field `{field}`"):
        chain_from_json({key: value for key, value in GOOD.items() if key != field})


@pytest.mark.rule("R-CHILD-06")
@given(anything)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(RecordError):
        chain_from_json(value)


# -- the run id of a child ---------------------------------------------------------------------


def batch_of(
    calls: list[tuple[str, str]],
    *,
    earlier: list[list[tuple[str, str]]] | None = None,
    forgotten: dict[str, int] | None = None,
    run_id: str = "r",
) -> Batch:
    """A batch of *calls*, each a name and a task, after turns with *earlier* ones."""
    messages: list[Message] = [user_message("Go.")]
    for turn in [*(earlier or []), calls]:
        asked = [
            tool_call(name, {"task": task}, id=f"{len(messages)}-{place}")
            for place, (name, task) in enumerate(turn)
        ]
        messages.append(assistant_message(None, asked))
    return Batch(
        run_id=run_id,
        turn_id="t",
        turn=0,
        calls=calls_of(messages[-1]),
        messages=messages,
        forgotten=forgotten or {},
    )


def ids(batch: Batch, agent: str = "clerk") -> list[str]:
    return [child_run_id(agent, batch, each) for each in batch.calls]


@pytest.mark.rule("R-CHILD-12")
def test_a_turn_that_is_made_again_reaches_the_same_children_in_any_order() -> None:
    first = ids(batch_of([("clerk", "a"), ("clerk", "b"), ("clerk", "a")]))
    again = ids(batch_of([("clerk", "b"), ("clerk", "a"), ("clerk", "a")]))
    assert again == [first[1], first[0], first[2]]
    assert len(set(first)) == 3


@pytest.mark.rule("R-CHILD-12")
def test_equal_calls_are_told_apart_by_how_many_came_before() -> None:
    earlier = [[("clerk", "a"), ("clerk", "b")], [("clerk", "a"), ("other", "a")]]
    [third] = ids(batch_of([("clerk", "a")], earlier=earlier))
    same = batch_of([("clerk", "a")] * 3)
    assert third == ids(same)[2]
    # A compaction that takes the earlier ones out changes nothing.
    forgotten = {call_digest(same.calls[0]): 1}
    assert third == ids(batch_of([("clerk", "a")], earlier=earlier[:1], forgotten=forgotten))[0]


@pytest.mark.rule("R-CHILD-12")
def test_another_run_or_agent_or_task_is_another_child() -> None:
    [one] = ids(batch_of([("clerk", "a")]))
    others = [
        *ids(batch_of([("clerk", "a")], run_id="s")),
        *ids(batch_of([("clerk", "b")])),
        *ids(batch_of([("clerk", "a")]), agent="scribe"),
    ]
    assert len({one, *others}) == 4
    assert one.startswith("clerk_")


@pytest.mark.rule("R-CHILD-12")
def test_a_call_with_arguments_that_are_no_json_has_an_id_too() -> None:
    call = ToolCall(id="1", name="clerk", arguments="{")
    batch = Batch(run_id="r", turn_id="t", turn=0, calls=(call,), messages=[user_message("Go.")])
    assert ids(batch) == ids(batch)
