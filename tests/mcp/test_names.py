import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.mcp._names import LONGEST_NAME, Origin, assign_names, fit_name

FIT = re.compile(r"[A-Za-z0-9_-]{1,64}")

texts = st.one_of(st.text(max_size=80), st.text("ab._-/", max_size=6))
origins = st.lists(
    st.builds(Origin, st.sampled_from(["one", "two"]), texts), max_size=12, unique=True
)


def wanted(found: list[Origin]) -> list[tuple[Origin, str]]:
    return [(origin, origin.tool) for origin in sorted(found, key=lambda each: each.server)]


@pytest.mark.rule("R-MCP-05")
@given(origins)
def test_every_name_is_fit_and_given_once(found: list[Origin]) -> None:
    names = assign_names(wanted(found))
    assert set(names) == set(found)
    assert len(set(names.values())) == len(found)
    assert all(FIT.fullmatch(name) for name in names.values())


@pytest.mark.rule("R-MCP-06")
@given(origins, st.randoms(use_true_random=False))
def test_the_order_of_a_listing_does_not_matter(found: list[Origin], order: object) -> None:
    shuffled = list(found)
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # a Random
    servers = sorted({each.server for each in found})
    one = assign_names(wanted(found))
    assert assign_names(wanted(shuffled)) == one
    assert list(dict.fromkeys(each.server for each, _ in wanted(shuffled))) == servers


@pytest.mark.rule("R-MCP-06")
@given(origins, origins)
def test_a_name_that_was_given_is_kept(before: list[Origin], after: list[Origin]) -> None:
    old = assign_names(wanted(before))
    new = assign_names(wanted(after), old)
    assert all(new[each] == old[each] for each in new.keys() & old.keys())
    fresh = [new[each] for each in new.keys() - old.keys()]
    assert not set(fresh) & set(old.values())
    assert len(set(new.values())) == len(new)


@pytest.mark.rule("R-MCP-06")
def test_a_fit_name_is_kept_and_the_earlier_server_has_it() -> None:
    first, second, changed = Origin("one", "x"), Origin("two", "x"), Origin("one", "a b")
    names = assign_names([(changed, "a b"), (first, "x"), (second, "x")])
    assert names[first] == "x"
    assert names[changed] == "a_b"
    assert re.fullmatch(r"x_[0-9a-f]{6}", names[second])


@pytest.mark.rule("R-MCP-06")
def test_a_tool_that_needed_no_change_goes_before_one_that_did() -> None:
    early, late = Origin("one", "a.b"), Origin("two", "a_b")
    names = assign_names([(early, "a.b"), (late, "a_b")])
    assert names[late] == "a_b"
    assert re.fullmatch(r"a_b_[0-9a-f]{6}", names[early])


def test_long_names_that_begin_alike_are_told_apart() -> None:
    found = [Origin("one", "x" * 70 + end) for end in "abc"]
    names = assign_names(wanted(found))
    assert len(set(names.values())) == 3
    assert all(len(name) <= LONGEST_NAME for name in names.values())


def test_somebody_elses_digits_are_not_taken() -> None:
    first, second = Origin("one", "x"), Origin("two", "x")
    taken = assign_names([(first, "x"), (second, "x")])[second]
    planted = Origin("one", taken)
    names = assign_names([(first, "x"), (planted, taken), (second, "x")])
    assert names[planted] == taken
    assert len(set(names.values())) == 3


@pytest.mark.parametrize(
    ("name", "fit"),
    [("files/read.all", "files_read_all"), ("", "tool"), ("é", "_"), ("a" * 99, "a" * 64)],
)
def test_unfit_characters_become_underscores(name: str, fit: str) -> None:
    assert fit_name(name) == fit


def test_ten_thousand_equal_wishes_are_met_at_once() -> None:
    found = [Origin(f"server-{number}", "x") for number in range(10_000)]
    assert len(set(assign_names([(each, "x") for each in found]).values())) == 10_000
