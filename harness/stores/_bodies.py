"""Messages as the bytes that a database keeps, each for itself; heads have a codec of their own."""

from __future__ import annotations

from collections.abc import Sequence

from harness._errors import NotJSONError, RecordError
from harness._json import decode, encode
from harness._messages import Message

__all__ = ["dump_messages", "load_messages"]


def dump_messages(messages: Sequence[Message]) -> tuple[bytes, ...]:
    """Return each message as JSON.

    Raises:
        NotJSONError: one holds what JSON cannot carry.
    """
    return tuple(encode(message) for message in messages)


def load_messages(bodies: Sequence[bytes]) -> tuple[Message, ...]:
    """Return the messages that `dump_messages` wrote.

    Raises:
        RecordError: one of them is no JSON object; the error has its path.
    """
    return tuple(_message(body, f"$.messages[{number}]") for number, body in enumerate(bodies))


def _message(body: bytes, path: str) -> Message:
    try:
        message = decode(body)
    except NotJSONError as error:
        raise RecordError(error.reason, path=path) from None
    if not isinstance(message, dict):
        raise RecordError(f"it is {type(message).__name__}, expected an object", path=path)
    return message  # type: ignore[return-value]  # as it was given
