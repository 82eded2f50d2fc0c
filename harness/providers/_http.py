"""One POST over httpx2, and its reply closed on every way out.

httpx2 reads a body through a stack of async generators. One that is left suspended keeps its
connection until the garbage collector finds it, and ``aclose`` on the outermost closes some of
them only. What closes all is a *cancelled read*: ``Cancelled`` is raised at the innermost await
and unwinds through every layer. A cancelled attempt does just that by itself; after a ``break``,
or an error of ours between two reads, `Reply.aclose` does it on purpose. An error of httpx2's own
decoder ends the outer layers before anybody can read again, so `_Undecoded`, the layer below the
decoder, does the same when it is closed.

There are no timeouts here. Everything that waits is bounded by the scopes around it: the
attempt's watchdog, the run's deadline. A second clock inside the transport would call a model
that thinks for a minute dead, and report the same silence under another name.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias, cast

import attrs
import trio

from harness._errors import (
    ErrorCategory,
    ErrorKind,
    ErrorPhase,
    MissingExtraError,
    ProviderError,
    UsageError,
)
from harness.providers._failures import QUOTE_LENGTH, Redaction, WireError
from harness.providers._steps import KeptConnectionError, Steps

try:
    import httpx2
except ModuleNotFoundError as error:
    raise MissingExtraError("http", error.name or "httpx2") from error

__all__ = [
    "TRANSPORT_ROWS",
    "URL",
    "AsyncClient",
    "Reply",
    "TransportRow",
    "completions_url",
    "open_client",
    "open_reply",
    "transport_failure",
]

AsyncClient: TypeAlias = httpx2.AsyncClient
URL: TypeAlias = httpx2.URL

KEPT_CONNECTIONS: Final = 20
KEPT_SECONDS: Final = 30.0
"""How long an idle connection is kept. A tool may run between two turns; servers keep longer."""

END_SECONDS: Final = 0.1
END_BYTES: Final = 64 * 1024
"""How much is waited for and read after the protocol's own end, for a connection to be kept."""

ERROR_SECONDS: Final = 2.0
ERROR_BYTES: Final = 64 * 1024
"""How much is waited for and read of an error's body, once its status is there."""


@attrs.frozen(kw_only=True)
class TransportRow:
    """What an exception of the transport means."""

    error: type[httpx2.RequestError]
    kind: ErrorKind
    category: ErrorCategory
    phase: ErrorPhase | None
    """None: as far as the call had come."""


TRANSPORT_ROWS: Final = (
    TransportRow(
        error=httpx2.UnsupportedProtocol, kind="internal", category="client_error", phase="connect"
    ),
    TransportRow(
        error=httpx2.LocalProtocolError, kind="internal", category="client_error", phase="request"
    ),
    TransportRow(
        error=httpx2.TooManyRedirects, kind="http", category="client_error", phase="headers"
    ),
    TransportRow(error=httpx2.DecodingError, kind="http", category="server_error", phase=None),
    TransportRow(error=httpx2.ReadTimeout, kind="stall", category="stalled", phase=None),
    TransportRow(
        error=httpx2.ConnectTimeout, kind="network", category="unreachable", phase="connect"
    ),
    TransportRow(
        error=httpx2.ConnectError, kind="network", category="unreachable", phase="connect"
    ),
    TransportRow(error=httpx2.PoolTimeout, kind="network", category="unreachable", phase="connect"),
    TransportRow(error=httpx2.ProxyError, kind="network", category="unreachable", phase="connect"),
    TransportRow(
        error=httpx2.WriteTimeout, kind="network", category="unreachable", phase="request"
    ),
    TransportRow(error=httpx2.WriteError, kind="network", category="unreachable", phase="request"),
    TransportRow(error=httpx2.RequestError, kind="network", category="unreachable", phase=None),
)
"""The first row whose class fits counts. A timeout can only come from a caller's own transport."""


def transport_failure(
    error: httpx2.RequestError, *, phase: ErrorPhase, redact: Redaction, status: int | None = None
) -> ProviderError:
    """Return the failure that *error* is; *phase* says how far the call had come.

    *status* is told of a failure of HTTP only: a connection that breaks says nothing about it.
    """
    row = next(each for each in TRANSPORT_ROWS if isinstance(error, each.error))
    detail = redact(str(error))[:QUOTE_LENGTH] or "no detail"
    return ProviderError(
        f"the call to the provider ended with {type(error).__name__} ({detail}), expected a reply",
        kind=row.kind,
        category=row.category,
        phase=row.phase or phase,
        status_code=status if row.kind == "http" else None,
    )


