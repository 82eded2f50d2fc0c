"""The tools of remote servers, as the toolset of a run.

The definitions are those of the moment when the block was entered. A server may change its tools
at any time and says so; a model that is in the middle of a run keeps what it was shown, and with
it the provider's prompt cache, until the host asks for the change (`MCPTools.refresh`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from harness._json import JSON
from harness._messages import Message
from harness._shield import open_kept_nursery
from harness._toolset import Admission, Batch, CallContext, CallPolicy, Outcome, ToolCall
from harness.mcp._connection import Connection
from harness.mcp._errors import MCPServerError
from harness.mcp._listing import ListedTool, SkippedTool
from harness.mcp._names import Origin, assign_names
from harness.mcp._servers import MCPServer
from harness.tools import Tool, ToolList, define_tool, sanitize_tool_schema

__all__ = ["MCPTools", "ServerStatistics", "open_mcp_tools"]


@attrs.frozen(kw_only=True)
class ServerStatistics:
    """How a server is."""

    name: str
    is_open: bool
    error: str
    """Why it is gone, if it went by itself."""
    tools: int
    """How many of its tools models are shown."""
    skipped: tuple[SkippedTool, ...]
    """Those that it lists besides, and why they are not shown."""
    changed: bool
    """It has said that its tools are others now; see `MCPTools.refresh`."""
    calls: int
    """Calls in flight."""
    abandoned: int
    """Calls that nobody waits for any more and that its side has not let go yet."""


@attrs.frozen
class _RemoteSchema:
    """The arguments of a remote tool: an object, and for the rest its server is the judge."""

    _schema: dict[str, JSON]

    def json_schema(self) -> dict[str, JSON]:
        # A tool sanitizes what it shows, but refuses what is not of an object to begin with.
        if self._schema.get("type") == "object":
            return self._schema
        return sanitize_tool_schema(self._schema)

    def parse(self, raw: dict[str, JSON]) -> dict[str, JSON]:
        return raw


class MCPTools:
    """The tools of some servers: a `Toolset`. Made by `open_mcp_tools`."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = {each.server.name: each for each in connections}
        self._names: dict[Origin, str] = {}
        self._skipped: dict[str, tuple[SkippedTool, ...]] = {}
        self._list = ToolList()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools as they are now, to be put into a list with others."""
        return self._list.tools

    def statistics(self) -> tuple[ServerStatistics, ...]:
        """Return how each server is, in their order."""
        shown = [origin.server for origin in self._names]
        return tuple(
            ServerStatistics(
                name=name,
                is_open=each.is_open,
                error=each.error,
                tools=shown.count(name),
                skipped=self._skipped.get(name, ()),
                changed=each.changed,
                calls=each.waited,
                abandoned=each.jobs - each.waited,
            )
            for name, each in self._connections.items()
        )

    async def refresh(self, name: str | None = None) -> None:
        """Ask the server *name*, or every one, for its tools, and show them from the next turn on.

        A tool that is still there keeps its name. A checkpoint; cancelled at once, and then
        nothing has changed.

        Raises:
            MCPServerError: a server is gone or gives no list; nothing has changed.
            LookupError: there is no such server.
        """
        asked = self._named(name)
        listings = [await each.list_tools() for each in asked]
        for each, listing in zip(asked, listings, strict=True):
            each.listing = listing
        self._show()

    async def reconnect(self, name: str) -> None:
        """Close the session with the server *name*, if there is one, and open it anew.

        Its tools stay those that are shown; see `refresh`. A checkpoint. Cancelled, the server
        is not connected. When the block is being left, nothing is opened any more.

        Raises:
            MCPServerError: it cannot be used.
            LookupError: there is no such server.
        """
        for each in self._named(name):
            await each.open()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {list(self._connections)}>"

    def definitions(self) -> tuple[dict[str, JSON], ...]:
        """Return each tool's definition; the same objects until they are refreshed."""
        return self._list.definitions()

    def policy(self, call: ToolCall) -> CallPolicy:
        """Return the policy of the tool's server: one pool for all its calls."""
        return self._list.policy(call)

    async def admit(self, batch: Batch) -> Admission:
        """Let every call run. No checkpoint."""
        return await self._list.admit(batch)

    async def execute(self, call: ToolCall, context: CallContext[object]) -> Outcome:
        """Call the tool on its server. A checkpoint; a cancellation is delivered at once."""
        return await self._list.execute(call, context)

    def normalize(self, call: ToolCall) -> ToolCall | Outcome:
        """Return *call* as it is: what is normal is for its server to say."""
        return self._list.normalize(call)

    async def activate(self, outcome: Outcome) -> None:
        """Say that there is nothing to activate.

        Raises:
            MissingPortError: always.
        """
        await self._list.activate(outcome)

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        """Return the envelope as a tool message, with the content parts behind it."""
        return self._list.render(call, outcome)

    def fatal(self, error: BaseException) -> bool:
        """Whether *error* is one of a store; no other error of a tool ends the run."""
        return self._list.fatal(error)

    def _named(self, name: str | None) -> list[Connection]:
        if name is None:
            return list(self._connections.values())
        if name not in self._connections:
            raise LookupError(f"no server is called {name!r}, expected {list(self._connections)}")
        return [self._connections[name]]

    def _show(self) -> None:
        """Make the tools out of what the servers have listed."""
        listed: dict[Origin, tuple[Connection, ListedTool]] = {}
        skipped = {name: list(each.listing.skipped) for name, each in self._connections.items()}
        for name, each in self._connections.items():
            for tool in each.listing.tools:
                if listed.setdefault(Origin(name, tool.name), (each, tool))[1] is not tool:
                    reason = "another tool of its server has its name"
                    skipped[name].append(SkippedTool(server=name, tool=tool.name, reason=reason))
        prefixes = {name: each.server.prefix for name, each in self._connections.items()}
        wanted = [(origin, prefixes[origin.server] + origin.tool) for origin in listed]
        names = assign_names(wanted, self._names)
        tools = {
            origin: _as_tool(names[origin], connection, tool)
            for origin, (connection, tool) in listed.items()
        }
        order = {name: place for place, name in enumerate(self._connections)}
        shown = sorted(tools, key=lambda each: (order[each.server], names[each]))
        self._list = ToolList(tools[each] for each in shown)
        self._names = names
        self._skipped = {name: tuple(each) for name, each in skipped.items()}


