"""Chat-completions JSON to provider-neutral chunks, whatever the dialect.

Many servers speak this format and hardly two speak the same. The rule that keeps them apart
from mistakes: **a field that decides what was said or asked for must have a type we know**, or
the reply fails as malformed; **a field that only tells** (reasoning, usage) is left out when we
do not know its shape. Guessing at the first kind would run a call that nobody asked for; failing
at the second would throw away a good answer.

What the dialects do, and what it means here:

=================================================  ===============================================
seen                                               read as
=================================================  ===============================================
``choices`` empty, null or missing                 a chunk with no choice: usage, or nothing
several choices                                    the one with index 0, or without an index
``delta`` null or missing, ``message`` beside it   nothing said; a stream's ``message`` repeats
role repeated, null, missing                       ignored
``content`` a list of parts                        text, thinking and refusal parts, in order
``reasoning_content``, ``reasoning``, ``…details`` the first that has text: they repeat each other
usage at the top, in ``x_groq``, in the choice     the first that holds counts
``tool_calls`` null; ``function`` null             no piece; a piece without name and arguments
ids, names, types null or empty, no index          passed on: the accumulator knows these
a name that is the text ``"null"``                 no name: a null that somebody made a text of
arguments an object                                its JSON text
``function_call``                                  ignored beside ``tool_calls``; alone, a call
                                                   without an id, which is a defect
``error`` with content, or ``event: error``        the provider's error, even if it says nothing
``finish_reason`` ``"error"``                      the provider's error, though it gave none
=================================================  ===============================================

The text ``"null"`` as a name would make ``weathernull`` of a name that came before it, and alone a
call of a tool that nobody has: the model would be told of a mistake that it did not make. Without a
name the call is a defect, and made again. The price is that no tool can be called ``null``.

A whole reply is read by the same functions, as one chunk that ends.
"""

from __future__ import annotations

from typing import Final

from harness._errors import NotJSONError
from harness._json import JSON, decode, encode_text
from harness._model import CallPiece, Chunk
from harness._usage import Usage
from harness.providers._failures import WireError, error_in
from harness.providers._sse import ServerEvent
from harness.providers._usage import read_usage

__all__ = ["read_event", "read_reply"]

_END: Final = b"[DONE]"
_NOUNS: Final = {str: "a text", list: "a list", dict: "an object", type(None): "null"}


def read_event(event: ServerEvent) -> Chunk:
    """Return what one event of a stream says.

    Raises:
        WireError: it is an error, or no chunk.
    """
    data = event.data.strip()
    if event.name == "error":
        raise _error_event(data)
    if data == _END:
        return Chunk(end=True)
    if not data:
        return Chunk()
    value = _object(_decoded(data), "the event")
    choice = _choice(value)
    return _chunk(value, choice, _optional(choice, "delta", "delta"), whole=False)


def read_reply(body: bytes) -> Chunk:
    """Return what a whole reply says, as one chunk.

    Raises:
        WireError: it is an error, or no completion.
    """
    value = _object(_decoded(body), "the reply")
    choice = _choice(value)
    if not choice:
        raise _malformed(value.get("choices"), "choices", "a choice")
    return _chunk(value, choice, _object(choice.get("message"), "message"), whole=True)


def _error_event(data: bytes) -> WireError:
    try:
        found = error_in(decode(data))
    except NotJSONError:
        found = None
    said = data.decode(errors="replace") or "an error event without a word"
    return found or WireError(said, theirs=True)


def _decoded(data: bytes) -> JSON:
    try:
        value = decode(data)
    except NotJSONError as error:
        raise WireError(f"a text that is {error}, expected an object") from None
    found = error_in(value)
    if found is not None:
        raise found
    return value


def _choice(value: dict[str, JSON]) -> dict[str, JSON]:
    """Return the choice with index 0; an empty one if there is none."""
    for each in _list(value.get("choices"), "choices"):
        choice = _object(each, "choices")
        if not _index(choice, "choices"):
            error = error_in(choice)
            if error is not None:
                raise error
            return choice
    return {}


def _chunk(
    value: dict[str, JSON], choice: dict[str, JSON], said: dict[str, JSON], *, whole: bool
) -> Chunk:
    finish_reason = _text(choice, "finish_reason", "choices")
    if finish_reason == "error":
        raise WireError("the finish reason 'error' without an error, expected one", code="error")
    text, thought, refused = _content(said.get("content"))
    return Chunk(
        text=text,
        reasoning=_reasoning(said) or thought,
        refusal=_text(said, "refusal", "delta") or refused,
        calls=_calls(said, whole=whole),
        usage=_usage(value, choice),
        finish_reason=finish_reason,
        end=whole,
    )