def _cause(error: httpx2.RequestError, redact: Redaction) -> httpx2.RequestError | None:
    """Return *error* as the cause of its failure, or None if a secret would be seen there."""
    # A parser quotes what it could not read, and a traceback shows causes.
    return error if redact(str(error)) == str(error) else None


def open_client(url: URL) -> AsyncClient:
    """Return a client for one model at *url*, to be closed with ``aclose``.

    It has no limit on connections: a wait for a free one would be a stall that nobody declared.
    It reads nothing from the environment, neither proxies nor certificates.
    """
    # Without TLS there is nothing to trust, and an empty list of the trusted is quickly read.
    verify = True if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    limits = httpx2.Limits(
        max_connections=None,
        max_keepalive_connections=KEPT_CONNECTIONS,
        keepalive_expiry=KEPT_SECONDS,
    )
    return httpx2.AsyncClient(verify=verify, limits=limits, timeout=None, trust_env=False)


def completions_url(base_url: str) -> URL:
    """Return where completions are posted; a query of *base_url* is kept.

    Raises:
        UsageError: it is no http or https address, or has a user or a fragment in it.
    """
    try:
        url = httpx2.URL(base_url)
        url.raw_host.decode().encode("idna")  # or looking it up raises what is no network failure
    except (httpx2.InvalidURL, TypeError, UnicodeError) as error:
        shown = _shown(base_url)
        why = f": {error}" if shown == repr(base_url) else ""
        raise UsageError(f"base_url is {shown}, expected an address{why}") from None
    if url.userinfo:
        raise UsageError("base_url has a user in it, expected the credentials in headers")
    if url.scheme not in ("http", "https") or not url.host or url.fragment:
        raise UsageError(f"base_url is {_shown(base_url)}, expected 'http://…' or 'https://…'")
    if url.port is not None and not 0 < url.port < 2**16:
        raise UsageError(f"base_url has the port {url.port}, expected one from 1 to 65535")
    return url.copy_with(path=url.path.rstrip("/") + "/chat/completions")


def _shown(base_url: object) -> str:
    """Return the repr of *base_url* without what may be secret in it: a user and a query."""
    if not isinstance(base_url, str):
        return repr(base_url)
    user, at, place = base_url.rpartition("@")
    place, mark, query = place.partition("?")
    return repr(f"{user and '…'}{at}{place}{mark}{query and '…'}")


@attrs.frozen(repr=False, eq=False, kw_only=True)
class _Post:
    """A request that is sent once, or once more."""

    client: AsyncClient
    url: URL
    headers: Mapping[str, str]
    body: bytes

    async def open(self) -> httpx2.Response:
        """Return the response, whose body is still to come; `_steps` says when it is sent again.

        A checkpoint. Cancelled at once wherever it is: between two tries there is no connection.

        Raises:
            UsageError: the client is closed.
            httpx2.RequestError: there was no response.
        """
        steps = Steps()
        try:
            return await self._send(steps)
        except httpx2.RequestError:
            if not steps.lost:
                raise
        steps = Steps(refusals=KEPT_CONNECTIONS)
        while True:  # noqa: ASYNC913  each try is a checkpoint, also one that is refused
            with suppress(KeptConnectionError):
                return await self._send(steps)

    async def _send(self, steps: Steps) -> httpx2.Response:
        if self.client.is_closed:
            raise UsageError("the client of the model is closed, expected an open one")
        request = self.client.build_request(
            "POST",
            self.url,
            content=self.body,
            headers=self.headers,
            timeout=None,
            extensions={"trace": steps},
        )
        # Followed, a redirect could make another request of it, or carry the key elsewhere.
        return await self.client.send(request, stream=True, follow_redirects=False)


async def _close_by_reading(pieces: AsyncIterator[bytes]) -> None:
    """Close every layer of *pieces* that is still open, at once, by a cancelled read."""
    with trio.CancelScope(shield=True) as closing:  # noqa: ASYNC912  nor should it wait
        closing.cancel()
        try:
            while await anext(pieces, None) is not None:
                pass
        except httpx2.RequestError:
            pass  # of bytes that had come already, and that nobody asked for


