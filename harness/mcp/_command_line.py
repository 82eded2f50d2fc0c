"""Servers as they are named on a command line: an address, or a command and its arguments."""

from __future__ import annotations

import os
import re
import shlex
import urllib.parse
from collections.abc import Iterable
from typing import Final

from harness.mcp._servers import HTTPServer, MCPServer, StdioServer

__all__ = ["parse_servers"]

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST: Final = 40


def parse_servers(texts: Iterable[str]) -> list[MCPServer]:
    """Return a server for each of *texts*: of an address, or of a command to be started.

    A command is split as a shell would, and no shell runs it. A server is called after its host
    or its program, with a number if another is called so too.

    Raises:
        ValueError: a text is neither; the error repeats it, but not a secret of an address.
    """
    servers: list[MCPServer] = []
    for text in texts:
        taken = {each.name for each in servers}
        if text.startswith(("http://", "https://")):
            host = urllib.parse.urlsplit(text).hostname
            if not host:
                raise ValueError("an MCP server's address has no host, expected 'https://host/…'")
            servers.append(HTTPServer(name=_name(host, taken), url=text))
            continue
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"the MCP server {text!r} is no command: {error}") from None
        if not words:
            raise ValueError(f"the MCP server is {text!r}, expected an address or a command")
        command, *args = words
        name = _name(os.path.basename(command), taken)
        servers.append(StdioServer(name=name, command=command, args=args))
    return servers


def _name(text: str, taken: set[str]) -> str:
    name = _UNFIT.sub("-", text).strip("-")[:_LONGEST] or "server"
    number, given = 1, name
    while given in taken:
        number += 1
        given = f"{name}-{number}"
    return given
