"""Repairs of one message by itself: its shape, its role and its content."""

from __future__ import annotations

import operator
from typing import Final, cast

from harness._json import JSON, encode_text
from harness._messages import Message
from harness.transcript._lines import json_fault
from harness.transcript._plain import plain_json
from harness.transcript._repairs import RepairRow, each_message

__all__ = ["EMPTY_ROWS", "SHAPE_ROWS", "says_nothing"]

_ROLES: Final = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool")},
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "function": "tool",
}
"""What roles are called here, and what others call them."""

_REASONING_PARTS: Final = ("thinking", "redacted_thinking", "reasoning")
_REASONING_KEYS: Final = ("reasoning_content", "reasoning")


def _shape(message: object) -> Message | None:
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    if not isinstance(message, dict):
        return None
    plain = plain_json(message) if json_fault(message) else message
    if not isinstance(plain, dict):
        return None
    changes: dict[str, JSON] = {}
    if not isinstance(plain.get("role"), str):
        changes["role"] = _likely_role(plain)
    content = _content(plain.get("content"))
    if content is not plain.get("content"):
        changes["content"] = content
    refusal = plain.get("refusal")
    if not isinstance(refusal, str | None):
        changes["refusal"] = encode_text(refusal)
    if changes:
        shaped = {**plain, **changes}
        plain = cast("dict[str, JSON]", plain_json(shaped)) if json_fault(shaped) else shaped
    return cast(Message, plain)


def _likely_role(message: dict[str, JSON]) -> str:
    """Guess from the keys that only one role has."""
    if "tool_calls" in message:
        return "assistant"
    return "tool" if "tool_call_id" in message else "user"


def _content(content: JSON) -> JSON:
    """Return *content* as a text, a list of parts or null; itself if it is one of these."""
    if isinstance(content, str | None):
        return content
    if not isinstance(content, list):
        # A result that was never made a text, or one part without its list.
        return [content] if _is_part(content) else encode_text(content)
    parts = [part if _is_part(part) else _part(part) for part in content]
    if None not in content and all(map(operator.is_, parts, content)):
        return content
    return [part for part in parts if part is not None]


def _is_part(value: JSON) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return isinstance(kind, str) and (kind != "text" or isinstance(value.get("text"), str))


def _part(value: JSON) -> JSON:
    """Return what is no part as one; None if there is nothing in it."""
    if isinstance(value, dict):
        text = value.get("text")
        if isinstance(text, str):
            return {**value, "type": "text"}
        if value.get("type") == "text":
            return None if text is None else {**value, "text": encode_text(text)}
    if value is None:
        return None
    return {"type": "text", "text": value if isinstance(value, str) else encode_text(value)}


def _known_role(message: Message) -> Message:
    role: str = message["role"]
    known = _ROLES.get(role) or _ROLES.get(role.strip().lower(), "user")
    return message if known == role else _changed(message, role=known)


def _no_blank_parts(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    kept = [part for part in content if not _is_blank(part)]
    return message if len(kept) == len(content) else _changed(message, content=kept or None)


def _is_blank(part: dict[str, JSON]) -> bool:
    text = part.get("text")
    return part["type"] == "text" and isinstance(text, str) and not text.strip()


def _result_content(message: Message) -> Message:
    missing = message["role"] == "tool" and message.get("content") in (None, [])
    return _changed(message, content="") if missing else message


def says_nothing(message: Message) -> bool:
    """Whether *message* is an assistant message with no text, no call and no refusal.

    Reasoning on its own is nothing said.
    """
    if message["role"] != "assistant" or message.get("tool_calls"):
        return False
    if (message.get("refusal") or "").strip():
        return False
    content = message.get("content")
    if isinstance(content, list):
        return all(part["type"] in _REASONING_PARTS or _is_blank(part) for part in content)
    return not (content or "").strip()


def _has_reasoning(message: Message) -> bool:
    return bool(message.get("content") and not isinstance(message.get("content"), str)) or any(
        message.get(key) for key in _REASONING_KEYS
    )


def _no_lone_reasoning(message: Message) -> Message | None:
    return None if says_nothing(message) and _has_reasoning(message) else message


def _no_empty_assistant(message: Message) -> Message | None:
    return None if says_nothing(message) else message


def _no_empty_message(message: Message) -> Message | None:
    if message["role"] in ("assistant", "tool"):
        return message
    content = message.get("content")
    return message if content and not (isinstance(content, str) and content.isspace()) else None


def _changed(message: Message, **keys: object) -> Message:
    return cast(Message, {**message, **keys})


SHAPE_ROWS: tuple[RepairRow, ...] = (
    RepairRow(
        code="malformed_message",
        when="A message is no dictionary of strict JSON, or its role or content has no known form.",
        repair="What can be read is put into the shape: a text alone is the user's, a role is "
        "guessed from the keys, an odd content becomes its JSON text. What is neither text nor "
        "dictionary is removed.",
        loses="What JSON cannot carry, and messages that are nothing of the kind.",
        ends=("malformed_message",),
        apply=each_message("malformed_message", _shape),
    ),
    RepairRow(
        code="unknown_role",
        when="A role is none of the five.",
        repair="Other names of a role that we know are put right; what nobody knows is the "
        "user's, who has the least authority of those who are read.",
        loses="The name of the role.",
        ends=("unknown_role",),
        apply=each_message("unknown_role", _known_role),
    ),
    RepairRow(
        code="empty_part",
        when="A text part is blank.",
        repair="It is removed.",
        loses="Nothing.",
        ends=("blank_text",),
        apply=each_message("empty_part", _no_blank_parts),
    ),
    RepairRow(
        code="empty_result",
        when="A tool message has no content.",
        repair="Its content is an empty text.",
        loses="Nothing.",
        ends=("no_content",),
        apply=each_message("empty_result", _result_content),
    ),
)
"""In order: each relies on those before it."""

EMPTY_ROWS: tuple[RepairRow, ...] = (
    RepairRow(
        code="orphan_reasoning",
        when="An assistant message holds reasoning, and no text, call or refusal.",
        repair="It is removed: reasoning cannot be sent without what came of it.",
        loses="The reasoning.",
        ends=("empty_assistant",),
        apply=each_message("orphan_reasoning", _no_lone_reasoning),
    ),
    RepairRow(
        code="empty_assistant",
        when="An assistant message has no text, no call, no refusal and no other part.",
        repair="It is removed.",
        loses="Nothing.",
        ends=("empty_assistant",),
        apply=each_message("empty_assistant", _no_empty_assistant),
    ),
    RepairRow(
        code="empty_message",
        when="A system, developer or user message has no content, or a blank one.",
        repair="It is removed.",
        loses="Nothing.",
        ends=("no_content", "blank_text"),
        apply=each_message("empty_message", _no_empty_message),
    ),
)
"""In order; they come after the results have their places, by which a result is judged."""
