import re

import pytest

from harness.mcp import HTTPServer, StdioServer, parse_servers


@pytest.mark.rule("R-MCP-20")
def test_a_text_is_an_address_or_a_command() -> None:
    web, local = parse_servers(["https://example.org:8/mcp?k=1", "/opt/my-server --dir 'a b'"])
    assert web == HTTPServer(name="example-org", url="https://example.org:8/mcp?k=1")
    assert local == StdioServer(name="my-server", command="/opt/my-server", args=["--dir", "a b"])


@pytest.mark.rule("R-MCP-20")
def test_servers_that_are_called_alike_are_numbered() -> None:
    names = [each.name for each in parse_servers(["npx a", "npx b", "x/npx", "npx-2", "…"])]
    assert names == ["npx", "npx-2", "npx-3", "npx-2-2", "server"]


@pytest.mark.rule("R-MCP-20")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the MCP server is '', expected an address or a command"),
        ("  ", "the MCP server is '  ', expected an address or a command"),
        ("a 'b", 'the MCP server "a \'b" is no command: No closing quotation'),
        ("http://", "an MCP server's address has no host, expected 'https://host/…'"),
        ("http://?k=s3cret", "an MCP server's address has no host, expected 'https://host/…'"),
    ],
)
def test_what_is_neither_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_servers([text])
