from collections.abc import Iterable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from harness import JSON, Limiters, Outcome, tool
from harness._errors import MissingPortError, ToolDefinitionError
from harness._toolset import Admission, Batch, CallPolicy, Reply
from harness.testing import (
    RUN_INVARIANTS,
    Scene,
    cancel_everywhere,
    run_harness,
    run_virtual,
    tool_call,
    tool_call_turn,
)
from harness.tools import (
    DroppedName,
    Plugin,
    PluginError,
    RegistryToolset,
    Rehydration,
    ToolRegistry,
    disclosed,
    plugin_from_tools,
    render_outcome,
)
from tests.kernel.reading import DONE, answers, kinds, rejected
from tests.kernel.reading import named as calling
from tests.strategies import names
from tests.tools.contexts import ask, context_for
from tests.tools.plugins import Shared, acting, flat, named

OWN = ["search_tools", "load_tools"]


def registry_of(*plugins: Plugin, core: Iterable[str] = ()) -> ToolRegistry[Plugin]:
    registry: ToolRegistry[Plugin] = ToolRegistry(core, aliases={"old": "a"})
    for each in plugins:
        registry.register(each)
    return registry


def loading(*wanted: str, id: str = "load") -> Any:
    return tool_call("load_tools", {"names": list(wanted)}, id=id)


async def told(toolset: RegistryToolset, name: str, arguments: str) -> Any:
    """Return the data that a call completes with."""
    call = ask(name, arguments)
    outcome = await toolset.execute(call, context_for(call, None))
    assert outcome.kind == "completed", outcome
    return outcome.data


