"""The arguments of a tool call, from what a model wrote.

A model writes arguments as text, and a provider passes the text on unread. It may be empty, cut
off, not JSON, JSON of the wrong kind, or megabytes of any of these. Each call must be answered
whatever it holds, so reading them never raises: it ends in one of three values, and a caller
that matches on them has met every case.

An absent text stands for no arguments: providers send ``""`` for a tool without parameters as
often as ``"{}"``. Everything else must be one JSON object. A list or a number is refused here,
before any effect, since parameters have names.

The refusal is written for the model, which reads it in the next turn: where and what is wrong,
in a line. It never repeats the arguments. They can be long, they are in the transcript already,
and what was malformed once should not be fed back.
"""

from __future__ import annotations

import copy
import json
from typing import TypeAlias, assert_never

import attrs

from harness._errors import NotJSONError
from harness._json import JSON, check_json, decode, digest
from harness._toolset import ToolCall

__all__ = [
    "Arguments",
    "Parsed",
    "Unparseable",
    "UnsupportedType",
    "call_digest",
    "json_type",
    "parse_arguments",
    "parse_tool_call_arguments",
    "tool_call_arguments_absent",
]

_DETAIL_LENGTH = 200
_DIGEST_LENGTH = 24
"""Hexadecimal digits; two calls out of a billion have the same with a chance of one in 10^11."""


@attrs.frozen(kw_only=True)
class Parsed:
    """The arguments of a function call, by parameter name."""

    arguments: dict[str, JSON]
    """The caller's own: changing them changes nothing else."""


@attrs.frozen(kw_only=True)
class UnsupportedType:
    """The call is no function call; there are no named arguments to read."""

    type: str
    """The type that it names."""


@attrs.frozen(kw_only=True)
class Unparseable:
    """The arguments are not one JSON object."""

    detail: str
    """For the model: what is wrong, in at most 200 characters and none of the arguments'."""


Arguments: TypeAlias = Parsed | UnsupportedType | Unparseable
"""All that reading arguments can end in."""


def parse_tool_call_arguments(call: ToolCall) -> Arguments:
    """Return the arguments of *call*; never raises."""
    return parse_arguments(call.arguments, call_type=call.type)


def parse_arguments(raw: object, *, call_type: str = "function") -> Arguments:
    """Return what *raw*, the arguments as they came, stands for; never raises.

    *raw* is text, or a dictionary that somebody decoded already, which is copied. Text is strict
    JSON; of duplicate keys the last wins.
    """
    if call_type != "function":
        return UnsupportedType(type=call_type)
    if tool_call_arguments_absent(raw):
        return Parsed(arguments={})
    try:
        value = decode(raw) if isinstance(raw, (str, bytes)) else _copied(raw)
    except NotJSONError as error:
        return Unparseable(detail=_malformed(raw, error.reason))
    if isinstance(value, dict):
        return Parsed(arguments=value)
    return Unparseable(detail=f"the arguments are {json_type(value)}, expected one JSON object")


def call_digest(call: ToolCall) -> str:
    """Return what calls with the same name and the same arguments have in common; never raises.

    Short, since a run that forgets calls keeps one for each.
    """
    parsed = parse_tool_call_arguments(call)
    arguments = parsed.arguments if isinstance(parsed, Parsed) else repr(call.arguments)
    return digest([call.type, call.name, arguments])[:_DIGEST_LENGTH]


def tool_call_arguments_absent(raw: object) -> bool:
    """Whether *raw* holds no arguments at all: it is None, or a text that is empty or blank."""
    return raw is None or (isinstance(raw, (str, bytes)) and not raw.strip())


def json_type(value: JSON) -> str:
    """Return JSON's own name for what *value* is, with its article where it takes one."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            assert_never(value)


def _copied(raw: object) -> JSON:
    check_json(raw)
    value: JSON = copy.deepcopy(raw)  # type: ignore[assignment]  # JSON, by the line above
    return value


def _malformed(raw: object, reason: str) -> str:
    if not isinstance(raw, (str, bytes)):
        # What was decoded by somebody else is no text that a model could correct in one place,
        # and the reason would name a value of it.
        return "the arguments hold a value that JSON does not have, expected one JSON object"
    text = raw if isinstance(raw, str) else raw.decode(errors="replace")
    fault = _fault(text) or reason
    return f"the arguments are not JSON: {fault}, expected one JSON object"[:_DETAIL_LENGTH]


def _fault(text: str) -> str | None:
    """Say what is wrong with *text*, which `decode` has refused.

    `decode` judges, in a parser that counts bytes, and counts past the fault as often as not.
    The standard parser accepts more, but tells line and column, so it gives the second opinion.
    """
    try:
        check_json(json.loads(text))
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
        return f"{what} at line {error.lineno} column {error.colno}"
    except NotJSONError as error:
        return error.reason
    except RecursionError:
        return "it is nested too deeply"
    except ValueError:  # all that is left: the interpreter's bound on the digits of an integer
        return "an integer has too many digits"
    return None
