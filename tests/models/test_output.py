"""Forms of an answer: what is asked for, and how a reply is read."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, NotRequired, TypedDict, TypeVar, assert_type

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import JSON
from harness._json import encode_text
from harness.errors import StructuredOutputError
from harness.models import Output
from harness.tools import ArgIssue, ArgsInvalid
from tests.tools.annotations import any_json

T = TypeVar("T")


class Item(msgspec.Struct):
    name: str
    count: Annotated[int, msgspec.Meta(ge=1)]


class StructReport(msgspec.Struct):
    title: str
    items: list[Item]


@attrs.frozen
class AttrsReport:
    title: str
    items: list[Item]


@dataclass
class DataclassReport:
    title: str
    items: list[Item]


class TypedReport(TypedDict):
    title: str
    items: list[Item]


class Box(msgspec.Struct, Generic[T]):
    value: T


REPORTS: list[type] = [StructReport, AttrsReport, DataclassReport, TypedReport]
GOOD = '{"title": "Stock", "items": [{"name": "nail", "count": 3}]}'


def asked(output: Output[object]) -> dict[str, Any]:
    """What is sent under ``json_schema``."""
    whole: dict[str, Any] = output.response_format
    assert whole == {"type": "json_schema", "json_schema": whole["json_schema"]}
    told: dict[str, Any] = whole["json_schema"]
    return told


# -- what is asked for -------------------------------------------------------------------------


@pytest.mark.rule("R-OUT-01")
@pytest.mark.parametrize("report", REPORTS)
def test_a_class_is_asked_for_as_its_closed_schema(report: type) -> None:
    told = asked(Output(report))
    assert told["name"] == report.__name__
    assert told["schema"]["type"] == "object"
    assert list(told["schema"]["properties"]) == ["title", "items"]
    assert told["schema"]["additionalProperties"] is False
    assert sorted(told) == ["name", "schema", "strict"]


@pytest.mark.rule("R-OUT-01")
def test_a_json_schema_is_asked_for_as_it_was_written() -> None:
    schema: dict[str, JSON] = {
        "title": "A small report!",
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 3}},
        "x-note": [1, None],
    }
    told = asked(Output(schema))
    schema["type"] = "changed"
    assert told["schema"] == {**schema, "type": "object"}
    assert told["name"] == "A_small_report_"


def test_a_name_is_made_of_the_title_and_is_output_without_one() -> None:
    assert asked(Output({"type": "object"}))["name"] == "output"
    assert asked(Output({"type": "object", "title": ""}))["name"] == "output"
    assert asked(Output({"type": "object", "title": "a" * 70}))["name"] == "a" * 64
    assert asked(Output(Box[int]))["name"] == "Box"


@pytest.mark.rule("R-OUT-01")
def test_a_schema_of_another_library_is_asked_by_its_two_methods() -> None:
    class Even:
        def json_schema(self) -> dict[str, JSON]:
            return {"type": "object", "properties": {"n": {"multipleOf": 2}}}

        def parse(self, raw: dict[str, JSON]) -> int:
            number = raw.get("n")
            if not isinstance(number, int) or number % 2:
                raise ArgsInvalid([ArgIssue(path=("n",), message="odd")])
            return number

    output = Output(Even(), name="even")
    assert_type(output, Output[int])
    assert asked(output) == {"name": "even", "schema": Even().json_schema(), "strict": False}
    assert output.parse('{"n": 4}') == 4
    with pytest.raises(StructuredOutputError, match="n: odd$"):
        output.parse('{"n": 3}')


@pytest.mark.rule("R-OUT-01")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (int, r"^'int' cannot be an output: "),
        ({"type": "array"}, r"^'output' cannot be an output: its schema has the type 'array', "),
        ({"type": {1}}, r"^'output' cannot be an output: its schema is not JSON at type"),
        (3, r"^the output is 3, expected a class, a JSON Schema or a Schema$"),
        (None, r"^the output is None, expected "),
    ],
)
def test_what_is_no_form_is_refused(source: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Output(source)


@pytest.mark.rule("R-OUT-01")
@pytest.mark.parametrize("name", ["", "two words", "a" * 65, "é", 3])
def test_a_name_that_providers_do_not_take_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match=r"^the output's name is "):
        Output(Item, name=name)
    assert asked(Output(Item, name="a" * 64))["name"] == "a" * 64


# -- strictness --------------------------------------------------------------------------------


class Plain(msgspec.Struct):
    colour: Literal["red", "blue"]
    size: int | None
    tags: list[Box[str]]


class Tree(msgspec.Struct):
    kids: "list[Tree]"


class Optional(TypedDict):
    title: NotRequired[str]


class Defaulted(msgspec.Struct):
    size: int = 3


class Loose(msgspec.Struct):
    counts: dict[str, int]


class Anything(msgspec.Struct):
    value: Any


class Inner(msgspec.Struct):
    inner: list[Defaulted]


CLOSED: dict[str, JSON] = {
    "type": "object",
    "properties": {"type": {"type": "string"}, "properties": {"anyOf": [{"type": "null"}]}},
    "required": ["type", "properties"],
    "additionalProperties": False,
}


@pytest.mark.rule("R-OUT-02")
@pytest.mark.parametrize("source", [Plain, Tree, Box[str], CLOSED])
def test_a_schema_that_every_strict_provider_takes_is_asked_for_strictly(source: Any) -> None:
    assert asked(Output(source))["strict"] is True
    assert asked(Output(source, strict=False))["strict"] is False


LOOSE: list[Any] = [
    Optional,
    Defaulted,
    Inner,
    Loose,
    Item,
    {"type": "object"},
    {**CLOSED, "additionalProperties": True},
    {**CLOSED, "required": ["type"]},
    {**CLOSED, "allOf": []},
    {**CLOSED, "$defs": {"a": {"type": "object"}}},
    {**CLOSED, "$defs": {"a": {"properties": {}}}},
    {**CLOSED, "$defs": {"a": {"type": "array", "items": {"type": "object"}}}},
    {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "object"}]}},
        "required": ["a"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"a": True},
        "required": ["a"],
        "additionalProperties": False,
    },
]


@pytest.mark.rule("R-OUT-02")
@pytest.mark.parametrize("source", LOOSE)
def test_any_other_schema_is_not_unless_the_host_says_so(source: Any) -> None:
    assert asked(Output(source))["strict"] is False
    assert asked(Output(source, strict=True))["strict"] is True


# -- reading a reply ---------------------------------------------------------------------------


@pytest.mark.rule("R-OUT-03")
@pytest.mark.parametrize("report", REPORTS)
def test_a_reply_becomes_an_instance(report: type) -> None:
    items = [Item(name="nail", count=3)]
    assert Output(report).parse(GOOD) == report(title="Stock", items=items)


@pytest.mark.rule("R-OUT-03")
def test_the_value_has_the_forms_type() -> None:
    assert_type(Output(Item).parse('{"name": "a", "count": 1}'), Item)
    assert_type(Output({"type": "object"}).parse("{}"), dict[str, JSON])


@pytest.mark.rule("R-OUT-03")
def test_defaults_are_filled_in() -> None:
    assert Output(Defaulted).parse("{}") == Defaulted(size=3)


@pytest.mark.rule("R-OUT-04")
@pytest.mark.parametrize("report", REPORTS)
def test_every_fault_is_named_with_its_path(report: type) -> None:
    text = '{"items": [{"name": 1, "count": 0}, {"nme": "a", "count": 1}], "extra": null}'
    with pytest.raises(StructuredOutputError) as caught:
        Output(report).parse(text)
    assert caught.value.text == text
    for place in ("title", "items.0.name", "items.0.count", "items.1.name", "items.1.nme", "extra"):
        assert f"{place}: " in caught.value.reason
    assert isinstance(caught.value.__cause__, ArgsInvalid)


@pytest.mark.rule("R-OUT-04")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON: "),
        ("The answer is 3.", "not JSON: "),
        ('{"title": "cut he', "not JSON: "),
        ('{"title": NaN}', "not JSON: "),
        ('{"title": 1e999}', "not JSON: "),
        ('{"title": "\ud800"}', "not JSON: "),
        ("[" * 5000, "not JSON: it is nested too deeply"),
        ("[1]", "it is an array, expected one JSON object"),
        ("null", "it is null, expected one JSON object"),
        ('"{}"', "it is a string, expected one JSON object"),
        ("{}{}", "not JSON: "),
    ],
)
@pytest.mark.parametrize("source", [StructReport, {"type": "object"}])
def test_what_is_not_one_json_object_is_refused(text: str, reason: str, source: Any) -> None:
    with pytest.raises(StructuredOutputError) as caught:
        Output(source).parse(text)
    assert caught.value.reason.startswith(reason)


@pytest.mark.rule("R-OUT-04")
def test_a_json_schema_holds_a_reply_to_its_names() -> None:
    output = Output(CLOSED)
    good: dict[str, JSON] = {"type": [1], "properties": None}
    assert output.parse(encode_text(good)) == good
    with pytest.raises(StructuredOutputError, match="properties: required, but missing; more: "):
        output.parse('{"type": 1, "more": 2}')


@given(any_json)
def test_reading_ends_in_a_value_or_the_one_error(value: JSON) -> None:
    text = encode_text(value)
    for output in (Output(StructReport), Output({"type": "object"})):
        try:
            assert output.parse(text) is not None
        except StructuredOutputError:
            continue


@given(st.text())
def test_any_text_ends_in_a_value_or_the_one_error(text: str) -> None:
    try:
        value = Output({"type": "object"}).parse(text)
    except StructuredOutputError:
        return
    assert isinstance(value, dict)


# -- fences ------------------------------------------------------------------------------------


@pytest.mark.rule("R-OUT-05")
@pytest.mark.parametrize(
    "fenced",
    [
        "```json\n{}\n```",
        "```\n{}\n```",
        "\n ```JSON \r\n{}\r\n```\n\n",
        "```json\n\n{}```",
    ],
)
def test_one_fence_around_everything_is_taken_off(fenced: str) -> None:
    assert Output({"type": "object"}).parse(fenced.replace("{}", GOOD)) == json.loads(GOOD)


@pytest.mark.rule("R-OUT-05")
@pytest.mark.parametrize(
    "text",
    [
        "Here it is:\n```json\n{}\n```",
        "```json\n{}\n```\nAnything else?",
        "```json\n```json\n{}\n```\n```",
        "```json\n{}\n```\n```json\n{}\n```",
        "```python\n{}\n```",
        "```json {}```",
        "```json\n{}",
        "```",
        "``````",
        "{}\n```",
        "The form is {}",
    ],
)
def test_json_that_is_not_all_of_the_reply_is_refused(text: str) -> None:
    with pytest.raises(StructuredOutputError, match="not JSON: "):
        Output({"type": "object"}).parse(text)


@given(any_json.filter(lambda value: isinstance(value, dict)))
def test_any_object_reads_the_same_with_and_without_a_fence(value: JSON) -> None:
    output, text = Output({"type": "object"}), encode_text(value)
    assert output.parse(text) == output.parse(f"```json\n{text}\n```") == value


def test_its_repr_names_it() -> None:
    assert repr(Output(Item)) == "<Output 'Item'>"
