import hashlib
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._durable import ReceiptKey
from harness._errors import NotJSONError
from harness._json import JSON, canonical_text, encode_text
from harness.receipts import receipt_key_from, receipt_key_string, tool_call_args_hash
from harness.receipts._key import tool_key_name
from tests.strategies import anything, json_values, texts

parts = texts.filter(lambda text: text != "" and "\x00" not in text)
tricky = parts | st.text('",[]\\1 ', min_size=1, max_size=5)
keys = st.builds(
    ReceiptKey,
    tenant=tricky,
    run_id=tricky,
    tool=tricky,
    args_hash=tricky,
    occurrence=st.integers(0, 11),
)


def key(**changes: object) -> ReceiptKey:
    given: dict[str, object] = {
        "tenant": "acme", "run_id": "run_1", "tool": "pay", "args_hash": "ab", **changes
    }  # fmt: skip
    return ReceiptKey(**given)  # type: ignore[arg-type]  # what a test changes may be wrong


@pytest.mark.rule("R-RCPT-01", "R-RCPT-03")
def test_a_key_is_written_as_its_five_parts() -> None:
    assert receipt_key_string(key(occurrence=2)) == '["acme","run_1","pay","ab",2]'


@pytest.mark.rule("R-RCPT-03")
@given(keys, keys)
def test_two_keys_have_one_text_just_if_they_are_equal(one: ReceiptKey, other: ReceiptKey) -> None:
    assert (receipt_key_string(one) == receipt_key_string(other)) is (one == other)
    assert receipt_key_from(receipt_key_string(one)) == one


@pytest.mark.rule("R-RCPT-03")
def test_parts_cannot_be_moved_over_a_separator() -> None:
    pairs = [
        (key(tenant='a","b', run_id="c"), key(tenant="a", run_id='b","c')),
        (key(tenant="a,b", run_id="c"), key(tenant="a", run_id="b,c")),
        (key(tool="t", args_hash='x"'), key(tool='t"', args_hash="x")),
        (key(args_hash="1", occurrence=11), key(args_hash="11", occurrence=1)),
    ]
    for one, other in pairs:
        assert receipt_key_string(one) != receipt_key_string(other)


@pytest.mark.rule("R-RCPT-01", "R-RCPT-02")
@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "other"},
        {"run_id": "other"},
        {"tool": "other"},
        {"args_hash": "other"},
        {"occurrence": 1},
    ],
)
def test_each_part_tells_two_keys_apart(change: dict[str, object]) -> None:
    assert receipt_key_string(key()) != receipt_key_string(key(**change))