def _as_tool(name: str, connection: Connection, tool: ListedTool) -> Tool:
    async def execute(arguments: dict[str, JSON], _: CallContext[object]) -> Outcome:
        return await connection.execute(tool.name, arguments)

    return define_tool(
        name,
        tool.description,
        schema=_RemoteSchema(tool.schema),
        execute=execute,
        pool=connection.server.pool,
        time_limit=connection.server.time_limit,
    )


@asynccontextmanager
async def open_mcp_tools(*servers: MCPServer) -> AsyncIterator[MCPTools]:
    """Open the tools of *servers* for a block: connect to all of them, and list their tools.

    Open it around the runs that use it, so that a stop of a run does not have to wait for a
    server. When the block is left, each server has its grace to end in good order; if leaving is
    cancelled, or comes by a cancellation, half a second. Nothing of them is left: no process, no
    connection and no task.

    Raises:
        MCPServerError: a server cannot be used; the others are closed.
        ValueError: two servers have one name.
    """
    names = [each.name for each in servers]
    if len(set(names)) < len(names):
        raise ValueError(f"the servers are called {names}, expected a name for each")
    async with open_kept_nursery() as service:
        connections = [Connection(each, service) for each in servers]
        toolset = MCPTools(connections)
        try:
            await _open_all(connections)
            toolset._show()
            yield toolset
        finally:
            for each in connections:
                each.close_soon()


async def _open_all(connections: Sequence[Connection]) -> None:
    """Open every connection; the first that fails stops the others."""
    failures: list[MCPServerError] = []

    async def open_one(connection: Connection) -> None:
        try:
            await connection.open()
        except MCPServerError as error:
            failures.append(error)
            nursery.cancel_scope.cancel("a server cannot be used")

    async with trio.open_nursery() as nursery:
        for each in connections:
            nursery.start_soon(open_one, each)
    if failures:
        raise failures[0]
