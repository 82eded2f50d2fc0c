import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness._errors import ToolDefinitionError
from harness.tools._shape import Entries, Items, Leaf, OneOf, Positions, Record, read_shape
from tests.tools.annotations import Sample, any_json, samples

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Node(msgspec.Struct, tag=True):
    kids: "list[Node]" = []
    name: str = msgspec.field(default="", name="NAME")


class Box(msgspec.Struct, Generic[T]):
    value: T


class Row(msgspec.Struct, array_like=True):
    x: int


class Point(NamedTuple):
    x: int


class Late(TypedDict):
    zebra: int
    apple: NotRequired[str]


@attrs.frozen
class Plain:
    x: int
    y: list[str] = attrs.field(factory=list)


@attrs.frozen
class Converting:
    x: int = attrs.field(converter=int)


@dataclass
class Holder:
    inner: dict[str, Converting | None]


@given(samples, st.data())
@settings(max_examples=80)
def test_the_annotation_of_a_shape_judges_as_the_type_itself(
    drawn: Sample, data: st.DataObject
) -> None:
    annotation, values = drawn
    shape = read_shape("tool", annotation)
    value = data.draw(values | any_json)
    assert accepts(shape.annotation, value) == accepts(annotation, value)


def accepts(annotation: Any, value: object) -> bool:
    try:
        msgspec.convert(value, annotation, str_keys=True)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    "annotation",
    [
        *(int, float, str, bool, bytes, bytearray, None, Any),
        *(dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID, decimal.Decimal),
        Annotated[int, msgspec.Meta(gt=1, lt=9, multiple_of=2)],
        Annotated[float, msgspec.Meta(ge=1, le=9)],
        Annotated[str, msgspec.Meta(min_length=1, max_length=3, pattern="^a")],
        Annotated[dt.datetime, msgspec.Meta(tz=True)],
    ],
)
def test_a_scalar_is_a_leaf_with_the_bounds_that_it_had(annotation: object) -> None:
    shape = read_shape("tool", annotation)
    assert isinstance(shape, Leaf)
    assert shape.annotation == annotation


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (list[int], Items),
        (set[int], Items),
        (frozenset[int], Items),
        (tuple[int, ...], Items),
        (Annotated[list[int], msgspec.Meta(max_length=3)], Items),
        (tuple[int, str], Positions),
        (dict[str, int], Entries),
        (Annotated[dict[str, int], msgspec.Meta(min_length=1)], Entries),
        (int | None, OneOf),
    ],
)
def test_a_container_has_a_shape_for_its_parts(annotation: object, kind: type) -> None:
    shape = read_shape("tool", annotation)
    assert isinstance(shape, kind)
    assert shape.annotation == annotation


@pytest.mark.parametrize("annotation", [Point, Row])
def test_a_class_whose_values_are_arrays_is_a_leaf(annotation: type) -> None:
    shape = read_shape("tool", annotation)
    assert isinstance(shape, Leaf)
    assert shape.annotation is annotation


def test_the_values_of_literals_and_enums_are_listed() -> None:
    literal, colour = read_shape("tool", Literal["a", 1]), read_shape("tool", Colour)
    assert isinstance(literal, Leaf)
    assert isinstance(colour, Leaf)
    assert set(literal.choices) == {"a", 1}
    assert colour.choices == ("red", "blue")


def test_a_record_knows_its_names_on_the_wire_and_may_hold_itself() -> None:
    shape = read_shape("tool", Node)
    assert isinstance(shape, Record)
    assert shape.names == ("type", "kids", "NAME")
    assert shape.required == ("type",)
    kids = shape.fields["kids"]
    assert isinstance(kids, Items)
    assert kids.item is shape


def test_a_generic_record_has_the_fields_of_its_argument() -> None:
    shape = read_shape("tool", Box[Colour])
    assert isinstance(shape, Record)
    value = shape.fields["value"]
    assert isinstance(value, Leaf)
    assert value.annotation is Colour


def test_fields_stand_in_the_order_of_the_class() -> None:
    shape = read_shape("tool", Late)
    assert isinstance(shape, Record)
    assert shape.names == ("zebra", "apple")
    assert shape.required == ("zebra",)


def test_an_attrs_class_is_a_record() -> None:
    shape = read_shape("tool", Plain)
    assert isinstance(shape, Record)
    assert (shape.names, shape.required) == (("x", "y"), ("x",))


@pytest.mark.parametrize("annotation", [Converting, Holder, list[Converting]])
def test_an_attrs_class_with_a_converter_is_refused_wherever_it_is(annotation: object) -> None:
    with pytest.raises(
        ToolDefinitionError,
        match=r"^'tool' cannot be a tool: Converting\.x has a converter, expected none: ",
    ):
        read_shape("tool", annotation)
