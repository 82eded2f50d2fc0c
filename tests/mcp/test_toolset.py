"""The toolset over servers in this process, in virtual time."""

import time
from typing import Any

import pytest
import trio
from mcp_types import ErrorData
from trio.testing import MockClock

from harness import Limits, open_run
from harness._errors import MissingPortError
from harness._toolset import Outcome, Toolset
from harness.mcp import MCPServerError, MCPTools, open_mcp_tools
from harness.testing import (
    Scene,
    cancel_everywhere,
    final_answer,
    run_virtual,
    scripted_model,
    tool_call,
    tool_call_turn,
)
from tests.mcp.peers import Peer, call, entry
from tests.mcp.servers import PIXEL, here, make_server
from tests.tools.contexts import ask, context_for


def names(toolset: Toolset) -> list[str]:
    return [each["function"]["name"] for each in toolset.definitions()]  # type: ignore[call-overload, index, misc]


async def never(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    await trio.sleep_forever()
    raise AssertionError


# -- opening -----------------------------------------------------------------------------------


@pytest.mark.rule("R-MCP-02")
async def test_the_servers_tools_are_the_definitions(autojump_clock: MockClock) -> None:
    peer = Peer(tools=[entry("b", description="Bee."), entry("a.a")])
    async with open_mcp_tools(peer.server(prefix="p-")) as toolset:
        assert names(toolset) == ["p-a_a", "p-b"]
        assert toolset.definitions()[1] == {
            "type": "function",
            "function": {
                "name": "p-b",
                "description": "Bee.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
        assert toolset.definitions() is toolset.definitions()
        await call(toolset, "p-a_a")
    assert peer.calls == [("a.a", {})]
    assert peer.open == 0


async def test_a_server_of_the_official_package_is_called(autojump_clock: MockClock) -> None:
    async with open_mcp_tools(here(make_server())) as toolset:
        assert (await call(toolset, "echo", '{"text": "hi"}')).data == {"result": "hi"}
        drawn = await call(toolset, "picture")
        assert drawn.parts[0]["type"] == "image_url"
        message = toolset.render(ask("picture"), drawn)
        assert isinstance(message["content"], list)
        assert len(message["content"]) == 2
        assert len(PIXEL) > 50


@pytest.mark.rule("R-MCP-03")
async def test_a_server_that_does_not_answer_is_given_up_in_time(autojump_clock: MockClock) -> None:
    peer = Peer(silent=frozenset({"tools/list"}))
    start = trio.current_time()
    with pytest.raises(MCPServerError, match="^the server 'peer' was not ready within 3 s$"):
        async with open_mcp_tools(peer.server(startup=3)):
            raise AssertionError
    assert trio.current_time() - start == pytest.approx(3)
    assert peer.open == 0


@pytest.mark.rule("R-MCP-03")
async def test_one_server_that_cannot_be_used_closes_the_others(autojump_clock: MockClock) -> None:
    good, bad = Peer(), Peer(refused=frozenset({"server/discover", "initialize"}))
    with pytest.raises(MCPServerError, match="^the server 'bad' cannot be used") as raised:
        async with open_mcp_tools(good.server("good"), bad.server("bad")):
            raise AssertionError
    assert (raised.value.server, raised.value.code) == ("bad", "mcp.server")
    assert good.open == bad.open == 0


async def test_two_servers_of_one_name_are_refused(autojump_clock: MockClock) -> None:
    with pytest.raises(ValueError, match="^the servers are called"):
        async with open_mcp_tools(Peer().server(), Peer().server()):
            raise AssertionError


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt()])
async def test_what_the_body_raises_leaves_as_itself(
    error: BaseException, autojump_clock: MockClock
) -> None:
    peer = Peer()
    with pytest.raises(type(error)) as raised:
        async with open_mcp_tools(peer.server()):
            raise error
    assert raised.value is error
    assert peer.open == 0


@pytest.mark.rule("R-MCP-17")
async def test_leaving_is_bounded_by_the_grace(autojump_clock: MockClock) -> None:
    peer = Peer(closing=100)
    async with open_mcp_tools(peer.server(grace=4)):
        start = trio.current_time()
    assert trio.current_time() - start == pytest.approx(4)


@pytest.mark.rule("R-MCP-17")
async def test_a_cancelled_leaving_does_not_wait_for_the_grace(autojump_clock: MockClock) -> None:
    peer = Peer(closing=100)
    with trio.move_on_after(1):
        async with open_mcp_tools(peer.server(grace=4)):
            start = trio.current_time()
    assert trio.current_time() - start == pytest.approx(1)
    assert peer.open == 0


# -- hostile listings --------------------------------------------------------------------------


@pytest.mark.rule("R-MCP-07")
async def test_one_hostile_entry_does_not_hide_the_others(autojump_clock: MockClock) -> None:
    cyclic = {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}
    bad = [5, entry("none", inputSchema=None), entry(7), entry("x" * 3_000)]
    odd = [
        entry("cyclic", inputSchema=cyclic),
        entry("untyped", inputSchema={}),
        entry("wrong", inputSchema={"type": "array", "properties": {"a": True}}),
        entry("described", description=["no"], annotations=9, outputSchema="x"),
    ]
    async with open_mcp_tools(Peer(tools=[*bad, *odd, entry("hello")]).server()) as toolset:
        assert names(toolset) == ["cyclic", "described", "hello", "untyped", "wrong"]
        (statistics,) = toolset.statistics()
        assert len(statistics.skipped) == len(bad)
        assert statistics.tools == 5
        for name in names(toolset):
            assert (await call(toolset, name)).kind == "completed"


@pytest.mark.rule("R-MCP-07")
async def test_of_tools_with_one_name_the_first_is_shown(autojump_clock: MockClock) -> None:
    twice: list[object] = [entry("x", description="first"), entry("x", description="second")]
    async with open_mcp_tools(Peer(tools=twice).server()) as toolset:
        assert [each.description for each in toolset.tools] == ["first"]
        (skip,) = toolset.statistics()[0].skipped
        assert (skip.tool, skip.reason) == ("x", "another tool of its server has its name")


@pytest.mark.rule("R-MCP-07")
async def test_ten_thousand_tools_over_pages_are_shown(autojump_clock: MockClock) -> None:
    def page(cursor: str | None) -> dict[str, Any]:
        at = int(cursor or 0)
        tools = [entry(f"tool {number}") for number in range(at, at + 500)]
        return {"tools": tools, **({"nextCursor": str(at + 500)} if at < 9_500 else {})}

    start = time.perf_counter()
    async with open_mcp_tools(Peer(page=page).server()) as toolset:
        assert len(set(names(toolset))) == 10_000
        assert (await call(toolset, "tool_9999")).kind == "completed"
    assert time.perf_counter() - start < 10


@pytest.mark.rule("R-MCP-07")
@pytest.mark.parametrize("repeats", [True, False])
async def test_a_list_without_an_end_is_refused(repeats: bool, autojump_clock: MockClock) -> None:
    pages = 0

    def page(cursor: str | None) -> dict[str, Any]:
        nonlocal pages
        pages += 1
        return {"tools": [], "nextCursor": "again" if repeats else str(pages)}

    peer = Peer(page=page)
    with pytest.raises(MCPServerError, match="^the server 'peer' lists tools without an end$"):
        async with open_mcp_tools(peer.server(startup=1e9)):
            raise AssertionError
    assert pages == (2 if repeats else 2_000)
    assert peer.open == 0


async def test_a_server_without_tools_has_none(autojump_clock: MockClock) -> None:
    peer = Peer(refused=frozenset({"server/discover", "tools/list"}))
    async with open_mcp_tools(peer.server()) as toolset:
        assert toolset.definitions() == ()


@pytest.mark.parametrize("result", [{}, {"tools": 5}, {"tools": None}, {"nextCursor": 5}])
async def test_a_page_that_is_none_is_a_clear_error(
    result: dict[str, Any], autojump_clock: MockClock
) -> None:
    with pytest.raises(MCPServerError, match="^the server 'peer' cannot be used: ValidationError"):
        async with open_mcp_tools(Peer(page=lambda cursor: result).server()):
            raise AssertionError


# -- several servers ---------------------------------------------------------------------------


@pytest.mark.rule("R-MCP-06")
async def test_servers_with_equal_tools_are_called_apart(autojump_clock: MockClock) -> None:
    one, two = Peer(), Peer()
    async with open_mcp_tools(one.server("one"), two.server("two")) as toolset:
        first, second = names(toolset)
        assert first == "hello"
        await call(toolset, second)
        assert (one.calls, two.calls) == ([], [("hello", {})])
        assert toolset.policy(ask(first)).pool == "mcp:one"
        assert toolset.policy(ask(second)).pool == "mcp:two"
        assert repr(toolset) == "<MCPTools of ['one', 'two']>"


@pytest.mark.rule("R-MCP-16")
async def test_the_calls_of_a_server_share_a_pool_and_a_limit(autojump_clock: MockClock) -> None:
    peer = Peer(tools=[entry("a"), entry("b")])
    async with open_mcp_tools(peer.server(time_limit=9)) as toolset:
        policies = [toolset.policy(ask(name)) for name in "ab"]
        assert {(each.pool, each.time_limit) for each in policies} == {("mcp:peer", 9)}


# -- calls -------------------------------------------------------------------------------------


@pytest.mark.rule("R-MCP-08")
@pytest.mark.parametrize(
    ("raw", "arguments"),
    [("", {}), ('{"a": [1, null], "ä": 1.5}', {"a": [1, None], "ä": 1.5})],
)
async def test_arguments_are_passed_as_they_were_written(
    raw: str, arguments: object, autojump_clock: MockClock
) -> None:
    peer = Peer()
    async with open_mcp_tools(peer.server()) as toolset:
        await call(toolset, "hello", raw)
    assert peer.calls == [("hello", arguments)]


@pytest.mark.rule("R-MCP-08")
@pytest.mark.parametrize("raw", ["[]", "5", "{", '{"a": NaN}'])
async def test_arguments_that_are_no_object_never_reach_the_server(
    raw: str, autojump_clock: MockClock
) -> None:
    peer = Peer()
    async with open_mcp_tools(peer.server()) as toolset:
        assert (await call(toolset, "hello", raw)).failure_kind == "validation"
        other = ask("hello", call_type="custom")
        refused = await toolset.execute(other, context_for(other, None))
        assert refused.failure_kind == "validation"
        assert (await call(toolset, "made_up")).failure_kind == "not_found"
    assert peer.calls == []


@pytest.mark.rule("R-MCP-09")
@pytest.mark.parametrize("result", [{"content": 5}, {}, {"content": [{"type": "odd"}]}])
async def test_an_answer_that_is_none_is_a_failure(
    result: dict[str, Any], autojump_clock: MockClock
) -> None:
    async def answer(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return result

    async with open_mcp_tools(Peer(answer=answer).server()) as toolset:
        outcome = await call(toolset, "hello")
        assert (outcome.kind, outcome.failure_kind) == ("failed", "external")
        assert outcome.error.startswith("the server's answer could not be read (peer)")
        assert (await call(toolset, "hello")).kind == "failed"  # and the session goes on


@pytest.mark.rule("R-MCP-11")
async def test_a_cancelled_call_leaves_at_once_and_the_server_is_told(
    autojump_clock: MockClock,
) -> None:
    peer = Peer(answer=never)
    async with open_mcp_tools(peer.server()) as toolset:
        start = trio.current_time()
        with trio.move_on_after(2) as scope:
            await call(toolset, "hello")
        assert scope.cancelled_caught
        assert trio.current_time() - start == pytest.approx(2)
        await trio.testing.wait_all_tasks_blocked()
        assert len(peer.cancelled) == 1
        (statistics,) = toolset.statistics()
        assert (statistics.calls, statistics.abandoned) == (0, 0)


@pytest.mark.rule("R-MCP-12")
async def test_a_server_that_reads_nothing_delays_no_cancellation(
    autojump_clock: MockClock,
) -> None:
    peer = Peer()
    async with open_mcp_tools(peer.server(grace=0)) as toolset:
        peer.deaf = True
        for _ in range(5):
            start = trio.current_time()
            with trio.move_on_after(2) as scope:
                await call(toolset, "hello")
            assert scope.cancelled_caught
            assert trio.current_time() - start == pytest.approx(2)
        abandoned = toolset.statistics()[0].abandoned
        assert abandoned > 0  # each of them tries to tell the server
        start = trio.current_time()
    assert trio.current_time() == start


@pytest.mark.rule("R-MCP-12")
async def test_calls_that_do_not_end_are_counted_and_bounded(autojump_clock: MockClock) -> None:
    peer = Peer(answer=never)
    async with open_mcp_tools(peer.server()) as toolset, trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(call, toolset, "hello")
        await peer.called(100)
        refused = await call(toolset, "hello")
        assert refused.failure_kind == "external"
        assert refused.error.endswith("has 100 calls that do not end; nothing was done")
        assert toolset.statistics()[0].calls == 100
        nursery.cancel_scope.cancel()


@pytest.mark.rule("R-MCP-13")
async def test_a_server_that_goes_fails_its_calls_and_the_run_goes_on(
    autojump_clock: MockClock,
) -> None:
    peer = Peer(answer=never)
    model = scripted_model(
        [
            tool_call_turn([tool_call("hello"), tool_call("hello")]),
            tool_call_turn([tool_call("hello")]),
            final_answer("it is gone"),
        ]
    )
    async with (
        open_mcp_tools(peer.server()) as toolset,
        open_run(model, "?", tools=toolset, limits=Limits(turns=5)) as run,
    ):
        await peer.called(2)
        await peer.hang_up()
        await run.wait()
        statistics = toolset.statistics()[0]
        assert not statistics.is_open
    assert run.result.stop_reason == "done"
    contents = [str(each["content"]) for each in run.state.messages if each["role"] == "tool"]
    assert len(contents) == 3
    assert all('"kind":"external"' in each for each in contents)
    assert all("not known" in each for each in contents[:2])
    assert "is not connected" in contents[2]
    assert "nothing was done" in contents[2]


async def test_a_call_after_the_block_is_a_failure(autojump_clock: MockClock) -> None:
    async with open_mcp_tools(Peer().server()) as toolset:
        pass
    assert (await call(toolset, "hello")).failure_kind == "external"


async def test_a_call_that_outlives_the_block_is_a_failure(autojump_clock: MockClock) -> None:
    outcomes: list[Outcome] = []
    peer = Peer(answer=never)
    async with trio.open_nursery() as nursery, open_mcp_tools(peer.server()) as toolset:

        async def make() -> None:
            outcomes.append(await call(toolset, "hello"))

        nursery.start_soon(make)
        await peer.called(1)
    assert [each.failure_kind for each in outcomes] == ["external"]
    assert "not known" in outcomes[0].error


async def test_a_call_whose_block_is_cancelled_is_a_failure(autojump_clock: MockClock) -> None:
    outcomes: list[Outcome] = []
    peer = Peer(answer=never)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with open_mcp_tools(peer.server()) as toolset:

                async def make() -> None:
                    outcomes.append(await call(toolset, "hello"))

                nursery.start_soon(make)
                await peer.called(1)
                scope.cancel()
    assert [each.failure_kind for each in outcomes] == ["external"]
    assert "not known" in outcomes[0].error


async def test_there_is_nothing_to_activate_and_no_error_is_fatal(
    autojump_clock: MockClock,
) -> None:
    async with open_mcp_tools(Peer().server()) as toolset:
        with pytest.raises(MissingPortError):
            await toolset.activate(Outcome.completed(activate_skills=["x"]))
        assert not toolset.fatal(KeyError())


# -- a list that changes, a connection that is opened anew ---------------------------------------


@pytest.mark.rule("R-MCP-14")
async def test_definitions_change_only_when_asked(autojump_clock: MockClock) -> None:
    peer = Peer(tools=[entry("a"), entry("x y")])
    async with open_mcp_tools(peer.server()) as toolset:
        before = toolset.definitions()
        peer.tools = [entry("x y"), entry("x_y"), entry("b")]
        await peer.notify("notifications/prompts/list_changed")
        await trio.testing.wait_all_tasks_blocked()
        assert not toolset.statistics()[0].changed
        await peer.notify("notifications/tools/list_changed")
        await trio.testing.wait_all_tasks_blocked()
        assert toolset.statistics()[0].changed
        assert toolset.definitions() is before
        await toolset.refresh("peer")
        assert not toolset.statistics()[0].changed
        first, kept, new = names(toolset)
        assert (first, kept) == ("b", "x_y")
        await call(toolset, kept)
        await call(toolset, new)
    assert [name for name, _ in peer.calls] == ["x y", "x_y"]


@pytest.mark.rule("R-MCP-14")
async def test_a_refresh_that_is_cancelled_or_fails_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    peer = Peer()
    async with open_mcp_tools(peer.server()) as toolset:
        before = toolset.definitions()
        peer.tools = [entry("other")]
        peer.silent = frozenset({"tools/list"})
        with trio.move_on_after(1) as scope:
            await toolset.refresh()
        assert scope.cancelled_caught
        peer.silent, peer.refused = frozenset(), frozenset()
        for page in ({"tools": 5}, ErrorData(code=-1, message="no")):
            peer.page = lambda cursor, page=page: page
            with pytest.raises(MCPServerError, match="^the server 'peer' did not list its tools"):
                await toolset.refresh()
        peer.page = lambda cursor: {"tools": [], "nextCursor": "again"}
        with pytest.raises(MCPServerError, match="lists tools without an end$"):
            await toolset.refresh()
        assert toolset.definitions() is before
        with pytest.raises(LookupError, match="^no server is called 'else', expected"):
            await toolset.refresh("else")


@pytest.mark.rule("R-MCP-14")
async def test_the_late_answer_to_a_refresh_that_was_cancelled_is_not_taken_for_another(
    autojump_clock: MockClock,
) -> None:
    peer = Peer()
    async with open_mcp_tools(peer.server()) as toolset:
        peer.delay = 5
        with trio.move_on_after(1):
            await toolset.refresh()
        peer.delay, peer.tools = 10, [entry("hello"), entry("new")]
        await toolset.refresh()
        assert names(toolset) == ["hello", "new"]
        assert toolset.statistics()[0].skipped == ()


@pytest.mark.rule("R-MCP-15")
async def test_a_lost_server_is_connected_anew_when_asked(autojump_clock: MockClock) -> None:
    peer = Peer()
    async with open_mcp_tools(peer.server()) as toolset:
        before = toolset.definitions()
        await peer.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        assert (await call(toolset, "hello")).kind == "failed"
        with pytest.raises(MCPServerError, match="is not connected"):
            await toolset.refresh()
        assert toolset.definitions() is before
        peer.tools = [entry("hello"), entry("new")]
        await toolset.reconnect("peer")
        assert (await call(toolset, "hello")).kind == "completed"
        assert toolset.definitions() is before
        assert toolset.statistics()[0].changed
        await toolset.reconnect("peer")
        assert peer.open == 1
    assert peer.open == 0


@pytest.mark.rule("R-MCP-15")
async def test_a_reconnect_that_fails_or_is_cancelled_leaves_no_connection(
    autojump_clock: MockClock,
) -> None:
    peer = Peer()
    async with open_mcp_tools(peer.server(startup=5)) as toolset:
        peer.silent = frozenset({"initialize"})
        with pytest.raises(MCPServerError, match="was not ready within 5 s$"):
            await toolset.reconnect("peer")
        with trio.move_on_after(1):
            await toolset.reconnect("peer")
        assert peer.open == 0
        assert (await call(toolset, "hello")).kind == "failed"
        peer.silent = frozenset()
        await toolset.reconnect("peer")
        assert (await call(toolset, "hello")).kind == "completed"


async def test_nothing_is_opened_anew_while_the_block_is_being_left(
    autojump_clock: MockClock,
) -> None:
    peer, refused = Peer(), list[MCPServerError]()

    async def reconnect(toolset: MCPTools) -> None:
        try:
            await toolset.reconnect("peer")
        except MCPServerError as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        async with open_mcp_tools(peer.server()) as toolset:
            nursery.start_soon(reconnect, toolset)  # noqa: ASYNC111  # to be refused
            await trio.lowlevel.checkpoint()  # it waits for the old session to end
        assert peer.open == 0
    with pytest.raises(MCPServerError, match="its block is being left$"):
        await toolset.reconnect("peer")
    assert len(refused) <= 1


# -- everywhere ----------------------------------------------------------------------------------


async def one_life(scene: Scene) -> None:
    peer = Peer(tools=[entry("hello"), entry("never")])

    @scene.afterwards
    def nothing_is_left() -> None:
        assert peer.open == 0

    async def answer(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        await trio.sleep(1 if name == "hello" else 1_000)
        return {"content": []}

    peer.answer = answer
    async with open_mcp_tools(peer.server()) as toolset:
        assert (await call(toolset, "hello")).kind == "completed"
        with trio.move_on_after(2):
            await call(toolset, "never")
        await toolset.refresh()
        await toolset.reconnect("peer")


@pytest.mark.rule("R-MCP-17")
def test_nothing_is_left_wherever_it_is_cut() -> None:
    report = cancel_everywhere(one_life, minimum=200)
    assert report.cancelled > 200


def test_a_whole_life_is_repeatable() -> None:
    run_virtual(one_life, Scene())
