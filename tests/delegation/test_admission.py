"""Who may start a child: every limit at its edge, and the order in which they are asked."""

import itertools
import math
from typing import cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._messages import FAILURE_KINDS
from harness.delegation import (
    ADMISSION_ROWS,
    ChainRef,
    ChainRule,
    ChildAdmitted,
    ChildRefused,
    RefusalCode,
    admit_child_run,
    descend_chain,
    root_chain,
)

ORDER = ["bad_measurement", "agent_not_allowed", "recursion", "depth", "live_children", "tree_size"]


def chain_at(depth: int) -> ChainRef:
    chain = root_chain("run-0", "agent-0")
    for level in range(1, depth + 1):
        chain = descend_chain(chain, f"run-{level}", f"agent-{level}")
    return chain


def admit(
    rule: ChainRule,
    *,
    agent: str = "clerk",
    depth: int = 0,
    live_children: object = 0,
    runs_in_tree: object = 1,
) -> str:
    """Return the code of the refusal, or nothing."""
    verdict = admit_child_run(
        chain_at(depth),
        agent,
        rule,
        run_id="child",
        live_children=live_children,
        runs_in_tree=runs_in_tree,
    )
    return verdict.code if isinstance(verdict, ChildRefused) else ""


@pytest.mark.rule("R-CHILD-03")
def test_the_limits_without_a_word() -> None:
    rule = ChainRule()
    assert (rule.max_depth, rule.max_live_children, rule.max_runs_in_tree) == (3, 5, 25)
    assert (rule.allow_recursion, rule.allowed_agents) == (False, None)


@pytest.mark.rule("R-CHILD-03")
@pytest.mark.parametrize("limit", [0, 1, 3, 7])
def test_each_limit_at_its_edge_and_one_beyond(limit: int) -> None:
    deep = ChainRule(max_depth=limit)
    assert admit(deep, depth=limit) == "depth"
    if limit:
        assert admit(deep, depth=limit - 1) == ""
    wide = ChainRule(max_live_children=limit)
    assert admit(wide, live_children=limit) == "live_children"
    if limit:
        assert admit(wide, live_children=limit - 1) == ""
    large = ChainRule(max_runs_in_tree=limit)
    assert admit(large, runs_in_tree=limit) == "tree_size"
    if limit:
        assert admit(large, runs_in_tree=limit - 1) == ""


@pytest.mark.rule("R-CHILD-03")
def test_an_agent_stands_below_itself_only_where_that_is_allowed() -> None:
    for agent in ("agent-0", "agent-1", "agent-2"):
        assert admit(ChainRule(), agent=agent, depth=2) == "recursion"
        assert admit(ChainRule(allow_recursion=True), agent=agent, depth=2) == ""
    assert admit(ChainRule(), agent="agent-3", depth=2) == ""


@pytest.mark.rule("R-CHILD-03")
def test_only_those_that_are_named_are_allowed() -> None:
    rule = ChainRule(allowed_agents=frozenset({"clerk"}))
    assert admit(rule) == ""
    assert admit(rule, agent="scribe") == "agent_not_allowed"
    assert admit(ChainRule(allowed_agents=frozenset())) == "agent_not_allowed"


@pytest.mark.rule("R-CHILD-03")
@pytest.mark.parametrize("field", ["max_depth", "max_live_children", "max_runs_in_tree"])
@pytest.mark.parametrize("value", [True, -1, 1.0, math.nan, math.inf, "3", None])
def test_a_limit_that_is_no_count_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^ChainRule\.{field} is .*, expected "):
        ChainRule(**{field: value})  # type: ignore[arg-type]  # what is being tested


@pytest.mark.rule("R-CHILD-03")
def test_a_rule_is_made_of_what_it_says() -> None:
    with pytest.raises(TypeError, match=r"^ChainRule\.allow_recursion is 1, expected a bool$"):
        ChainRule(allow_recursion=1)  # type: ignore[arg-type]  # what is being tested
    with pytest.raises(TypeError, match=r"^ChainRule\.allowed_agents is 'clerk', expected several"):
        ChainRule(allowed_agents="clerk")


@pytest.mark.rule("R-CHILD-04")
def test_of_any_faults_the_first_in_the_table_is_told() -> None:
    assert [row.code for row in ADMISSION_ROWS] == ORDER
    for size in range(1, len(ORDER) + 1):
        for broken in itertools.combinations(ORDER, size):
            assert broken_by(frozenset(broken)) == broken[0]
    assert broken_by(frozenset()) == ""


