import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.mcp._listing import (
    LONGEST_DESCRIPTION,
    LONGEST_SCHEMA,
    ListedTool,
    SkippedTool,
    read_page,
)

OBJECT: dict[str, Any] = {"type": "object"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
entries = st.lists(
    json_values
    | st.fixed_dictionaries(
        {"name": json_values, "inputSchema": json_values}, optional={"description": json_values}
    ),
    max_size=6,
)


def entry(name: object = "x", schema: object = OBJECT, **more: object) -> dict[str, object]:
    return {"name": name, "inputSchema": schema, **more}


def reason_of(bad: object) -> str:
    kept, skipped, client = read_page("s", [entry("good"), bad])
    assert [each.name for each in kept] == ["good"]
    assert client == [{"name": "good", "inputSchema": OBJECT}]
    (skip,) = skipped
    return skip.reason


@pytest.mark.rule("R-MCP-07")
@given(entries)
def test_every_entry_is_kept_or_told(page: list[object]) -> None:
    kept, skipped, client = read_page("s", page)
    assert len(kept) + len(skipped) == len(page)
    assert [each["name"] for each in client] == [each.name for each in kept]


@pytest.mark.rule("R-MCP-07")
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "it is a NoneType, expected an object"),
        ([], "it is a list, expected an object"),
        (entry(None), "its name is a NoneType, expected a text"),
        (entry(""), "its name is a str, expected a text"),
        (entry("x" * 2_000), "its name has 2000 characters, expected fewer"),
        (entry(schema=[]), "its schema is a list, expected an object"),
        (entry(schema=None), "its schema is a NoneType, expected an object"),
        (entry(schema={"a": float("nan")}), "its schema is no JSON that could be sent: not JSON"),
    ],
)
def test_what_cannot_be_a_tool_is_left_out_with_its_reason(bad: object, reason: str) -> None:
    assert reason_of(bad).startswith(reason)


@pytest.mark.rule("R-MCP-07")
def test_a_schema_that_is_too_deep_or_too_long_is_left_out() -> None:
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"properties": {"a": deep}}
    assert "nested too deeply" in reason_of(entry(schema=deep))
    long = {"type": "object", "description": "x" * 10_000_000}
    assert reason_of(entry(schema=long)).endswith(f"expected at most {LONGEST_SCHEMA}")


def test_a_skipped_tool_is_named_as_far_as_it_has_a_name() -> None:
    _, skipped, _ = read_page("s", [entry("y" * 500, schema=1), 5])
    assert [each.tool for each in skipped] == ["y" * 100, ""]
    assert {each.server for each in skipped} == {"s"}
    assert isinstance(skipped[0], SkippedTool)


def test_a_description_is_cut_and_what_is_none_is_empty() -> None:
    kept, _, _ = read_page("s", [entry(description="x" * 20_000), entry(description=5), entry()])
    assert [len(each.description) for each in kept] == [LONGEST_DESCRIPTION, 0, 0]
    assert kept[0].description.endswith("x…")


def test_the_client_sees_a_schema_only_where_it_names_headers() -> None:
    headers = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    odd: dict[str, Any] = {"type": "object", "properties": {"a": True}}
    kept, _, client = read_page("s", [entry("h", headers), entry("o", odd)])
    assert [each["inputSchema"] for each in client] == [headers, OBJECT]
    assert kept[1] == ListedTool(name="o", description="", schema=odd)


def test_ten_thousand_tools_are_read_in_linear_time() -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20)}}
    start = time.perf_counter()
    kept, _, _ = read_page("s", [entry(f"t{n}", schema) for n in range(10_000)])
    assert len(kept) == 10_000
    assert time.perf_counter() - start < 5
