"""Rows 1 to 10: the shape, the roles and the content of messages."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator

from harness.transcript._lines import json_fault
from harness.transcript._rows import ALL, PROVIDERS, Finding, Reading, RefusalRow

__all__ = ["MESSAGE_ROWS"]

_ROLES = ("system", "developer", "user", "assistant", "tool")
_SYSTEM = ("system", "developer")


def _malformed(reading: Reading) -> Iterator[Finding]:
    for line in reading.lines:
        fault = line.fault or json_fault(reading.messages[line.index])
        if fault:
            yield Finding(line.index, fault)


def _unknown_role(reading: Reading) -> Iterator[Finding]:
    for line in reading.sound():
        if line.role not in _ROLES:
            role = reprlib.repr(line.role)
            yield Finding(line.index, f"its role is {role}, expected one of {_ROLES}")


def _no_messages(reading: Reading) -> Iterator[Finding]:
    if not reading.lines:
        yield Finding(0, "there is no message")


def _first_not_user(reading: Reading) -> Iterator[Finding]:
    rest = (line for line in reading.sound() if line.role not in _SYSTEM)
    first = next(rest, None)
    if first is not None and first.role != "user":
        what = f"it is the first after the system messages, of role {reprlib.repr(first.role)}"
        yield Finding(first.index, f"{what}, expected 'user'")
    elif first is None and reading.lines:
        yield Finding(len(reading.lines), "no message follows the system messages")


def _system_not_first(reading: Reading) -> Iterator[Finding]:
    begun = False
    for line in reading.sound():
        if line.role not in _SYSTEM:
            begun = True
        elif begun:
            yield Finding(line.index, f"a {line.role} message stands in the conversation")


def _no_content(reading: Reading) -> Iterator[Finding]:
    for line in reading.sound(*_SYSTEM, "user", "tool"):
        if line.message.get("content") in (None, []):
            yield Finding(line.index, f"a {line.role} message has no content")


def _empty_assistant(reading: Reading) -> Iterator[Finding]:
    for line in reading.sound("assistant"):
        refusal = line.message.get("refusal")
        says = [*line.texts(), refusal if isinstance(refusal, str) else ""]
        if not (line.calls or line.has_other_parts() or any(map(str.strip, says))):
            yield Finding(line.index, "it has no text, no call and no refusal")


def _blank_text(reading: Reading) -> Iterator[Finding]:
    for line in reading.sound():
        in_parts = isinstance(line.message.get("content"), list)
        if not in_parts and line.role not in (*_SYSTEM, "user"):
            continue
        if not all(map(str.strip, line.texts())):
            yield Finding(line.index, "a text in it is blank")


def _trailing_assistant(reading: Reading) -> Iterator[Finding]:
    last = reading.lines[-1] if reading.lines else None
    if last is not None and last.role == "assistant" and not last.calls:
        yield Finding(last.index, "the last message is the assistant's, expected the user's")


def _empty_tool_calls(reading: Reading) -> Iterator[Finding]:
    for line in reading.sound("assistant"):
        if "tool_calls" in line.message and not line.calls:
            yield Finding(line.index, "its list of tool calls is empty, expected none or more")


MESSAGE_ROWS: tuple[RefusalRow, ...] = (
    RefusalRow(
        number=1,
        code="malformed_message",
        checks=ALL,
        description="A message is no dictionary of strict JSON in the chat-completions shape.",
        find=_malformed,
    ),
    RefusalRow(
        number=2,
        code="unknown_role",
        checks=PROVIDERS,
        description="A role is none of system, developer, user, assistant and tool.",
        find=_unknown_role,
    ),
    RefusalRow(
        number=3,
        code="no_messages",
        checks=PROVIDERS,
        description="There is no message at all.",
        find=_no_messages,
    ),
    RefusalRow(
        number=4,
        code="first_not_user",
        checks=("anthropic",),
        description="The first message after the system messages is missing or not the user's.",
        find=_first_not_user,
    ),
    RefusalRow(
        number=5,
        code="system_not_first",
        checks=("anthropic",),
        description="A system or developer message stands after one of another role.",
        find=_system_not_first,
    ),
    RefusalRow(
        number=6,
        code="no_content",
        checks=PROVIDERS,
        description="A system, developer, user or tool message has no content.",
        find=_no_content,
    ),
    RefusalRow(
        number=7,
        code="empty_assistant",
        checks=PROVIDERS,
        description="An assistant message has no text, no call and no refusal.",
        find=_empty_assistant,
    ),
    RefusalRow(
        number=8,
        code="blank_text",
        checks=("anthropic",),
        description="A system, developer or user text, or a text part of any message, is blank.",
        find=_blank_text,
    ),
    RefusalRow(
        number=9,
        code="trailing_assistant",
        checks=("anthropic",),
        description="The last message is an assistant message without calls.",
        find=_trailing_assistant,
    ),
    RefusalRow(
        number=10,
        code="empty_tool_calls",
        checks=("openai",),
        description="The list of tool calls is there and empty.",
        find=_empty_tool_calls,
    ),
)
