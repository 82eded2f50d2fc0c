"""Arguments that no provider may be shown again.

A model now and then writes arguments that are cut off, or are no JSON, or are JSON but no
object. The call is answered with a failure, and the message that holds it stays in the
transcript. Several servers parse the arguments of old calls before they do anything else, so such
a message would have every later request refused: it poisons the conversation. It is therefore
made harmless as it enters the transcript: the arguments become ``{}``, and the text as the model
wrote it is kept under our own key, which no provider is sent.

Repairing the text instead was turned down: a guess at what a model meant would stand in the
transcript as what it said.
"""

from __future__ import annotations

from typing import cast

from harness._arguments import Parsed, Unparseable, parse_arguments, tool_call_arguments_absent
from harness._json import JSON, encode_text
from harness._messages import EXTRA_KEY, Message

__all__ = ["raw_arguments", "without_kept_arguments", "without_poison"]

_KEPT = "raw_arguments"


def without_poison(message: Message) -> Message:
    """Return *message* with arguments that every provider can read.

    The arguments of a function call that are no JSON object become ``{}``, and `raw_arguments`
    has the text. Absent ones become ``{}`` too, and a dictionary its text; nothing of these is
    lost, so nothing is kept. The message itself if all is well already, else a copy in which
    every other key is as it was. What is no call is left alone.
    """
    calls: object = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    kept: dict[str, JSON] = {}
    clean = [_clean_call(index, call, kept) for index, call in enumerate(calls)]
    if all(new is old for new, old in zip(clean, calls, strict=True)):
        return message
    copied: dict[str, object] = {**message, "tool_calls": clean}
    if kept:
        extra = _mapping(message.get(EXTRA_KEY))
        copied[EXTRA_KEY] = {**extra, _KEPT: {**_mapping(extra.get(_KEPT)), **kept}}
    return cast(Message, copied)


def raw_arguments(message: Message, index: int) -> str:
    """Return the arguments of call *index* of *message* as the model wrote them.

    Raises:
        IndexError: the message has no such call.
    """
    calls = message.get("tool_calls") or ()
    if not 0 <= index < len(calls):
        raise IndexError(f"call {index!r} was asked for, the message has {len(calls)}")
    kept = _mapping(_mapping(message.get(EXTRA_KEY)).get(_KEPT)).get(str(index))
    return kept if isinstance(kept, str) else calls[index]["function"]["arguments"]


def without_kept_arguments(message: Message) -> Message:
    """Return *message* without what `without_poison` keeps: only we may have put it there.

    For a message that has just come from a model.
    """
    extra: object = message.get(EXTRA_KEY)
    if not isinstance(extra, dict) or _KEPT not in extra:
        return message
    rest = {key: value for key, value in extra.items() if key != _KEPT}
    return cast(Message, {**message, EXTRA_KEY: rest})


def _clean_call(index: int, call: object, kept: dict[str, JSON]) -> object:
    """Return *call*, or a copy that can be replayed; a text that is lost goes to *kept*."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = call["function"]
    raw = function.get("arguments")
    match parse_arguments(raw, call_type=call.get("type", "function")):
        case Parsed() if isinstance(raw, str) and not tool_call_arguments_absent(raw):
            return call
        case Parsed(arguments=arguments):
            text = encode_text(arguments)
        case Unparseable():
            text = "{}"
            kept[str(index)] = _storable(raw)
        case _:
            return call
    return {**call, "function": {**function, "arguments": text}}


def _storable(raw: object) -> str:
    """Return *raw* as a text that JSON can carry."""
    text = raw if isinstance(raw, str) else repr(raw)
    return text.encode(errors="backslashreplace").decode()


def _mapping(value: object) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}
