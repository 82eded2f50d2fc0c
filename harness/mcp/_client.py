"""The official client, imported in one place so that its absence is told in one way."""

from __future__ import annotations

from harness._errors import MissingExtraError

try:
    import anyio
    import httpx2
    from mcp import Client, MCPError
    from mcp.client.stdio import get_default_environment
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.message import SessionMessage
    from mcp_types import (
        CONNECTION_CLOSED,
        INVALID_PARAMS,
        METHOD_NOT_FOUND,
        PARSE_ERROR,
        AudioContent,
        CallToolRequest,
        CallToolRequestParams,
        CallToolResult,
        ContentBlock,
        EmbeddedResource,
        ErrorData,
        ImageContent,
        Implementation,
        InputRequiredResult,
        JSONRPCError,
        JSONRPCRequest,
        JSONRPCResponse,
        PaginatedRequestParams,
        ResourceLink,
        TextContent,
        TextResourceContents,
        ToolListChangedNotification,
        jsonrpc_message_adapter,
    )
    from pydantic import TypeAdapter, ValidationError
except ModuleNotFoundError as error:
    raise MissingExtraError("mcp", error.name or "mcp") from error

__all__ = [
    "CONNECTION_CLOSED",
    "INVALID_PARAMS",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "AudioContent",
    "CallToolRequest",
    "CallToolRequestParams",
    "CallToolResult",
    "Client",
    "ContentBlock",
    "EmbeddedResource",
    "ErrorData",
    "ImageContent",
    "Implementation",
    "InputRequiredResult",
    "JSONRPCError",
    "JSONRPCRequest",
    "JSONRPCResponse",
    "MCPError",
    "PaginatedRequestParams",
    "ResourceLink",
    "SessionMessage",
    "TextContent",
    "TextResourceContents",
    "ToolListChangedNotification",
    "TypeAdapter",
    "ValidationError",
    "anyio",
    "get_default_environment",
    "httpx2",
    "jsonrpc_message_adapter",
    "streamable_http_client",
]
