"""What a tool's arguments must be: told to the model, and checked, from one source.

`Schema` is all that a tool asks for: a JSON Schema to tell, and a function that takes what came
and returns what the tool is called with. `TypeSchema` makes both from one class and
`ObjectSchema` takes a JSON Schema that somebody else wrote; any validation library fits behind
the same two methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import attrs

from harness._errors import HarnessError, NotJSONError, ToolDefinitionError
from harness._json import JSON, check_json

__all__ = ["ArgIssue", "ArgsInvalid", "Schema", "check_object_schema"]

ArgsT_co = TypeVar("ArgsT_co", covariant=True)

_TEXT = 2_000
_ISSUE = 400
_ELLIPSIS = "…"


@attrs.frozen(kw_only=True)
class ArgIssue:
    """One fault of the arguments."""

    path: tuple[str | int, ...]
    """From the outermost name to the place; empty for the arguments as a whole."""
    message: str

    def __str__(self) -> str:
        where = ".".join(map(str, self.path))
        text = f"{where}: {self.message}" if where else self.message
        return text if len(text) <= _ISSUE else text[: _ISSUE - 1] + _ELLIPSIS


class ArgsInvalid(HarnessError, ValueError):  # noqa: N818  # a verdict on the caller's part
    """Arguments that a schema refuses; `issues` are their faults.

    The text is written for the model and has at most 2,000 characters. A tool makes a failed
    outcome of it.
    """

    code = "tool.arguments"

    def __init__(self, issues: Sequence[ArgIssue]) -> None:
        self.issues = tuple(issues)
        super().__init__(_joined([str(issue) for issue in self.issues]))


class Schema(Protocol[ArgsT_co]):
    """What a tool asks of the description of its arguments."""

    def json_schema(self) -> dict[str, JSON]:
        """Return the JSON Schema of an object, for the model; the caller's own."""
        ...

    def parse(self, raw: dict[str, JSON]) -> ArgsT_co:
        """Return what the tool is called with.

        Raises:
            ArgsInvalid: *raw* is refused, with every reason.
        """
        ...


def check_object_schema(tool: str, schema: object) -> None:
    """Return if *schema* is the JSON Schema of an object.

    Raises:
        ToolDefinitionError: it is not.
    """
    try:
        check_json(schema)
    except NotJSONError as error:
        raise ToolDefinitionError(tool, f"its schema is {error}") from None
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind != "object":
        raise ToolDefinitionError(
            tool, f"its schema has the type {kind!r}, expected a JSON Schema of type 'object'"
        )


def _joined(texts: list[str]) -> str:
    """Join as many *texts* as there is room for, and say how many are left."""
    joined = ""
    for number, text in enumerate(texts):
        left = f"; and {len(texts) - number} more"
        longer = f"{joined}; {text}" if joined else text
        if len(longer) + len(left) > _TEXT:
            return joined + left
        joined = longer
    return joined
