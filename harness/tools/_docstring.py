"""What a docstring tells a model: what the function is for, and what each parameter means.

Two ways of writing are read: Google's sections (``Args:`` and an indented entry for each
parameter) and reST's field list (``:param name: ...``). What stands before the first section or
field describes the function. Results and exceptions are left out: they speak to a caller in
Python, and a model learns of both from the answer to its call.

Nothing here fails. A docstring that is written otherwise describes the function as a whole.
"""

from __future__ import annotations

import inspect
import re

import attrs

__all__ = ["Description", "read_docstring"]

_PARAMETERS = frozenset({"Args:", "Arguments:", "Parameters:"})
_SECTIONS = _PARAMETERS | {
    *("Attributes:", "Example:", "Examples:", "Note:", "Notes:", "Raises:", "Returns:"),
    *("Return:", "See Also:", "Todo:", "Warning:", "Warnings:", "Warns:", "Yield:", "Yields:"),
}
_ENTRY = re.compile(r"(?P<indent> +)\*{0,2}(?P<name>\w+) *(?:\([^)]*\))? *:(?: +(?P<text>.*))?$")
_FIELD = re.compile(r":(?P<tag>\w+)(?: +[^:]*?(?P<name>\w+))? *:(?: +(?P<text>.*))?$")
_FIELD_TAGS = frozenset({"param", "parameter", "arg", "argument"})


@attrs.frozen(kw_only=True)
class Description:
    """What a docstring says."""

    text: str = ""
    """Of the function."""
    parameters: dict[str, str] = attrs.field(factory=dict)
    """By name, each in one line; a parameter that is not described is not here."""


def read_docstring(docstring: str | None) -> Description:
    """Return what *docstring* says of a function and its parameters."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    end = next((n for n, line in enumerate(lines) if _ends_description(line)), len(lines))
    return Description(
        text="\n".join(lines[:end]).strip(),
        parameters=_google_entries(lines[end:]) | _field_entries(lines[end:]),
    )


def _ends_description(line: str) -> bool:
    return line.rstrip() in _SECTIONS or _FIELD.match(line) is not None


def _google_entries(lines: list[str]) -> dict[str, str]:
    entries: dict[str, list[str]] = {}
    inside, indent, current = False, "", None
    for line in lines:
        if line and not line[0].isspace():
            inside, indent, current = line.rstrip() in _PARAMETERS, "", None
        elif inside and line.strip():
            found = _ENTRY.match(line)
            # The first entry sets the indent; what stands deeper goes on with an entry.
            if found is not None and found["indent"] == (indent or found["indent"]):
                indent = found["indent"]
                current = entries.setdefault(found["name"], [])
                current.append(found["text"] or "")
            elif current is not None:
                current.append(line)
    return _in_one_line(entries)


def _field_entries(lines: list[str]) -> dict[str, str]:
    entries: dict[str, list[str]] = {}
    current = None
    for line in lines:
        found = _FIELD.match(line)
        if found is not None:
            current = None
            if found["tag"] in _FIELD_TAGS and found["name"]:
                current = entries.setdefault(found["name"], [])
                current.append(found["text"] or "")
        elif current is not None and line[:1].isspace():
            current.append(line)
        elif line.strip():
            current = None
    return _in_one_line(entries)


def _in_one_line(entries: dict[str, list[str]]) -> dict[str, str]:
    joined = {name: " ".join(" ".join(lines).split()) for name, lines in entries.items()}
    return {name: text for name, text in joined.items() if text}
