import enum
import json

import pytest
from hypothesis import given

from harness._json import JSON, check_json, digest
from harness.transcript import heal_messages, raw_arguments, raw_name
from harness.transcript._plain import plain_json
from tests.strategies import anything, json_values
from tests.transcript.examples import (
    ANSWER,
    LONG_ID,
    MORE,
    SYSTEM,
    USER,
    asks,
    call,
    nested,
    result,
    without,
)
from tests.transcript.test_healing import check_healed, found, interrupted


def text_part(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


# -- one message ---------------------------------------------------------------------------------


@pytest.mark.rule("R-HEAL-16")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("What is new?", USER),
        ({"content": "What is new?"}, USER),
        ({**USER, "role": ["user"]}, USER),
        ({**USER, "content": 7}, {**USER, "content": "7"}),
        ({**USER, "content": {"a": 1}}, {**USER, "content": '{"a":1}'}),
        ({**USER, "content": text_part("Hm.")}, {**USER, "content": [text_part("Hm.")]}),
        ({**USER, "content": ["Hm.", None]}, {**USER, "content": [text_part("Hm.")]}),
        ({**USER, "content": [{"text": "Hm."}]}, {**USER, "content": [text_part("Hm.")]}),
        (
            {**USER, "content": [{"type": "text", "text": {"value": 1}}]},
            {**USER, "content": [text_part('{"value":1}')]},
        ),
        (
            {**USER, "content": [{"type": "text"}, [1]]},
            {**USER, "content": [text_part("[1]")]},
        ),
        ({**USER, "content": "half: \ud83d"}, {**USER, "content": "half: \\ud83d"}),
        ({**USER, "score": float("nan")}, {**USER, "score": None}),
        ({**USER, "seen": (1, b"2", {3})}, {**USER, "seen": [1, "2", None]}),
        (dict[object, object](USER) | {1: 2}, USER),
        ({**USER, "big": 10**5000}, {**USER, "big": None}),
    ],
)
def test_what_can_be_read_of_a_malformed_message_is_put_into_its_shape(
    given: object, expected: object
) -> None:
    healed = check_healed([USER, given])
    assert list(healed.messages) == [USER, expected]
    assert found(healed) == [("malformed_message", 1, None)]


@pytest.mark.rule("R-HEAL-16")
@pytest.mark.parametrize("nothing", [None, 7, [USER], b"bytes", object()])
def test_what_is_no_message_at_all_is_removed(nothing: object) -> None:
    healed = check_healed([USER, nothing, MORE])
    assert list(healed.messages) == [USER, MORE]
    assert found(healed) == [("malformed_message", 1, None)]


@pytest.mark.rule("R-HEAL-16")
def test_a_role_that_is_missing_is_guessed_from_the_keys() -> None:
    bad = [USER, without(asks(call("a")), "role"), without(result("a"), "role")]
    assert list(check_healed(bad).messages) == [USER, asks(call("a")), result("a")]


@pytest.mark.rule("R-HEAL-16")
def test_a_refusal_that_is_no_text_becomes_one() -> None:
    healed = check_healed([USER, {**ANSWER, "refusal": ["no"]}, MORE])
    assert healed.messages[1] == {**ANSWER, "refusal": '["no"]'}


@pytest.mark.rule("R-HEAL-16")
def test_nesting_that_is_too_deep_is_cut_where_it_is_too_deep() -> None:
    (message,) = check_healed([{**USER, "deep": nested(300)}]).messages
    assert json.dumps(message).count("[") > 180


@pytest.mark.rule("R-HEAL-17")
@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("human", "user"),
        ("ai", "assistant"),
        ("Model", "assistant"),
        (" USER ", "user"),
        ("bystander", "user"),
        ("", "user"),
    ],
)
def test_a_role_has_its_own_name_or_is_the_users(role: str, expected: str) -> None:
    healed = check_healed([USER, {"role": role, "content": "Hm."}, MORE])
    assert list(healed.messages) == [USER, {"role": expected, "content": "Hm."}, MORE]
    assert found(healed) == [("unknown_role", 1, None)]


@pytest.mark.rule("R-HEAL-17")
def test_a_result_of_the_old_kind_names_no_call_and_is_removed() -> None:
    healed = check_healed([USER, {"role": "function", "name": "look", "content": "{}"}])
    assert [issue.code for issue in healed.issues] == ["unknown_role", "orphan_result"]
    assert list(healed.messages) == [USER]


