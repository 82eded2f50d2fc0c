from typing import Any

import httpx2
import pytest

from harness.mcp import HTTPServer, StdioServer, TransportServer

STDIO: dict[str, Any] = {"name": "s", "command": "true"}
HTTP: dict[str, Any] = {"name": "s", "url": "http://localhost/"}


@pytest.mark.rule("R-MCP-01")
@pytest.mark.parametrize(
    ("server", "fields", "message"),
    [
        (StdioServer, STDIO | {"name": ""}, r"StdioServer.name is '', expected letters"),
        (StdioServer, STDIO | {"name": "a b"}, r"StdioServer.name is 'a b', expected letters"),
        (StdioServer, STDIO | {"name": 5}, r"StdioServer.name is 5, expected letters"),
        (StdioServer, STDIO | {"prefix": 5}, r"StdioServer.prefix is 5, expected a text"),
        (StdioServer, STDIO | {"startup": 0}, r"StdioServer.startup is 0, expected seconds"),
        (StdioServer, STDIO | {"grace": -1}, r"StdioServer.grace is -1, expected seconds"),
        (StdioServer, STDIO | {"grace": float("nan")}, r"StdioServer.grace is nan"),
        (StdioServer, STDIO | {"time_limit": True}, r"StdioServer.time_limit is True"),
        (StdioServer, STDIO | {"command": ""}, r"StdioServer.command is '', expected a program"),
        (StdioServer, STDIO | {"args": "x y"}, r"StdioServer.args is 'x y', expected texts"),
        (StdioServer, STDIO | {"args": [5]}, r"StdioServer.args is \[5\], expected texts"),
        (HTTPServer, HTTP | {"url": "ftp://x"}, r"HTTPServer.url is 'ftp://x', expected 'http:"),
        (HTTPServer, HTTP | {"startup": float("inf")}, r"HTTPServer.startup is inf"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(
    server: type, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        server(**fields)


async def test_a_client_of_the_hosts_has_its_own_headers() -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        HTTPServer(client=client, **HTTP)
        with pytest.raises(ValueError, match="^HTTPServer has headers and a client"):
            HTTPServer(client=client, headers={"a": "b"}, **HTTP)


@pytest.mark.rule("R-MCP-01")
def test_what_may_be_secret_is_not_shown() -> None:
    shown = [
        repr(StdioServer(env={"KEY": "s3cret"}, **STDIO)),
        repr(HTTPServer(name="s", url="http://u:s3cret@x/?k=s3cret", headers={"k": "s3cret"})),
    ]
    assert "s3cret" not in "".join(shown)


def test_every_server_has_a_pool_of_its_name() -> None:
    def never() -> Any:
        raise AssertionError("nobody connects")

    servers = (StdioServer(**STDIO), HTTPServer(**HTTP), TransportServer(name="s", transport=never))
    assert {each.pool for each in servers} == {"mcp:s"}
