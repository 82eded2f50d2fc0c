"""Arguments brought into one form before anything looks at them.

A tool may know that two ways of writing an argument mean the same: a path with and without its
trailing slash. Its normalizer makes one of them, so that they are checked as one, and so that
whoever remembers calls by their arguments knows that it has seen this one.

The dispatcher applies it, once, and not the tool: a normalizer need not bear being applied to its
own result. Whoever has to see the normal form before the call is run asks the toolset for it,
and passes on what it got; that call says by its type that it has been here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from harness._arguments import Parsed, parse_tool_call_arguments
from harness._errors import NotJSONError, error_text
from harness._json import JSON, encode_text
from harness._toolset import NormalizedCall, Outcome, ToolCall

__all__ = ["Normalizer", "normalize_call"]

Normalizer: TypeAlias = Callable[[dict[str, JSON]], dict[str, JSON]]
"""From arguments as the model sent them to their normal form. It must not block."""


def normalize_call(call: ToolCall, normalizer: Normalizer | None) -> ToolCall | Outcome:
    """Return *call* with its arguments in normal form, or why they have none.

    A call that is a `NormalizedCall` already is returned as it is, and so is one whose arguments
    cannot be read: whoever checks them will say why. What the normalizer raises, and what it
    returns that is no JSON object, are a failure of kind ``validation``.
    """
    if normalizer is None or isinstance(call, NormalizedCall):
        return call
    parsed = parse_tool_call_arguments(call)
    if not isinstance(parsed, Parsed):
        return call
    try:
        normal: object = normalizer(parsed.arguments)
    except Exception as error:  # noqa: BLE001  # the model's arguments made it raise
        kind, text = type(error).__name__, error_text(error)
        return _refused(kind if text == kind else f"{kind}: {text}")
    if not isinstance(normal, dict):
        return _refused(f"they came out as a {type(normal).__name__}, expected an object")
    try:
        text = encode_text(normal)
    except NotJSONError as error:
        return _refused(f"they came out with a value that is no JSON: {error}")
    return NormalizedCall(
        id=call.id, name=call.name, type=call.type, arguments=text, index=call.index
    )


_LENGTH = 2_000


def _refused(why: str) -> Outcome:
    text = f"the arguments have no normal form: {why}"
    return Outcome.failed(text if len(text) <= _LENGTH else f"{text[: _LENGTH - 1]}…", "validation")