@pytest.mark.rule("R-HEAL-18")
def test_blank_parts_and_what_is_empty_then_are_removed_and_a_result_is_kept_empty() -> None:
    blank = text_part(" ")
    image = {"type": "image_url"}
    healed = check_healed(
        [
            {**SYSTEM, "content": ""},
            {**USER, "content": [blank, image]},
            {**ANSWER, "content": [blank]},
            {**USER, "content": [blank]},
            asks(call("a"), content=[blank, text_part("Hm.")]),
            result("a", content=None),
        ]
    )
    assert list(healed.messages) == [
        {**USER, "content": [image]},
        asks(call("a"), content=[text_part("Hm.")]),
        result("a", content=""),
    ]
    assert found(healed) == [
        ("empty_message", 0, None),
        ("empty_part", 1, None),
        ("empty_part", 2, None),
        ("empty_assistant", 2, None),
        ("empty_part", 3, None),
        ("empty_message", 3, None),
        ("empty_part", 4, None),
        ("empty_result", 5, None),
    ]


@pytest.mark.rule("R-HEAL-18")
def test_the_content_beside_calls_is_null_when_all_its_parts_were_blank() -> None:
    healed = check_healed([USER, asks(call("a"), content=[text_part("")]), result("a")])
    assert healed.messages[1] == asks(call("a"))


# -- calls ---------------------------------------------------------------------------------------


@pytest.mark.rule("R-HEAL-19")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (without(call("a"), "type"), call("a")),
        (call("a", type=None), call("a")),
        (call("a", None), call("a")),
        (call("a", {"n": 1}), call("a", '{"n":1}')),
        (call("a", name=""), call("a", name="unnamed")),
        (without(call("a"), "function"), call("a", name="unnamed")),
    ],
)
def test_a_malformed_call_is_kept_as_far_as_it_says_something(
    given: dict[str, object], expected: dict[str, object]
) -> None:
    healed = check_healed([USER, asks(given, call("b")), result("a"), result("b")])
    assert healed.messages[1] == asks(expected, call("b"))
    assert found(healed) == [("malformed_calls", 1, None)]


@pytest.mark.rule("R-HEAL-19")
def test_a_name_that_stands_in_the_call_itself_is_read() -> None:
    bare = {"id": "a", "name": "look", "arguments": {"n": 1}}
    healed = check_healed([USER, asks(bare), result("a")])
    assert healed.messages[1] == asks({**bare, **call("a", '{"n":1}')})


@pytest.mark.rule("R-HEAL-19")
@pytest.mark.parametrize("calls", [None, [], {"id": "a"}, "a", [None], ["a", 7]])
def test_calls_that_are_none_are_removed(calls: object) -> None:
    healed = check_healed([USER, {**ANSWER, "tool_calls": calls}, MORE])
    assert list(healed.messages) == [USER, ANSWER, MORE]
    assert found(healed) == [("malformed_calls", 1, None)]


@pytest.mark.rule("R-HEAL-19")
def test_what_is_kept_of_a_call_by_its_place_goes_when_the_places_change() -> None:
    kept = {"x-harness": {"raw_arguments": {"1": "[", "other": "x"}, "mine": 1}}
    healed = check_healed([USER, asks(None, call("a"), **kept), result("a")])
    assert healed.messages[1] == asks(call("a"), **{"x-harness": {"mine": 1}})


@pytest.mark.rule("R-HEAL-20")
def test_calls_without_ids_are_answered_by_the_results_without_ids_after_them() -> None:
    nameless = {**call("a"), "id": ""}
    healed = check_healed(
        [
            USER,
            asks(nameless, call("b"), without(call("c"), "id"), call("d") | {"id": 7}),
            result(None, content="first"),
            result("b"),
            result("", content="second"),
            result(7),
            result(None, content="of nothing"),
            MORE,
            result(None, content="of nothing"),
        ]
    )
    ids = ["call_1_0", "b", "call_1_2", "7"]
    contents = [message.get("content") for message in healed.messages[2:6]]
    assert [message.get("tool_call_id") for message in healed.messages[2:6]] == ids
    assert [each["id"] for each in healed.messages[1]["tool_calls"]] == ids
    assert contents == ["first", result("b")["content"], "second", result("d")["content"]]
    codes = [issue.code for issue in healed.issues]
    assert codes == ["missing_call_id"] * 6 + ["orphan_result"] * 2


@pytest.mark.rule("R-HEAL-20")
def test_a_result_without_id_that_stands_elsewhere_answers_nothing() -> None:
    healed = check_healed([USER, asks({**call("a"), "id": ""}), MORE, result(None)])
    assert list(healed.messages) == [
        USER,
        asks(call("call_1_0")),
        interrupted("call_1_0"),
        MORE,
    ]


@pytest.mark.rule("R-HEAL-10", "R-HEAL-21")
def test_of_calls_with_one_id_in_one_message_the_later_ones_get_another() -> None:
    bad = [
        USER,
        asks(call("a"), call("a"), call("a_2"), call("a")),
        result("a", content="first"),
        result("a", content="second"),
        result("a_2"),
    ]
    healed = check_healed(bad)
    ids = ["a", "a_3", "a_2", "a_4"]
    assert list(healed.messages) == [
        USER,
        asks(*map(call, ids)),
        result("a", content="first"),
        result("a_3", content="second"),
        result("a_2"),
        interrupted("a_4"),
    ]
    assert healed.messages[2] is bad[2]
    assert found(healed) == [
        ("dangling_call", 1, "a"),
        ("refused_call_id", 1, "a"),
        ("refused_call_id", 1, "a"),
    ]


