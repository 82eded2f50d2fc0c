import hashlib
import json
import math
import struct
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness._errors import NotJSONError, RecordError
from harness._json import (
    JSON,
    ROOM,
    canonical_text,
    check_json,
    converted,
    decode,
    digest,
    encode,
    encode_text,
)
from tests.strategies import anything, json_values, texts


def nested(depth: int, innermost: JSON = None) -> JSON:
    """*depth* lists around each other; the innermost one is empty unless something is given."""
    value: JSON = [] if innermost is None else [innermost]
    for _ in range(depth - 1):
        value = [value]
    return value


def same(a: object, b: object) -> bool:
    """Equal, types included: ``True`` is not ``1``, and ``-0.0`` is not ``0.0``."""
    return repr(a) == repr(b) and a == b


@pytest.mark.rule("R-JSON-01")
@given(json_values)
def test_what_is_encoded_comes_back(value: JSON) -> None:
    assert same(decode(encode(value)), value)
    assert same(decode(encode_text(value)), value)
    assert same(json.loads(encode(value)), value)


@pytest.mark.rule("R-JSON-01")
@given(anything)
def test_what_encodes_at_all_comes_back(value: object) -> None:
    try:
        text = encode(value)
    except NotJSONError:
        return
    assert same(decode(text), value)


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


@pytest.mark.rule("R-JSON-02")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "nan is no JSON number"),
        (math.inf, "inf is no JSON number"),
        (-math.inf, "-inf is no JSON number"),
        ((1, 2), "tuple is no JSON type"),
        ({1}, "set is no JSON type"),
        (b"x", "bytes is no JSON type"),
        (Decimal(1), "Decimal is no JSON type"),
        (Text("x"), "Text is no JSON type"),
        (Whole(1), "Whole is no JSON type"),
        (object(), "object is no JSON type"),
        ({1: 2}, "the key 1 is not a text"),
        ({Text("x"): 2}, "the key 'x' is not a text"),
        ("\ud800", "a text holds a lone surrogate"),
        ({"\udfff": 1}, "a text holds a lone surrogate"),
        pytest.param(10**5000, "an integer has too many digits", id="long"),
        pytest.param(-(10**5000), "an integer has too many digits", id="long, negative"),
    ],
)
def test_only_exact_json_types_are_encoded(value: object, reason: str) -> None:
    for function in (encode, encode_text, check_json, canonical_text, digest):
        with pytest.raises(NotJSONError) as caught:
            function({"a": [0, value]})
        assert caught.value.reason == reason
        assert caught.value.path == ("a", 1)
        assert str(caught.value) == f"not JSON at a.1: {reason}"


@pytest.mark.rule("R-JSON-02")
def test_a_value_that_holds_itself_is_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(NotJSONError, match="nested too deeply"):
        encode(cycle)


@pytest.mark.rule("R-JSON-03")
@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "[NaN]",
        "1e400",
        "-1e400",
        pytest.param("9" * 5000, id="long integer"),
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\ud800"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        "",
        " ",
        "[1,]",
        '{"a":1,}',
        "{'a':1}",
        "{a:1}",
        "[1] 2",
        "01",
        "+1",
        ".5",
        "1.",
        "nul",
        "True",
        '"a\nb"',
        '"\x00"',
        "\ufeff1",
        "// note\n1",
        pytest.param("[" * 100_000, id="deep and cut off"),
        pytest.param("[" * 100_000 + "]" * 100_000, id="deep lists"),
        pytest.param('{"a":' * 1000 + "1" + "}" * 1000, id="deep objects"),
    ],
)
def test_text_that_is_not_strict_json_is_refused_by_one_kind_of_error(text: str | bytes) -> None:
    with pytest.raises(NotJSONError) as caught:
        decode(text)
    assert caught.value.path == ()
    assert str(caught.value).startswith("not JSON: ")


@pytest.mark.rule("R-JSON-03")
@given(st.text() | st.binary())
@example("9" * 4301)
def test_decoding_never_fails_otherwise(text: str | bytes) -> None:
    try:
        value = decode(text)
    except NotJSONError:
        return
    encode(value)


@pytest.mark.rule("R-JSON-03")
def test_of_duplicate_keys_the_last_wins() -> None:
    assert decode('{"a":1,"b":2,"a":3}') == {"a": 3, "b": 2}


@pytest.mark.rule("R-JSON-04")
@pytest.mark.parametrize("innermost", [None, 1, "x"])
def test_nesting_has_one_limit_both_ways(innermost: JSON) -> None:
    allowed, beyond = nested(200, innermost), nested(201, innermost)
    assert decode(json.dumps(allowed)) == allowed
    assert decode(encode(allowed)) == allowed
    for function in (encode, canonical_text, check_json):
        with pytest.raises(NotJSONError, match=r"it is nested too deeply$"):
            function(beyond)
    with pytest.raises(NotJSONError, match=r"^not JSON: it is nested too deeply$"):
        decode(json.dumps(beyond))
    members: JSON = {"a": 1}
    for _ in range(199):
        members = {"a": members}
    assert decode(encode(members)) == members
    with pytest.raises(NotJSONError, match=r"it is nested too deeply$"):
        decode(json.dumps({"a": members}))


