"""Chat messages, and the answers that tool calls get.

Messages are plain dictionaries in the chat-completions shape. They are never decoded into
classes: a key that we do not know is carried through everything. `Message` only tells a type
checker what may be found in one.

An answer to a tool call is an *envelope*, one JSON object in the content of a tool message:
``success``, then ``data`` or ``kind`` and ``error``. The kernel's own answers (a call that was
refused, a call that was cut) use the same envelope and the texts of this module, and the model
meets no other wording from us.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, Required, TypeAlias, TypedDict, overload

from harness._errors import NotJSONError
from harness._json import JSON, encode_text

__all__ = [
    "EXTRA_KEY",
    "FAILURE_KINDS",
    "INTERRUPTED_TEXT",
    "NOT_RUN_TEXT",
    "WITHDRAWN_TEXT",
    "CallMessage",
    "FailureKind",
    "FunctionMessage",
    "Message",
    "MessagesView",
    "OutcomeKind",
    "Role",
    "assistant_message",
    "failure_envelope",
    "success_envelope",
    "system_message",
    "tool_message",
    "user_message",
    "wire_message",
]

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]

OutcomeKind: TypeAlias = Literal["completed", "failed", "interrupted", "not_run"]

FailureKind: TypeAlias = Literal[
    "validation",
    "authz",
    "not_found",
    "conflict",
    "external",
    "system",
    "not_run",
    "interrupted",
]

FAILURE_KINDS: tuple[FailureKind, ...] = (
    "validation",
    "authz",
    "not_found",
    "conflict",
    "external",
    "system",
    "not_run",
    "interrupted",
)
"""What a failure may call itself, so that hosts and models branch without matching prose."""

NOT_RUN_TEXT = (
    "Nothing was done: the run was stopped before this call began. "
    "There is no need to call it again, and it is not an error to report."
)
INTERRUPTED_TEXT = (
    "Outcome unknown: the run was stopped while this call was being carried out. "
    "Its effects may be complete, partial or absent; check before doing it again."
)
WITHDRAWN_TEXT = (
    "The question that this call asked was withdrawn, because the run was stopped before an "
    "answer came. What the call had done by then is not known to be complete."
)

EXTRA_KEY = "x-harness"
"""The one key in which we keep something of our own in a message; no provider is sent it."""


class FunctionMessage(TypedDict):
    name: str
    arguments: str


class CallMessage(TypedDict):
    id: str
    type: str
    function: FunctionMessage


Message = TypedDict(
    "Message",
    {
        "role": Required[Role],
        "content": "str | list[dict[str, JSON]] | None",
        "refusal": "str | None",
        "tool_calls": list[CallMessage],
        "tool_call_id": str,
        "name": str,
        "x-harness": "dict[str, JSON]",
    },
    total=False,
)
"""One chat message: a plain dictionary."""


def system_message(text: str) -> Message:
    """Return a system message."""
    return {"role": "system", "content": text}


def user_message(text: str) -> Message:
    """Return a user message."""
    return {"role": "user", "content": text}


def assistant_message(text: str | None, calls: Sequence[CallMessage] = ()) -> Message:
    """Return an assistant message; without calls it has no ``tool_calls`` key at all."""
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    return message


def tool_message(call_id: str, envelope: str, parts: Sequence[dict[str, JSON]] = ()) -> Message:
    """Return the answer to the call *call_id*.

    With content *parts* the content is a list: the envelope as a text part, then the parts as
    they are.
    """
    content: str | list[dict[str, JSON]] = envelope
    if parts:
        content = [{"type": "text", "text": envelope}, *parts]
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def success_envelope(data: object) -> str:
    """Return the envelope of a success.

    Data that JSON cannot carry is replaced by a text that says so. It still says success:
    a failure would invite the model to repeat an effect that has happened. NaN and infinity
    become null.
    """
    try:
        return f'{{"success":true,"data":{encode_text(_finite(data))}}}'
    except (NotJSONError, RecursionError):
        kind = type(data).__name__
        return encode_text(
            {"success": True, "data": f"The call succeeded; its result ({kind}) is not JSON."}
        )


def failure_envelope(error: str, kind: FailureKind | None = None) -> str:
    """Return the envelope of a failure; a thrown error has no *kind*."""
    named = "" if kind is None else f'"kind":"{kind}",'
    text = error.encode(errors="replace").decode()
    return f'{{"success":false,{named}"error":{encode_text(text)}}}'


def _finite(value: object) -> object:
    """Return *value* with tuples as lists and NaN and infinities as None."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if type(value) is dict:
        return {key: _finite(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return [_finite(inner) for inner in value]  # type: ignore[attr-defined]  # a sequence
    return value


def wire_message(message: Message) -> Message:
    """Return *message* as a provider may see it: without what we keep for ourselves."""
    if EXTRA_KEY not in message:
        return message
    return {key: value for key, value in message.items() if key != EXTRA_KEY}  # type: ignore[return-value]  # the same keys but one


class MessagesView(Sequence[Message]):
    """A read-only view of the first *length* messages: all there are when it is made, if None.

    The list behind it only grows while the view is in use, so nothing is copied: a turn costs
    the same whatever the length of the transcript.
    """

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: Sequence[Message], *, length: int | None = None) -> None:
        self._messages = messages
        self._length = len(messages) if length is None else length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return tuple(self._messages[each] for each in range(*index.indices(self._length)))
        if not -self._length <= index < self._length:
            raise IndexError(f"message {index} of {self._length}")
        return self._messages[index % self._length]

    def __iter__(self) -> Iterator[Message]:
        return (self._messages[index] for index in range(self._length))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._length} messages>"
