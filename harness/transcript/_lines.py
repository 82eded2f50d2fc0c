"""One message as the checks read it.

What comes from outside may be anything, so nothing here trusts a type and nothing raises. A
message either has the shape of a chat message, and then a `Line` says what it asks for or
answers, or its `Line` says why not, and nothing else of it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from harness._errors import NotJSONError
from harness._json import check_json

__all__ = ["CallLine", "Line", "json_fault", "message_fault", "read_lines"]


@attrs.frozen(kw_only=True)
class CallLine:
    """One tool call of an assistant message."""

    id: str
    type: str
    name: str = ""
    """Empty for what is no function call."""
    arguments: str = ""


@attrs.frozen(kw_only=True)
class Line:
    """One message."""

    index: int
    fault: str = ""
    """Why it is no chat message; empty if it is one."""
    role: str = ""
    message: Mapping[str, object] = attrs.field(factory=dict)
    calls: tuple[CallLine, ...] = ()
    """Of an assistant message."""
    result_for: str = ""
    """Of a tool message: the call that it answers."""

    def texts(self) -> Iterator[str]:
        """Yield the texts of the content, in order."""
        content = self.message.get("content")
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            yield from (part["text"] for part in content if part["type"] == "text")

    def has_other_parts(self) -> bool:
        """Whether the content holds a part that is no text."""
        content = self.message.get("content")
        return isinstance(content, list) and any(part["type"] != "text" for part in content)


def read_lines(messages: Sequence[object]) -> tuple[Line, ...]:
    """Return one `Line` for each of *messages*; never raises."""
    return tuple(_read(index, message) for index, message in enumerate(messages))


def message_fault(message: object) -> str:
    """Return why *message* is no chat message, or an empty text if it is one; never raises."""
    fault = _read(0, message).fault
    return fault or json_fault(message)


def json_fault(message: object) -> str:
    """Return that *message* holds what JSON cannot carry, or an empty text if it does not."""
    try:
        check_json(message)
    except NotJSONError:
        return "it holds something that is not strict JSON"
    return ""


def _read(index: int, message: object) -> Line:
    if not isinstance(message, dict):
        return Line(index=index, fault=f"it is a {_kind(message)}, expected a dictionary")
    role = message.get("role")
    if not isinstance(role, str):
        return Line(index=index, fault=f"its role is a {_kind(role)}, expected a text")
    calls: tuple[CallLine, ...] = ()
    fault = _content_fault(message)
    if not fault and role == "assistant" and "tool_calls" in message:
        read = _read_calls(message["tool_calls"])
        if isinstance(read, str):
            fault = read
        else:
            calls = read
    if fault:
        return Line(index=index, fault=fault)
    result_for = message.get("tool_call_id") if role == "tool" else None
    return Line(
        index=index,
        role=role,
        message=message,
        calls=calls,
        result_for=result_for if isinstance(result_for, str) else "",
    )


def _content_fault(message: Mapping[object, object]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        for place, part in enumerate(content):
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                return f"part {place} of its content is no dictionary with a type"
            if part["type"] == "text" and not isinstance(part.get("text"), str):
                return f"part {place} of its content is of type 'text' and holds no text"
    elif not isinstance(content, str | None):
        return f"its content is a {_kind(content)}, expected a text, a list of parts or null"
    refusal = message.get("refusal")
    if not isinstance(refusal, str | None):
        return f"its refusal is a {_kind(refusal)}, expected a text or null"
    return ""


def _read_calls(calls: object) -> tuple[CallLine, ...] | str:
    """Return the calls, or why they are none."""
    if not isinstance(calls, list):
        return f"its tool_calls are a {_kind(calls)}, expected a list"
    read: list[CallLine] = []
    for place, call in enumerate(calls):
        line = _read_call(call)
        if line is None:
            return (
                f"its call {place} is malformed, expected an id, a type, "
                "and for a function its name and arguments, all texts"
            )
        read.append(line)
    return tuple(read)


def _read_call(call: object) -> CallLine | None:
    if not isinstance(call, dict):
        return None
    match call:
        case {"type": "function", "id": str(id), "function": dict(function)}:
            name, arguments = function.get("name"), function.get("arguments")
            if id and isinstance(name, str) and name and isinstance(arguments, str):
                return CallLine(id=id, type="function", name=name, arguments=arguments)
        case {"type": str(kind), "id": str(id)} if id and kind != "function":
            return CallLine(id=id, type=kind)
    return None


def _kind(value: object) -> str:
    return type(value).__name__