@pytest.mark.rule("R-HEAL-21")
@pytest.mark.parametrize("id", [LONG_ID, "functions.look:0", "é", "a" * 10_000, " "])
def test_an_id_that_is_refused_becomes_the_same_one_every_time(id: str) -> None:
    batch = [asks(call(id)), result(id)]
    healed = check_healed([USER, *batch, MORE, *batch])
    first, second = (healed.messages[place]["tool_calls"][0]["id"] for place in (1, 4))
    assert first == second == healed.messages[2]["tool_call_id"]
    assert found(healed) == [("refused_call_id", place, id) for place in (1, 4)]


@pytest.mark.rule("R-HEAL-21")
def test_ids_that_differ_only_in_what_is_refused_stay_apart() -> None:
    ids = ["f.0", "f:0", LONG_ID, LONG_ID + "0"]
    batches = [each for id in ids for each in (asks(call(id)), result(id))]
    healed = check_healed([USER, *batches])
    answers = [message["tool_call_id"] for message in healed.messages if message["role"] == "tool"]
    assert len(set(answers)) == 4


@pytest.mark.rule("R-HEAL-22")
def test_poisoned_arguments_and_names_are_kept_where_no_provider_sees_them() -> None:
    poisoned = call("a", '{"path": "/et', name="look up")
    healed = check_healed([USER, asks(poisoned, call("b", "")), result("a"), result("b")])
    message = healed.messages[1]
    assert message["tool_calls"][0] == call("a", name="look_up")
    assert raw_arguments(message, 0) == '{"path": "/et'
    assert raw_name(message, 0) == "look up"
    assert found(healed) == [("poisoned_call", 1, "a")]


@pytest.mark.rule("R-HEAL-22")
def test_absent_arguments_are_no_poison() -> None:
    assert check_healed([USER, asks(call("a", "")), result("a")]).issues == ()


# -- the ends ------------------------------------------------------------------------------------


@pytest.mark.rule("R-HEAL-23")
def test_a_late_system_message_becomes_the_users_where_it_stands() -> None:
    late = {"role": "developer", "content": "Be briefer."}
    messages = [SYSTEM, late, USER, asks(call("a")), late, result("a"), SYSTEM]
    healed = check_healed(messages)
    assert list(healed.messages) == [
        *messages[:4],
        result("a"),
        {**late, "role": "user"},
        {**SYSTEM, "role": "user"},
    ]
    assert [each[:2] for each in found(healed) if each[0] == "late_system"] == [
        ("late_system", 4),
        ("late_system", 6),
    ]


@pytest.mark.rule("R-HEAL-24")
@pytest.mark.parametrize(
    ("messages", "expected", "index"),
    [
        ([], [{"role": "user", "content": "On."}], 0),
        ([SYSTEM], [SYSTEM, {"role": "user", "content": "On."}], 1),
        ([SYSTEM, None], [SYSTEM, {"role": "user", "content": "On."}], 2),
        ([ANSWER, USER], [{"role": "user", "content": "Hm?"}, ANSWER, USER], 0),
        (
            [SYSTEM, asks(call("a")), result("a")],
            [SYSTEM, {"role": "user", "content": "Hm?"}, asks(call("a")), result("a")],
            1,
        ),
    ],
)
def test_a_conversation_begins_with_the_user(
    messages: list[object], expected: list[object], index: int
) -> None:
    healed = heal_messages(messages, continue_text="On.", opening_text="Hm?")
    assert list(healed.messages) == expected
    assert found(healed)[-1] == ("missing_user", index, None)
    check_healed(messages)


# -- plain JSON ----------------------------------------------------------------------------------


@pytest.mark.rule("R-HEAL-16")
@given(anything)
def test_anything_becomes_json(value: object) -> None:
    check_json(plain_json(value))


@pytest.mark.rule("R-HEAL-16")
@given(json_values)
def test_what_is_json_stays_what_it_is(value: JSON) -> None:
    assert digest(plain_json(value)) == digest(value)


class Name(str):
    pass


class Level(enum.IntEnum):
    LOW = 1


class Share(float):
    pass


@pytest.mark.rule("R-HEAL-16")
def test_subclasses_become_what_they_are_made_of() -> None:
    plain = plain_json({Name("a"): [Name("b"), Level.LOW, Share(0.5), bytearray(b"\xff")]})
    assert plain == {"a": ["b", 1, 0.5, "\\xff"]}
    check_json(plain)
