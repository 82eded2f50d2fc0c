"""The shape of a type: which parts its values have, and how each part is judged.

msgspec knows a type completely and tells of it in `msgspec.inspect`. What is missing there is
the way back: from a part to an annotation that the part can be converted to alone. A shape is
that description with the way back. It is read once, when a tool is defined; `_faults` walks it
when a conversion has failed.

A type that msgspec has and this module does not is a leaf that takes anything: no part of it is
found at fault, and then the fault of the whole stands.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, Union

import attrs
import msgspec
from msgspec import inspect as types

from harness._errors import ToolDefinitionError

__all__ = ["Entries", "Items", "Leaf", "OneOf", "Positions", "Record", "Shape", "read_shape"]

_SCALARS: Final[Mapping[type[types.Type], object]] = {
    types.AnyType: Any,
    types.NoneType: None,
    types.BoolType: bool,
    types.IntType: int,
    types.FloatType: float,
    types.StrType: str,
    types.BytesType: bytes,
    types.ByteArrayType: bytearray,
    types.MemoryViewType: memoryview,
    types.DateTimeType: dt.datetime,
    types.TimeType: dt.time,
    types.DateType: dt.date,
    types.TimeDeltaType: dt.timedelta,
    types.UUIDType: uuid.UUID,
    types.DecimalType: decimal.Decimal,
    types.RawType: msgspec.Raw,
}
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")


@attrs.define(eq=False, kw_only=True)
class Leaf:
    """Values that are judged as a whole."""

    annotation: object
    choices: tuple[object, ...] = ()
    """All values that there are, if they can be listed."""


@attrs.define(eq=False, kw_only=True)
class Items:
    """Lists and sets."""

    annotation: object
    item: Shape


@attrs.define(eq=False, kw_only=True)
class Positions:
    """Tuples with a type for each position."""

    annotation: object
    positions: tuple[Shape, ...]


@attrs.define(eq=False, kw_only=True)
class Entries:
    """Dictionaries whose keys mean nothing to us."""

    annotation: object
    value: Shape


@attrs.define(eq=False, kw_only=True)
class Record:
    """Objects with named fields."""

    annotation: object
    fields: dict[str, Shape] = attrs.field(factory=dict)
    required: tuple[str, ...] = ()
    tag: tuple[str, object] | None = None
    """The field that says which class it is, and what it says."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a value may have."""
        return (*(self.tag[:1] if self.tag else ()), *self.fields)


@attrs.define(eq=False, kw_only=True)
class OneOf:
    """Values of several types, which can be told apart in JSON."""

    annotation: object
    members: tuple[Shape, ...]


Shape: TypeAlias = Leaf | Items | Positions | Entries | Record | OneOf


def read_shape(tool: str, annotation: object) -> Shape:
    """Return the shape of *annotation*, a type that msgspec knows.

    Raises:
        ToolDefinitionError: in it is an attrs class with a converter, which msgspec would skip;
            the error names *tool*.
    """
    return _Reader(tool=tool).read(types.type_info(annotation))


@attrs.define(eq=False, kw_only=True)
class _Reader:
    tool: str
    records: dict[object, Record] = attrs.field(factory=dict)
    """Those begun already, by class: a record may hold itself."""

    def read(self, info: types.Type) -> Shape:
        kind: object
        match info:
            case types.Metadata():
                return self.read(info.type)
            case types.UnionType():
                members = tuple(map(self.read, info.types))
                union: object = Union.__getitem__(tuple(each.annotation for each in members))
                return OneOf(annotation=union, members=members)
            case types.TupleType():
                positions = tuple(map(self.read, info.item_types))
                kinds = tuple(each.annotation for each in positions)
                return Positions(annotation=tuple.__class_getitem__(kinds), positions=positions)
            case types.CollectionType():
                return self._items(info)
            case types.DictType():
                key, value = self.read(info.key_type), self.read(info.value_type)
                kind = dict.__class_getitem__((key.annotation, value.annotation))
                return Entries(annotation=_bounded(kind, info), value=value)
            case types.StructType(array_like=False) | types.TypedDictType() | types.DataclassType():
                return self._record(info)
            case types.LiteralType():
                literal: object = Literal.__getitem__(info.values)
                return Leaf(annotation=literal, choices=info.values)
            case types.EnumType():
                return Leaf(annotation=info.cls, choices=tuple(each.value for each in info.cls))
            case _:
                kind = _SCALARS.get(type(info), getattr(info, "cls", Any))
                return Leaf(annotation=_bounded(kind, info))

    def _items(self, info: types.CollectionType) -> Items:
        item = self.read(info.item_type)
        kind: object
        match info:
            case types.SetType():
                kind = set.__class_getitem__(item.annotation)
            case types.FrozenSetType():
                kind = frozenset.__class_getitem__(item.annotation)
            case types.VarTupleType():
                kind = tuple.__class_getitem__((item.annotation, ...))
            case _:
                kind = list.__class_getitem__(item.annotation)
        return Items(annotation=_bounded(kind, info), item=item)

    def _record(self, info: types.StructType | types.TypedDictType | types.DataclassType) -> Record:
        if info.cls in self.records:
            return self.records[info.cls]
        self._refuse_converters(info.cls)
        record = self.records[info.cls] = Record(annotation=info.cls)
        fields = info.fields
        if isinstance(info, types.TypedDictType):  # msgspec sorts these by name
            order = list(getattr(info.cls, "__annotations__", {}))
            fields = tuple(sorted(fields, key=lambda each: order.index(each.name)))
        for field in fields:
            record.fields[field.encode_name] = self.read(field.type)
        record.required = tuple(each.encode_name for each in fields if each.required)
        if isinstance(info, types.StructType) and info.tag_field is not None:
            record.tag = (info.tag_field, info.tag)
            record.required = (info.tag_field, *record.required)
        return record

    def _refuse_converters(self, cls: type) -> None:
        for field in attrs.fields(cls) if attrs.has(cls) else ():
            if field.converter is not None:
                raise ToolDefinitionError(
                    self.tool,
                    f"{cls.__name__}.{field.name} has a converter, expected none: "
                    "arguments are checked and kept as they are",
                )


def _bounded(annotation: object, info: types.Type) -> object:
    """Put back the constraints that msgspec has read out of an ``Annotated``."""
    bounds = {name: getattr(info, name, None) for name in _BOUNDS}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return Annotated[annotation, msgspec.Meta(**given)] if given else annotation
