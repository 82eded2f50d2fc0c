import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._arguments import (
    Arguments,
    Parsed,
    Unparseable,
    UnsupportedType,
    parse_arguments,
    parse_tool_call_arguments,
    tool_call_arguments_absent,
)
from harness._json import JSON
from harness._toolset import ToolCall

ANYTHING = st.one_of(
    st.binary(),
    st.text(),
    st.none(),
    st.integers(),
    st.floats(),
    st.dictionaries(st.one_of(st.text(), st.integers()), st.one_of(st.floats(), st.binary())),
    st.lists(st.integers()),
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


def refusal(raw: object) -> str:
    found = parse_arguments(raw)
    assert isinstance(found, Unparseable), found
    assert len(found.detail) <= 200
    return found.detail


@pytest.mark.rule("R-ARGS-01")
@given(raw=ANYTHING, call_type=st.sampled_from(["function", "custom", ""]))
def test_whatever_a_call_holds_reading_it_ends_in_one_of_three_values(
    raw: object, call_type: str
) -> None:
    found: Arguments = parse_arguments(raw, call_type=call_type)
    assert isinstance(found, (Parsed, UnsupportedType, Unparseable))
    if isinstance(found, Unparseable):
        assert 0 < len(found.detail) <= 200


@pytest.mark.rule("R-ARGS-01")
@given(st.dictionaries(st.text(st.characters(codec="utf-8")), json_values, max_size=5))
def test_the_text_of_any_object_parses_to_that_object(arguments: dict[str, JSON]) -> None:
    text = json.dumps(arguments)
    assert parse_arguments(text) == Parsed(arguments=arguments)
    assert parse_arguments(text.encode()) == Parsed(arguments=arguments)
    assert parse_arguments(arguments) == Parsed(arguments=arguments)


@pytest.mark.rule("R-ARGS-02")
def test_an_empty_text_means_no_arguments() -> None:
    assert parse_arguments("") == parse_arguments("{}") == Parsed(arguments={})


@pytest.mark.rule("R-ARGS-03")
@pytest.mark.parametrize("raw", [None, "", " \n\t\r ", b"", b" "])
def test_absent_arguments_parse_to_none_at_all(raw: object) -> None:
    assert tool_call_arguments_absent(raw)
    assert parse_arguments(raw) == Parsed(arguments={})


@pytest.mark.rule("R-ARGS-03")
@pytest.mark.parametrize("raw", ["{}", "null", " 0", {}, [], 0, False])
def test_what_is_there_is_not_absent(raw: object) -> None:
    assert not tool_call_arguments_absent(raw)


@pytest.mark.rule("R-ARGS-04")
@pytest.mark.parametrize("text", ["{}", "not json", ""])
def test_a_call_of_another_type_is_named_whatever_its_arguments(text: str) -> None:
    call = ToolCall(id="1", name="x", type="custom", arguments=text)
    assert parse_tool_call_arguments(call) == UnsupportedType(type="custom")


@pytest.mark.rule("R-ARGS-05")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("null", "null"),
        ("[]", "an array"),
        ("3", "a number"),
        ("-0.5", "a number"),
        ('"{}"', "a string"),
        ("true", "a boolean"),
    ],
)
def test_only_an_object_holds_arguments(text: str, kind: str) -> None:
    detail = f"the arguments are {kind}, expected one JSON object"
    assert refusal(text) == detail
    if text != "null":  # None says that there are none
        assert refusal(json.loads(text) if text != '"{}"' else '"{}"') == detail


@pytest.mark.rule("R-ARGS-06")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": }', "at line 1 column 7"),
        ('{"a": 1} x', "at line 1 column 10"),
        ('{\n  "é": tru}', "at line 2 column 8"),
        ('{"a": "xx', "at line 1 column 7"),
        ('{\n"a": [1,\n', "at line 3 column 1"),
        (b'{\n "\xc3\xa9": nul}', "at line 2 column 7"),
    ],
)
def test_a_refusal_says_where_the_text_stops_being_json(text: str | bytes, place: str) -> None:
    assert refusal(text).startswith("the arguments are not JSON: ")
    assert refusal(text).endswith(f" {place}, expected one JSON object")


@pytest.mark.rule("R-ARGS-06")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": NaN}', "nan is no JSON number"),
        ('{"a": 1e400}', "inf is no JSON number"),
        ('{"a": "\\ud800"}', "a text holds a lone surrogate"),
        ('{"a": ' + "[" * 300 + "]" * 300 + "}", "it is nested too deeply"),
        ('{"a": ' + "1" * 10_000 + "}", "an integer has too many digits"),
        ('{"a": ' + "[" * 9_000 + "]" * 9_000 + "}", "it is nested too deeply"),
    ],
    ids=["nan", "overflow", "surrogate", "nesting", "integer", "abyss"],
)
def test_a_refusal_of_well_formed_text_says_what_is_not_json(text: str, fault: str) -> None:
    assert refusal(text) == f"the arguments are not JSON: {fault}, expected one JSON object"


@pytest.mark.rule("R-ARGS-06")
@pytest.mark.parametrize(
    "raw",
    [
        '{"secret": "' + "s3cr3t" * 200_000,
        '{"s3cr3t": s3cr3t}',
        '["s3cr3t"]',
        b'{"s3cr3t": "\xff"}',
        {"s3cr3t": float("nan")},
        {b"s3cr3t": 1},
        {"a": "s3cr3t\ud800"},
    ],
)
def test_a_refusal_is_short_and_repeats_nothing(raw: object) -> None:
    assert "s3cr3t" not in refusal(raw)


@pytest.mark.rule("R-ARGS-07")
def test_decoded_arguments_are_copied_all_the_way_down() -> None:
    raw: dict[str, JSON] = {"items": [{"name": "x"}]}
    found = parse_arguments(raw)
    assert found == Parsed(arguments=raw)
    assert isinstance(found, Parsed)
    inner = found.arguments["items"]
    assert isinstance(inner, list)
    inner.append("y")
    found.arguments["more"] = 1
    assert raw == {"items": [{"name": "x"}]}


@pytest.mark.rule("R-ARGS-08")
@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": -Infinity}',
        '{"a": 1e400}',
        '{"a": -1e400}',
        '{"a": "\\ud800"}',
        '{"a": "\\udc00 "}',
        '{"a": "\ud800"}',
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a": ' + "[" * 300 + "]" * 300 + "}",
        '{"a":' * 250 + "1" + "}" * 250,
        '{"a": ' + "1" * 10_000 + "}",
        '{"a": ' + "1" * 1_000_000 + "}",
        "{'a': 1}",
        '{"a": 01}',
        '{"a": "\n"}',
        "\ufeff{}",
        b'{"a": "\xff"}',
    ],
    ids=lambda text: repr(text)[:24],
)
def test_text_that_is_not_strict_json_is_unparseable(text: str | bytes) -> None:
    assert "expected one JSON object" in refusal(text)


@pytest.mark.rule("R-ARGS-08")
def test_of_duplicate_keys_the_last_wins() -> None:
    assert parse_arguments('{"a": 1, "a": 2}') == Parsed(arguments={"a": 2})


@pytest.mark.rule("R-ARGS-08")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", (1,), {1: 2}, {"a": "\ud800"}])
def test_decoded_arguments_hold_nothing_that_json_does_not_have(value: object) -> None:
    assert refusal({"a": value}) == (
        "the arguments hold a value that JSON does not have, expected one JSON object"
    )
