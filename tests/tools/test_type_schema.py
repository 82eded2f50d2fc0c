import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness._errors import ToolDefinitionError
from harness._json import JSON, encode
from harness.tools import ArgsInvalid
from harness.tools._type_schema import TypeSchema
from tests.tools.annotations import Sample, any_json, samples
from tests.tools.json_schema import is_valid

T = TypeVar("T")


class Item(msgspec.Struct):
    name: str


class StructArgs(msgspec.Struct):
    items: list[Item]
    limit: Annotated[int, msgspec.Meta(ge=0)] = 5


@attrs.frozen
class AttrsArgs:
    items: list[Item]
    limit: Annotated[int, msgspec.Meta(ge=0)] = 5


@dataclass
class DataclassArgs:
    items: list[Item]
    limit: Annotated[int, msgspec.Meta(ge=0)] = field(default=5)


class TypedArgs(TypedDict):
    items: list[Item]
    limit: NotRequired[Annotated[int, msgspec.Meta(ge=0)]]


class Tree(msgspec.Struct):
    kids: "list[Tree]" = []


class Box(msgspec.Struct, Generic[T]):
    value: T


class Paired(msgspec.Struct):
    pair: tuple[int, int] = (1, 2)


class Colour(enum.Enum):
    RED = "red"


class Lettered(msgspec.Struct):
    letters: frozenset[str] = frozenset("qwertzuiop")
    colour: Colour = Colour.RED


class Row(msgspec.Struct, array_like=True):
    x: int


class Foreign:
    pass


@attrs.frozen
class Converting:
    x: int = attrs.field(converter=int)


class Holding(msgspec.Struct):
    foreign: Foreign


class Dangling(msgspec.Struct):
    x: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


SOURCES = [StructArgs, AttrsArgs, DataclassArgs, TypedArgs]


def refusal(schema: TypeSchema[Any], raw: dict[str, JSON]) -> ArgsInvalid:
    with pytest.raises(ArgsInvalid) as caught:
        schema.parse(raw)
    return caught.value


@pytest.mark.rule("R-TOOL-02")
@pytest.mark.parametrize("source", SOURCES)
def test_a_class_of_any_kind_gives_the_schema_and_the_check(source: Any) -> None:
    schema = TypeSchema(source, tool="tool")
    told = schema.json_schema()
    assert told["required"] == ["items"]
    assert told["additionalProperties"] is False
    assert told["properties"].keys() == {"items", "limit"}  # type: ignore[union-attr]
    assert told["$defs"]["Item"]["additionalProperties"] is False  # type: ignore[index, call-overload]

    made: Any = schema.parse({"items": [{"name": "x"}], "limit": 0})
    assert isinstance(made, dict if source is TypedArgs else source)
    assert (made["items"] if source is TypedArgs else made.items) == [Item("x")]


@pytest.mark.rule("R-TOOL-04")
@pytest.mark.parametrize("source", SOURCES)
def test_every_fault_is_named_at_once(source: Any) -> None:
    refused = refusal(
        TypeSchema(source, tool="tool"),
        {"items": [{"name": "x"}, {"name": 1}, {"nmae": "x"}], "limit": -1, "limt": 1},
    )
    assert sorted(map(str, refused.issues)) == [
        "items.1.name: expected str, got int",
        "items.2.name: required, but missing",
        "items.2.nmae: unknown name, expected one of name",
        "limit: expected int >= 0",
        "limt: unknown name, expected one of items, limit",
    ]
    assert str(refused) == "; ".join(map(str, refused.issues))


def test_of_very_many_faults_the_first_hundred_are_kept() -> None:
    schema = TypeSchema(StructArgs, tool="tool")
    assert len(refusal(schema, {"items": [None] * 5_000}).issues) == 100


def test_defaults_of_a_class_are_filled_in() -> None:
    assert TypeSchema(AttrsArgs, tool="tool").parse({"items": []}) == AttrsArgs(items=[], limit=5)


def test_a_class_that_holds_itself_stays_among_the_definitions() -> None:
    schema = TypeSchema(Tree, tool="tool")
    assert is_valid({"kids": [{"kids": []}]}, schema.json_schema())
    assert not is_valid({"kids": [{"kid": []}]}, schema.json_schema())
    assert schema.parse({"kids": [{}]}) == Tree([Tree()])


def test_a_generic_class_can_be_a_schema() -> None:
    schema = TypeSchema(Box[int], tool="tool")
    assert schema.parse({"value": 1}) == Box(1)
    assert str(refusal(schema, {"value": "x"})) == "value: expected int, got str"


def test_a_default_that_is_no_json_is_told_as_what_it_becomes() -> None:
    told = TypeSchema(Paired, tool="tool").json_schema()
    assert told["properties"]["pair"]["default"] == [1, 2]  # type: ignore[index, call-overload]
    assert encode(told)


def test_a_default_that_is_a_set_has_an_order() -> None:
    told = TypeSchema(Lettered, tool="tool").json_schema()
    assert told["properties"] == {
        "letters": {
            "type": "array",
            "items": {"type": "string"},
            "uniqueItems": True,
            "default": sorted("qwertzuiop"),
        },
        "colour": {"$ref": "#/$defs/Colour", "default": "red"},
    }


@given(samples, st.data())
@settings(max_examples=60)
def test_the_schema_of_a_class_and_its_check_agree(drawn: Sample, data: st.DataObject) -> None:
    annotation, values = drawn
    source = msgspec.defstruct("Args", [("value", annotation)])
    schema = TypeSchema(source, tool="tool")
    raw: dict[str, JSON] = {"value": data.draw(values | any_json)}
    if is_valid(raw, schema.json_schema()):
        assert isinstance(schema.parse(raw), source)
    else:
        with pytest.raises(ArgsInvalid, match=r"^value"):
            schema.parse(raw)


def test_a_class_with_a_converter_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match=r"Converting\.x has a converter"):
        TypeSchema(Converting, tool="tool")


@pytest.mark.parametrize(
    "source",
    [int, list, Row, Foreign, Holding, Dangling, dict[str, int]],
)
def test_a_type_without_named_fields_that_json_can_carry_is_refused(source: Any) -> None:
    with pytest.raises(
        ToolDefinitionError, match=r"^'tool' cannot be a tool: .* cannot be (its|told)"
    ):
        TypeSchema(source, tool="tool")
