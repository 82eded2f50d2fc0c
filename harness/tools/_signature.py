"""The parameters of a function, as arguments that a model can send.

A function's signature becomes a TypedDict with a key for each parameter, and from there on it is
a class like any other: one schema, one check. A TypedDict, because what it converts to is a
dictionary of just the arguments that were sent. The function is called with these by name, and
its own defaults apply; a Struct would have to repeat them, and refuses mutable ones.

A parameter annotated `CallContext` is the call's own and is not shown to the model. Every other
needs an annotation that JSON can carry. What cannot be called by name, or has no end, is
refused when the tool is defined: a tool that could never be called should not reach a model.

Annotations that are texts (``from __future__ import annotations``) are looked up in the
function's module and in the variables that it closes over. One that only exists for a type
checker, or in a function around it, cannot be found, and the error says which.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import NotRequired, Required, TypedDict, get_origin, get_type_hints

import attrs
import msgspec

from harness._errors import ToolDefinitionError
from harness._json import JSON, decode
from harness._toolset import CallContext
from harness.tools._docstring import Description, read_docstring
from harness.tools._type_schema import TypeSchema, first_line

__all__ = ["Signature", "read_signature"]

_make_typed_dict: Callable[[str, dict[str, object]], type[dict[str, object]]]
_make_typed_dict = TypedDict  # type: ignore[assignment]  # its keys are known only at run time

_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@attrs.frozen(kw_only=True)
class Signature:
    """A function as a tool sees it: the schema of its arguments, and how to pass them."""

    description: str
    """What its docstring says of it as a whole."""
    context: str | None
    """The parameter that takes the call's context."""
    _types: TypeSchema[dict[str, object]] = attrs.field(alias="types")
    _notes: Mapping[str, dict[str, JSON]] = attrs.field(alias="notes")
    """By parameter, what its schema says besides its type."""

    def json_schema(self) -> dict[str, JSON]:
        """Return the JSON Schema, with descriptions and defaults."""
        schema = self._types.json_schema()
        properties = schema["properties"]
        assert isinstance(properties, dict)
        for name, notes in self._notes.items():
            given = properties[name]
            assert isinstance(given, dict)
            properties[name] = notes | given  # what an annotation says goes first
        return schema

    def parse(self, raw: dict[str, JSON]) -> dict[str, object]:
        """Return the arguments that were sent, converted, to be passed by name."""
        return self._types.parse(raw)


def read_signature(tool: str, function: Callable[..., object]) -> Signature:
    """Return the signature of *function*, which is to be the tool named *tool*.

    Raises:
        ToolDefinitionError: no model could call it; the error names the parameter.
    """
    described = read_docstring(inspect.getdoc(function))
    context: str | None = None
    fields: dict[str, object] = {}
    notes: dict[str, dict[str, JSON]] = {}
    for parameter in inspect.signature(function).parameters.values():
        annotation = _annotation(tool, function, parameter)
        if annotation is CallContext or get_origin(annotation) is CallContext:
            if context is not None:
                raise _refused(tool, parameter, f"takes the context that {context!r} takes too")
            context = parameter.name
            continue
        optional = parameter.default is not parameter.empty
        _check_annotation(tool, parameter, annotation)
        fields[parameter.name] = NotRequired[annotation] if optional else Required[annotation]
        notes[parameter.name] = _notes(described, parameter, annotation)
    arguments = _make_typed_dict("Arguments", fields)
    return Signature(
        description=described.text,
        context=context,
        types=TypeSchema(arguments, tool=tool),
        notes=notes,
    )


def _annotation(tool: str, function: Callable[..., object], parameter: inspect.Parameter) -> object:
    """Return the annotation of *parameter*, looked up if it is a text."""
    if parameter.kind not in _KINDS:
        raise _refused(tool, parameter, f"is {parameter.kind.description}, expected a named one")
    if parameter.annotation is parameter.empty:
        advice = ": pass the bound method" if parameter.name == "self" else ""
        raise _refused(tool, parameter, f"has no annotation, expected one{advice}")
    owner = inspect.unwrap(getattr(function, "__func__", function))
    scope = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        hints = get_type_hints(
            scope, getattr(owner, "__globals__", {}), _closed_over(owner), include_extras=True
        )
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise _refused(
            tool,
            parameter,
            f"has the annotation {parameter.annotation!r}, expected one that can be looked up "
            f"where the function was defined: {error}",
        ) from error
    return hints[parameter.name]


def _closed_over(function: Callable[..., object]) -> dict[str, object]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    found: dict[str, object] = {}
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _check_annotation(tool: str, parameter: inspect.Parameter, annotation: object) -> None:
    """Refuse *annotation* by itself, so that the error can name the parameter."""
    try:
        msgspec.json.schema(annotation)
        msgspec.json.Decoder(annotation)
    except (TypeError, NameError, ValueError) as error:
        raise _refused(
            tool,
            parameter,
            f"is annotated {annotation!r}, expected a type that JSON can carry: "
            f"{first_line(error)}",
        ) from error


def _notes(
    described: Description, parameter: inspect.Parameter, annotation: object
) -> dict[str, JSON]:
    """Return the description and the default of *parameter*, as far as they can be told."""
    notes: dict[str, JSON] = {}
    if parameter.name in described.parameters:
        notes["description"] = described.parameters[parameter.name]
    if parameter.default is not parameter.empty:
        try:
            default = decode(msgspec.json.encode(parameter.default, order="deterministic"))
            msgspec.convert(default, annotation, str_keys=True)
        except (TypeError, ValueError, OverflowError):
            return notes  # such as None for an int: a model may leave it out without knowing
        notes["default"] = default
    return notes


def _refused(tool: str, parameter: inspect.Parameter, reason: str) -> ToolDefinitionError:
    return ToolDefinitionError(tool, f"its parameter {parameter.name!r} {reason}")
