"""Arguments and names that no provider may be shown again.

A model now and then writes arguments that are cut off, or are no JSON, or are JSON but no
object. The call is answered with a failure, and the message that holds it stays in the
transcript. Several servers parse the arguments of old calls before they do anything else, so such
a message would have every later request refused: it poisons the conversation. It is therefore
made harmless as it enters the transcript: the arguments become ``{}``, and the text as the model
wrote it is kept under our own key, which no provider is sent.

The same goes for the name of a tool that a model made up: ``multi_tool_use.parallel`` is answered
with a failure, and then refused as a name by the very server that wrote it. What may not stand in
a name becomes an underscore.

Repairing the text of arguments instead was turned down: a guess at what a model meant would stand
in the transcript as what it said.
"""

from __future__ import annotations

import re
from typing import cast

from harness._arguments import Parsed, Unparseable, parse_arguments, tool_call_arguments_absent
from harness._json import JSON, encode_text
from harness._messages import EXTRA_KEY, FunctionMessage, Message

__all__ = ["raw_arguments", "raw_name", "without_kept", "without_poison"]

_KEPT = "raw_arguments"
_KEPT_NAMES = "raw_names"

_NAME_LENGTH = 64
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{_NAME_LENGTH}}}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


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
    kept: dict[str, dict[str, JSON]] = {_KEPT: {}, _KEPT_NAMES: {}}
    clean = [_clean_call(index, call, kept) for index, call in enumerate(calls)]
    if all(new is old for new, old in zip(clean, calls, strict=True)):
        return message
    copied: dict[str, object] = {**message, "tool_calls": clean}
    extra = _mapping(message.get(EXTRA_KEY))
    added = {key: {**_mapping(extra.get(key)), **values} for key, values in kept.items() if values}
    if added:
        copied[EXTRA_KEY] = {**extra, **added}
    return cast(Message, copied)


def raw_arguments(message: Message, index: int) -> str:
    """Return the arguments of call *index* of *message* as the model wrote them.

    Raises:
        IndexError: the message has no such call.
    """
    function, kept = _call_as_kept(message, index, _KEPT)
    return function["arguments"] if kept is None else kept


def raw_name(message: Message, index: int) -> str:
    """Return the name of call *index* of *message* as the model wrote it.

    Raises:
        IndexError: the message has no such call.
    """
    function, kept = _call_as_kept(message, index, _KEPT_NAMES)
    return function["name"] if kept is None else kept


def _call_as_kept(message: Message, index: int, key: str) -> tuple[FunctionMessage, str | None]:
    """Return the function of call *index* as it stands, and what is kept of it under *key*."""
    calls = message.get("tool_calls") or ()
    if not 0 <= index < len(calls):
        raise IndexError(f"call {index!r} was asked for, the message has {len(calls)}")
    kept = _mapping(_mapping(message.get(EXTRA_KEY)).get(key)).get(str(index))
    return calls[index]["function"], kept if isinstance(kept, str) else None


def without_kept(message: Message) -> Message:
    """Return *message* without what `without_poison` keeps: only we may have put it there.

    For a message that has just come from a model.
    """
    extra: object = message.get(EXTRA_KEY)
    if not isinstance(extra, dict) or not {_KEPT, _KEPT_NAMES} & extra.keys():
        return message
    rest = {key: value for key, value in extra.items() if key not in (_KEPT, _KEPT_NAMES)}
    return cast(Message, {**message, EXTRA_KEY: rest})


def _clean_call(index: int, call: object, kept: dict[str, dict[str, JSON]]) -> object:
    """Return *call*, or a copy that can be replayed; a text that is lost goes to *kept*."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = call["function"]
    if call.get("type", "function") != "function":
        return call
    name = function.get("name")
    if isinstance(name, str) and name and not _NAME.fullmatch(name):
        kept[_KEPT_NAMES][str(index)] = name
        function = {**function, "name": _NOT_IN_NAMES.sub("_", name)[:_NAME_LENGTH]}
        call = {**call, "function": function}
    raw = function.get("arguments")
    match parse_arguments(raw, call_type=call.get("type", "function")):
        case Parsed() if isinstance(raw, str) and not tool_call_arguments_absent(raw):
            return call
        case Parsed(arguments=arguments):
            text = encode_text(arguments)
        case Unparseable():
            text = "{}"
            kept[_KEPT][str(index)] = _storable(raw)
        case _:
            return call
    return {**call, "function": {**function, "arguments": text}}


def _storable(raw: object) -> str:
    """Return *raw* as a text that JSON can carry."""
    text = raw if isinstance(raw, str) else repr(raw)
    return text.encode(errors="backslashreplace").decode()


def _mapping(value: object) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}