def plain(value: object) -> object:
    """*value* as JSON means it: numbers by their decimal value, keys in no order."""
    match value:
        case bool() | None | str():
            return (type(value).__name__, value)
        case int() | float():
            return ("number", Decimal(repr(value)))
        case Decimal():
            return ("number", value)
        case list():
            return tuple(map(plain, value))
        case dict():
            return frozenset((key, plain(inner)) for key, inner in value.items())
        case _:
            raise AssertionError(value)


@pytest.mark.rule("R-JSON-05")
@given(json_values, json_values)
def test_two_values_have_one_canonical_text_just_if_json_cannot_tell_them_apart(
    a: JSON, b: JSON
) -> None:
    assert (canonical_text(a) == canonical_text(b)) is (plain(a) == plain(b))


whole_numbers = st.integers(-(2**80), 2**80) | st.integers(15, 25).map(lambda power: 10**power)


@pytest.mark.rule("R-JSON-05")
@given(whole_numbers)
@example(2**53 + 1)
@example(10**21)
@example(10**21 + 1)
@example(123 * 10**30)
def test_an_integer_and_a_float_have_one_text_just_if_they_are_the_same_decimal(
    number: int,
) -> None:
    as_float = float(number)
    one_text = canonical_text(number) == canonical_text(as_float)
    assert one_text is (Decimal(number) == Decimal(repr(as_float)))
    assert canonical_text(number) != canonical_text(number + 1)


@pytest.mark.rule("R-JSON-05")
@given(json_values)
def test_the_canonical_text_is_json_for_the_same_value(value: JSON) -> None:
    text = canonical_text(value)
    decode(text)
    assert plain(json.loads(text, parse_int=Decimal, parse_float=Decimal)) == plain(value)


@pytest.mark.rule("R-JSON-06")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": 1.0}, '{"a":1,"b":1}'),
        ([True, 1, None, "1"], '[true,1,null,"1"]'),
        (
            {"é": 1, "z": 2, "Z": 3, "": 4, "😀": 5, "\uffff": 6},
            '{"":4,"Z":3,"z":2,"é":1,"\uffff":6,"😀":5}',
        ),
        ("/ é 😀 \u2028 \x7f", '"/ é 😀 \u2028 \x7f"'),
        ('\b\t\n\f\r"\\\x00\x1f', r'"\b\t\n\f\r\"\\\u0000\u001f"'),
        ([[], {}, ""], '[[],{},""]'),
    ],
)
def test_the_canonical_text_is_compact_sorted_and_escapes_only_what_it_must(
    value: JSON, text: str
) -> None:
    assert canonical_text(value) == text


@pytest.mark.rule("R-JSON-06")
@given(texts)
def test_a_text_is_escaped_as_json_requires_and_no_more(text: str) -> None:
    assert canonical_text(text) == json.dumps(text, ensure_ascii=False)


@pytest.mark.rule("R-JSON-06")
@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_floats_are_written_as_ecmascript_writes_them(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_text(number) == text


@pytest.mark.rule("R-JSON-06")
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (-1, "-1"),
        (2**53 + 1, "9007199254740993"),
        (10**20, "100000000000000000000"),
        (10**21, "1e+21"),
        (-(10**21), "-1e+21"),
        (10**21 + 1, "1.000000000000000000001e+21"),
        (1200 * 10**20, "1.2e+23"),
    ],
)
def test_integers_are_written_the_same_way_with_all_their_digits(number: int, text: str) -> None:
    assert canonical_text(number) == text


@pytest.mark.rule("R-JSON-06")
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_float_reads_back_as_that_float(number: float) -> None:
    assert float(canonical_text(number)) == number


@pytest.mark.rule("R-JSON-07")
def test_the_digest_is_the_sha256_of_the_canonical_text() -> None:
    expected = "43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777"
    assert digest({"b": 2, "a": 1}) == expected
    assert digest({"a": 1.0, "b": 2.0}) == expected
    assert digest({"a": 1, "b": "2"}) != expected
    assert digest("é") == hashlib.sha256('"é"'.encode()).hexdigest()


@pytest.mark.rule("R-JSON-07")
def test_another_hash_gets_the_bytes_of_the_canonical_text() -> None:
    assert digest({"b": [], "a": "é"}, lambda text: text.decode()) == '{"a":"é","b":[]}'


def test_a_value_may_be_asked_to_leave_room_around_it() -> None:
    value: JSON = 0
    for _ in range(150):
        value = [value]
    check_json(value, room=ROOM)
    with pytest.raises(NotJSONError, match="nested too deeply"):
        check_json([value], room=ROOM)
    check_json([value])


@pytest.mark.parametrize("value", ["\ud800", 1, {"a": "1"}, None, {"a": [1, "\ud800"]}])
def test_a_value_that_is_no_record_is_refused_whatever_it_is(value: object) -> None:
    with pytest.raises(RecordError, match=r"^the record does not load at "):
        converted(value, dict[str, list[int]])
