import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tools import Plugin, PluginError, ToolRegistry
from tests.strategies import names
from tests.tools.plugins import Shared, flat, named


def registry_of(*plugins: Plugin, **options: Any) -> ToolRegistry[Plugin]:
    registry: ToolRegistry[Plugin] = ToolRegistry(**options)
    for each in plugins:
        registry.register(each)
    return registry


@pytest.mark.rule("R-REG-01")
def test_two_registries_share_nothing() -> None:
    one, other = registry_of(flat("a")), registry_of(flat("b"))
    assert one.get("b") is None
    assert other.get("a") is None
    assert one.owners("b") == ()
    assert repr(one) == "<ToolRegistry of 1 plugins>"


@pytest.mark.rule("R-REG-02")
def test_the_hook_sees_each_plugin_once_and_when_it_is_there() -> None:
    seen: list[tuple[Plugin, Plugin | None]] = []
    registry: ToolRegistry[Plugin] = registry_of(
        on_register=lambda each: seen.append((each, registry.get(each.name)))
    )
    a, b = flat("a"), flat("b")
    registry.register(a)
    registry.register(b)
    assert seen == [(a, a), (b, b)]


@pytest.mark.rule("R-REG-02")
def test_a_registry_is_read_by_name_and_in_order() -> None:
    b, a = flat("b", "x", "y", description="Does x."), flat("a")
    registry = registry_of(b, a, core_plugins=["a", "later", "a"])
    assert registry.get("a") is a
    assert registry.get("zzz") is None
    assert registry.core_plugins() == ("a", "later", "a")
    assert [(each.name, each.description, each.tools) for each in registry.summaries()] == [
        ("b", "Does x.", ("x", "y")),
        ("a", "", ("a",)),
    ]
    assert registry.summary("b") == registry.summaries()[0]
    assert registry.summary("zzz") is None
    assert registry.owners("y") == ("b",)


@pytest.mark.rule("R-REG-02")
def test_a_plugin_that_the_hook_refuses_is_not_stored() -> None:
    def refuse(plugin: Plugin) -> None:
        raise OSError("full")

    registry = registry_of(on_register=refuse)
    with pytest.raises(OSError, match="^full$"):
        registry.register(flat("a"))
    assert registry.get("a") is None
    assert registry.owners("a") == ()
    assert registry.search("a").total == 0


@pytest.mark.rule("R-REG-03")
def test_a_name_that_is_taken_is_refused() -> None:
    registry = registry_of(flat("a"), aliases={"old": "a"})
    with pytest.raises(PluginError, match="^plugin 'a' has the name of another, expected a new "):
        registry.register(flat("a"))
    text = "^plugin 'old' has a name that is an alias of 'a', expected a new one$"
    with pytest.raises(PluginError, match=text):
        registry.register(flat("old"))
    assert [each.name for each in registry.summaries()] == ["a"]


@pytest.mark.rule("R-REG-03")
@pytest.mark.parametrize(
    ("aliases", "walked"),
    [
        ({"a": "a"}, "'a' -> 'a'"),
        ({"x": "a", "a": "b", "b": "a"}, "'x' -> 'a' -> 'b' -> 'a'"),
        ({"ok": "end", "a": "b", "b": "c", "c": "a"}, "'a' -> 'b' -> 'c' -> 'a'"),
    ],
)
def test_aliases_that_lead_back_are_refused(aliases: dict[str, str], walked: str) -> None:
    text = f"^plugin 'a' is an alias that leads back to itself: {walked}$"
    with pytest.raises(PluginError, match=text):
        ToolRegistry(aliases=aliases)


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_plugin_needs_a_name(name: Any) -> None:
    plugin = flat("a")
    object.__setattr__(plugin, "name", name)
    with pytest.raises(PluginError, match=f"has the name {name!r}, expected a text$"):
        registry_of(plugin)


@pytest.mark.parametrize("description", [None, 3])
def test_a_plugin_needs_a_description(description: Any) -> None:
    plugin = flat("a", description=description)
    text = f"^plugin 'a' has the description {description!r}, expected a text$"
    with pytest.raises(PluginError, match=text):
        registry_of(plugin)


def test_one_text_is_not_several_core_plugins() -> None:
    with pytest.raises(TypeError, match="^core_plugins is 'core', expected several names$"):
        ToolRegistry("core")


@pytest.mark.rule("R-REG-04")
def test_an_old_name_returns_the_renamed_plugin() -> None:
    new = flat("new", "x")
    registry = registry_of(new, aliases={"old-name": "new"})
    assert registry.get("old-name") is new
    assert named(registry.tool_definitions(["old-name", "new"])) == ["x"]
    assert registry.summary("old-name") == registry.summary("new")


