"""Is a reply usable?

A provider can answer with status 200 and still have said nothing, stopped in the middle, or asked
for a call that cannot be carried out as written. Such a reply is a *defect*: it is refused as a
whole and none of its calls is run, since a tool that was run on half of what the model meant is
worse than a model call that is made again.

`ROWS` says what is refused, and the first row that applies names the defect. A cut comes before
what the cut has left behind: of a reply that ended in the middle of a call, "unfinished" is the
cause and "arguments that are no JSON" the symptom. Two things that look like defects are none. A
call whose arguments are an empty text is a call without arguments, unless the reply ran out of
tokens: then the text may be one that never came. And arguments that are JSON of another kind than
an object are complete; the model is told, and can correct itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs

from harness._arguments import Unparseable, parse_arguments, tool_call_arguments_absent
from harness._errors import DefectKind, NotJSONError
from harness._json import JSON, decode
from harness._messages import CallMessage, Message
from harness._model import Assembly
from harness.completion._assembly import Completion

__all__ = [
    "ROWS",
    "Defect",
    "DefectRow",
    "detect_completion_defect",
    "detect_message_defect",
    "expects_json_output",
    "is_empty_reply",
    "json_parses",
    "structured_output_parses",
]

CUT: Final = "length"
"""The finish reason of a reply that ran out of tokens."""


@attrs.frozen(kw_only=True)
class Defect:
    """Why a reply is refused."""

    kind: DefectKind
    detail: str
    """What was seen, then what was expected."""


@attrs.frozen(kw_only=True)
class DefectRow:
    """One reason to refuse a reply."""

    rule: str
    kind: DefectKind
    when: str
    """The condition in words, for the reference."""
    find: Callable[[Completion, Assembly], str | None]
    """Return the detail if the row applies."""


def detect_completion_defect(completion: Completion, assembly: Assembly) -> Defect | None:
    """Return what is wrong with a streamed reply, or None."""
    for row in ROWS:
        detail = row.find(completion, assembly)
        if detail is not None:
            return Defect(kind=row.kind, detail=detail)
    return None


def detect_message_defect(
    message: Message, finish_reason: str | None, assembly: Assembly
) -> Defect | None:
    """Return what is wrong with a reply that came as one finished message, or None.

    The same rows apply, but for ``unfinished``: a message that is there has ended.
    """
    completion = _finished(message, finish_reason)
    return detect_completion_defect(completion, attrs.evolve(assembly, require_finish_reason=False))


def is_empty_reply(message: Message) -> bool:
    """Whether a finished reply says nothing and asks for nothing."""
    return _says_nothing(_finished(message, None))


def _finished(message: Message, finish_reason: str | None) -> Completion:
    text, refusal = _said(message.get("content"))
    return Completion(
        text=text,
        refusal=message.get("refusal") or refusal,
        calls=tuple(message.get("tool_calls") or ()),
        finish_reason=finish_reason,
        clean_end=True,
    )


def _said(content: str | list[dict[str, JSON]] | None) -> tuple[str, str]:
    """Return the text and the refusal in *content*. A part of another kind counts as text."""
    if not isinstance(content, list):
        return content or "", ""
    texts: list[str] = []
    refusals: list[str] = []
    for part in content:
        kind = part.get("type")
        if kind == "refusal":
            refusals.append(str(part.get("refusal") or ""))
        else:
            texts.append(str(part.get("text") or "") if kind == "text" else f"[{kind}]")
    return "".join(texts), "".join(refusals)


# -- the rows ----------------------------------------------------------------------------------


def _calls_without_an_end(completion: Completion, _: Assembly) -> str | None:
    if completion.clean_end or not completion.calls:
        return None
    return "the stream with tool calls just ended, expected a finish reason or an end event"


def _no_finish_reason(completion: Completion, assembly: Assembly) -> str | None:
    if completion.finish_reason is not None or not assembly.require_finish_reason:
        return None
    return "the stream ended with no finish reason, expected one"


def _cut_arguments(completion: Completion, _: Assembly) -> str | None:
    if completion.finish_reason != CUT:
        return None
    for name, arguments in _function_calls(completion):
        if tool_call_arguments_absent(arguments) or _no_json(arguments):
            return f"{CUT!r} cut the arguments of {name}, expected the whole of them"
    return None


def _cut_before_anything(completion: Completion, _: Assembly) -> str | None:
    if completion.finish_reason != CUT or not _says_nothing(completion):
        return None
    return f"{CUT!r} came before any text or call, expected one of them"


def _conflicting_calls(completion: Completion, _: Assembly) -> str | None:
    if not completion.conflicts:
        return None
    return f"{completion.conflicts} pieces had the index of another call, expected one id an index"


def _no_id(completion: Completion, _: Assembly) -> str | None:
    for place, call in enumerate(completion.calls):
        if not _is_text(call.get("id")):
            return f"call {place} has the id {call.get('id')!r}, expected a text"
    return None


def _no_name(completion: Completion, _: Assembly) -> str | None:
    for call in completion.calls:
        name = _function(call).get("name")
        if _is_function(call) and not _is_text(name):
            return f"call {call.get('id')!r} has the name {name!r}, expected a text"
    return None


def _repeated_id(completion: Completion, assembly: Assembly) -> str | None:
    if assembly.ids == "keep":
        return None
    seen: set[str] = set()
    for call in completion.calls:
        if call["id"] in seen:
            return f"two calls have the id {call['id']!r}, expected each call to have its own"
        seen.add(call["id"])
    return None


def _malformed_arguments(completion: Completion, _: Assembly) -> str | None:
    for name, arguments in _function_calls(completion):
        if _no_json(arguments):
            return f"the arguments of {name} are not JSON, expected JSON or nothing"
    return None


def _nothing_said(completion: Completion, assembly: Assembly) -> str | None:
    if assembly.empty == "accept" or not _says_nothing(completion):
        return None
    return "there is no text, no call and no refusal, expected one of them"


ROWS: Final = (
    DefectRow(
        rule="R-DEF-05",
        kind="unfinished",
        when="a stream with tool calls ended without a finish reason or an end event",
        find=_calls_without_an_end,
    ),
    DefectRow(
        rule="R-DEF-05",
        kind="unfinished",
        when="a stream ended without a finish reason, and one is required",
        find=_no_finish_reason,
    ),
    DefectRow(
        rule="R-DEF-04",
        kind="truncated",
        when="cut by length, and the arguments of a call are missing or do not parse",
        find=_cut_arguments,
    ),
    DefectRow(
        rule="R-DEF-04",
        kind="truncated",
        when="cut by length before any text, call or refusal",
        find=_cut_before_anything,
    ),
    DefectRow(
        rule="R-ACC-06",
        kind="malformed_tool_call",
        when="pieces of calls that cannot be told apart",
        find=_conflicting_calls,
    ),
    DefectRow(
        rule="R-DEF-03",
        kind="malformed_tool_call",
        when="a call without an id",
        find=_no_id,
    ),
    DefectRow(
        rule="R-DEF-03",
        kind="malformed_tool_call",
        when="a function call without a name",
        find=_no_name,
    ),
    DefectRow(
        rule="R-DEF-03",
        kind="malformed_tool_call",
        when="two calls with one id, unless the host keeps them",
        find=_repeated_id,
    ),
    DefectRow(
        rule="R-DEF-03",
        kind="malformed_tool_call",
        when="arguments of a function call that are there and are not JSON",
        find=_malformed_arguments,
    ),
    DefectRow(
        rule="R-DEF-02",
        kind="empty",
        when="no call, no refusal and no text but blanks, unless the host accepts that",
        find=_nothing_said,
    ),
)
"""What is refused. The first row that applies gives the defect."""


def _says_nothing(completion: Completion) -> bool:
    return not (completion.calls or completion.refusal or completion.text.strip())


def _function_calls(completion: Completion) -> Iterator[tuple[str, object]]:
    """Yield what to call each function call in a sentence, and its arguments as they came."""
    for call in completion.calls:
        if _is_function(call):
            yield f"call {call.get('id')!r}", _function(call).get("arguments")


# A message can come from anywhere, so what its type promises is not relied upon here.


def _is_function(call: CallMessage) -> bool:
    return call.get("type", "function") == "function"


def _function(call: CallMessage) -> Mapping[str, object]:
    function: object = call.get("function")
    return function if isinstance(function, Mapping) else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _no_json(arguments: object) -> bool:
    """Whether *arguments* are there and are not JSON of any kind."""
    if not isinstance(parse_arguments(arguments), Unparseable):
        return False
    return not (isinstance(arguments, str) and json_parses(arguments))


# -- structured output -------------------------------------------------------------------------


def expects_json_output(response_format: Mapping[str, JSON] | None) -> bool:
    """Whether *response_format* makes the model promise JSON; an unknown type does not."""
    return response_format is not None and response_format.get("type") in (
        "json_object",
        "json_schema",
    )


def json_parses(text: str) -> bool:
    """Whether *text* is strict JSON."""
    try:
        decode(text)
    except NotJSONError:
        return False
    return True


def structured_output_parses(
    completion: Completion, response_format: Mapping[str, JSON] | None
) -> bool:
    """Whether *completion* is JSON if *response_format* makes it promise that.

    A refusal breaks no promise, and neither do calls with no text: the text is still to come.
    """
    if not expects_json_output(response_format) or completion.refusal:
        return True
    if completion.calls and not completion.text.strip():
        return True
    return json_parses(completion.text)
