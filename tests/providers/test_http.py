"""The transport's failures, and connections that are cut before HTTP is spoken."""

import socket
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import attrs
import httpx2
import pytest
import trio

from harness._errors import UsageError
from harness.providers._failures import Redaction
from harness.providers._http import (
    TRANSPORT_ROWS,
    completions_url,
    open_client,
    open_reply,
    transport_failure,
)

NOTHING = Redaction([])

CONNECTING = ("network", "unreachable", "connect")
SENDING = ("network", "unreachable", "request")
BROKEN = ("network", "unreachable", None)
EXPECTED: dict[type[httpx2.RequestError], tuple[str, str, str | None]] = {
    httpx2.RequestError: BROKEN,
    httpx2.TransportError: BROKEN,
    httpx2.TimeoutException: BROKEN,
    httpx2.ConnectTimeout: CONNECTING,
    httpx2.ReadTimeout: ("stall", "stalled", None),
    httpx2.WriteTimeout: SENDING,
    httpx2.PoolTimeout: CONNECTING,
    httpx2.NetworkError: BROKEN,
    httpx2.ConnectError: CONNECTING,
    httpx2.ReadError: BROKEN,
    httpx2.SSEError: BROKEN,
    httpx2.WriteError: SENDING,
    httpx2.CloseError: BROKEN,
    httpx2.ProtocolError: BROKEN,
    httpx2.LocalProtocolError: ("internal", "client_error", "request"),
    httpx2.RemoteProtocolError: BROKEN,
    httpx2.ProxyError: CONNECTING,
    httpx2.UnsupportedProtocol: ("internal", "client_error", "connect"),
    httpx2.DecodingError: ("http", "server_error", None),
    httpx2.TooManyRedirects: ("http", "client_error", "headers"),
}


def with_subclasses(kind: type[httpx2.RequestError]) -> Iterator[type[httpx2.RequestError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from with_subclasses(each)


@pytest.mark.rule("R-PROV-16")
def test_every_error_of_the_transport_has_its_meaning() -> None:
    ours = {each for each in with_subclasses(httpx2.RequestError) if each.__module__ == "httpx2"}
    assert ours == set(EXPECTED)
    for kind, (meant, category, phase) in EXPECTED.items():
        for place in ("headers", "stream", "reply"):
            failure = transport_failure(kind("gone"), phase=place, redact=NOTHING)
            found = (failure.kind, failure.category, failure.phase)
            assert found == (meant, category, phase or place)
            assert failure.status_code is None


def test_no_row_of_the_table_is_hidden_by_one_before_it() -> None:
    for place, row in enumerate(TRANSPORT_ROWS):
        assert not any(issubclass(row.error, above.error) for above in TRANSPORT_ROWS[:place])


@pytest.mark.rule("R-PROV-15")
def test_a_transport_error_is_redacted_and_bounded() -> None:
    text = "x" * 490 + "sk-0123456789abcdef" + "x" * 10_000
    failure = transport_failure(
        httpx2.ReadError(text), phase="stream", redact=Redaction(["sk-0123456789abcdef"])
    )
    assert "sk-0" not in str(failure)
    assert len(str(failure)) < 600
    bare = transport_failure(httpx2.ReadError(""), phase="stream", redact=NOTHING)
    assert (
        str(bare) == "the call to the provider ended with ReadError (no detail), expected a reply"
    )


@pytest.mark.rule("R-PROV-02")
@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://host/v1", "https://host/v1/chat/completions"),
        ("https://host/v1/", "https://host/v1/chat/completions"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/chat/completions"),
        ("https://host/d?api-version=1", "https://host/d/chat/completions?api-version=1"),
        ("https://host/a%20b", "https://host/a%20b/chat/completions"),
    ],
)
def test_completions_are_posted_below_the_base_url(base_url: str, url: str) -> None:
    assert str(completions_url(base_url)) == url


@pytest.mark.rule("R-PROV-02", "R-PROV-26")
@pytest.mark.parametrize(
    "base_url", ["", "host/v1", "ftp://host", "https://", "https://host/#x", "http://h:x", None, 5,
                 "http://.host", "http://a..b", f"https://{'a' * 64}.x", f"http://{'é' * 80}",
                 "http://[::1", "http://h/\x00"]
)  # fmt: skip
def test_a_base_url_that_is_none_is_refused(base_url: str) -> None:
    with pytest.raises(UsageError, match=r"^base_url is "):
        completions_url(base_url)


@pytest.mark.rule("R-PROV-26")
@pytest.mark.parametrize("port", [0, -1, 65536, 99999])
def test_a_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match=rf"^base_url has the port {port}, expected one from 1 to"):
        completions_url(f"http://h:{port}/v1")
    assert completions_url("http://h:65535").port == 65535


