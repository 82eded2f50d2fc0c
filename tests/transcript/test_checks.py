import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._messages import Message
from harness.transcript import (
    REFUSALS,
    Check,
    Refusal,
    RefusalRow,
    check_anthropic,
    check_openai,
    check_settled,
    is_settled,
    unanswered_call_ids,
)
from tests.strategies import (
    broken_transcripts,
    malformed_messages,
    settled_transcripts,
)
from tests.transcript.examples import (
    ANSWER,
    ASKED,
    EXAMPLES,
    MORE,
    SETTLED,
    SYSTEM,
    USER,
    Example,
    asks,
    call,
    result,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "contract" / "transcript.rst"
CHECKS: tuple[Check, ...] = ("settled", "openai", "anthropic")
ROWS = {row.code: row for row in REFUSALS}


def check(
    name: Check, messages: Sequence[object], open_calls: tuple[str, ...] = ()
) -> tuple[Refusal, ...]:
    match name:
        case "settled":
            return check_settled(messages, open_calls)
        case "openai":
            return check_openai(messages)
        case "anthropic":
            return check_anthropic(messages)


def codes(refusals: Sequence[Refusal]) -> list[str]:
    return [each.code for each in refusals]


@pytest.mark.parametrize(
    ("example", "row"),
    [
        pytest.param(
            example,
            ROWS[example.code],
            marks=pytest.mark.rule(f"R-VALID-{ROWS[example.code].number:02}"),
            id=f"{example.code}-{number}",
        )
        for number, example in enumerate(EXAMPLES)
    ],
)
def test_a_bad_transcript_is_refused_for_its_one_reason_and_taken_once_repaired(
    example: Example, row: RefusalRow
) -> None:
    for name in CHECKS:
        found = check(name, example.bad, example.open_calls)
        if name in row.checks:
            assert [(each.code, each.number) for each in found] == [(row.code, row.number)], name
            assert (found[0].index, found[0].call_id) == (example.index, example.call_id)
            assert check(name, example.repaired, example.open_calls) == ()
        else:
            assert row.code not in codes(found)


def test_every_row_has_an_example_a_number_of_its_own_and_a_rule_that_says_it() -> None:
    assert {example.code for example in EXAMPLES} == set(ROWS)
    assert [row.number for row in REFUSALS] == list(range(1, len(REFUSALS) + 1))
    assert len(ROWS) == len(REFUSALS)
    page = " ".join(PAGE.read_text("utf-8").split())
    for row in REFUSALS:
        assert set(row.checks) <= set(CHECKS)
        assert row.checks
        title = f".. rule:: R-VALID-{row.number:02} ``{row.code}`` ({', '.join(row.checks)})."
        assert f"{title} {row.description}" in page


@given(settled_transcripts())
def test_a_settled_conversation_is_taken_by_all(messages: list[Message]) -> None:
    for name in CHECKS:
        assert check(name, messages) == ()
    assert unanswered_call_ids(messages) == ()


def settled_by_definition(messages: Sequence[Message]) -> bool:
    """Say it again, the plain way: after each message with calls just its results, in order."""
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        if message["role"] == "tool":
            return False
        for each in message.get("tool_calls", ()):
            if not rest or rest.pop(0).get("tool_call_id") != each["id"]:
                return False
    return True


@pytest.mark.rule("R-VALID-23")
@given(broken_transcripts())
def test_settled_means_that_each_call_is_followed_by_its_result_in_call_order(
    messages: list[Message],
) -> None:
    assert is_settled(messages) is settled_by_definition(messages)
    assert is_settled(messages) is (check_settled(messages) == ())


@pytest.mark.rule("R-VALID-23")
@pytest.mark.parametrize(
    ("messages", "open_calls", "expected"),
    [
        (ASKED, ("a", "b"), []),
        (ASKED, ("b", "a"), []),
        (ASKED, (), ["unanswered_call", "unanswered_call"]),
        (ASKED, ("a",), ["unanswered_call"]),
        ([*ASKED, result("b")], ("a",), []),
        ([*ASKED, result("b"), MORE], ("a",), []),
        ([*ASKED, result("b"), ANSWER], ("a",), ["unanswered_call", "not_open"]),
        ([*ASKED, result("a"), *ASKED], ("b", "a"), ["unanswered_call"]),
        (SETTLED, (), []),
        # Of two calls with one id, one may be open: which of them does not show.
        ([asks(call("a"), call("a")), result("a")], ("a",), []),
        ([asks(call("a"), call("a"))], ("a",), ["unanswered_call"]),
        ([asks(call("a"), call("b"), call("a")), result("a"), result("b")], ("a",), []),
        ([asks(call("a"), call("b"), call("a")), result("b"), result("a")], ("a",), []),
        (
            [asks(call("a"), call("b"), call("a")), result("a"), result("a"), result("b")],
            (),
            ["result_out_of_order"],
        ),
        ([asks(call("a"), call("a")), result("a"), result("a")], (), []),
        ([asks({"id": "a", "type": "custom"}), result("a")], (), []),
        ([asks({"id": "a", "type": "custom"})], (), ["unanswered_call"]),
        ([], (), []),
        ([SYSTEM, USER], (), []),
    ],
)
def test_only_calls_of_the_last_assistant_message_may_be_open(
    messages: Sequence[object], open_calls: tuple[str, ...], expected: list[str]
) -> None:
    assert codes(check_settled(messages, open_calls)) == expected
    assert is_settled(messages, open_calls) is (not expected)


@pytest.mark.rule("R-VALID-24")
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], ()),
        (SETTLED, ()),
        (ASKED, ("a", "b")),
        ([*ASKED, result("a")], ("b",)),
        ([*ASKED, result("b"), *ASKED], ("a", "a", "b")),
        ([*ASKED, result("c"), MORE], ("a", "b")),
        ([*ASKED, MORE, result("a")], ("b",)),
        ([asks(call("a"), call("a")), result("a")], ("a",)),
        ([asks(call("a"), call("b"), call("a")), result("a")], ("b", "a")),
        (["no message", *ASKED], ("a", "b")),
    ],
)
def test_unanswered_calls_are_those_that_no_result_names(
    messages: Sequence[object], expected: tuple[str, ...]
) -> None:
    assert unanswered_call_ids(messages) == expected


