"""From what a server answered to the outcome of a call.

Text and structured content are the data of a success; what only a model with eyes or ears can
take becomes content parts. The protocol asks servers to repeat structured content as text, for
clients that do not know it: a repetition is left out, any other text is kept beside it.

An answer is never held against the tool's own output schema. If it does not fit, the effect has
happened all the same, and a model that read of a failure would repeat it.

Failures are of three kinds of origin, and all are told to the model: the tool's own (`isError`),
the server's (an error of the protocol, `ERROR_ROWS`), and the connection's. After the last one
nobody knows what the call has done, and its text says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

import attrs

from harness._errors import NotJSONError, error_text
from harness._json import JSON, decode
from harness._messages import FailureKind
from harness._toolset import Outcome
from harness.mcp._client import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    MCPError,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ValidationError,
)

__all__ = ["ERROR_ROWS", "UNKNOWN_EFFECT", "ErrorRow", "failure_of", "outcome_of_result"]


@attrs.frozen(kw_only=True)
class ErrorRow:
    """What an error of the protocol means for the call that got it."""

    code: int | None
    """None: any other."""
    kind: FailureKind
    effect_known: bool
    """Whether the server says that nothing was done, or what."""
    text: str


ERROR_ROWS: Final = (
    ErrorRow(
        code=INVALID_PARAMS,
        kind="validation",
        effect_known=True,
        text="the server refused the call",
    ),
    ErrorRow(
        code=METHOD_NOT_FOUND,
        kind="external",
        effect_known=True,
        text="the server takes no calls",
    ),
    ErrorRow(
        code=CONNECTION_CLOSED,
        kind="external",
        effect_known=False,
        text="the connection to the server ended before its answer",
    ),
    ErrorRow(
        code=PARSE_ERROR,
        kind="external",
        effect_known=False,
        text="the server's answer could not be read",
    ),
    ErrorRow(code=None, kind="external", effect_known=True, text="the server failed"),
)
"""The first row whose code fits counts."""

UNKNOWN_EFFECT: Final = "What the call has done is not known: it may be complete, partial or absent"

_FORMATS: Final = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav"}
"""Names of audio formats where a media type's is another."""


def failure_of(server: str, error: Exception, *, detail: str = "") -> Outcome:
    """Return the failure of a call of *server* that ended with *error*; *detail* says more."""
    if isinstance(error, MCPError):
        row = next(each for each in ERROR_ROWS if each.code in (error.code, None))
        said = detail or error_text(error)
    else:
        unread = isinstance(error, ValidationError)
        code = PARSE_ERROR if unread else CONNECTION_CLOSED
        row = next(each for each in ERROR_ROWS if each.code == code)
        said = detail or ("it is not what the protocol says" if unread else type(error).__name__)
    text = f"{row.text} ({server}): {said}"
    return Outcome.failed(text if row.effect_known else f"{text}. {UNKNOWN_EFFECT}", row.kind)


def outcome_of_result(result: CallToolResult | InputRequiredResult) -> Outcome:
    """Return the outcome of a call that was answered with *result*."""
    if isinstance(result, InputRequiredResult):
        return Outcome.failed(
            "the tool asks its caller for more input in the middle of a call, "
            "expected a call that needs none",
            "external",
        )
    entries: list[JSON] = []
    parts: list[dict[str, JSON]] = []
    for block in result.content:
        entry = _entry(block)
        if entry is not None:
            entries.append(entry)
        else:
            parts.append(_part(block))
    if result.is_error:
        texts = [each for each in entries if isinstance(each, str) and each]
        text = "\n".join(texts) or "the tool failed and did not say why"
        return Outcome.failed(text, "external")
    return Outcome.completed(_data(entries, result.structured_content), parts=parts)


def _data(entries: list[JSON], structured: JSON) -> JSON:
    plain: JSON = entries if len(entries) > 1 else entries[0] if entries else None
    if structured is None:
        return plain
    if not entries or _repeats(entries, structured):
        return structured
    return {"structuredContent": structured, "content": plain}


def _repeats(entries: Sequence[JSON], structured: JSON) -> bool:
    """Whether the texts *entries* only say again what *structured* holds.

    Servers wrap what is no object in one with a single member, and write each item of a list
    alone.
    """
    values = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        values += structured.values()
    read = [_decoded(each) for each in entries]
    return any(
        value in (entries[0], read[0]) if len(entries) == 1 else value in (list(entries), read)
        for value in values
    )


def _decoded(entry: JSON) -> JSON:
    if not isinstance(entry, str):
        return entry
    try:
        return decode(entry)
    except NotJSONError:
        return entry


def _entry(block: ContentBlock) -> JSON:
    """Return *block* as data, or None if it is nothing that a text could hold."""
    match block:
        case TextContent(text=text):
            return text
        case ResourceLink():
            return _named(block, uri=block.uri, name=block.name, description=block.description)
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return _named(resource, uri=resource.uri, text=resource.text)
        case ImageContent() | AudioContent() | EmbeddedResource():
            return None
        case _:
            assert_never(block)


def _named(of: ResourceLink | TextResourceContents, **fields: str | None) -> JSON:
    named = {**fields, "mimeType": of.mime_type}
    return {name: value for name, value in named.items() if value is not None}


def _part(block: ContentBlock) -> dict[str, JSON]:
    """Return a *block* of bytes as a content part in the chat-completions shape."""
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        assert not isinstance(resource, TextResourceContents)
        media_type, content = resource.mime_type or "application/octet-stream", resource.blob
        name = resource.uri.rpartition("/")[2] or "resource"
    else:
        assert isinstance(block, ImageContent | AudioContent)
        media_type, content, name = block.mime_type, block.data, "resource"
    url = f"data:{media_type};base64,{content}"
    kind, _, subtype = media_type.partition("/")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "audio":
        audio: JSON = {"data": content, "format": _FORMATS.get(subtype, subtype)}
        return {"type": "input_audio", "input_audio": audio}
    return {"type": "file", "file": {"filename": name, "file_data": url}}
