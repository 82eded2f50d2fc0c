"""A server, and calls of it that nobody's abort has to wait for.

Sessions are tasks in the block's service nursery. That is outside of every run, so a run that is
stopped does not end them; and it is where calls are made. Whoever calls only *waits* for a job
there (`Connection._apart`) and on a cancellation leaves at once. The job is cancelled with it: it
tells the server, which the official client does inside a shield, for up to five seconds when
the server takes nothing. The job may take its time, its caller need not.

Such jobs are counted. A server that hangs through many stopped runs is given no more of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import attrs
import trio

from harness._json import JSON
from harness._toolset import Outcome
from harness.mcp._client import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Client,
    InputRequiredResult,
    MCPError,
    TypeAdapter,
)
from harness.mcp._errors import MCPServerError
from harness.mcp._results import UNKNOWN_EFFECT, failure_of, outcome_of_result
from harness.mcp._servers import MCPServer
from harness.mcp._session import Listing, Session, reason_of

__all__ = ["MOST_JOBS", "Connection"]

T = TypeVar("T")

MOST_JOBS: Final = 100
"""Calls of one server that have not ended, those included that nobody waits for any more."""

_WHY: Final = 0.5
"""Seconds that a call whose server has ended waits to hear how."""

_ANSWER: Final = TypeAdapter[CallToolResult | InputRequiredResult](
    CallToolResult | InputRequiredResult
)


@attrs.define(eq=False)
class _Job(Generic[T]):
    """Work in the service nursery that somebody waits for, or no longer does."""

    work: Callable[[], Awaitable[T]]
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    ended: trio.Event = attrs.field(factory=trio.Event)
    value: tuple[T, ...] = ()
    error: Exception | None = None

    async def run(self) -> None:
        try:
            with self.scope:
                try:
                    self.value = (await self.work(),)
                except Exception as error:  # noqa: BLE001  # raised where it is waited for
                    self.error = error
        finally:
            self.ended.set()


@attrs.define(eq=False)
class Connection:
    """A server, and the session with it that there is just now."""

    server: MCPServer
    _service: trio.Nursery
    listing: Listing = attrs.field(factory=Listing, init=False)
    """What it listed when it was first opened, or last refreshed."""
    jobs: int = attrs.field(default=0, init=False)
    """Calls that have not ended."""
    waited: int = attrs.field(default=0, init=False)
    """Calls that somebody waits for."""
    _session: Session | None = attrs.field(default=None, init=False)
    _left: bool = attrs.field(default=False, init=False)
    """The block is being left: nothing that is opened now would be closed."""
    _opening: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held while a session is opened in the place of another."""

    @property
    def is_open(self) -> bool:
        """Whether it can be called."""
        return self._session is not None and self._session.client is not None

    @property
    def changed(self) -> bool:
        """Whether its tools are others now than its listing says, as far as it has told."""
        return self._session is not None and self._session.changed

    @property
    def error(self) -> str:
        """Why it is gone, if it went by itself."""
        return "" if self._session is None or self.is_open else self._session.why

    async def open(self) -> None:
        """Open a session, after closing the one before. Cancelled, it leaves none.

        Raises:
            MCPServerError: it cannot be used.
        """
        async with self._opening:
            first = self._session is None
            if self._session is not None:
                self._session.close()
                await self._session.over.wait()
            if self._left:
                raise MCPServerError(self.server.name, "is not opened: its block is being left")
            session = self._session = Session(self.server)
            await self._service.start(session.run)
            if first:
                self.listing = session.listing
            session.changed = session.changed or session.listing != self.listing

    def close_soon(self) -> None:
        """Have the session end, within its grace, and open no other. Not a checkpoint."""
        self._left = True
        if self._session is not None:
            self._session.close()

    async def list_tools(self) -> Listing:
        """Ask for the tools again. A checkpoint; a cancellation is delivered at once.

        Raises:
            MCPServerError: the server is gone, or does not answer with a list.
        """

        async def work() -> Listing:
            return await session.list_tools(client)

        session, client = self._current()
        try:
            return await self._apart(work)
        except MCPServerError:
            raise
        except Exception as error:
            reason = f"did not list its tools: {session.why or reason_of(error)}"
            raise MCPServerError(self.server.name, reason) from error

    async def execute(self, tool: str, arguments: dict[str, JSON]) -> Outcome:
        """Call *tool* with *arguments*. A checkpoint; a cancellation is delivered at once.

        Whatever the server does ends in an outcome.
        """
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))

        async def work() -> CallToolResult | InputRequiredResult:
            # Not `client.call_tool`, which fails a result that is not of the output schema.
            return await client.session.send_request(request, _ANSWER)

        try:
            session, client = self._current()
        except MCPServerError as error:
            return Outcome.failed(str(error), "external")
        try:
            return outcome_of_result(await self._apart(work))
        except MCPServerError as error:
            return Outcome.failed(str(error), "external")
        except Exception as error:  # noqa: BLE001  # a remote's failure is the call's, not the run's
            lost = isinstance(error, MCPError) and error.code == CONNECTION_CLOSED
            if lost:
                with trio.move_on_after(_WHY):
                    await session.over.wait()
            return failure_of(self.server.name, error, detail=session.why if lost else "")

    def _current(self) -> tuple[Session, Client]:
        session = self._session
        if session is None or session.client is None:
            why = f" ({self.error})" if self.error else ""
            raise MCPServerError(
                self.server.name, f"is not connected{why}; nothing was done. It can be reconnected"
            )
        return session, session.client

    async def _apart(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what *work* returns, run in the service nursery; leave at once if cancelled."""
        if self.jobs >= MOST_JOBS:
            raise MCPServerError(
                self.server.name, f"has {self.jobs} calls that do not end; nothing was done"
            )
        job = _Job(work)
        self._service.start_soon(self._run_job, job)
        self.jobs += 1
        self.waited += 1
        try:
            await job.ended.wait()
        finally:
            self.waited -= 1
            job.scope.cancel("nobody waits for it any more")
        if job.error is not None:
            raise job.error
        if not job.value:
            raise MCPServerError(self.server.name, f"was left in the middle. {UNKNOWN_EFFECT}")
        return job.value[0]

    async def _run_job(self, job: _Job[T]) -> None:
        try:
            await job.run()
        finally:
            self.jobs -= 1