@pytest.mark.rule("R-PROV-15")
@pytest.mark.parametrize(
    ("base_url", "shown"),
    [
        ("https://me:hunter22@host/v1", "has a user in it"),
        ("//me:hunter22@host/v1", "has a user in it"),
        ("me:hunter22@host/v1", "is '…@host/v1'"),
        ("http://me:hunter22@h:x/v1", "is '…@h:x/v1'"),
        ("http://me:hunt/er22@h/v1", "is '…@h/v1'"),
        ("http://me:hunt?er22@h/v1", "is '…@h/v1'"),
        ("host/v1?key=hunter22", "is 'host/v1?…'"),
        ("ftp://host/v1?key=hunter22", "is 'ftp://host/v1?…'"),
        ("http://a..b/v1?key=hunter22", "is 'http://a..b/v1?…'"),
    ],
)
def test_a_secret_in_a_base_url_that_is_refused_is_not_shown(base_url: str, shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        completions_url(base_url)
    assert str(caught.value).startswith(f"base_url {shown}, expected ")
    assert "hunt" not in "".join(traceback.format_exception(caught.value))


@attrs.define
class Listener:
    """A server that accepts, and then says nothing until its peer goes away."""

    port: int
    open: int = 0
    accepted: int = 0
    changed: trio.Event = attrs.field(factory=trio.Event)

    async def serve(self, stream: trio.SocketStream) -> None:
        self.open += 1
        self.accepted += 1
        try:
            while await stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass
        self.open -= 1
        self.changed.set()


@asynccontextmanager
async def open_listener() -> AsyncIterator[Listener]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    listener = Listener(listeners[0].socket.getsockname()[1])
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, listener.serve, listeners)
        yield listener
        nursery.cancel_scope.cancel()


async def post(client: httpx2.AsyncClient, url: str) -> None:
    async with open_reply(client, httpx2.URL(url), headers={}, body=b"{}", redact=NOTHING):
        raise AssertionError("there is no reply")


@pytest.mark.rule("R-PROV-17")
async def test_a_handshake_that_is_cancelled_leaves_no_connection() -> None:
    async with open_listener() as listener:
        client = open_client(httpx2.URL("https://127.0.0.1"))
        for _ in range(3):
            with trio.move_on_after(0.02) as scope:
                await post(client, f"https://127.0.0.1:{listener.port}/")
            assert scope.cancelled_caught
            with trio.fail_after(0.2):
                await listener.changed.wait()
                listener.changed = trio.Event()
            assert listener.open == 0
        assert listener.accepted == 3
        await client.aclose()


@pytest.mark.rule("R-PROV-17")
async def test_a_connect_that_is_cancelled_leaves_its_place_in_the_pool() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        # With its queue full the kernel answers no more of those who knock.
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(deaf.getsockname())
        limits = httpx2.Limits(max_connections=1)
        async with httpx2.AsyncClient(limits=limits, trust_env=False) as client:
            for _ in range(3):  # a lost place would make the second wait for it: the same silence
                with trio.move_on_after(0.02) as scope:
                    await post(client, f"http://127.0.0.1:{port}/")
                assert scope.cancelled_caught
            for each in waiting:
                each.close()
            async with open_listener() as listener:
                with trio.move_on_after(0.1):
                    await post(client, f"http://127.0.0.1:{listener.port}/")
                assert listener.accepted == 1