class Answers:
    """A resolver that answers from a table, a checkpoint each."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def __call__(self, name: str) -> bool | str:
        self.asked.append(name)
        await trio.lowlevel.checkpoint()
        answer = self.answers.get(name, True)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]  # whatever a test has put there


# -- what is shown ------------------------------------------------------------------------------


def test_it_shows_its_own_tools_then_the_core_plugins_and_their_policies() -> None:
    shared = Shared("b", ["x"])
    toolset = RegistryToolset(registry_of(flat("a"), shared, core=["b", "a", "b"]), loadable=True)
    assert named(toolset.definitions()) == [*OWN, "x", "a"]
    assert toolset.active == ("b", "a")
    assert toolset.policy(ask("x")) == CallPolicy(pool="b")
    assert toolset.policy(ask("load_tools")) == CallPolicy(
        pool="load_tools", serial=True, effect="none"
    )
    for call in (ask("zzz"), ask("x", call_type="custom")):
        assert toolset.policy(call) == CallPolicy.default(call)
    assert repr(toolset) == "<RegistryToolset of 4 tools in ['b', 'a']>"


def test_what_is_not_loadable_shows_no_tools_of_its_own() -> None:
    assert named(RegistryToolset(registry_of(flat("a")), active=["old"]).definitions()) == ["a"]
    assert RegistryToolset(registry_of(flat("a"))).definitions() == ()


@pytest.mark.rule("R-REG-07")
async def test_the_catalog_follows_what_is_loaded() -> None:
    toolset = RegistryToolset(registry_of(flat("a"), flat("b"), flat("c")), active=["c"])
    await toolset.restore(["old"])
    catalog = toolset.catalog
    assert [each.name for each in catalog.active] == ["a", "c"]
    assert [each.name for each in catalog.loadable] == ["b"]


@pytest.mark.rule("R-REG-08")
@given(
    st.lists(names.map("p-".__add__), unique=True, max_size=6).flatmap(
        lambda known: st.tuples(
            st.just(known),
            st.lists(st.lists(st.sampled_from([*known, "gone", "old", "clash"])), max_size=8),
        )
    )
)
def test_no_sequence_of_loads_changes_what_is_shown_already(
    case: tuple[list[str], list[list[str]]],
) -> None:
    known, loads = case

    async def main() -> None:
        plugins = [flat(each, f"{each}-1", f"{each}-2") for each in [*known, "a"]]
        registry = registry_of(*plugins, flat("clash", "clash", "a-2"))
        toolset = RegistryToolset(registry, loadable=True)
        for wanted in loads:
            before, active = toolset.definitions(), toolset.active
            await toolset.restore(wanted)
            after = toolset.definitions()
            assert all(old is new for old, new in zip(before, after, strict=False))
            assert after[: len(before)] == before
            assert toolset.active[: len(active)] == active
            assert after[2:] == registry.tool_definitions(toolset.active)

    trio.run(main)


def test_sessions_of_one_registry_load_for_themselves() -> None:
    async def main() -> None:
        registry = registry_of(flat("a"), flat("b"))
        one, other = RegistryToolset(registry), RegistryToolset(registry)
        await one.restore(["b"])
        assert (one.active, other.active) == (("b",), ())

    trio.run(main)


@pytest.mark.parametrize(
    ("active", "reason"),
    [
        (["a", "gone"], "'gone' is not registered, expected one that is"),
        (["a", "b"], "'b' has a tool called 'a', which is the name of one already shown"),
        (["c"], "'c' has a tool called 'load_tools', which is the name of one already shown"),
    ],
)
def test_what_cannot_be_shown_from_the_start_is_refused(active: list[str], reason: str) -> None:
    registry = registry_of(flat("a"), flat("b", "x", "a"), flat("c", "load_tools"))
    with pytest.raises(PluginError, match=f"^plugin {reason}$"):
        RegistryToolset(registry, active=active, loadable=True)


# -- calls --------------------------------------------------------------------------------------


async def fail(toolset: RegistryToolset, name: str, call_type: str = "function") -> str:
    call = ask(name, call_type=call_type)
    outcome = await toolset.execute(call, context_for(call, None))
    kind = "not_found" if call_type == "function" else "validation"
    assert (outcome.kind, outcome.failure_kind) == ("failed", kind)
    return outcome.error


async def test_a_tool_that_is_not_loaded_is_answered_with_how_to_load_it() -> None:
    registry = registry_of(flat("a"), flat("b", "x"), flat("c", "x"), core=["a"])
    toolset = RegistryToolset(registry, loadable=True)
    assert await fail(toolset, "x") == (
        "'x' is not loaded, expected load_tools before it, with one of b, c"
    )
    assert await fail(RegistryToolset(registry), "x") == "'x' is not loaded, expected one of a"


async def test_a_tool_that_nobody_has_is_answered_with_those_that_are_there() -> None:
    registry = registry_of(flat("a"), core=["a"])
    assert await fail(RegistryToolset(registry, loadable=True), "y") == (
        "no tool is called 'y', expected one of search_tools, load_tools, a; "
        "search_tools finds others"
    )
    assert await fail(RegistryToolset(registry), "y" * 9_999) == (
        f"no tool is called '{'y' * 100}…', expected one of a"
    )
    assert await fail(RegistryToolset(registry), "a", "custom") == (
        "the call has the type 'custom', expected 'function'"
    )


@pytest.mark.rule("R-TOOL-09")
async def test_arguments_are_normalized_once_whether_somebody_looked_at_them_or_not() -> None:
    def longer(arguments: dict[str, JSON]) -> dict[str, JSON]:
        return {"path": f"{arguments['path']}/"}

    @tool(normalize=longer)
    async def read(path: str) -> str:
        return path

    toolset = disclosed(core=[read, Shared("s", ["x"])])
    call = ask("read", '{"path":"a"}')
    seen = toolset.normalize(call)
    assert not isinstance(seen, Outcome)
    assert seen.arguments == '{"path":"a/"}'
    for each in (call, seen):
        assert await toolset.execute(each, context_for(call, None)) == Outcome.completed("a/")
    for other in (ask("x"), ask("gone"), ask("read", call_type="custom")):
        assert toolset.normalize(other) is other


@pytest.mark.rule("R-TOOL-20")
async def test_a_reply_is_the_result_and_the_plugin_is_not_asked_again() -> None:
    shared = Shared("s", ["x"])
    toolset = RegistryToolset(registry_of(shared, core=["s"]))
    context = context_for(ask("x"), None, reply=Reply(value={"yes": 1}))
    assert await toolset.execute(ask("x"), context) == Outcome.completed({"yes": 1})
    assert shared.opened == 0


async def test_it_admits_everything_renders_the_envelope_and_finds_nothing_fatal() -> None:
    toolset = RegistryToolset(registry_of())
    batch = Batch(run_id="r", turn_id="t", turn=1, calls=(ask(),), messages=())
    assert await toolset.admit(batch) == Admission()
    assert toolset.render(ask(), Outcome.failed("no")) == render_outcome(
        ask(), Outcome.failed("no")
    )
    assert not toolset.fatal(KeyError("x"))


# -- loading ------------------------------------------------------------------------------------


async def test_what_was_loaded_what_was_there_and_what_was_dropped_is_told() -> None:
    registry = registry_of(
        flat("a"), flat("b", *(f"b{n}" for n in range(60))), flat("c", "x"), flat("d", "x", "y"),
        flat("down"), flat("clash", "b7"), core=["a"],
    )  # fmt: skip
    resolve = Answers(down=OSError("down"))
    toolset = RegistryToolset(registry, loadable=True, resolve=resolve)
    wanted = ["b3", "old", "b", "x", "a", "y", "down", "zzz", "clash", "z" * 999, "load_tools"]
    data = await told(toolset, "load_tools", str(wanted).replace("'", '"').join(['{"names":', "}"]))
    assert data == {
        "loaded": [
            {"plugin": "b", "tools": [f"b{n}" for n in range(50)], "more": 10},
            {"plugin": "d", "tools": ["x", "y"], "more": 0},
        ],
        "already_loaded": ["a"],
        "dropped": [
            {"name": "x", "reason": "ambiguous, expected one of c, d"},
            {"name": "down", "reason": "unreachable"},
            {"name": "zzz", "reason": "unknown"},
            {"name": "clash", "reason": "conflict"},
            {"name": f"{'z' * 100}…", "reason": "unknown"},
            {"name": "load_tools", "reason": "unknown"},
        ],
    }
    assert resolve.asked == ["b", "d", "down", "zzz", "clash", "z" * 999, "load_tools"]
    assert toolset.active == ("a",)


async def test_a_tool_that_is_shown_means_the_plugin_that_shows_it() -> None:
    registry = registry_of(flat("b", "x"), flat("c", "x"), core=["b"])
    data = await told(RegistryToolset(registry, loadable=True), "load_tools", '{"names":["x"]}')
    assert data == {"loaded": [], "already_loaded": ["b"], "dropped": []}


@pytest.mark.parametrize("arguments", ["{}", '{"names":[]}', '{"names":"a"}', '{"names":[1]}'])
async def test_load_tools_takes_a_few_names(arguments: str) -> None:
    call = ask("load_tools", arguments)
    outcome = await disclosed().execute(call, context_for(call, None))
    assert outcome.failure_kind == "validation"
    many = ask("load_tools", '{"names":["' + '","'.join("abc" * 7) + '"]}')
    assert (await disclosed().execute(many, context_for(many, None))).failure_kind == "validation"


async def test_a_search_shows_the_best_what_they_are_of_and_whether_they_are_loaded() -> None:
    registry = registry_of(
        flat("mail", "send", "list"), plugin_from_tools("files", "", [acting("mail", "x" * 999)]),
        flat("other"), core=["files"],
    )  # fmt: skip
    toolset = RegistryToolset(registry, loadable=True)
    data = await told(toolset, "search_tools", '{"query":"mail","limit":2}')
    assert data == {
        "tools": [
            {"name": "mail", "plugin": "files", "description": f"{'x' * 300}…", "loaded": True},
            {"name": "send", "plugin": "mail", "description": "Act.", "loaded": False},
        ],
        "total": 3,
    }


@pytest.mark.rule("R-REG-09", "R-FENCE-10")
async def test_what_a_session_stored_is_loaded_as_far_as_it_can_be() -> None:
    registry = registry_of(flat("a"), flat("b"), flat("c", "b"), flat("down"))
    toolset = RegistryToolset(registry, resolve=Answers(down="unavailable"))
    assert await toolset.restore(["b", "old", "a", None, "c", "gone", "down"]) == Rehydration(
        active=("b", "a"),
        dropped=(
            DroppedName(name="None", reason="unknown"),
            DroppedName(name="c", reason="conflict"),
            DroppedName(name="gone", reason="unknown"),
            DroppedName(name="down", reason="unavailable"),
        ),
    )
    assert toolset.active == ("b", "a")


async def test_two_plugins_that_clash_with_each_other_are_not_loaded_together() -> None:
    toolset = RegistryToolset(registry_of(flat("b", "x"), flat("c", "x")))
    found = await toolset.restore(["c", "b"])
    assert found.active == ("c",)
    assert found.dropped == (DroppedName(name="b", reason="conflict"),)


@pytest.mark.rule("R-REG-10")
async def test_a_resolver_may_register_what_it_has_reached() -> None:
    registry = registry_of()

    async def resolve(name: str) -> bool:
        registry.register(flat(name))
        return True

    toolset = RegistryToolset(registry, resolve=resolve)
    await toolset.activate(Outcome.completed(activate_plugins=["remote"]))
    assert named(toolset.definitions()) == ["remote"]


async def test_a_host_that_asks_for_what_cannot_be_loaded_gets_an_error_and_nothing_loaded() -> (
    None
):
    toolset = RegistryToolset(registry_of(flat("a"), flat("b")))
    text = "^plugin 'gone' cannot be loaded: unknown, expected one that can$"
    with pytest.raises(PluginError, match=text):
        await toolset.activate(Outcome.completed(activate_plugins=["b", "gone", "a"]))
    assert toolset.active == ()


async def test_skills_are_not_here() -> None:
    toolset = RegistryToolset(registry_of(flat("a")))
    with pytest.raises(MissingPortError):
        await toolset.activate(Outcome.completed(activate_plugins=["a"], activate_skills=["s"]))
    assert toolset.active == ("a",)


# -- in a run -----------------------------------------------------------------------------------


async def test_a_later_call_of_the_same_batch_uses_what_was_just_loaded() -> None:
    shared = Shared("s", ["x"])
    kit = run_harness(
        [tool_call_turn([tool_call("x", id="x-0"), loading("s"), tool_call("x", id="x-1")]), DONE],
        tools=disclosed(core=[acting("a")], plugins=[shared, flat("b")]),
    )
    result = await kit.run()
    said = answers(result.state.messages)
    assert list(said) == ["x-0", "load", "x-1"]
    assert said["x-0"] == said["x-1"] == {"success": True, "data": "x"}
    assert kit.ran == ["load", "x-0", "x-1"]
    first, second = (request.tools for request in kit.script.requests)
    assert named(first) == [*OWN, "a"]
    assert named(second) == [*OWN, "a", "x"]
    assert second[: len(first)] == first


async def test_a_call_of_what_is_not_loaded_fails_and_can_be_repeated_after_the_load() -> None:
    turns = [
        calling("x"),
        tool_call_turn([tool_call("search_tools", {"query": "ACT"}, id="search")]),
        tool_call_turn([loading("x")]),
        tool_call_turn([tool_call("x", id="again")]),
        DONE,
    ]
    result = await run_harness(turns, tools=disclosed(plugins=[acting("x")])).run()
    assert kinds(result.state.messages) == {
        "x-0": "failed",
        "search": "completed",
        "load": "completed",
        "again": "completed",
    }


def test_calls_of_a_tool_that_was_just_loaded_are_run_as_it_says() -> None:
    starts: list[float] = []

    @tool(pool="one")
    async def slow() -> None:
        starts.append(trio.current_time())
        await trio.sleep(1)

    calls = [loading("slow"), *(tool_call("slow", id=f"slow-{n}") for n in range(3))]

    async def main() -> None:
        kit = run_harness(
            [tool_call_turn(calls), DONE],
            tools=disclosed(plugins=[slow]),
            limiters=Limiters(pools={"one": 1}),
        )
        await kit.run()

    run_virtual(main)
    assert [start - starts[0] for start in starts] == [0, 1, 2]


async def test_a_tool_of_the_host_that_asks_for_a_plugin_that_is_gone_has_failed() -> None:
    @tool
    async def ask_for(name: str) -> Outcome:
        return Outcome.completed("loaded", activate_plugins=[name])

    calls = [tool_call("ask_for", {"name": name}, id=name) for name in ("gone", "x")]
    toolset = disclosed(core=[ask_for], plugins=[acting("x")])
    kit = run_harness([tool_call_turn(calls), DONE], tools=toolset)
    result = await kit.run()
    said: dict[str, dict[str, JSON]] = answers(result.state.messages)
    assert said["gone"]["kind"] == "system"
    assert said["x"] == {"success": True, "data": "loaded"}
    assert toolset.active == ("ask_for", "x")
    assert rejected(kit.events) == [("gone", "PluginError")]


@pytest.mark.parametrize("how", ["cancel", "abort"])
def test_wherever_a_run_is_cut_that_loads_tools_its_answers_say_what_is_loaded(how: str) -> None:
    def batch(number: int) -> Any:
        calls = [loading("x", "down", id=f"load-{number}"), tool_call("x", id=f"x-{number}")]
        return tool_call_turn([*calls, tool_call("a", id=f"a-{number}")])

    async def scenario(scene: Scene) -> None:
        resolve = Answers(down=OSError("down"))
        toolset = disclosed(core=[acting("a")], plugins=[flat("x"), flat("down")], resolve=resolve)
        kit = run_harness([batch(1), batch(2), DONE], scene=scene, tools=toolset)

        @scene.afterwards
        def check() -> None:
            for state in kit.states:
                said = answers(state.messages)
                loaded = any(said.get(f"load-{number}", {}).get("success") for number in (1, 2))
                assert ("x" in toolset.active) == loaded
                assert named(toolset.definitions())[:3] == [*OWN, "a"]
                assert toolset.active in (("a",), ("a", "x"))

        async with kit.open() as run:
            if how == "abort":
                scene.on_cut(run.abort)
            await run.wait()

    report = cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=20)
    assert report.cancelled or how == "abort"


# -- one line -----------------------------------------------------------------------------------


def test_one_line_makes_it_of_tools_and_plugins() -> None:
    toolset = disclosed(core=[acting("a"), flat("p", "x", "y")], plugins=[acting("b"), flat("q")])
    assert named(toolset.definitions()) == [*OWN, "a", "x", "y"]
    assert toolset.active == ("a", "p")
    assert [each.name for each in toolset.catalog.loadable] == ["b", "q"]
    assert named(disclosed().definitions()) == OWN


def test_what_is_neither_tool_nor_plugin_is_refused() -> None:
    bad: Any = told
    with pytest.raises(ToolDefinitionError, match=r"^'told' .*, expected a Tool or a plugin$"):
        disclosed(plugins=[bad])
    with pytest.raises(ToolDefinitionError, match=r"^\"'a'\" .*: it is 'a', expected a Tool or a "):
        disclosed(core=["a"])  # type: ignore[list-item]  # on purpose
    with pytest.raises(PluginError, match=r"^plugin 'a' has the name of another, expected a new "):
        disclosed(core=[acting("a")], plugins=[acting("a")])


async def test_thousands_of_tools_are_loaded_one_by_one_without_touching_each_other() -> None:
    toolset = disclosed(plugins=[Shared(f"p{n}", [f"x{n}", f"y{n}"]) for n in range(5_000)])
    for n in range(5_000):
        await toolset.restore([f"p{n}"])
    assert len(toolset.definitions()) == 10_002
    assert len(repr(toolset)) < 300
    assert len(await fail(toolset, "zzz")) < 400
