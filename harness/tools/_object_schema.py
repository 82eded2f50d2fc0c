"""A JSON Schema that somebody else wrote, such as that of a remote tool.

It is told to the model as far as every provider accepts it. Callers are held to the names in it,
which is what goes wrong most; the values are left to whoever wrote it and checks them again
anyway. A full validator of JSON Schema is not worth a dependency of the core.
"""

from __future__ import annotations

import copy

from harness._errors import ToolDefinitionError
from harness._json import JSON
from harness.tools._faults import MISSING, unknown_name
from harness.tools._schema import ArgIssue, ArgsInvalid, check_object_schema

__all__ = ["ObjectSchema"]


class ObjectSchema:
    """A JSON Schema as it was written; values are passed on unchecked."""

    def __init__(self, schema: dict[str, JSON], *, tool: str) -> None:
        check_object_schema(tool, schema)
        self._json_schema = copy.deepcopy(schema)
        required, properties = schema.get("required", []), schema.get("properties", {})
        if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
            raise ToolDefinitionError(
                tool, f"its schema requires {required!r}, expected a list of names"
            )
        if not isinstance(properties, dict):
            raise ToolDefinitionError(
                tool, f"its schema has the properties {properties!r}, expected an object"
            )
        self._required = [str(each) for each in required]
        self._names = tuple(properties)
        self._closed = schema.get("additionalProperties") is False

    def json_schema(self) -> dict[str, JSON]:
        """Return a copy of the schema."""
        return copy.deepcopy(self._json_schema)

    def parse(self, raw: dict[str, JSON]) -> dict[str, JSON]:
        """Return *raw*, if it has every required name and none that is forbidden.

        Raises:
            ArgsInvalid: it does not, with every name that is at fault.
        """
        faults = [(name, MISSING) for name in self._required if name not in raw]
        if self._closed:
            unknown = unknown_name(self._names)
            faults += [(name, unknown) for name in raw if name not in self._names]
        if faults:
            raise ArgsInvalid([ArgIssue(path=(name,), message=what) for name, what in faults])
        return raw