def _content(content: JSON) -> tuple[str | None, str | None, str | None]:
    """Return the text, the reasoning and the refusal that *content* holds."""
    if content is None or isinstance(content, str):
        return content or None, None, None
    texts: list[str] = []
    thoughts: list[str] = []
    refusals: list[str] = []
    for part in _list(content, "content"):
        match part:
            case str():
                texts.append(part)
            case {"type": "thinking", "thinking": thinking}:
                thoughts.append(_joined(thinking))
            case {"type": "refusal", "refusal": str(refusal)}:
                refusals.append(refusal)
            case dict() if part.get("type") in ("text", "output_text"):
                texts.append(_text(part, "text", "content") or "")
            case dict():
                pass  # a citation, an image: nothing that a chunk has a place for
            case _:
                raise _malformed(part, "content", "a part")
    return "".join(texts) or None, "".join(thoughts) or None, "".join(refusals) or None


def _reasoning(said: dict[str, JSON]) -> str | None:
    for key in ("reasoning_content", "reasoning", "reasoning_details"):
        text = _joined(said.get(key))
        if text:
            return text
    return None


def _joined(value: JSON) -> str:
    """Return the text of *value*, or of the parts in it; empty for what has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _joined(value.get("text") or value.get("summary"))
    if isinstance(value, list):
        return "".join(map(_joined, value))
    return ""


def _usage(value: dict[str, JSON], choice: dict[str, JSON]) -> Usage | None:
    envelope = value.get("x_groq")
    inner = envelope.get("usage") if isinstance(envelope, dict) else None
    for each in (value.get("usage"), inner, choice.get("usage")):
        usage = read_usage(each)
        if usage is not None:
            return usage
    return None


def _calls(said: dict[str, JSON], *, whole: bool) -> tuple[CallPiece, ...]:
    calls = _list(said.get("tool_calls"), "tool_calls")
    if not calls:
        legacy = _optional(said, "function_call", "function_call")
        return (_piece({}, 0, legacy),) if legacy else ()
    return tuple(_call(each, place if whole else None) for place, each in enumerate(calls))


def _call(value: JSON, place: int | None) -> CallPiece:
    """Return one piece of a call; *place* is where it stands in a whole reply.

    There its place counts, so that two calls with one id stay two.
    """
    call = _object(value, "tool_calls")
    index = _index(call, "tool_calls") if place is None else place
    return _piece(call, index, _optional(call, "function", "function"))


def _piece(call: dict[str, JSON], index: int | None, function: dict[str, JSON]) -> CallPiece:
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = encode_text(arguments)
    elif not (arguments is None or isinstance(arguments, str)):
        raise _malformed(arguments, "arguments", "a text or an object")
    name = _text(function, "name", "function")
    return CallPiece(
        index=index,
        id=_text(call, "id", "tool_calls"),
        type=_text(call, "type", "tool_calls"),
        name=None if name == "null" else name,
        arguments=arguments,
    )


def _object(value: JSON, where: str) -> dict[str, JSON]:
    if not isinstance(value, dict):
        raise _malformed(value, where, "an object")
    return value


def _optional(value: dict[str, JSON], key: str, where: str) -> dict[str, JSON]:
    inner = value.get(key)
    return {} if inner is None else _object(inner, where)


def _list(value: JSON, where: str) -> list[JSON]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _malformed(value, where, "a list")
    return value


def _text(value: dict[str, JSON], key: str, where: str) -> str | None:
    text = value.get(key)
    if not (text is None or isinstance(text, str)):
        raise _malformed(text, f"{where}.{key}", "a text")
    return text or None


def _index(value: dict[str, JSON], where: str) -> int | None:
    index = value.get("index")
    if not (index is None or (type(index) is int and index >= 0)):
        raise _malformed(index, f"{where}.index", "a count")
    return index


def _malformed(value: JSON, where: str, expected: str) -> WireError:
    # The type, not the value: a text may hold anything, and the place tells where to look.
    return WireError(f"{_NOUNS.get(type(value), value)} at {where!r}, expected {expected}")
