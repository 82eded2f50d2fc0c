from typing import Any

import attrs
import pytest

from harness._errors import ToolDefinitionError
from harness._json import JSON
from harness._toolset import CallContext, CallPolicy, Outcome
from harness.tools import (
    Plugin,
    PluginError,
    RegistryToolset,
    ToolPlugin,
    ToolRegistry,
    plugin_from_tools,
    tool,
)
from harness.tools._plugin import definitions_by_name
from tests.tools.contexts import ask, context_for
from tests.tools.plugins import Shared, acting, flat, named


@tool(serial=True, grace=2)
async def greet(context: CallContext[object], name: str = "you") -> list[str]:
    """Say hello."""
    return [name, context.call.name, context.call.arguments]


greetings = plugin_from_tools("greetings", "Says hello.", [greet, acting("leave")])


def test_a_plugin_tells_its_tools_in_their_order_and_how_they_are_run() -> None:
    assert (greetings.name, greetings.description) == ("greetings", "Says hello.")
    assert named(greetings.tools()) == ["greet", "leave"]
    assert greetings.tools() is greetings.tools()
    assert greetings.policy(ask("greet")) == CallPolicy(pool="greet", serial=True, grace=2)
    assert greetings.policy(ask("gone")) == CallPolicy.default(ask("gone"))


@pytest.mark.parametrize("raw", ['{"name":"x"}', {"name": "x"}])
async def test_a_call_is_dispatched_by_name_with_text_or_a_dictionary(raw: Any) -> None:
    outcome = await greetings.dispatch("greet", raw, context_for(ask("other", "…"), None))
    assert outcome == Outcome.completed(["x", "greet", '{"name":"x"}'])


@pytest.mark.rule("R-TOOL-06")
@pytest.mark.parametrize("name", ["retired_tool", "", "Greet", "x" * 10_000])
async def test_an_unknown_tool_is_a_failure_that_names_the_known_ones(name: str) -> None:
    outcome = await greetings.dispatch(name, "", context_for(ask(name), None))
    assert (outcome.kind, outcome.failure_kind) == ("failed", "not_found")
    assert outcome.error.endswith("expected one of greet, leave")


async def test_arguments_that_are_no_json_are_a_failure() -> None:
    raw: Any = {"name": {1, 2}}
    outcome = await greetings.dispatch("greet", raw, context_for(ask("greet"), None))
    assert (outcome.kind, outcome.failure_kind) == ("failed", "validation")


async def test_a_failing_tool_raises_its_own_error() -> None:
    error = ValueError("no")

    @tool
    async def fail() -> None:
        raise error

    plugin = plugin_from_tools("p", "", [fail])
    with pytest.raises(ValueError, match="^no$") as caught:
        await plugin.dispatch("fail", "", context_for(ask("fail"), None))
    assert caught.value is error


@pytest.mark.rule("R-TOOL-07")
def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match=r"^'x' cannot be a tool: two tools have this "):
        plugin_from_tools("p", "", [acting("x"), acting("y"), acting("x")])
    with pytest.raises(PluginError, match=r"^plugin 'p' has two tools called 'x', expected one$"):
        definitions_by_name(Shared("p", ["x", "y", "x"]))


@pytest.mark.parametrize(
    "definition",
    [None, [], {}, {"function": None}, {"function": {}}, {"function": {"name": 3}}],
)  # fmt: skip
def test_what_defines_no_tool_is_refused(definition: Any) -> None:
    class Bad(Shared):
        def tools(self) -> list[dict[str, JSON]]:
            return [definition]

    with pytest.raises(PluginError, match=r"^plugin 'p' defines a tool as .*, expected a function"):
        definitions_by_name(Bad("p", []))


def test_a_definition_that_is_no_json_is_refused_with_the_place() -> None:
    class Bad(Shared):
        def tools(self) -> list[dict[str, JSON]]:
            return [{"function": {"name": "x", "parameters": float("nan")}}]

    text = r"^plugin 'p' defines a tool badly: not JSON at function\.parameters: .*$"
    with pytest.raises(PluginError, match=text) as caught:
        definitions_by_name(Bad("p", []))
    assert caught.value.plugin == "p"


@pytest.mark.parametrize("name", ["", "two words", "x" * 65])
def test_a_name_that_some_provider_refuses_is_refused(name: str) -> None:
    text = f"^plugin 'p' defines a tool badly: '{name}' cannot be a tool: its name is '{name}', "
    with pytest.raises(PluginError, match=text):
        definitions_by_name(Shared("p", [name]))


@attrs.frozen(kw_only=True, eq=False)
class Branded(ToolPlugin):
    icon: str = "none"


@pytest.mark.rule("R-TOOL-21")
def test_a_hosts_own_kind_of_plugin_has_further_fields() -> None:
    registry: ToolRegistry[Branded] = ToolRegistry()
    registry.register(Branded(name="b", description="", tools=[greet], icon="sun"))
    found = registry.get("b")
    assert found is not None
    assert found.icon == "sun"
    assert named(RegistryToolset(registry, active=["b"]).definitions()) == ["greet"]


@pytest.mark.rule("R-TOOL-21")
@pytest.mark.parametrize("plugin", [Shared("p", ["y", "x"]), flat("p", "x", "y")])
async def test_a_plugin_with_shared_setup_behaves_like_a_flat_one(plugin: Plugin) -> None:
    registry: ToolRegistry[Plugin] = ToolRegistry(["p"])
    registry.register(plugin)
    toolset = RegistryToolset(registry)
    assert named(toolset.definitions()) == ["x", "y"]
    assert [summary.tools for summary in registry.summaries()] == [("x", "y")]
    for name in ("x", "y"):
        call = ask(name)
        assert await toolset.execute(call, context_for(call, None)) == Outcome.completed(name)
        assert toolset.policy(call) == plugin.policy(call)
