"""A small MCP server, made with the official package."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("tides")


@server.tool()
def high_tide(harbour: str) -> str:
    """Tell when the water is highest today."""
    if harbour != "Dover":
        raise ValueError(f"no tables for {harbour}")
    return "11:42"


server.run()