@pytest.mark.rule("R-REG-05")
def test_an_alias_leads_to_the_end_of_its_chain() -> None:
    registry: ToolRegistry[Plugin] = ToolRegistry(aliases={"a": "b", "b": "c"})
    assert [registry.canonicalize_name(name) for name in ("a", "b", "c", "zzz")] == [
        *("c", "c", "c"),
        "zzz",
    ]


@pytest.mark.rule("R-REG-05")
def test_a_chain_may_be_long() -> None:
    long = {f"a{index}": f"a{index + 1}" for index in range(50_000)}
    assert ToolRegistry(aliases=long).canonicalize_name("a0") == "a50000"
    with pytest.raises(PluginError, match="leads back to itself") as caught:
        ToolRegistry(aliases={**long, "a50000": "a0"})
    assert len(str(caught.value)) < 300


def walked(aliases: Mapping[str, str], name: str) -> str | None:
    """Return where *name* leads to, one step after the other; None if it goes round."""
    for _ in range(len(aliases) + 1):
        if name not in aliases:
            return name
        name = aliases[name]
    return None


@pytest.mark.rule("R-REG-03", "R-REG-05")
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")))
def test_aliases_lead_where_following_them_leads(aliases: dict[str, str]) -> None:
    ends = {name: walked(aliases, name) for name in "abcdefgh"}
    if None in ends.values():
        with pytest.raises(PluginError):
            ToolRegistry(aliases=aliases)
        return
    registry: ToolRegistry[Plugin] = ToolRegistry(aliases=aliases)
    assert {name: registry.canonicalize_name(name) for name in ends} == ends


@pytest.mark.rule("R-REG-08")
def test_a_further_plugin_only_appends() -> None:
    registry = registry_of(flat("a", "x", "w"), flat("b", "v"), flat("c", "u"))
    old = registry.tool_definitions(["b", "gone", "a"])
    new = registry.tool_definitions(["b", "gone", "a", "c", "b"])
    assert named(new) == ["v", "x", "w", "u"]
    assert all(mine is yours for mine, yours in zip(old, new, strict=False))
    assert new[: len(old)] == old


@pytest.mark.rule("R-REG-08")
def test_two_tools_of_one_name_cannot_be_shown() -> None:
    registry = registry_of(flat("a", "x"), flat("b", "y", "x"))
    text = "^plugin 'b' and 'a' both have a tool called 'x', expected one$"
    with pytest.raises(PluginError, match=text):
        registry.tool_definitions(["a", "b"])
    assert registry.owners("x") == ("a", "b")


@pytest.mark.rule("R-REG-08")
@given(st.lists(names, unique=True), st.data())
def test_the_order_is_that_of_the_active_names(known: list[str], data: st.DataObject) -> None:
    registry = registry_of(*(flat(name, f"{name}-1", f"{name}-2") for name in known))
    active = data.draw(st.lists(st.sampled_from([*known, "gone!"])))
    cut = data.draw(st.integers(0, len(active)))
    told = named(registry.tool_definitions(active))
    live = [name for name in dict.fromkeys(active) if name in known]
    assert told == [f"{name}-{number}" for name in live for number in (1, 2)]
    before = named(registry.tool_definitions(active[:cut]))
    assert told[: len(before)] == before


@pytest.mark.rule("R-REG-08")
def test_a_plugins_tools_are_read_once() -> None:
    shared = Shared("s", ["a", "b"])
    registry = registry_of(shared)
    old = registry.tool_definitions(["s"])
    new = registry.tool_definitions(["s"])
    assert named(old) == ["b", "a"]
    assert all(mine is yours for mine, yours in zip(old, new, strict=True))
    assert shared.asked_for_tools == 1


BUILD = """
from harness._json import encode_text
from harness.tools import *

async def act() -> None: ...

names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
registry = ToolRegistry(["gamma", "beta"], aliases={"old": "zeta"})
for name in names:
    one = tool(name=f"{name}_one", description=f"The one of {name}, first of all.")(act)
    two = tool(name=f"{name}_two", description=f"The two of {name}, not of beta.")(act)
    registry.register(plugin_from_tools(name, f"All of {name}.", [one, two]))
toolset = RegistryToolset(registry, active=["delta", "old", "alpha"], loadable=True)
print(encode_text(list(registry.tool_definitions(["epsilon", "old", "alpha", "epsilon"]))))
print(encode_text(list(toolset.definitions())), toolset.active, toolset.catalog)
print(initial_active_plugins(["b", "a", "c", "b"]))
print(registry.search("the beta of all one", limit=12), registry.owners("zeta_one"))
"""


@pytest.mark.rule("R-GEN-07")
def test_definitions_catalogs_and_searches_are_the_same_bytes_in_every_process() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", BUILD],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert "zeta_two" in told[0]
    assert told[0] == told[1]
