from typing import Any

import pytest
from hypothesis import given

from harness._json import JSON
from harness.tools import check_strict_dialect
from tests.strategies import anything


def faults_of(schema: Any) -> tuple[str, ...]:
    """What is refused of *schema*, in a parameter."""
    return check_strict_dialect({"type": "object", "properties": {"it": schema}})


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": ["string", "null"]}, "the type ['string', 'null'], expected one type"),
        ({"type": ["string"]}, "the type ['string'], expected one type"),
        ({"type": "integer", "enum": [1]}, "the enum [1], expected texts and the type 'string'"),
        ({"enum": ["a"]}, "the enum ['a'], expected texts and the type 'string'"),
        ({"type": "string", "enum": "a"}, "the enum 'a', expected texts and the type 'string'"),
        (
            {"properties": {"a": {}}, "required": ["a", "ghost"]},
            "the required name 'ghost', expected one of its properties",
        ),
        ({"required": [1]}, "the required name 1, expected one of its properties"),
        ({"required": True}, "the required names True, expected a list"),
        (
            {"additionalProperties": False},
            "additionalProperties False, expected it at the root alone",
        ),
    ],
)
def test_what_a_strict_provider_refuses_is_named_with_its_path(schema: JSON, fault: str) -> None:
    assert faults_of(schema) == (f"properties.it has {fault}",)
    assert faults_of({"items": [{}, {"not": schema}]}) == (
        f"properties.it.items.1.not has {fault}",
    )
    assert faults_of({"default": schema, "const": schema}) == ()


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string", "enum": ["a", "b"]},
        {"properties": {"a": {}}, "required": ["a"]},
        {"properties": {"a": {}}, "anyOf": [{"allOf": [{"required": ["a"]}]}]},
        {"additionalProperties": True},
        {"additionalProperties": {"type": "string"}},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"properties": {"enum": {}, "type": {}, "required": {}}},
    ],
)
def test_what_every_provider_takes_is_not_refused(schema: JSON) -> None:
    assert faults_of(schema) == ()


def test_every_fault_is_found() -> None:
    schema = {
        "type": ["string"],
        "enum": [1],
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    assert len(faults_of(schema)) == 5


@pytest.mark.parametrize(
    ("root", "faults"),
    [
        (None, ("the schema is None, expected an object",)),
        ({"type": "object", "properties": {}, "additionalProperties": False}, ()),
        (
            {},
            (
                "the schema has the type None, expected 'object'",
                "the schema has the properties None, expected an object",
            ),
        ),
        (
            {"type": ["object"], "properties": {}},
            ("the schema has the type ['object'], expected 'object'",),
        ),
    ],
)
def test_a_root_is_an_object_schema(root: Any, faults: tuple[str, ...]) -> None:
    assert check_strict_dialect(root) == faults


def test_a_deep_path_is_cut_short() -> None:
    schema: Any = {"type": ["string"]}
    for _ in range(10_000):
        schema = {"items": schema}
    (fault,) = faults_of(schema)
    assert fault.startswith("properties.it.items.items.items.items.items.items.… has the type ")


@given(anything)
def test_nothing_raises(schema: object) -> None:
    assert isinstance(check_strict_dialect(schema), tuple)
