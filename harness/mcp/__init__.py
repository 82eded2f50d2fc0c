"""Tools of remote servers over the Model Context Protocol (extra ``mcp``)."""

from __future__ import annotations

from harness.mcp._command_line import parse_servers
from harness.mcp._errors import MCPServerError
from harness.mcp._listing import SkippedTool
from harness.mcp._servers import HTTPServer, MCPServer, StdioServer, TransportServer
from harness.mcp._toolset import MCPTools, ServerStatistics, open_mcp_tools

__all__ = [
    "HTTPServer",
    "MCPServer",
    "MCPServerError",
    "MCPTools",
    "ServerStatistics",
    "SkippedTool",
    "StdioServer",
    "TransportServer",
    "open_mcp_tools",
    "parse_servers",
]
