"""One schema from a signature: what the model reads is what the call is held to."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness._errors import ToolDefinitionError
from harness._json import JSON
from harness._toolset import CallContext
from harness.tools import ArgsInvalid
from harness.tools._signature import Signature, read_signature
from tests.tools.annotations import NAMES, any_json, samples
from tests.tools.json_schema import is_valid

if TYPE_CHECKING:
    from decimal import Decimal


class Item(msgspec.Struct):
    """Something to buy."""

    name: str
    count: int = 1


def function_of(parameters: dict[str, Any], optional: set[str]) -> Any:
    """A function with just these parameters, that returns what it was called with."""

    def function(**arguments: object) -> dict[str, object]:
        return arguments

    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=annotation,
                default="the default" if name in optional else inspect.Parameter.empty,
            )
            for name, annotation in parameters.items()
        ]
    )
    return function


@st.composite
def functions(draw: st.DrawFn) -> tuple[Signature, dict[str, Any], dict[str, Any]]:
    """A signature, its annotations, and arguments that it accepts."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    drawn = {name: draw(samples) for name in names}
    optional = set(draw(st.lists(st.sampled_from(names), unique=True))) if names else set()
    annotations = {name: annotation for name, (annotation, _) in drawn.items()}
    signature = read_signature("drawn", function_of(annotations, optional))
    sent = {
        name: draw(values)
        for name, (_, values) in drawn.items()
        if name not in optional or draw(st.booleans())
    }
    return signature, annotations, sent


def converted(annotation: Any, value: JSON) -> object:
    return msgspec.convert(value, annotation, str_keys=True)


@pytest.mark.rule("R-TOOL-02")
@given(functions())
@settings(max_examples=60)
def test_what_msgspec_accepts_for_each_parameter_is_accepted_together(
    drawn: tuple[Signature, dict[str, Any], dict[str, Any]],
) -> None:
    signature, annotations, sent = drawn
    assert signature.parse(sent) == {
        name: converted(annotations[name], value) for name, value in sent.items()
    }
    assert is_valid(sent, signature.json_schema())


@pytest.mark.rule("R-TOOL-02")
@given(functions(), st.data())
@settings(max_examples=120)
def test_the_schema_that_the_model_reads_and_the_check_agree_on_every_value(
    drawn: tuple[Signature, dict[str, Any], dict[str, Any]], data: st.DataObject
) -> None:
    signature, _, sent = drawn
    name = data.draw(st.sampled_from([*signature.json_schema()["properties"], "zz"]))  # type: ignore[misc]
    sent[name] = data.draw(any_json)
    if is_valid(sent, signature.json_schema()):
        signature.parse(sent)
    else:
        with pytest.raises(ArgsInvalid, match=r"."):
            signature.parse(sent)


@pytest.mark.rule("R-TOOL-02")
@given(functions())
@settings(max_examples=60)
def test_every_required_name_of_the_wire_schema_is_enforced(
    drawn: tuple[Signature, dict[str, Any], dict[str, Any]],
) -> None:
    signature, _, sent = drawn
    required = signature.json_schema()["required"]
    assert isinstance(required, list)
    for name in required:
        assert isinstance(name, str)
        less = {key: value for key, value in sent.items() if key != name}
        with pytest.raises(ArgsInvalid, match=f"^{name}: required, but missing$"):
            signature.parse(less)