@attrs.frozen(eq=False)
class _Undecoded(httpx2.AsyncByteStream):
    """The body as it comes from the connection, read once, and closed to its bottom."""

    _stream: httpx2.AsyncByteStream
    # No generator, or httpx2 would close that instead of asking for `aclose`.
    _pieces: AsyncIterator[bytes] = attrs.field(init=False)

    @_pieces.default
    def _open_pieces(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        await _close_by_reading(self._pieces)
        await self._stream.aclose()


@attrs.define(eq=False)
class Reply:
    """A reply whose status and headers are there, and whose body is read from here."""

    status: int
    headers: tuple[tuple[str, str], ...]
    media_type: str
    """From its content type, lower case, without parameters; empty if it has none."""
    phase: ErrorPhase = attrs.field(init=False, default="stream")
    """Where a failure from now on happens."""
    _pieces: AsyncIterator[bytes] = attrs.field(alias="pieces")
    _redact: Redaction = attrs.field(alias="redact")

    async def receive(self) -> bytes | None:
        """Return the next piece of the body, or None at its end.

        A checkpoint only if it has to wait. Cancelled, it closes the connection.

        Raises:
            ProviderError: the connection broke before the end of the body, or the body is not
                in the encoding that its head names.
        """
        try:
            return await anext(self._pieces, None)
        except httpx2.RequestError as error:
            failure = transport_failure(
                error, phase=self.phase, redact=self._redact, status=self.status
            )
            raise failure from _cause(error, self._redact)

    async def read(self, limit: int) -> bytes:
        """Return the whole body.

        Raises:
            WireError: it is longer than *limit*.
            ProviderError: as `receive`.
        """
        self.phase = "reply"
        body = bytearray()
        while (piece := await self.receive()) is not None:
            body += piece
            if len(body) > limit:
                raise WireError(f"a body of more than {limit} bytes, expected a smaller one")
        return bytes(body)

    async def read_error(self) -> bytes:
        """Return the body of an error, as much of it as `ERROR_BYTES` and `ERROR_SECONDS` let in.

        The status is the news. A body that is torn, endless or slow must not hide it.
        """
        return await self._read_some(ERROR_BYTES, ERROR_SECONDS)

    async def read_rest(self) -> None:
        """Read the little that may follow the protocol's own end, so the connection is kept.

        Most servers end the body in the same packet or the next. One that does not within
        `END_SECONDS` loses the connection instead of holding up the turn; and whatever it is
        that comes, or breaks, belongs to the reply no more.
        """
        await self._read_some(END_BYTES, END_SECONDS)

    async def _read_some(self, limit: int, seconds: float) -> bytes:
        body = bytearray()
        with trio.move_on_after(seconds), suppress(ProviderError):  # noqa: ASYNC912  it reads once
            while len(body) < limit and (piece := await self.receive()) is not None:
                body += piece
        return bytes(body[:limit])

    async def aclose(self) -> None:
        """Close what is still open, at once; a body read to its end leaves the connection kept."""
        await _close_by_reading(self._pieces)


@asynccontextmanager
async def open_reply(
    client: AsyncClient,
    url: URL,
    *,
    headers: Mapping[str, str],
    body: bytes,
    redact: Redaction,
) -> AsyncIterator[Reply]:
    """Post *body* and open the reply.

    Cancelled at once wherever it is, and then leaves no connection and no place in the pool.

    Raises:
        ProviderError: there was no reply.
    """
    post = _Post(client=client, url=url, headers=headers, body=body)
    try:
        response = await post.open()
    except httpx2.RequestError as error:
        failure = transport_failure(error, phase="headers", redact=redact)
        raise failure from _cause(error, redact)
    # The client has refused a transport whose stream is not async.
    response.stream = _Undecoded(cast(httpx2.AsyncByteStream, response.stream))
    reply = Reply(
        status=response.status_code,
        headers=tuple(response.headers.multi_items()),
        media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
        pieces=response.aiter_bytes(),
        redact=redact,
    )
    try:
        yield reply
    finally:
        await reply.aclose()
