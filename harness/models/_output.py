"""An answer in a form that a program can use: what is asked for, and how it is read.

One type gives both the JSON Schema that a provider is sent and the check of what comes back, as it
does for the arguments of a tool, and in the same words. A provider that promises to keep to a
schema is checked all the same. Many do not promise it, a cut reply keeps to nothing, and no schema
says all that a type does.

A reply has to be one JSON object. A fence around the whole of it is taken off, since models that
are only told of the form like to write one. JSON that is found somewhere in prose is not taken:
what is around it may say that it is an example.

Providers that can be strict take a part of JSON Schema only, and answer the rest with an error. So
strictness is asked for where the schema stays within what all of them take, unless the host says
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Generic, TypeVar, cast, get_origin, overload

from harness._arguments import json_type
from harness._errors import NotJSONError, StructuredOutputError, ToolDefinitionError
from harness._json import JSON, decode
from harness.tools import ArgsInvalid, ObjectSchema, Schema, TypeSchema

__all__ = ["Output"]

ValueT = TypeVar("ValueT")
ValueT_co = TypeVar("ValueT_co", covariant=True)

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What providers take as the name of a form."""

_FENCE: Final = "```"

_STRICT_KEYWORDS: Final = frozenset(
    "$defs $ref additionalProperties anyOf const description enum items properties required title"
    " type".split()
)
"""What every provider takes that can be strict."""


class Output(Generic[ValueT_co]):
    """The form of an answer: a class, or a JSON Schema.

    Args:
        source: a class (attrs, a msgspec Struct, a TypedDict, a dataclass), whose instance a reply
            becomes; a `harness.tools.Schema`; or a JSON Schema of an object, and then a reply is
            its dictionary, the names checked and the values not.
        name: what the provider calls it; by default the class's name, or the schema's title.
        strict: whether the provider must keep to it. None asks for that if every object in the
            schema is closed and requires all of its names, and nothing else is said than strict
            providers take.

    Raises:
        TypeError: *source* is none of these, or cannot be told as a JSON Schema.
        ValueError: *name* is not 1 to 64 letters, digits, ``_`` and ``-``.
    """

    @overload
    def __init__(
        self: Output[dict[str, JSON]],
        source: dict[str, JSON],
        *,
        name: str | None = None,
        strict: bool | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Output[ValueT],
        source: type[ValueT] | Schema[ValueT],
        *,
        name: str | None = None,
        strict: bool | None = None,
    ) -> None: ...
    def __init__(
        self, source: object, *, name: str | None = None, strict: bool | None = None
    ) -> None:
        self._name = _default_name(source) if name is None else _checked_name(name)
        self._schema = cast("Schema[ValueT_co]", _as_schema(source, self._name))
        told = self._schema.json_schema()
        self._response_format: dict[str, JSON] = {
            "type": "json_schema",
            "json_schema": {
                "name": self._name,
                "schema": told,
                "strict": _may_be_strict(told) if strict is None else strict,
            },
        }

    @property
    def response_format(self) -> dict[str, JSON]:
        """What a request asks for. Made once; do not change it."""
        return self._response_format

    def parse(self, text: str) -> ValueT_co:
        """Return the value that a reply's *text* stands for.

        Raises:
            StructuredOutputError: it stands for none; the error has all faults, each with its path.
        """
        try:
            value = decode(_unfenced(text))
            if not isinstance(value, dict):
                raise _refusal(text, f"it is {json_type(value)}, expected one JSON object")
            return self._schema.parse(value)
        except (NotJSONError, ArgsInvalid) as error:
            raise _refusal(text, str(error)) from error

    def __repr__(self) -> str:
        return f"<Output {self._name!r}>"


def _refusal(text: str, reason: str) -> StructuredOutputError:
    return StructuredOutputError(text, reason)


def _as_schema(source: object, name: str) -> Schema[object]:
    try:
        if isinstance(source, dict):
            return ObjectSchema(source, tool=name)
        if isinstance(source, type) or get_origin(source) is not None:
            return TypeSchema(cast("type[object]", source), tool=name)
    except ToolDefinitionError as error:
        raise TypeError(f"{name!r} cannot be an output: {error.reason}") from error
    if callable(getattr(source, "json_schema", None)) and callable(getattr(source, "parse", None)):
        return cast("Schema[object]", source)
    raise TypeError(f"the output is {source!r}, expected a class, a JSON Schema or a Schema")


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"the output's name is {name!r}, expected letters, digits, '_' and '-', at most 64"
        )
    return name


def _default_name(source: object) -> str:
    title = source.get("title") if isinstance(source, dict) else getattr(source, "__name__", None)
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", title)[:64] if isinstance(title, str) else ""
    return name or "output"


def _unfenced(text: str) -> str:
    """Return *text* without the one fence that stands around all of it, if one does."""
    whole = text.strip()
    opening, _, rest = whole.partition("\n")
    if not (opening.startswith(_FENCE) and rest.endswith(_FENCE)):
        return text
    if opening.removeprefix(_FENCE).strip().lower() not in ("", "json"):
        return text
    return rest.removesuffix(_FENCE)


def _may_be_strict(schema: JSON) -> bool:
    """Whether *schema* is one that every provider takes that can be strict."""
    if not isinstance(schema, dict) or not _STRICT_KEYWORDS.issuperset(schema):
        return False
    properties = schema.get("properties", {})
    if schema.get("type") == "object" or "properties" in schema:
        if not isinstance(properties, dict) or schema.get("additionalProperties") is not False:
            return False
        if schema.get("required", []) != list(properties):
            return False
    return all(map(_may_be_strict, _inner_schemas(schema)))


def _inner_schemas(schema: dict[str, JSON]) -> Iterable[JSON]:
    for key in ("properties", "$defs"):
        named = schema.get(key)
        if isinstance(named, dict):
            yield from named.values()
    several = schema.get("anyOf")
    if isinstance(several, list):
        yield from several
    if "items" in schema:
        yield schema["items"]
