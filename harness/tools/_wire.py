"""A tool as a provider is told of it."""

from __future__ import annotations

from harness._json import JSON
from harness.tools._definition import Tool, check_name

__all__ = ["definition_name", "tool_wire_definition"]


def definition_name(definition: object) -> str | None:
    """Return what a model calls the function that *definition* is of; None if it is of none."""
    function = definition.get("function") if isinstance(definition, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def tool_wire_definition(tool: Tool, wire_name: str | None = None) -> dict[str, JSON]:
    """Return the definition of *tool* for a request, its schema such as every provider accepts.

    With *wire_name* the model knows the tool by that name, which is then what its calls have; to
    find the tool again is up to whoever chose it. The parameters are the tool's own: do not
    change them.

    Raises:
        ToolDefinitionError: *wire_name* is no name that every provider takes.
    """
    if wire_name is None:
        return tool.definition
    check_name(tool.name, wire_name)
    function = tool.definition["function"]
    assert isinstance(function, dict)
    return {**tool.definition, "function": {**function, "name": wire_name}}