def test_a_signature_becomes_a_schema_with_descriptions_bounds_and_defaults() -> None:
    def order(
        items: list[Item],
        limit: Annotated[int, msgspec.Meta(ge=0, description="how many")] = 5,
        *,
        sort: Literal["up", "down"] | None = None,
        pair: tuple[int, int] = (1, 2),
        odd: int = None,  # type: ignore[assignment]  # noqa: RUF013 - such signatures exist
    ) -> str:
        """Order things.

        Args:
            items: What to order.
            limit: Not this one.
        """
        return ""

    assert read_signature("order", order).json_schema() == {
        "type": "object",
        "properties": {
            "items": {
                "description": "What to order.",
                "type": "array",
                "items": {"$ref": "#/$defs/Item"},
            },
            "limit": {"description": "how many", "default": 5, "type": "integer", "minimum": 0},
            "sort": {"default": None, "anyOf": [{"enum": ["down", "up"]}, {"type": "null"}]},
            "pair": {
                "default": [1, 2],
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "prefixItems": [{"type": "integer"}, {"type": "integer"}],
                "items": False,
            },
            "odd": {"type": "integer"},
        },
        "required": ["items"],
        "additionalProperties": False,
        "$defs": {
            "Item": {
                "title": "Item",
                "description": "Something to buy.",
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "count": {"type": "integer", "default": 1},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    }


def test_each_schema_is_the_callers_own() -> None:
    def count(number: int) -> None: ...

    signature = read_signature("count", count)
    signature.json_schema()["properties"] = {}
    assert signature.json_schema()["properties"] == {"number": {"type": "integer"}}


def test_parameters_keep_their_order() -> None:
    def odd(zebra: int, apple: int, mango: int = 1) -> None: ...

    assert list(read_signature("odd", odd).json_schema()["properties"]) == [  # type: ignore[arg-type]
        "zebra",
        "apple",
        "mango",
    ]


@pytest.mark.parametrize("annotation", [CallContext, CallContext[int], "CallContext[Item]"])
def test_a_context_parameter_is_found_wherever_it_stands(annotation: object) -> None:
    def spy(first: int, context: Any, last: int = 1) -> None: ...

    spy.__annotations__["context"] = annotation
    signature = read_signature("spy", spy)
    assert signature.context == "context"
    assert list(signature.json_schema()["properties"]) == ["first", "last"]  # type: ignore[arg-type]


def test_annotations_in_texts_are_looked_up_in_the_closure_too() -> None:
    class Local(msgspec.Struct):
        value: int

    def take(one: Local) -> Local:
        return Local(one.value)

    (one,) = read_signature("take", take).parse({"one": {"value": 3}}).values()
    assert one == Local(3)


def test_a_variable_that_is_not_assigned_yet_is_not_found() -> None:
    def take(one: Late) -> type:  # type: ignore[valid-type]
        return Late

    with pytest.raises(ToolDefinitionError, match=r"its parameter 'one' has the annotation 'Late'"):
        read_signature("take", take)
    Late = Item  # noqa: N806 - a type


def test_a_wrapped_function_has_the_signature_of_what_it_wraps() -> None:
    def inner(item: Item) -> str:
        """Say it."""
        return item.name

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> str:
        return inner(*args, **kwargs)

    signature = read_signature("outer", outer)
    assert signature.description == "Say it."
    assert signature.parse({"item": {"name": "x"}}) == {"item": Item("x")}


class Shop:
    def sell(self, item: Item) -> str:
        return item.name


def test_a_bound_method_takes_no_self() -> None:
    assert read_signature("sell", Shop().sell).parse({"item": {"name": "x"}}) == {"item": Item("x")}


class Converted:
    pass


def variadic(*args: int) -> None: ...
def open_ended(**kwargs: int) -> None: ...
def by_position(a: int, /) -> None: ...
def bare(a) -> None: ...  # type: ignore[no-untyped-def]  # the point
def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def only_checked(a: Decimal) -> None: ...
def foreign(a: Converted) -> None: ...
def foreign_within(a: list[Converted | None]) -> None: ...
def ambiguous(a: Item | dict[str, int]) -> None: ...
def two(a: CallContext[int], b: CallContext[int]) -> None: ...
def not_a_type(a: 3) -> None: ...  # type: ignore[valid-type]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (variadic, "'args' is variadic positional, expected a named one"),
        (open_ended, "'kwargs' is variadic keyword, expected a named one"),
        (by_position, "'a' is positional-only, expected a named one"),
        (bare, "'a' has no annotation, expected one"),
        (Shop.sell, "'self' has no annotation, expected one: pass the bound method"),
        (unknown, "'a' has the annotation 'Nowhere', expected one that can be looked up .*: .*"),
        (only_checked, "'a' has the annotation 'Decimal', expected one that can be looked up .*"),
        (foreign, "'a' is annotated .*Converted.*, expected a type that JSON can carry: .*"),
        (foreign_within, "'a' is annotated .*Converted.*, expected a type that .*"),
        (ambiguous, "'a' is annotated .*Item.*, expected a type that JSON can carry: .*"),
        (two, "'b' takes the context that 'a' takes too"),
        (not_a_type, "'a' .*3.*, expected .*"),
    ],
)
def test_a_function_that_no_model_could_call_is_refused_by_parameter(
    function: Any, reason: str
) -> None:
    with pytest.raises(
        ToolDefinitionError, match=f"^'named' cannot be a tool: its parameter {reason}$"
    ):
        read_signature("named", function)
