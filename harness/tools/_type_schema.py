"""The schema of a class: what a model is told and what is checked, made by msgspec from one type.

So the two cannot drift apart, as far as msgspec goes. Three things are added. Names that a class
does not have are refused, at every depth: a model that misspells an optional argument should
hear of it, rather than see it ignored. All faults are reported, each with its path. And what is
told has one order for ever, so that the same tools are the same bytes in every process.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from typing import Generic, TypeVar

import msgspec

from harness._errors import ToolDefinitionError
from harness._json import JSON, canonical_text, decode
from harness.tools._faults import find_faults, has_misfits
from harness.tools._schema import ArgIssue, ArgsInvalid
from harness.tools._shape import Record, read_shape

__all__ = ["TypeSchema", "first_line"]

ArgsT = TypeVar("ArgsT")

_MOST_FAULTS = 100
"""A model needs no more to see what is wrong, and looking for more would take time."""


class TypeSchema(Generic[ArgsT]):
    """The schema of a class: attrs, a msgspec Struct, a TypedDict or a dataclass."""

    def __init__(self, source: type[ArgsT], *, tool: str) -> None:
        self._source = source
        self._shape = _read_record(tool, source)
        self._json_schema = _json_schema(tool, source, self._shape)

    def json_schema(self) -> dict[str, JSON]:
        """Return the JSON Schema; it allows no other names than the class has."""
        return copy.deepcopy(self._json_schema)

    def parse(self, raw: dict[str, JSON]) -> ArgsT:
        """Return *raw* as an instance, with the defaults of what was left out.

        Raises:
            ArgsInvalid: *raw* is refused, with the first hundred faults.
        """
        with contextlib.suppress(msgspec.ValidationError):
            arguments = msgspec.convert(raw, self._source, str_keys=True)
            if not has_misfits(self._shape, raw):
                return arguments
        faults = itertools.islice(find_faults(self._shape, raw), _MOST_FAULTS)
        raise ArgsInvalid([ArgIssue(path=path, message=what) for path, what in faults])


def _read_record(tool: str, source: type) -> Record:
    reason = f"{source!r} cannot be its arguments"
    try:
        msgspec.json.Decoder(source)
    except (TypeError, NameError, ValueError) as error:
        raise ToolDefinitionError(tool, f"{reason}: {first_line(error)}") from error
    shape = read_shape(tool, source)
    if not isinstance(shape, Record):
        raise ToolDefinitionError(tool, f"{reason}, expected a class with named fields")
    return shape


def _json_schema(tool: str, source: type, shape: Record) -> dict[str, JSON]:
    """Return the schema with the class itself at the root, and the others under ``$defs``."""
    try:
        (root,), components = msgspec.json.schema_components([source])
        # Defaults may be tuples or enums; written and read again, they are what the model sees.
        definitions = decode(msgspec.json.encode(components))
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            tool, f"{source!r} cannot be told as a JSON Schema: {first_line(error)}"
        ) from error
    assert isinstance(definitions, dict)
    for each in definitions.values():
        if isinstance(each, dict) and "properties" in each:
            _close(each)
    reference = str(root["$ref"])
    own = definitions.pop(reference.rpartition("/")[2])
    assert isinstance(own, dict)
    schema = {key: value for key, value in own.items() if key != "title"}
    properties = schema["properties"]
    assert isinstance(properties, dict)
    schema["properties"] = {name: properties[name] for name in shape.names}
    if _mentions([own, definitions], reference):
        definitions[reference.rpartition("/")[2]] = own
    if definitions:
        schema["$defs"] = definitions
    return schema


def _close(record: dict[str, JSON]) -> None:
    """Allow *record* no other names, and give defaults that are sets one order for ever."""
    record["additionalProperties"] = False
    properties = record["properties"]
    assert isinstance(properties, dict)
    for each in properties.values():
        assert isinstance(each, dict)
        default = each.get("default")
        if "uniqueItems" in each and isinstance(default, list):
            default.sort(key=canonical_text)


def _mentions(value: JSON, reference: str) -> bool:
    if isinstance(value, dict):
        return value.get("$ref") == reference or any(
            _mentions(each, reference) for each in value.values()
        )
    return isinstance(value, list) and any(_mentions(each, reference) for each in value)


def first_line(error: BaseException) -> str:
    """Return what *error* says, without the advice that follows."""
    return str(error).partition("\n")[0].rstrip(":")