def broken_by(faults: frozenset[str]) -> str:
    """Ask for a child that has just these *faults*."""
    live: object = 2 if "live_children" in faults else 1
    if "bad_measurement" in faults:
        live = -1
    rule = ChainRule(
        max_depth=1 if "depth" in faults else 2,
        max_live_children=2,
        max_runs_in_tree=4,
        allow_recursion="recursion" not in faults,
        allowed_agents=frozenset({"other"} if "agent_not_allowed" in faults else {"agent-1"}),
    )
    return admit(
        rule,
        agent="agent-1",
        depth=1,
        live_children=live,
        runs_in_tree=4 if "tree_size" in faults else 3,
    )


@pytest.mark.rule("R-CHILD-05")
@pytest.mark.parametrize("value", [-1, True, 1.0, math.nan, math.inf, "3", None])
def test_a_broken_measurement_refuses(value: object) -> None:
    assert admit(ChainRule(), live_children=value) == "bad_measurement"
    assert admit(ChainRule(), runs_in_tree=value) == "bad_measurement"


@pytest.mark.rule("R-CHILD-05")
def test_a_refusal_has_a_sentence_for_the_model() -> None:
    verdict = admit_child_run(
        chain_at(0), "clerk", ChainRule(), run_id="c", live_children=5, runs_in_tree=1
    )
    assert verdict == ChildRefused(
        code="live_children",
        text="The agent 'clerk' was not started: 5 agents of this run are at work, which is as "
        "many as may be; call it again once one of them has ended.",
        kind="conflict",
    )


@pytest.mark.rule("R-CHILD-05")
def test_every_refusal_has_a_row_and_a_kind_that_models_know() -> None:
    assert {row.code for row in ADMISSION_ROWS} == set(get_args(RefusalCode))
    assert {row.kind for row in ADMISSION_ROWS} <= set(FAILURE_KINDS)
    texts = {
        verdict.text
        for fault in ORDER
        if isinstance(verdict := refused_for(cast(RefusalCode, fault)), ChildRefused)
    }
    assert len(texts) == len(ORDER)
    assert all(each.startswith("The agent 'agent-1' was not started: ") for each in texts)


def refused_for(code: RefusalCode) -> ChildAdmitted | ChildRefused:
    return admit_child_run(
        chain_at(1),
        "agent-1",
        ChainRule(
            max_depth=1 if code == "depth" else 2,
            allow_recursion=code != "recursion",
            allowed_agents=frozenset() if code == "agent_not_allowed" else None,
        ),
        run_id="child",
        live_children={"bad_measurement": None, "live_children": 5}.get(code, 0),
        runs_in_tree=25 if code == "tree_size" else 2,
    )


@pytest.mark.rule("R-CHILD-05")
def test_an_admission_has_the_childs_lineage() -> None:
    verdict = admit_child_run(
        chain_at(1), "clerk", ChainRule(), run_id="c", live_children=0, runs_in_tree=2
    )
    assert verdict == ChildAdmitted(chain=descend_chain(chain_at(1), "c", "clerk"))


@pytest.mark.rule("R-CHILD-04")
@given(
    st.integers(0, 4),
    st.integers(0, 6),
    st.integers(0, 30),
    st.builds(
        ChainRule,
        max_depth=st.integers(0, 4),
        max_live_children=st.integers(0, 6),
        max_runs_in_tree=st.integers(0, 30),
        allow_recursion=st.booleans(),
        allowed_agents=st.none() | st.frozensets(st.sampled_from(["agent-0", "clerk"])),
    ),
    st.sampled_from(["agent-0", "clerk"]),
)
def test_a_child_is_admitted_just_if_it_breaks_no_limit(
    depth: int, live: int, runs: int, rule: ChainRule, agent: str
) -> None:
    fits = (
        (rule.allowed_agents is None or agent in rule.allowed_agents)
        and (rule.allow_recursion or agent != "agent-0")
        and depth + 1 <= rule.max_depth
        and live + 1 <= rule.max_live_children
        and runs + 1 <= rule.max_runs_in_tree
    )
    code = admit(rule, agent=agent, depth=depth, live_children=live, runs_in_tree=runs)
    assert (code == "") == fits
