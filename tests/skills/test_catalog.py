import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.skills import SkillSummary, catalog_line_tokens, partition_skill_catalog


def summary(name: str, description: str = "d") -> SkillSummary:
    return SkillSummary(ref=f"platform:{name}", name=name, description=description)


def costs(*amounts: float) -> Callable[[SkillSummary], float]:
    left = list(amounts)
    return lambda _: left.pop(0)


A, B, C = (summary(name) for name in "abc")


@pytest.mark.rule("R-SKILL-06")
@given(st.lists(st.integers(0, 9), unique=True), st.sets(st.integers(0, 12)), st.integers(0, 60))
def test_every_summary_is_in_exactly_one_part(
    available: list[int], active: set[int], budget: int
) -> None:
    summaries = [summary(f"s{n}") for n in available]
    catalog = partition_skill_catalog(
        {f"platform:s{n}" for n in active}, summaries, budget=budget, cost=lambda _: 7
    )
    loadable = [each.summary for each in catalog.loadable]
    assert list(catalog.active) == [
        s for n, s in zip(available, summaries, strict=True) if n in active
    ]
    assert loadable == [s for n, s in zip(available, summaries, strict=True) if n not in active]
    assert sum(not each.name_only for each in catalog.loadable) == min(len(loadable), budget // 7)


@pytest.mark.rule("R-SKILL-07")
def test_what_finds_no_room_keeps_its_name() -> None:
    catalog = partition_skill_catalog([], [A, B, C], budget=1, cost=lambda _: 50)
    assert [each.summary.name for each in catalog.loadable] == ["a", "b", "c"]
    assert all(each.name_only for each in catalog.loadable)
    assert catalog.truncated
    assert not partition_skill_catalog([], [A]).truncated


@pytest.mark.rule("R-SKILL-08")
def test_entries_are_judged_in_order_against_what_is_left() -> None:
    catalog = partition_skill_catalog([], [A, B, C], budget=100, cost=costs(60, 500, 30))
    assert [each.name_only for each in catalog.loadable] == [False, True, False]


@pytest.mark.rule("R-SKILL-08")
def test_only_loadable_entries_cost_and_the_budget_is_two_thousand() -> None:
    catalog = partition_skill_catalog(["platform:a"], [A, B, C], cost=costs(2000, 0.5))
    assert [each.name_only for each in catalog.loadable] == [False, True]
    assert catalog.active == (A,)


@pytest.mark.rule("R-SKILL-09")
def test_the_cost_can_be_the_hosts() -> None:
    many = [summary(f"s{n}", "long " * 1_000) for n in range(2_000)]
    assert not partition_skill_catalog([], many, cost=lambda _: 1).truncated
    assert partition_skill_catalog([], many).truncated


@pytest.mark.rule("R-SKILL-09")
def test_a_line_of_the_usual_length_is_about_fifty_tokens() -> None:
    usual = SkillSummary(
        ref="platform:pdf-forms",
        name="pdf-forms",
        description="Fill in, read and flatten the forms of PDF files, and check what they hold.",
        when_to_use="When somebody has a form in PDF, or asks for one to be filled in or read out.",
    )
    assert catalog_line_tokens(usual) == 42
    assert catalog_line_tokens(A) == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, True, "1", None])
def test_a_budget_or_a_cost_that_is_no_amount_is_refused(bad: float) -> None:
    with pytest.raises((TypeError, ValueError), match="^budget is"):
        partition_skill_catalog([], [], budget=bad)
    with pytest.raises((TypeError, ValueError), match="^the cost of 'a' is"):
        partition_skill_catalog([], [A], cost=lambda _: bad)
