"""What the model of ``harness run`` may call: tools of modules, of servers, and of skills."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs

from harness._toolset import Toolset
from harness.skills import FoundSkills, read_skills, with_skills
from harness.tools import Tool, as_toolset, join_toolsets, tool

if TYPE_CHECKING:
    from harness.mcp import MCPServer

__all__ = ["Tools", "add_tool_arguments", "tools_of"]


def add_tool_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says which tools there are."""
    parser.add_argument(
        "--tools",
        nargs="*",
        metavar="MODULE:NAME",
        help="a tool, a function, a list of them, or a toolset; put the question before it",
    )
    parser.add_argument(
        "--mcp",
        action="append",
        metavar="COMMAND",
        help="a server of tools: a command with its arguments in one word, or an address",
    )
    parser.add_argument(
        "--skills",
        action="append",
        metavar="DIR",
        help="a folder of skills, which the model may load",
    )


@attrs.frozen
class Tools:
    """The tools of a run, and the servers that some of them are on."""

    own: Toolset
    servers: Sequence[MCPServer]
    skills: FoundSkills

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Toolset]:
        """Connect to the servers for a block, and give all tools as one toolset.

        Raises:
            MCPServerError: a server cannot be used.
            ToolDefinitionError: two tools have one name.
        """
        if not self.servers:
            yield with_skills(self.own, self.skills)
            return
        from harness.mcp import open_mcp_tools  # noqa: PLC0415  # an extra

        async with open_mcp_tools(*self.servers) as remote:
            yield with_skills(join_toolsets(self.own, remote), self.skills)


def tools_of(options: argparse.Namespace) -> Tools:
    """Return the tools that *options* name. A skill that cannot be read is told and left out.

    Raises:
        ImportError, AttributeError, ValueError, OSError: there is no such thing.
        ToolDefinitionError: it cannot be a tool.
    """
    servers: Sequence[MCPServer] = ()
    if options.mcp:
        from harness.mcp import parse_servers  # noqa: PLC0415  # an extra

        servers = parse_servers(options.mcp)
    skills = read_skills(*options.skills) if options.skills else FoundSkills()
    for broken in skills.broken:
        print(f"harness run: {broken.path} is left out: {broken.reason}", file=sys.stderr)
    return Tools(own=as_toolset(_load_tools(options.tools or ())), servers=servers, skills=skills)


def _load_tools(names: Sequence[str]) -> Toolset | list[Tool]:
    """Import what ``MODULE:NAME`` names; functions become tools.

    Raises:
        ImportError, AttributeError, ValueError: there is no such thing.
        ToolDefinitionError: it cannot be a tool.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: list[Tool] = []
    for name in names:
        module, colon, attribute = name.partition(":")
        if not (module and colon and attribute):
            raise ValueError(f"--tools has {name!r}, expected MODULE:NAME")
        value = getattr(importlib.import_module(module), attribute)
        if hasattr(value, "execute") and hasattr(value, "definitions"):
            if len(names) > 1:
                raise ValueError(f"{name!r} is a whole toolset, expected it alone")
            return value  # type: ignore[no-any-return]  # a Toolset, by its methods
        each = value if isinstance(value, (list, tuple)) else [value]
        found.extend(one if isinstance(one, Tool) else tool(one) for one in each)
    return found