def test_a_key_that_no_store_could_keep_is_none() -> None:
    with pytest.raises(ValueError, match=r"^ReceiptKey\.tool is "):
        key(tool="\ud800")


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("", NotJSONError, "not JSON"),
        ("pay", NotJSONError, "not JSON"),
        ("null", ValueError, "the key of a receipt is 'null', expected an array of the tenant"),
        ('"acme"', ValueError, "expected an array"),
        ('["acme","run_1","pay","ab"]', ValueError, "expected an array"),
        ('["acme","run_1","pay","ab",0,0]', ValueError, "expected an array"),
        ('["acme","run_1","pay",1,0]', ValueError, "expected an array"),
        ('{"tenant":"acme"}', ValueError, "expected an array"),
        ('["acme","run_1","pay","ab",-1]', ValueError, "occurrence is -1, expected at least 0"),
        ('["acme","run_1","pay","ab",true]', TypeError, "occurrence is True, expected an int"),
        ('["acme","run_1","pay","ab",1.0]', TypeError, "occurrence is 1.0, expected an int"),
        ('["acme","run_1","pay","ab","1"]', TypeError, "occurrence is '1', expected an int"),
        ('["","run_1","pay","ab",0]', ValueError, "tenant is '', expected a text"),
        ('["acme","run_1","pay\\u0000","ab",0]', ValueError, "tool is 'pay\\\\x00', expected"),
    ],
)
def test_what_is_no_key_is_refused(text: str, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        receipt_key_from(text)


@pytest.mark.rule("R-RCPT-07")
def test_arguments_are_hashed_by_their_canonical_text() -> None:
    expected = hashlib.sha256(b'{"a":1,"b":[true,null]}').hexdigest()
    assert tool_call_args_hash({"b": [True, None], "a": 1.0}) == expected
    assert tool_call_args_hash({}) == (
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    )


@pytest.mark.rule("R-RCPT-07")
def test_another_hash_can_be_given() -> None:
    seen: list[bytes] = []

    def hash_text(text: bytes) -> str:
        seen.append(text)
        return "short"

    assert tool_call_args_hash({"é": 1}, hash_text) == "short"
    assert seen == ['{"é":1}'.encode()]


@pytest.mark.rule("R-RCPT-08")
def test_arguments_are_hashed_as_they_came_whatever_a_schema_makes_of_them() -> None:
    assert tool_call_args_hash({"n": "1"}) != tool_call_args_hash({"n": 1})
    assert tool_call_args_hash({"n": None}) != tool_call_args_hash({})


def cycle() -> object:
    value: list[object] = []
    value.append({"again": value})
    return value


@pytest.mark.rule("R-RCPT-04")
@pytest.mark.parametrize("make", [set, object, cycle, lambda: math.nan, lambda: math.inf])
def test_what_json_would_lose_has_no_hash(make: Callable[[], object]) -> None:
    with pytest.raises(NotJSONError):
        tool_call_args_hash({"n": make()})  # type: ignore[dict-item]  # what is being tested


class Whole(int):
    pass


@pytest.mark.rule("R-RCPT-05")
@pytest.mark.parametrize(
    "value", [(1,), b"1", Whole(1), "\ud800", {1: 1}, {"\ud800": 1}, frozenset(), -math.inf]
)
def test_what_is_not_exactly_a_json_type_has_no_hash(value: object) -> None:
    with pytest.raises(NotJSONError):
        tool_call_args_hash([value])  # type: ignore[list-item]  # what is being tested


@pytest.mark.rule("R-RCPT-04", "R-RCPT-05")
@given(anything)
def test_whatever_has_a_hash_could_be_stored_as_it_is(value: object) -> None:
    try:
        encode_text(value)
    except NotJSONError:
        with pytest.raises(NotJSONError):
            tool_call_args_hash(value)  # type: ignore[arg-type]  # what is being tested
    else:
        tool_call_args_hash(value)  # type: ignore[arg-type]  # JSON, by the line above


@pytest.mark.rule("R-RCPT-06")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": 1.0}, '{"a":1,"b":1}'),
        ([1.0, -0.0, 0.5, 2.0**52], "[1,0,0.5,4503599627370496]"),
        ({"é": "ü", "Z": "\n"}, '{"Z":"\\n","é":"ü"}'),
        ([True, 1], "[true,1]"),
    ],
)
def test_the_canonical_text_is_one_for_what_json_cannot_tell_apart(value: JSON, text: str) -> None:
    assert canonical_text(value) == text
    assert tool_call_args_hash(value) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.rule("R-RCPT-06")
@given(json_values, json_values)
def test_two_values_have_one_hash_just_if_they_have_one_canonical_text(
    one: JSON, other: JSON
) -> None:
    same = canonical_text(one) == canonical_text(other)
    assert (tool_call_args_hash(one) == tool_call_args_hash(other)) is same


@given(st.text(max_size=3) | st.sampled_from(["\ud800", "x" * 200, "x" * 201, "", "a\x00b"]))
def test_every_name_that_a_model_makes_up_has_a_key(name: str) -> None:
    named = tool_key_name(name)
    assert receipt_key_from(receipt_key_string(key(tool=named))).tool == named
    assert len(named) <= 200
    assert named == name or (named.startswith("?") and len(named) == 65)


def test_a_name_that_a_tool_may_have_stands_in_the_key_as_it_is() -> None:
    assert tool_key_name("send_money-2") == "send_money-2"
    assert tool_key_name("überweisen") == "überweisen"
    assert tool_key_name("x" * 201) != tool_key_name("x" * 202)
