"""The calls that a transcript asks for, as the model wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from harness._messages import Message
from harness._toolset import ToolCall
from harness.transcript._poison import raw_arguments, raw_name

__all__ = ["calls_in", "calls_of"]


def calls_in(messages: Iterable[Message]) -> Iterator[ToolCall]:
    """Yield every call of *messages*, in order."""
    for message in messages:
        if message.get("tool_calls"):
            yield from calls_of(message)


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    """Return the calls that an assistant message asks for, in order, as the model wrote them."""
    return tuple(_call_of(message, index) for index in range(len(message.get("tool_calls") or ())))


def _call_of(message: Message, index: int) -> ToolCall:
    call = message["tool_calls"][index]
    name: object
    arguments: object
    if call["type"] == "function":
        name, arguments = raw_name(message, index), raw_arguments(message, index)
    else:
        # The parts of such a call stand under the name of its type, or where a function has them.
        parts: object = call.get(call["type"]) or call.get("function")
        body = parts if isinstance(parts, Mapping) else {}
        name, arguments = body.get("name"), body.get("input", body.get("arguments"))
    return ToolCall(
        id=call["id"],
        name=name if isinstance(name, str) else "",
        type=call["type"],
        arguments=arguments if isinstance(arguments, str) else "",
        index=index,
    )
