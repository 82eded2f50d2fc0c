"""A server that cannot be used."""

from __future__ import annotations

from harness._errors import ProviderError

__all__ = ["MCPServerError"]


class MCPServerError(ProviderError):
    """A server did not start, does not answer, or says what cannot be used; `server` names it."""

    code = "mcp.server"

    def __init__(self, server: str, reason: str) -> None:
        self.server = server
        self.reason = reason
        super().__init__(
            f"the server {server!r} {reason}",
            kind="network",
            category="unreachable",
            phase="connect",
        )