@pytest.mark.rule("R-VALID-25")
@given(st.lists(malformed_messages, max_size=6), st.lists(st.sampled_from("abc"), max_size=3))
def test_whatever_the_messages_are_a_check_ends_in_refusals(
    messages: list[object], open_calls: list[str]
) -> None:
    unanswered_call_ids(messages)
    for name in CHECKS:
        for refusal in check(name, messages, tuple(open_calls)):
            assert 0 <= refusal.index <= len(messages)
            assert name in ROWS[refusal.code].checks


@pytest.mark.rule("R-VALID-25")
@given(st.lists(malformed_messages, min_size=1, max_size=4))
def test_what_no_json_text_could_hold_is_never_taken(messages: list[object]) -> None:
    bad = [*messages, {**USER, "seen": {1}}]
    for name in CHECKS:
        assert check(name, bad)


SECRET = "swordfish"


@pytest.mark.rule("R-VALID-26")
@pytest.mark.parametrize(
    "message",
    [
        SECRET,
        {"role": "user", "content": {SECRET: SECRET}},
        {"role": "user", "content": [SECRET]},
        {"role": "user", "content": SECRET, SECRET: {SECRET}},
        {"role": "assistant", "content": SECRET, "tool_calls": SECRET},
        asks(call("a", SECRET, name=f"{SECRET} {SECRET}"), content=SECRET),
        asks({"id": "a", "type": "function", "function": SECRET}),
        {"role": "tool", "content": SECRET, "tool_call_id": [SECRET]},
    ],
)
def test_a_refusal_says_where_and_what_and_repeats_nothing_of_the_message(message: object) -> None:
    for name in CHECKS:
        refusals = check(name, [USER, message])
        assert refusals
        for refusal in refusals:
            assert SECRET not in repr(refusal)
            assert refusal.text.startswith(f"message {refusal.index}: ")
            assert "\n" not in refusal.text


def test_a_refusal_names_its_call_and_shortens_what_is_too_long_for_a_line() -> None:
    (refusal,) = check_settled([*ASKED, result("a")])
    assert refusal.text == "message 1: a call has no result (call 'b')"
    endless = "x" * 1_000_000
    for refusal in check_openai([{"role": endless, "content": ""}, asks(call(endless))]):
        assert len(refusal.text) < 200
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        refusal.index = 0  # type: ignore[misc]  # that is the point


def test_refusals_come_in_the_order_of_the_messages() -> None:
    bad = [asks(call("a")), {"role": "bystander"}, result("b"), {**ANSWER, "content": ""}]
    for name in CHECKS:
        places = [refusal.index for refusal in check(name, bad)]
        assert places == sorted(places)


def unanswered(n: int) -> list[object]:
    return [asks(*[call("a") for _ in range(n)]) for _ in range(2)] + [USER] * n


def out_of_order(n: int) -> list[object]:
    ids = [str(each) for each in range(n)]
    return [asks(*map(call, ids)), *map(result, reversed(ids))]


def one_id(n: int) -> list[object]:
    return [asks(*[call("a") for _ in range(n)]), *[result("a") for _ in range(2 * n)]]


def many_batches(n: int) -> list[object]:
    return [*(asks(call("a")) for _ in range(n)), *(result("a") for _ in range(n))]


def deep(n: int) -> list[object]:
    return [dict(USER, deep=[[0] * n] * 2)]


@pytest.mark.rule("R-VALID-27")
@pytest.mark.parametrize("grow", [unanswered, out_of_order, one_id, many_batches, deep])
@pytest.mark.parametrize("name", CHECKS)
def test_a_check_takes_linear_time(grow: Callable[[int], list[object]], name: Check) -> None:
    def steps(size: int) -> int:
        count = 0

        def step(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += 1

        messages = grow(size)
        open_calls = ("a",) * size
        sys.setprofile(step)
        try:
            check(name, messages, open_calls)
        finally:
            sys.setprofile(None)
        return count

    once = steps(50)
    assert once > 50
    assert steps(200) < 5 * once
