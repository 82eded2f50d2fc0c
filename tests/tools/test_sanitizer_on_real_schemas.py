"""The sanitizer on schemas as they are: those of public tool servers, and those of classes.

Each file in ``mcp_schemas`` holds what one server of PyPI or npm lists when it is asked for its
tools: their names and schemas, with the server's version and licence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._json import JSON
from harness.tools import TypeSchema, check_strict_dialect, sanitize_tool_schema
from tests.tools.annotations import samples
from tests.tools.schemas import accepted, sanitized, text, values

SERVERS = sorted(Path(__file__).with_name("mcp_schemas").glob("*.json"))


def real_schemas() -> Iterator[Any]:
    for path in SERVERS:
        server = json.loads(path.read_text("utf-8"))
        for each in server["tools"]:
            yield pytest.param(each["inputSchema"], id=f"{server['server']}:{each['name']}")


def test_there_are_schemas_of_many_servers() -> None:
    servers = [json.loads(path.read_text("utf-8")) for path in SERVERS]
    assert len({each["server"] for each in servers}) >= 6
    assert all(each["version"] and each["licence"] and each["tools"] for each in servers)


@pytest.mark.rule("R-SCHEMA-02", "R-SCHEMA-06")
@pytest.mark.parametrize("schema", list(real_schemas()))
def test_a_schema_of_a_public_server_is_sanitized(schema: dict[str, JSON]) -> None:
    result = sanitize_tool_schema(schema)
    assert check_strict_dialect(result) == ()
    assert text(sanitize_tool_schema(result)) == text(result)
    properties, required = schema.get("properties", {}), schema.get("required", [])
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    assert list(result.get("properties", {})) == list(properties)  # type: ignore[arg-type]  # an object
    assert result.get("required", []) == required
    lost = {name for name, each in properties.items() if "Accepts " in text(sanitized(each))}
    names = [name for name in properties if name not in lost]
    # One argument after the other, with values of every kind, and then all that are right at once.
    right: dict[str, JSON] = {}
    for name in names:
        alone = {**schema, "required": []}
        candidates: list[JSON] = [{name: each} for each in instances(properties[name], schema)]
        good = accepted(alone, candidates)
        assert accepted({**result, "required": []}, good) == good
        right |= good[0] if good and isinstance(good[0], dict) else {}
    if accepted(schema, [right]):
        assert accepted(result, [right])


def instances(schema: Any, root: Any, depth: int = 0) -> list[JSON]:
    """Values that *schema* may well accept: a few of its kind, and a few of every kind."""
    found: list[JSON] = [None, True, 3, 2.5, "x", [], {}, ["x"], {"x": 1}]
    if not isinstance(schema, dict) or depth > 4:
        return found
    reference = schema.get("$ref", "")
    if reference.startswith("#/$defs/"):
        found += instances(root["$defs"][reference.removeprefix("#/$defs/")], root, depth + 1)
    found += [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    found += [schema["default"]] if "default" in schema else []
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        found += instances(branch, root, depth + 1)
    if "items" in schema:
        found += [[each] for each in instances(schema["items"], root, depth + 1)]
    good = {
        name: next(iter(accepted({**each, "$defs": root.get("$defs", {})}, some)), None)
        for name, each in schema.get("properties", {}).items()
        if isinstance(each, dict)
        for some in [instances(each, root, depth + 1)[::-1]]
    }
    needed = {name: good.get(name) for name in schema.get("required", ())}
    return [*found, good, needed, {**needed, "more": 1}]


class Kind(msgspec.Struct, tag="kind"):
    size: Literal[1, 2] | None
    names: dict[str, int] | None = None
    again: Kind | None = None


class Other(msgspec.Struct, tag="other", forbid_unknown_fields=True):
    value: int | str | None


@attrs.frozen
class Ours:
    either: Kind | Other | None = None
    level: Literal["low", "high", None] = None  # noqa: PYI061  # the schema is another
    point: tuple[int, str] | None = None


class First(pydantic.BaseModel, extra="forbid"):
    kind: Literal["first"] = "first"
    level: Literal[1, 2]
    note: str | None = None


class Second(pydantic.BaseModel, extra="forbid"):
    kind: Literal["second"] = "second"
    pair: tuple[int, str] | None = None
    either: int | str | None = None
    inner: list[Second] | None = None


class Theirs(pydantic.BaseModel):
    one: First | Second = pydantic.Field(discriminator="kind")
    table: dict[str, First] = {}
    odd: Literal["a", 1, None] = None  # noqa: PYI061  # the schema is another


@pytest.mark.rule("R-SCHEMA-02", "R-SCHEMA-06")
@pytest.mark.parametrize(
    "schema",
    [TypeSchema(each, tool="tool").json_schema() for each in (Kind, Other, Ours)]
    + [each.model_json_schema() for each in (First, Second, Theirs)],
    ids=["Kind", "Other", "Ours", "First", "Second", "Theirs"],
)
@given(st.data())
def test_a_schema_that_a_class_gives_is_sanitized(
    schema: dict[str, JSON], data: st.DataObject
) -> None:
    result = sanitize_tool_schema(schema)
    assert check_strict_dialect(result) == ()
    assert "Accepts " not in text(result)
    candidates: list[JSON] = [
        {"kind": "first", "level": 1},
        {"one": {"kind": "second", "inner": [{"pair": [1, "x"]}], "either": "x"}, "odd": 1},
        {"either": {"type": "kind", "size": 1, "again": {"type": "kind", "size": None}}},
        {"type": "other", "value": None},
        {"level": None, "point": [1, "x"]},
        data.draw(st.dictionaries(st.sampled_from(["level", "either", "odd", "pair"]), values)),
    ]
    right = accepted(schema, candidates)
    assert accepted(result, right) == right


@pytest.mark.rule("R-SCHEMA-02")
@given(samples, st.data())
def test_a_schema_that_any_annotation_gives_is_sanitized(
    sample: tuple[Any, st.SearchStrategy[JSON]], data: st.DataObject
) -> None:
    annotation, right = sample
    schema = TypeSchema(msgspec.defstruct("It", [("it", annotation)]), tool="tool").json_schema()
    result = sanitize_tool_schema(schema)
    assert check_strict_dialect(result) == ()
    good = accepted(schema, [{"it": data.draw(right)}])
    assert accepted(result, good) == good
