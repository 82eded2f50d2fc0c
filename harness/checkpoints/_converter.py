"""Between live records and JSON values, strictly.

cattrs knows the classes. What it is lenient about is made strict here: it would take ``"1"`` for a
number, a text for a list of letters and an absent field for its default, and a record that loads
with another meaning is worse than one that does not load. So the names of every record are
compared first, and every value must have the type that JSON has for it. All numbers are counts,
amounts or seconds; none of them is ever negative. (That leaves nothing of cattrs' converter for
msgspec, which hands whole Structs to msgspec, and msgspec lets unknown fields of them pass.)

A fault is told with the path of its field, and nothing is half loaded.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import attrs
import cattrs
import msgspec
from cattrs.gen import make_dict_structure_fn

from harness._errors import RecordError
from harness._json import JSON
from harness._toolset import Reply

__all__ = ["from_json", "to_json"]

T = TypeVar("T")
Hook: TypeAlias = Callable[[Any, Any], Any]

_JSON_HINT: Final = get_type_hints(Reply)["value"]
"""What the alias `JSON` is for whoever reads annotations."""

_LARGEST: Final = math.nextafter(math.inf, 0)
"""The largest float; an integer beyond it is none."""


def to_json(record: object) -> JSON:
    """Return *record*, an attrs value, as a JSON value that shares nothing changeable with it."""
    value: JSON = _CONVERTER.unstructure(record)
    return value


def from_json(value: JSON, cls: type[T]) -> T:
    """Return the *cls* that *value* stands for; it shares nothing changeable with it.

    Raises:
        RecordError: it stands for none; with the path of the field.
    """
    try:
        return _CONVERTER.structure(value, cls)
    except (cattrs.BaseValidationError, TypeError, ValueError) as error:
        # A NUL, since a name in the path may hold anything else; a reason holds it escaped.
        first, *_ = cattrs.transform_error(error, format_exception=lambda fault, _: f"{fault}\0")
        reason, _, path = first.partition("\0 @ ")
        raise RecordError(reason, path=path) from None


def _refuse(value: object, expected: str) -> ValueError:
    text = repr(value)
    return ValueError(f"it is {text if len(text) <= 80 else text[:79] + '…'}, expected {expected}")


def _exactly(kind: type, expected: str) -> Hook:
    def structure(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise _refuse(value, expected)
        return value

    return structure


def _count(value: Any, _: Any) -> int:
    if type(value) is not int or value < 0:
        raise _refuse(value, "a whole number that is not negative")
    return value


def _amount(value: Any, _: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _LARGEST:
        raise _refuse(value, "a number that is not negative")
    return float(value)


def _literal(value: Any, cls: Any) -> Any:
    if type(value) is not str or value not in get_args(cls):
        raise _refuse(value, f"one of {list(get_args(cls))}")
    return value


def _instant(value: Any, _: Any) -> datetime:
    if type(value) is not str:
        raise _refuse(value, "a date as text")
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise _refuse(value, "a date") from None


def _check_names(value: Any, names: Collection[str]) -> None:
    if type(value) is not dict:
        raise _refuse(value, "an object")
    for name in names:
        if name not in value:
            raise ValueError(f"the field {name!r} is missing")
    for name in value:
        if name not in names:
            raise _refuse(name, f"no field but {list(names)}")


def _attrs_hook(cls: Any, converter: cattrs.Converter) -> Hook:
    names = [each.name for each in attrs.fields(cls)]
    inner = make_dict_structure_fn(cls, converter)

    def structure(value: Any, kind: Any) -> Any:
        _check_names(value, names)
        return inner(value, kind)

    return structure


def _struct_hook(cls: Any, converter: cattrs.Converter) -> Hook:
    kinds = {each.name: each.type for each in msgspec.structs.fields(cls)}
    hooks = {name: converter.get_structure_hook(kind) for name, kind in kinds.items()}

    def structure(value: Any, _: Any) -> Any:
        _check_names(value, kinds)
        fields: dict[str, Any] = {}
        for name, kind in kinds.items():
            try:
                fields[name] = hooks[name](value[name], kind)
            except ValueError as fault:
                fault.__notes__ = [cattrs.AttributeValidationNote(name, name, kind)]
                raise cattrs.ClassValidationError(cls.__name__, [fault], cls) from None
        return cls(**fields)

    return structure


def _inner(hook: Hook, value: Any, kind: Any, key: int | str, cls: Any) -> Any:
    """Structure one item of a container, and say where it was if it cannot be."""
    try:
        return hook(value, kind)
    except (cattrs.BaseValidationError, TypeError, ValueError) as fault:
        notes = [
            *getattr(fault, "__notes__", ()),
            cattrs.IterableValidationNote(repr(key), key, kind),
        ]
        fault.__notes__ = notes
        raise cattrs.IterableValidationError(str(cls), [fault], cls) from None


def _dict_hook(cls: Any, converter: cattrs.Converter) -> Hook:
    kind = get_args(cls)[1]
    hook = converter.get_structure_hook(kind)

    def structure(value: Any, _: Any) -> Any:
        if type(value) is not dict:
            raise _refuse(value, "an object")
        return {key: _inner(hook, each, kind, key, cls) for key, each in value.items()}

    return structure


def _tuple_hook(cls: Any, converter: cattrs.Converter) -> Hook:
    kind = get_args(cls)[0]
    hook = converter.get_structure_hook(kind)

    def structure(value: Any, _: Any) -> Any:
        if type(value) is not list:
            raise _refuse(value, "a list")
        return tuple(_inner(hook, each, kind, place, cls) for place, each in enumerate(value))

    return structure


def _of(origin: object) -> Callable[[Any], bool]:
    return lambda cls: bool(get_origin(cls) is origin)


def _is_struct(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, msgspec.Struct)


def _fields_of(record: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    converter.register_structure_hook(str, _exactly(str, "a text"))
    converter.register_structure_hook(bool, _exactly(bool, "true or false"))
    converter.register_structure_hook(int, _count)
    converter.register_structure_hook(float, _amount)
    converter.register_structure_hook(datetime, _instant)
    converter.register_structure_hook_factory(attrs.has, _attrs_hook)
    converter.register_structure_hook_factory(_is_struct, _struct_hook)
    converter.register_structure_hook_factory(_of(dict), _dict_hook)
    converter.register_structure_hook_factory(_of(tuple), _tuple_hook)
    converter.register_structure_hook_func(_of(Literal), _literal)
    converter.register_structure_hook_func(
        lambda cls: bool(cls == _JSON_HINT), lambda value, _: copy.deepcopy(value)
    )
    converter.register_unstructure_hook(datetime, datetime.isoformat)
    converter.register_unstructure_hook_func(_is_struct, _fields_of)
    converter.register_unstructure_hook_func(_of(tuple), list)
    converter.register_unstructure_hook_func(lambda cls: bool(cls == _JSON_HINT), copy.deepcopy)
    return converter


_CONVERTER: Final = _make_converter()
