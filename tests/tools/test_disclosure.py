import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tools import (
    PluginCatalog,
    PluginSummary,
    ToolRegistry,
    initial_active_plugins,
    partition_plugin_catalog,
)
from tests.strategies import names


def summaries(*several: str) -> tuple[PluginSummary, ...]:
    return tuple(PluginSummary(name=name, description=f"{name}!") for name in several)


@pytest.mark.rule("R-REG-06")
def test_a_session_starts_with_the_core_plugins_each_once_and_in_order() -> None:
    assert initial_active_plugins(["m", "n", "m"]) == ("m", "n")
    assert initial_active_plugins([]) == ()


@pytest.mark.rule("R-REG-07")
def test_the_catalog_is_in_two_parts_both_in_the_order_of_the_summaries() -> None:
    a, b, c, d = summaries("a", "b", "c", "d")
    assert partition_plugin_catalog(["d", "gone", "b", "d"], [a, b, c, d]) == PluginCatalog(
        active=(b, d), loadable=(a, c)
    )


@pytest.mark.rule("R-REG-07")
def test_an_alias_counts_as_the_plugin_that_it_leads_to() -> None:
    a, b = summaries("a", "b")
    canonical = ToolRegistry(aliases={"older": "old", "old": "b"}).canonicalize_name
    catalog = partition_plugin_catalog(["older"], [a, b], canonicalize_name=canonical)
    assert catalog == PluginCatalog(active=(b,), loadable=(a,))


@pytest.mark.rule("R-REG-07")
@given(st.lists(names), st.lists(names, unique=True))
def test_every_plugin_is_in_exactly_one_part(active: list[str], known: list[str]) -> None:
    told = summaries(*known)
    catalog = partition_plugin_catalog(active, told)
    assert catalog == partition_plugin_catalog(reversed(active), told)
    assert [each for each in told if each in catalog.active] == list(catalog.active)
    assert [each for each in told if each not in catalog.active] == list(catalog.loadable)
    assert {each.name for each in catalog.active} == set(active) & set(known)
