"""What a server lists, taken apart before anybody validates it.

The official client checks a page of tools as a whole: one entry that is not what the protocol
says, and none of them is there. A server with two hundred tools is not to be lost over one. So
each entry is looked at alone. What can be a tool is kept as it was written, and what cannot is
told with its reason. The client is given as much of each entry as it needs itself.

It needs a schema only where one names headers that a call has to be sent with (`HEADER_KEY`);
every other schema is hostile until the sanitizer has seen it, and stays out of its recursions.

Everything is bounded: a description that would fill a context, a schema of megabytes, a list
without an end. What is too long to be read is cut, what would change its meaning by that is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from harness._errors import NotJSONError
from harness._json import JSON, encode

__all__ = [
    "LONGEST_DESCRIPTION",
    "LONGEST_SCHEMA",
    "MOST_PAGES",
    "MOST_TOOLS",
    "ListedTool",
    "SkippedTool",
    "read_page",
]

MOST_TOOLS: Final = 20_000
MOST_PAGES: Final = 2_000
"""More than these is a list that does not end."""

LONGEST_DESCRIPTION: Final = 10_000
"""In characters; more is cut."""

LONGEST_SCHEMA: Final = 256 * 1024
"""In bytes; the tool of a longer one is left out."""

LONGEST_TOOL_NAME: Final = 1_000

HEADER_KEY: Final = "x-mcp-header"
"""What marks a parameter that is also sent in a header; the client reads it."""

_CUT: Final = "…"


@attrs.frozen(kw_only=True)
class ListedTool:
    """A tool as its server lists it."""

    name: str
    description: str
    schema: dict[str, JSON] = attrs.field(repr=False)
    """As it was written: any object at all."""


@attrs.frozen(kw_only=True)
class SkippedTool:
    """A tool that a server lists and that no model is shown."""

    server: str
    tool: str
    """Its name, or what stood in its place."""
    reason: str


def read_page(
    server: str, entries: list[object]
) -> tuple[list[ListedTool], list[SkippedTool], list[dict[str, object]]]:
    """Return the tools of one page, those that are left out, and what the client is given."""
    kept: list[ListedTool] = []
    skipped: list[SkippedTool] = []
    client: list[dict[str, object]] = []
    for entry in entries:
        try:
            tool = _read(entry)
        except ValueError as refusal:
            skipped.append(SkippedTool(server=server, tool=_shown(entry), reason=str(refusal)))
            continue
        kept.append(tool)
        schema = tool.schema if _names_headers(tool.schema) else {"type": "object"}
        client.append({"name": tool.name, "inputSchema": schema})
    return kept, skipped, client


def _read(entry: object) -> ListedTool:
    if not isinstance(entry, Mapping):
        raise ValueError(f"it is a {type(entry).__name__}, expected an object")
    name, schema = entry.get("name"), entry.get("inputSchema")
    description = entry.get("description")
    if not isinstance(name, str) or not name:
        raise ValueError(f"its name is a {type(name).__name__}, expected a text")
    if len(name) > LONGEST_TOOL_NAME:
        raise ValueError(f"its name has {len(name)} characters, expected fewer")
    if not isinstance(schema, dict):
        raise ValueError(f"its schema is a {type(schema).__name__}, expected an object")
    try:
        size = len(encode(schema))
    except (NotJSONError, RecursionError) as error:
        raise ValueError(f"its schema is no JSON that could be sent: {error}") from None
    if size > LONGEST_SCHEMA:
        raise ValueError(f"its schema has {size} bytes, expected at most {LONGEST_SCHEMA}")
    text = description if isinstance(description, str) else ""
    if len(text) > LONGEST_DESCRIPTION:
        text = text[: LONGEST_DESCRIPTION - 1] + _CUT
    return ListedTool(name=name, description=text, schema=schema)


def _shown(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name[:100] if isinstance(name, str) else ""


def _names_headers(schema: dict[str, JSON]) -> bool:
    return any(HEADER_KEY in each for each in _objects(schema))


def _objects(value: JSON) -> Iterator[dict[str, JSON]]:
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield each
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
