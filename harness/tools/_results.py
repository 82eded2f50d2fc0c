"""From what a function returned to what a model reads.

A function may return anything. An `Outcome` is what it says; a `Suspend` is a success that
pauses the run; every other value is the data of a success. Data becomes plain JSON at once,
while it is what the function returned: attrs classes, dataclasses, msgspec Structs, enums and
dates go the way that msgspec writes them, and nothing later has to know these types.

What msgspec cannot write stays as it is, and the envelope then says so in its place. It is no
failure: the effect has happened, and a model that reads of a failure would repeat it.
"""

from __future__ import annotations

import attrs
import msgspec

from harness._errors import NotJSONError
from harness._json import check_json
from harness._messages import Message, failure_envelope, success_envelope, tool_message
from harness._toolset import Outcome, Suspend, ToolCall

__all__ = ["as_builtins", "outcome_of", "render_outcome", "tool_result_message", "unsupported_type"]


def outcome_of(value: object) -> Outcome:
    """Return the outcome of a call whose function returned *value*."""
    if isinstance(value, Outcome):
        plain = as_builtins(value.data)
        return value if plain is value.data else attrs.evolve(value, data=plain)
    if isinstance(value, Suspend):
        return Outcome.completed(suspend=value)
    return Outcome.completed(as_builtins(value))


def as_builtins(value: object) -> object:
    """Return *value* in the types that JSON has, or as it is if it cannot be written so.

    JSON already: the same object. NaN and infinities are left for the envelope.
    """
    try:
        check_json(value)
    except (NotJSONError, RecursionError):
        try:
            return _converted(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return value
    return value


def _converted(value: object) -> object:
    """Convert *value*; dictionaries keep their order as far as they are plain.

    msgspec gets the rest. It makes texts of keys (of two that become the same, the last wins), and
    is told to sort, because a set has another order in every process.
    """
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _converted(inner) for key, inner in value.items()}
    if type(value) is list or type(value) is tuple:
        return [_converted(inner) for inner in value]
    plain: object = msgspec.to_builtins(value, str_keys=True, order="deterministic")
    return plain


def unsupported_type(call_type: str) -> Outcome:
    """Return the outcome of a call that is no function call."""
    return Outcome.failed(f"the call has the type {call_type!r}, expected 'function'", "validation")


def render_outcome(call: ToolCall, outcome: Outcome) -> Message:
    """Return the answer to *call*: what `Toolset.render` does when nobody has other wishes."""
    return tool_result_message(call.id, outcome)


def tool_result_message(call_id: str, outcome: Outcome) -> Message:
    """Return the tool message that answers the call *call_id* with *outcome*.

    The content is the envelope; with content parts it is a list, the envelope as a text part
    first.
    """
    if outcome.kind == "completed":
        envelope = success_envelope(outcome.data)
    else:
        envelope = failure_envelope(outcome.error, outcome.failure_kind)
    return tool_message(call_id, envelope, outcome.parts)
