"""A model behind an OpenAI-compatible chat-completions server.

Streamed or not, a reply takes one path: chunks go to an attempt, and the attempt's turn is the
answer. A reply that was not streamed is one chunk, sent once it is there; so the rules about
what a usable reply is, and which text was shown, are the run's in both cases.

The attempt is open before the request is sent, and its budgets are all that bounds the waiting: a
server that takes the request and says nothing is a stall like one that stops in mid-sentence. To
wait for a whole reply is nothing but silence, healthy or not. So there the absolute budget stands
for all three; to keep the others would call every long answer dead, and to have none would wait
for a dead server as long as the run lasts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import Final, Self

import attrs
import msgspec

from harness._errors import CompletionDefectError, UsageError
from harness._json import JSON
from harness._model import Attempt, Chunk, ModelRequest, ModelTurn, StreamBudgets, TurnStream
from harness._usage import Usage
from harness.providers._chunks import read_event, read_reply
from harness.providers._failures import Redaction, WireError, body_failure, status_failure
from harness.providers._http import (
    URL,
    AsyncClient,
    Reply,
    completions_url,
    open_client,
    open_reply,
)
from harness.providers._sse import MAX_EVENT_BYTES, EventDecoder
from harness.providers._wire import (
    check_settings,
    encode_request,
    request_headers,
    secrets_in,
)

__all__ = ["ChatModel"]

_UNSECRET_HEADERS: Final = ("accept", "accept-encoding", "connection", "user-agent")
"""What a client sends of its own; to hide ``keep-alive`` would garble every text."""


@attrs.define(eq=False, repr=False, kw_only=True)
class ChatModel:
    """A model behind an OpenAI-compatible chat-completions server, at any base URL.

    ::

        async with ChatModel("gpt-5", base_url="https://host/v1", api_key=key) as model:
            result = await harness.run(model, "What is new?", deadline=…)

    The block owns the connections, and one model serves any number of runs at once. With a
    *client* of the caller's, who then owns the connections, no block is needed.

    Nothing is read from the environment. How long a completion waits for its server is bounded by
    the budgets of its attempt, and by nothing else here. The key and the values of *headers* appear
    in no repr and no error. A completion that was on its way on a kept connection when its server
    closed that is sent once more.

    Raises:
        UsageError: an argument cannot be used; a key is never shown.
        NotJSONError: *settings* is not JSON.
    """

    name: str = attrs.field(kw_only=False, on_setattr=attrs.setters.frozen)
    """The model's name, as the provider calls it."""
    base_url: str = attrs.field(on_setattr=attrs.setters.frozen)
    """Up to and with the version, like ``https://host/v1``; a query in it is kept."""
    _api_key: str | None = attrs.field(default=None, alias="api_key")
    """Sent as a bearer token."""
    _client: AsyncClient | None = attrs.field(default=None, alias="client")
    """An `httpx2.AsyncClient` for proxies, certificates and the like. Its timeouts are not used,
    and no redirect is followed."""
    _headers: Mapping[str, str] = attrs.field(factory=dict, alias="headers")
    """Further headers; one given here replaces ours of that name."""
    _stream: bool = attrs.field(default=True, alias="stream")
    """Whether replies are streamed; if not, a reply's text comes in one piece."""
    _budgets: StreamBudgets | None = attrs.field(default=None, alias="budgets")
    """How long a completion may wait; None takes those of the turn. Not streamed, only the absolute
    one counts."""
    _settings: Mapping[str, JSON] = attrs.field(factory=dict, alias="settings")
    """Keys for every request body; a request's own settings replace them, None takes one out."""
    _price: Callable[[Usage], float] | None = attrs.field(default=None, alias="price")
    """What a usage costs, in hundredths; without it every reply costs 0."""
    _wall_clock: Callable[[], datetime] | None = attrs.field(default=None, alias="wall_clock")
    """Returns an aware datetime; without it a ``Retry-After`` that is a date is not read."""
    _own: AsyncClient | None = attrs.field(init=False, default=None)
    _url: URL = attrs.field(init=False)
    _sent_headers: Mapping[str, str] = attrs.field(init=False)
    _redact: Redaction = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        check_settings(self._settings)
        self._settings = dict(self._settings)
        self._url = completions_url(self.base_url)
        self._sent_headers = request_headers(
            self._headers, api_key=self._api_key, stream=self._stream
        )
        self._redact = Redaction(self._secrets())

    def _secrets(self) -> Iterator[str]:
        yield self._api_key or ""
        yield from secrets_in(self._headers, self._url.query.decode())
        if self._client is not None:
            theirs = dict(self._client.headers)
            for name in _UNSECRET_HEADERS:
                theirs.pop(name, None)
            yield from secrets_in(theirs, str(self._client.params))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {self._url.host!r}>"

    async def __aenter__(self) -> Self:
        """Open the model's own client, if it was given none. Not a checkpoint.

        For https it reads the trusted certificates, which takes a fifth of a second; once.
        """
        if self._client is None:
            if self._own is not None:
                raise UsageError(f"{self!r} was opened again, expected one block at a time")
            self._own = open_client(self._url)
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the model's own client and its connections, cancelled or not."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn:
        """Return one completion.

        A checkpoint. Cancelled at once wherever it is, and its connection is then closed; so it is
        when a budget runs out or another attempt answers first.

        Raises:
            ProviderError: the provider could not be reached, failed or sent no completion.
            StreamStalled: it kept the completion waiting for longer than the budgets allow.
            CompletionDefectError: it sent one that cannot be used.
            AttemptSuperseded: another open attempt of the turn answered first.
            UsageError: the model is not open, or a setting belongs to a field of the request.
            NotJSONError: the request holds something that is not JSON.
        """
        body = encode_request(
            request, model=self.name, stream=self._stream, settings=self._settings
        )
        budgets = self._budgets_within(stream)
        async with stream.attempt(budgets=budgets) as attempt, self._open(body) as reply:
            await self._relay(reply, attempt)
        return attempt.turn()

    def _budgets_within(self, stream: TurnStream) -> StreamBudgets:
        budgets = self._budgets or stream.budgets
        if self._stream:
            return budgets
        return attrs.evolve(budgets, first_answer=budgets.absolute, gap=budgets.absolute)

    @asynccontextmanager
    async def _open(self, body: bytes) -> AsyncIterator[Reply]:
        """Open the reply to *body* if it is a success; what is wrong with it is raised."""
        client = self._client or self._own
        if client is None:
            raise UsageError(f"{self!r} is not open, expected a call in its 'async with' block")
        async with open_reply(
            client, self._url, headers=self._sent_headers, body=body, redact=self._redact
        ) as reply:
            if not 200 <= reply.status < 300:
                raise status_failure(
                    reply.status,
                    reply.headers,
                    await reply.read_error(),
                    redact=self._redact,
                    wall_clock=self._wall_clock,
                )
            try:
                yield reply
            except WireError as error:
                raise body_failure(
                    error, status=reply.status, phase=reply.phase, redact=self._redact
                ) from None

    async def _relay(self, reply: Reply, attempt: Attempt) -> None:
        """Send what comes to *attempt*, up to the protocol's end or that of the body.

        Raises:
            CompletionDefectError: the body ended, and the reply never said that it had. A cut
                that looks like an end is what some proxies make of a broken connection.
        """
        # Some servers do not stream, whatever they are asked.
        if not self._stream or reply.media_type == "application/json":
            attempt.send_nowait(await self._read(reply))
            return
        if reply.media_type == "text/html":  # what a wrong base URL is often answered with
            raise WireError("a web page, expected a stream of events")
        decoder = EventDecoder()
        finished = False
        piece: bytes | None = b""
        while piece is not None:
            piece = await reply.receive()
            for event in decoder.close() if piece is None else decoder.feed(piece):
                chunk = self._priced(read_event(event))
                attempt.send_nowait(chunk)
                if chunk.end:
                    await reply.read_rest()
                    return
                finished = finished or chunk.finish_reason is not None
        if not finished:
            raise CompletionDefectError(
                "unfinished",
                "the stream ended with no finish reason and no end event, expected one of them",
                phase="stream",
            )

    async def _read(self, reply: Reply) -> Chunk:
        """Return the whole of *reply*."""
        return self._priced(read_reply(await reply.read(MAX_EVENT_BYTES)))

    def _priced(self, chunk: Chunk) -> Chunk:
        if chunk.usage is None or self._price is None:
            return chunk
        usage = msgspec.structs.replace(chunk.usage, cost_cents=self._price(chunk.usage))
        return msgspec.structs.replace(chunk, usage=usage)
