"""How a server is reached: as a process of ours, over HTTP, or over a transport of the host's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Final, TypeAlias

import attrs

from harness._bounds import check_seconds

if TYPE_CHECKING:
    import httpx2
    from mcp.client import Transport

__all__ = ["HTTPServer", "MCPServer", "StdioServer", "TransportServer"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@attrs.frozen(kw_only=True)
class _Declared:
    name: str = attrs.field()
    """What it is called here; its calls take their permits from the pool ``mcp:<name>``."""
    prefix: str = attrs.field(default="")
    """Stands before the name of each of its tools."""
    startup: float = attrs.field(default=30.0)
    """Seconds until it must have answered and listed its tools."""
    grace: float = attrs.field(default=2.0)
    """Seconds that it has to end by itself when the block is left."""
    time_limit: float | None = attrs.field(default=None)
    """Seconds that each of its calls may take; None is no limit."""

    @name.validator
    def _check_name(self, _: object, value: object) -> None:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            kind = type(self).__name__
            raise ValueError(
                f"{kind}.name is {value!r}, expected letters, digits, '_' and '-', at most 64"
            )

    @prefix.validator
    def _check_prefix(self, _: object, value: object) -> None:
        if not isinstance(value, str):
            raise TypeError(f"{type(self).__name__}.prefix is {value!r}, expected a text")

    @startup.validator
    def _check_startup(self, _: object, value: object) -> None:
        check_seconds(f"{type(self).__name__}.startup", value, zero=False)

    @grace.validator
    def _check_grace(self, _: object, value: object) -> None:
        check_seconds(f"{type(self).__name__}.grace", value)

    @time_limit.validator
    def _check_time_limit(self, _: object, value: object) -> None:
        if value is not None:
            check_seconds(f"{type(self).__name__}.time_limit", value, zero=False)

    @property
    def pool(self) -> str:
        """The pool that its calls take their permits from."""
        return f"mcp:{self.name}"


@attrs.frozen(kw_only=True)
class StdioServer(_Declared):
    """A server that is started as a process and speaks over its standard streams."""

    command: str = attrs.field()
    """The program; no shell reads it."""
    args: Sequence[str] = ()
    env: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    """Variables beside the few that are passed on: where programs are, the home, the user."""
    cwd: str | os.PathLike[str] | None = None
    stderr: IO[bytes] | IO[str] | int | None = None
    """A file or a descriptor. None: it is read, and its end is told if the server fails."""

    @command.validator
    def _check_command(self, _: object, value: object) -> None:
        if not isinstance(value, str) or not value:
            raise ValueError(f"StdioServer.command is {value!r}, expected a program")

    def __attrs_post_init__(self) -> None:
        args: object = self.args
        if isinstance(args, str) or not all(isinstance(each, str) for each in self.args):
            raise TypeError(f"StdioServer.args is {self.args!r}, expected texts")


@attrs.frozen(kw_only=True)
class HTTPServer(_Declared):
    """A server that is reached at an address, over streamable HTTP."""

    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Sent with every request; a key belongs here."""
    client: httpx2.AsyncClient | None = attrs.field(default=None, repr=False)
    """The host's own, which stays open; it has its own headers, and *headers* must be empty."""

    @url.validator
    def _check_url(self, _: object, value: object) -> None:
        if not isinstance(value, str) or not value.startswith(("http://", "https://")):
            raise ValueError(f"HTTPServer.url is {value!r}, expected 'http://…' or 'https://…'")

    def __attrs_post_init__(self) -> None:
        if self.client is not None and self.headers:
            raise ValueError("HTTPServer has headers and a client, expected one of them")


@attrs.frozen(kw_only=True)
class TransportServer(_Declared):
    """A server behind any transport of the official client, such as one in this process."""

    transport: Callable[[], Transport] = attrs.field(repr=False)
    """Makes a transport, once for every connection."""


MCPServer: TypeAlias = StdioServer | HTTPServer | TransportServer
"""Every way to reach a server."""
