"""The request of a chat completion: its body and its headers.

A request's own fields and its settings go into one object, so a setting could silently replace
a field: ``settings={"messages": …}`` would ask something else than the run believes. Such a
setting is refused by name, wherever it comes from. All other keys are the provider's business
and pass as they are; one set to None is taken out, which is how a single request drops a default
of its model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote_plus

from harness._errors import UsageError
from harness._json import JSON, encode
from harness._messages import wire_message
from harness._model import ModelRequest

__all__ = ["check_settings", "encode_request", "request_headers", "secrets_in"]

_OWNED: Final = {
    "model": "ChatModel.name",
    "messages": "ModelRequest.messages",
    "stream": "ChatModel.stream",
    "tools": "ModelRequest.tools",
    "tool_choice": "ModelRequest.tool_choice",
    "response_format": "ModelRequest.response_format",
}
"""Keys of the body that a field decides, and which one."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def check_settings(settings: Mapping[str, JSON]) -> None:
    """Return if *settings* may be added to a request body.

    Raises:
        UsageError: a key belongs to a field.
        NotJSONError: a value is not JSON.
    """
    for key, owner in _OWNED.items():
        if key in settings:
            raise UsageError(f"the settings have {key!r}, expected it as {owner}")
    encode(dict(settings))


def encode_request(
    request: ModelRequest, *, model: str, stream: bool, settings: Mapping[str, JSON]
) -> bytes:
    """Return the body of *request* as JSON; *settings* are the model's own, under the request's.

    A streamed reply is asked to end with its usage.

    Raises:
        UsageError: the request's settings have a key that belongs to a field.
        NotJSONError: something in the request is not JSON; the error has its path.
    """
    check_settings(request.settings)
    body: dict[str, object] = {
        "model": model,
        "messages": [dict(wire_message(each)) for each in request.messages],
        "stream": stream,
    }
    if request.tools:
        body["tools"] = list(request.tools)
    if request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    if request.response_format is not None:
        body["response_format"] = request.response_format
    if stream:
        body["stream_options"] = {"include_usage": True}
    for key, value in {**settings, **request.settings}.items():
        if value is None:
            body.pop(key, None)
        else:
            body[key] = value
    return encode(body)


def request_headers(
    headers: Mapping[str, str], *, api_key: str | None, stream: bool
) -> dict[str, str]:
    """Return the headers of every request, in lower case; *headers* replace ours.

    Raises:
        UsageError: a header cannot be sent; its value is not shown, it may be a secret.
    """
    ours = {
        "accept": "text/event-stream, application/json" if stream else "application/json",
        # Compression holds a stream back, and would let a small body become a huge one.
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "trio-harness",
    }
    if api_key is not None:
        _check_value("api_key", api_key)
        ours["authorization"] = f"Bearer {api_key}"
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise UsageError(f"a header is called {name!r}, expected an HTTP token")
        _check_value(f"the header {name!r}", value)
        ours[name.lower()] = value
    return ours


def secrets_in(headers: Mapping[str, str], query: str) -> Iterator[str]:
    """Yield what may be secret in the headers of a caller and in the query of an address.

    A provider may echo a value as it was sent or as it was read: a key with or without the scheme
    before it, and with or without percent signs.
    """
    for name, value in headers.items():
        yield value
        if name.lower().endswith("authorization"):
            yield value.partition(" ")[2].strip()
    for each in query.split("&"):
        value = each.partition("=")[2]
        yield from (value, unquote_plus(value))


def _check_value(name: str, value: object) -> None:
    # The line end of the file that a key was read from is the usual fault.
    if not isinstance(value, str):
        raise UsageError(f"{name} is of type {type(value).__name__}, expected a text")
    if not (value.isascii() and value.isprintable() and value == value.strip() and value):
        raise UsageError(f"{name} holds what no header carries, expected printable ASCII")
