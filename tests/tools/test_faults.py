import enum
import itertools
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness._json import JSON
from harness.tools._faults import find_faults, has_misfits
from harness.tools._shape import read_shape
from tests.tools.annotations import Sample, any_json, samples


class Colour(enum.Enum):
    RED = "red"


class Item(msgspec.Struct):
    name: str
    count: int = 0


class Circle(msgspec.Struct, tag=True):
    radius: int


class Square(msgspec.Struct, tag=True):
    side: int


@attrs.frozen
class Even:
    number: int = attrs.field()

    @number.validator
    def _check(self, _: object, value: int) -> None:
        if value % 2:
            raise ValueError(f"{value} is odd")


class Order(TypedDict):
    items: list[Item]


def faults(annotation: Any, value: JSON) -> dict[str, str]:
    found = list(find_faults(read_shape("tool", annotation), value))
    texts = {".".join(map(str, path)): what for path, what in found}
    assert len(texts) == len(found)
    return texts


@pytest.mark.rule("R-TOOL-04")
def test_a_fault_is_named_by_the_path_to_the_smallest_part() -> None:
    value: JSON = {"items": [{"name": "x"}, {"name": 1}]}
    assert faults(Order, value) == {"items.1.name": "expected str, got int"}


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, "x", {"": "expected int, got str"}),
        (Annotated[int, msgspec.Meta(ge=0)], -1, {"": "expected int >= 0"}),
        (list[int], {}, {"": "expected array, got object"}),
        (list[int], [1, "x", None], {"1": "expected int, got str", "2": "expected int, got null"}),
        (Annotated[list[int], msgspec.Meta(max_length=1)], [1, 2], {"": "expected array of leng"}),
        (dict[str, list[int]], {"k": [1, "x"]}, {"k.1": "expected int, got str"}),
        (tuple[int, str], [1, 2], {"1": "expected str, got int"}),
        (tuple[int, str], [1], {"": "expected array of length 2, got 1"}),
        (Item, {}, {"name": "required, but missing"}),
        (Item, {"name": "x", "n": 1}, {"n": "unknown name, expected one of name, count"}),
        (Item | None, {"name": 1}, {"name": "expected str, got int"}),
        (Item | int, "x", {"": "expected int | object, got str"}),
        (list[Item] | None, [{}], {"0.name": "required, but missing"}),
        (Literal["a", "b"], "c", {"": "invalid enum value 'c', expected one of 'a', 'b'"}),
        (Colour | None, "blue", {"": "invalid enum value 'blue', expected one of 'red'"}),
        (Even, {"number": 3}, {"": "3 is odd"}),
        (list[Even], [{"number": 2}, {"number": 1}], {"1": "1 is odd"}),
        (Circle, {"radius": 1}, {"type": "required, but missing"}),
        (Circle | None, {}, {"type": "required, but missing", "radius": "required, but missing"}),
        (Circle | Square, {"type": "Square", "side": "x"}, {"side": "expected int, got str"}),
        (Circle | Square, {"type": "Square", "radius": 1}, {"side": "req", "radius": "unknown"}),
        (Circle | Square, {"side": 1}, {"": "object missing required field type"}),
        (Circle | Square, {"type": "Oval"}, {"": "invalid value 'Oval' - at $.type"}),
    ],
)
def test_each_kind_of_fault_is_told_where_it_is(
    annotation: Any, value: JSON, expected: dict[str, str]
) -> None:
    found = faults(annotation, value)
    assert found.keys() == expected.keys()
    assert all(found[path].startswith(what) for path, what in expected.items()), found


@pytest.mark.rule("R-TOOL-04")
@given(st.lists(st.sampled_from(["right", "type", "missing", "unknown"]), max_size=6))
def test_all_faults_are_found_at_once(kinds: list[str]) -> None:
    made: dict[str, JSON] = {
        "right": {"name": "x"},
        "type": {"name": 1},
        "missing": {},
        "unknown": {"name": "x", "nmae": "y"},
    }
    value: JSON = {"items": [made[kind] for kind in kinds]}
    places = {"type": "name", "missing": "name", "unknown": "nmae"}
    assert list(faults(Order, value)) == [
        f"items.{index}.{places[kind]}" for index, kind in enumerate(kinds) if kind != "right"
    ]


@given(samples, st.data())
@settings(max_examples=100)
def test_a_fault_is_found_just_where_there_is_one(drawn: Sample, data: st.DataObject) -> None:
    annotation, values = drawn
    value = data.draw(values | any_json)
    shape = read_shape("tool", annotation)
    found = list(find_faults(shape, value))
    assert bool(found) == (not accepted(annotation, value) or has_misfits(shape, value))
    assert len({path for path, _ in found}) == len(found)
    for path, _ in found:
        assert leads_somewhere(value, path)


def accepted(annotation: Any, value: JSON) -> bool:
    try:
        msgspec.convert(value, annotation, str_keys=True)
    except msgspec.ValidationError:
        return False
    return True


def leads_somewhere(value: Any, path: tuple[str | int, ...]) -> bool:
    """Whether *path* leads to a place in *value*, or to a name that an object there lacks."""
    for step in path[:-1]:
        value = value[step]
    return not path or isinstance(value, dict) or path[-1] in range(len(value))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Even, {"number": 2, "x": 1}),
        (Order, {"items": [], "item": []}),
        (list[dict[str, tuple[Item, int]]], [{"k": [{"name": "x", "y": 1}, 1]}]),
        (Item | None, {"name": "x", "y": 1}),
        (Circle | Square, {"type": "Circle", "radius": 1, "side": 1}),
    ],
)
def test_names_that_msgspec_would_drop_are_misfits(annotation: Any, value: JSON) -> None:
    assert accepted(annotation, value)
    assert has_misfits(read_shape("tool", annotation), value)


def test_a_long_list_of_names_is_cut() -> None:
    cls = msgspec.defstruct("Wide", [(f"n{index}", int, 0) for index in range(30)])
    names = ", ".join(f"n{index}" for index in range(20))
    assert faults(cls, {"x": 1}) == {"x": f"unknown name, expected one of {names} and 10 more"}


def test_a_record_without_names_expects_none() -> None:
    assert faults(msgspec.defstruct("Empty", []), {"x": 1}) == {"x": "unknown name, expected none"}


def test_faults_come_one_by_one() -> None:
    value: JSON = [None] * 100_000
    first = next(iter(find_faults(read_shape("tool", list[int]), value)))
    assert first == ((0,), "expected int, got null")
    assert len(list(itertools.islice(find_faults(read_shape("tool", list[int]), value), 3))) == 3
