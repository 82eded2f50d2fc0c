import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._messages import INTERRUPTED_TEXT, Message, failure_envelope
from harness.testing import (
    RUN_INVARIANTS,
    Scene,
    cancel_everywhere,
    final_answer,
    run_harness,
    slow_tool,
    streamed,
    tool_call,
    tool_call_turn,
)
from harness.transcript import (
    REFUSALS,
    REPAIRS,
    Healed,
    Issue,
    IssueCode,
    Tail,
    check_anthropic,
    check_openai,
    check_settled,
    heal_messages,
    unanswered_call_ids,
)
from tests.strategies import anything, broken_transcripts, malformed_messages, settled_transcripts
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

INTERRUPTED = failure_envelope(INTERRUPTED_TEXT, "interrupted")
EMPTIES: list[dict[str, object]] = [
    {"role": "assistant"},
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": " \n"},
    {"role": "assistant", "content": []},
    {"role": "assistant", "content": None, "refusal": ""},
]


CALL: dict[str, Any] = {"type": "function", "function": {"name": "f", "arguments": "{}"}}


def interrupted(id: str) -> dict[str, object]:
    return result(id, content=INTERRUPTED)


def found(healed: Healed) -> list[tuple[IssueCode, int, str | None]]:
    return [(issue.code, issue.index, issue.call_id) for issue in healed.issues]


def check_taken(messages: Sequence[object]) -> None:
    assert check_settled(messages) == ()
    assert check_openai(messages) == ()
    assert check_anthropic(messages) == ()


def check_healed(messages: Sequence[object]) -> Healed:
    """Heal, and see all that holds whatever the messages are."""
    healed = heal_messages(messages)
    check_taken(healed.messages)
    again = heal_messages(healed.messages)
    assert again.issues == ()
    assert is_same(again.messages, healed.messages)
    assert (healed.issues == ()) is is_same(healed.messages, messages)
    for issue in healed.issues:
        assert 0 <= issue.index <= len(messages)
        assert issue.code in get_args(IssueCode)
    return healed


def is_same(messages: Sequence[object], others: Sequence[object]) -> bool:
    """Whether they are the very same objects."""
    return [id(each) for each in messages] == [id(each) for each in others]


histories = (
    st.lists(
        malformed_messages | broken_transcripts().filter(len).map(lambda each: each[0]), max_size=8
    )
    | broken_transcripts()
)


# -- whatever comes in ---------------------------------------------------------------------------


@pytest.mark.rule("R-HEAL-01", "R-HEAL-12")
@given(histories)
def test_whatever_the_messages_are_they_are_taken_once_healed(messages: list[object]) -> None:
    check_healed(messages)


@pytest.mark.rule("R-HEAL-12")
@given(st.lists(anything, max_size=6))
def test_random_json_and_what_is_nothing_like_it_is_taken_once_healed(
    messages: list[object],
) -> None:
    check_healed(messages)


@pytest.mark.rule("R-HEAL-01")
@given(settled_transcripts())
def test_a_healthy_transcript_comes_back_as_the_same_objects(messages: list[Message]) -> None:
    healed = heal_messages(messages)
    assert is_same(healed.messages, messages)
    assert healed.issues == ()


@pytest.mark.rule("R-HEAL-01")
@given(broken_transcripts())
def test_healing_changes_nothing_that_was_given(messages: list[Message]) -> None:
    before = copy.deepcopy(messages)
    heal_messages(messages)
    assert messages == before


@pytest.mark.rule("R-HEAL-01", "R-HEAL-08")
@given(broken_transcripts())
def test_what_was_not_touched_stays_in_order(messages: list[Message]) -> None:
    places = {id(each): place for place, each in enumerate(messages)}
    kept = [each for each in heal_messages(messages).messages if each["role"] != "tool"]
    if len(places) == len(messages):
        order = [places[id(each)] for each in kept if id(each) in places]
        assert order == sorted(order)


@pytest.mark.rule("R-HEAL-13")
@given(settled_transcripts(), st.lists(malformed_messages, max_size=4))
def test_a_sound_prefix_is_untouched_by_what_follows(
    messages: list[Message], more: list[object]
) -> None:
    healed = heal_messages([*messages, *more])
    assert is_same(healed.messages[: len(messages)], messages)


@pytest.mark.rule("R-HEAL-13")
@given(histories, st.lists(malformed_messages, max_size=4))
def test_a_healed_transcript_that_has_grown_heals_to_itself_and_more(
    messages: list[object], more: list[object]
) -> None:
    healed = heal_messages(messages).messages
    grown = heal_messages([*healed, *more]).messages
    assert is_same(grown[: len(healed)], healed)


@pytest.mark.rule("R-HEAL-13")
@given(histories, st.lists(malformed_messages, max_size=4))
def test_a_bad_transcript_heals_to_the_same_text_after_it_has_grown(
    messages: list[object], more: list[object]
) -> None:
    healed = heal_messages(messages)
    ends = {"dangling_call", "trailing_assistant", "missing_user"}
    if not ends & {issue.code for issue in healed.issues}:
        grown = heal_messages([*messages, *more])
        assert grown.messages[: len(healed.messages)] == healed.messages


@pytest.mark.rule("R-HEAL-12")
@pytest.mark.parametrize(
    "example", [pytest.param(each, id=f"{each.code}-{n}") for n, each in enumerate(EXAMPLES)]
)
def test_each_refused_transcript_is_taken_once_healed(example: Example) -> None:
    healed = check_healed(example.bad)
    rows = {row.code for row in REPAIRS if example.code in row.ends}
    if example.code != "not_open":  # of what is said about a transcript, not of the transcript
        assert rows & {issue.code for issue in healed.issues}


@pytest.mark.rule("R-HEAL-12")
def test_every_refusal_has_a_repair_that_ends_it() -> None:
    ended = {code for row in REPAIRS for code in row.ends}
    assert ended == {row.code for row in REFUSALS} - {"not_open"}
    codes = [row.code for row in REPAIRS]
    assert sorted(codes) == sorted(get_args(IssueCode))
    assert all(row.when and row.repair and row.loses for row in REPAIRS)


# -- the five repairs ----------------------------------------------------------------------------


@pytest.mark.rule("R-HEAL-02")
@pytest.mark.parametrize(
    ("messages", "place", "call_id"),
    [
        ([*SETTLED, result("c")], 4, "c"),
        ([*SETTLED, result("a")], 4, "a"),
        ([USER, result("a"), ANSWER, MORE], 1, "a"),
        ([*SETTLED, result("")], 4, None),
        ([*SETTLED, MORE, result("b")], 5, "b"),
        ([*ASKED, result("a"), result("a"), result("b")], 3, "a"),
    ],
)
def test_a_result_that_answers_no_call_is_removed(
    messages: list[object], place: int, call_id: str | None
) -> None:
    healed = check_healed(messages)
    assert found(healed) == [("orphan_result", place, call_id)]
    assert is_same(healed.messages, messages[:place] + messages[place + 1 :])


@pytest.mark.rule("R-HEAL-03")
@pytest.mark.parametrize(
    ("messages", "order", "places"),
    [
        ([USER, asks(call("a")), MORE, result("a")], [0, 1, 3, 2], [3]),
        ([*ASKED, result("b"), result("a")], [0, 1, 3, 2], [3]),
        ([*ASKED, result("b"), MORE, result("a")], [0, 1, 4, 2, 3], [4]),
        (
            [USER, asks(call("a")), asks(call("b")), result("a"), result("b")],
            [0, 1, 3, 2, 4],
            [3],
        ),
        (
            [USER, asks(call("a")), asks(call("a")), result("a"), MORE, result("a")],
            [0, 1, 5, 2, 3, 4],
            [5],
        ),
    ],
)
def test_a_misplaced_result_is_moved_to_its_call(
    messages: list[object], order: list[int], places: list[int]
) -> None:
    healed = check_healed(messages)
    assert is_same(healed.messages, [messages[each] for each in order])
    assert [each[:2] for each in found(healed)] == [("misplaced_result", each) for each in places]


@pytest.mark.rule("R-HEAL-04")
@pytest.mark.parametrize("missing", ["a", "b", "c"])
def test_a_dangling_call_is_answered_in_its_place_with_outcome_unknown(missing: str) -> None:
    ids = ["a", "b", "c"]
    batch = [USER, asks(*map(call, ids))]
    healed = check_healed([*batch, *(result(id) for id in ids if id != missing), MORE])
    answers = [interrupted(id) if id == missing else result(id) for id in ids]
    assert list(healed.messages) == [*batch, *answers, MORE]
    assert found(healed) == [("dangling_call", 1, missing)]
    assert json.loads(INTERRUPTED)["kind"] == "interrupted"


@pytest.mark.rule("R-HEAL-05")
@pytest.mark.parametrize("empty", EMPTIES)
@pytest.mark.parametrize("rest", [[MORE], []])
def test_an_empty_assistant_message_is_removed(
    empty: Mapping[str, object], rest: list[object]
) -> None:
    healed = check_healed([USER, empty, *rest])
    assert list(healed.messages) == [USER, *rest]
    assert found(healed) == [("empty_assistant", 1, None)]


@pytest.mark.rule("R-HEAL-05")
@pytest.mark.parametrize(
    "rest",
    [
        [asks(call("a")), result("a")],
        [{"role": "assistant", "content": None, "refusal": "No."}, MORE],
        [{"role": "assistant", "content": [{"type": "image_url"}]}, MORE],
    ],
)
def test_an_assistant_message_with_calls_a_refusal_or_a_part_stays(rest: list[object]) -> None:
    assert check_healed([USER, *rest]).issues == ()


@pytest.mark.rule("R-HEAL-14")
@pytest.mark.parametrize(
    "lone",
    [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm."},
    ],
)
def test_reasoning_without_what_came_of_it_is_removed(lone: Mapping[str, object]) -> None:
    healed = check_healed([USER, lone, MORE])
    assert list(healed.messages) == [USER, MORE]
    assert found(healed) == [("orphan_reasoning", 1, None)]
    beside = {**lone, "tool_calls": [call("a")]}
    assert check_healed([USER, beside, result("a")]).issues == ()


@pytest.mark.rule("R-HEAL-06")
@pytest.mark.parametrize(
    ("trailing", "expected", "codes"),
    [
        ("continue", [USER, ANSWER, {"role": "user", "content": "On."}], ["trailing_assistant"]),
        ("drop", [USER], ["trailing_assistant"]),
        ("keep", [USER, ANSWER], []),
    ],
)
def test_an_assistant_message_at_the_end_is_followed_dropped_or_kept(
    trailing: Tail, expected: list[object], codes: list[IssueCode]
) -> None:
    healed = heal_messages([USER, ANSWER], trailing=trailing, continue_text="On.")
    assert list(healed.messages) == expected
    assert [(issue.code, issue.index) for issue in healed.issues] == [(each, 1) for each in codes]
    assert heal_messages(healed.messages, trailing=trailing).issues == ()
    dropped = heal_messages([USER, EMPTIES[2]], trailing=trailing)
    assert list(dropped.messages) == [USER]


@pytest.mark.rule("R-HEAL-06")
def test_dropping_goes_on_until_something_else_stands_last() -> None:
    healed = heal_messages([*SETTLED, ANSWER, ANSWER], trailing="drop")
    assert list(healed.messages) == SETTLED
    assert found(healed) == [("trailing_assistant", n, None) for n in (4, 5)]


@pytest.mark.rule("R-HEAL-06")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"trailing": "leave"},
            r"trailing is 'leave', expected one of \('continue', 'drop', 'keep'\)",
        ),
        ({"continue_text": " "}, "continue_text is ' ', expected a text that is not blank"),
        ({"opening_text": ""}, "opening_text is '', expected a text that is not blank"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        heal_messages([], **options)  # type: ignore[arg-type]  # that is the point


@pytest.mark.rule("R-HEAL-07")
def test_calls_that_are_left_open_are_not_touched() -> None:
    bad = call("functions.b:0", "[", name="look up")
    messages = [USER, asks(call("a"), bad), result("a")]
    healed = heal_messages(messages, leave_open=["functions.b:0"])
    assert is_same(healed.messages, messages)
    assert healed.issues == ()
    assert "dangling_call" in {issue.code for issue in heal_messages(messages).issues}


@pytest.mark.rule("R-HEAL-07")
@pytest.mark.parametrize(
    ("messages", "leave_open", "dangling", "still_open"),
    [
        (ASKED, "ab", "", "ab"),
        (ASKED, "b", "a", "b"),
        ([*ASKED, EMPTIES[0]], "ab", "", "ab"),
        ([*ASKED, MORE], "ab", "", "ab"),
        ([*ASKED, ANSWER, MORE], "ab", "ab", ""),
        ([*ASKED, *ASKED], "ab", "ab", "ab"),
        ([USER, asks(call("a"), call("a"))], "a", "a", "a"),
        (SETTLED, "a", "", ""),
    ],
)
def test_only_the_last_assistant_message_has_open_calls(
    messages: list[object], leave_open: str, dangling: str, still_open: str
) -> None:
    healed = heal_messages(messages, leave_open=tuple(leave_open))
    answered = [each.call_id for each in healed.issues if each.code == "dangling_call"]
    assert answered == list(dangling)
    assert check_settled(healed.messages, tuple(still_open)) == ()
    assert heal_messages(healed.messages, leave_open=tuple(leave_open)).issues == ()


@pytest.mark.rule("R-HEAL-07")
@given(broken_transcripts(), st.data())
def test_what_may_be_open_is_left_open_and_no_more(
    messages: list[Message], data: st.DataObject
) -> None:
    calls = [call["id"] for each in messages for call in each.get("tool_calls", ())]
    leave_open = data.draw(st.lists(st.sampled_from(calls), max_size=3)) if calls else []
    healed = heal_messages(messages, leave_open=leave_open)
    again = heal_messages(healed.messages, leave_open=leave_open)
    assert again.issues == ()
    assert is_same(again.messages, healed.messages)
    still_open = unanswered_call_ids(healed.messages)
    assert not Counter(still_open) - Counter(leave_open)
    assert check_settled(healed.messages, still_open) == ()


FAULTS = [
    USER,
    asks(call("a"), call("b")),
    EMPTIES[1],
    result("b"),
    result("z"),
    MORE,
    ANSWER,
]


@pytest.mark.rule("R-HEAL-08", "R-HEAL-09")
def test_one_pass_mends_all_faults_and_says_which() -> None:
    healed = check_healed(FAULTS)
    assert list(healed.messages) == [
        USER,
        FAULTS[1],
        interrupted("a"),
        result("b"),
        MORE,
        ANSWER,
        {"role": "user", "content": "Please continue."},
    ]
    assert found(healed) == [
        ("dangling_call", 1, "a"),
        ("empty_assistant", 2, None),
        ("misplaced_result", 3, "b"),
        ("orphan_result", 4, "z"),
        ("trailing_assistant", 6, None),
    ]


@pytest.mark.rule("R-HEAL-08")
def test_the_repairs_are_made_in_the_order_of_the_table() -> None:
    codes = [row.code for row in REPAIRS]
    order = ["orphan_result", "dangling_call", "empty_assistant", "trailing_assistant"]
    assert [code for code in codes if code in order] == order


SECRET = "swordfish"


@pytest.mark.rule("R-HEAL-09")
def test_an_issue_repeats_nothing_of_a_message() -> None:
    bad = [
        SECRET,
        {"role": SECRET, "content": SECRET},
        asks(call("a", SECRET, name=f"{SECRET} {SECRET}")),
        result("z", content=SECRET),
        {**ANSWER, "content": {SECRET: SECRET}},
    ]
    healed = check_healed(bad)
    assert len(healed.issues) > 4
    assert SECRET not in repr(healed.issues)
    assert [field.name for field in attrs.fields(Issue)] == ["code", "index", "call_id"]


@pytest.mark.rule("R-HEAL-10")
def test_ids_that_come_again_in_another_message_stay_as_they_are() -> None:
    messages = [USER, asks(call("a")), result("a"), asks(call("a")), result("a")]
    healed = check_healed(messages)
    assert is_same(healed.messages, messages)
    # An approval round trip: the call was put off, and asked for once more.
    twice = [USER, asks(call("a")), asks(call("a")), result("a")]
    assert list(check_healed(twice).messages) == [
        *twice[:2],
        interrupted("a"),
        *twice[2:],
    ]


@pytest.mark.rule("R-HEAL-11")
@pytest.mark.parametrize("stop", ["outer", "abort"])
def test_what_a_run_leaves_wherever_it_is_stopped_has_nothing_to_mend(stop: str) -> None:
    checked = 0

    async def scenario(scene: Scene) -> None:
        kit = run_harness(
            [
                streamed(tool_call_turn([tool_call("slow"), tool_call("first")], "Well."), size=9),
                final_answer("Done."),
            ],
            tools=[slow_tool(1), slow_tool(1, "first", serial=True)],
            scene=scene,
        )

        @scene.afterwards
        def check() -> None:
            nonlocal checked
            for state in kit.states:
                healed = heal_messages(state.messages, trailing="keep")
                assert healed.issues == ()
                check_taken([*healed.messages, MORE])
                checked += 1

        async with kit.open() as opened:
            if stop == "abort":
                scene.on_cut(opened.abort)
            await opened.wait()

    cancel_everywhere(scenario, invariants=RUN_INVARIANTS, minimum=20)
    assert checked > 20


# -- time ----------------------------------------------------------------------------------------


def unanswered(n: int) -> list[object]:
    return [asks(*[call("a") for _ in range(n)]) for _ in range(2)] + [USER] * n


def reversed_results(n: int) -> list[object]:
    ids = [str(each) for each in range(n)]
    return [asks(*map(call, ids)), *map(result, reversed(ids))]


def clashing_ids(n: int) -> list[object]:
    ids = [f"{'x' * 30}_{each}" for each in range(n)] + ["x" * 40] * n + ["x" * 30] * n
    return [USER, asks(*map(call, ids))]


def nameless(n: int) -> list[object]:
    return [asks(*[{"function": {}}] * n), *[result(None)] * n]


def hopeless(n: int) -> list[object]:
    return [each for _ in range(n) for each in (asks(call("a")), SYSTEM, None, EMPTIES[3])]


def wide(n: int) -> list[object]:
    return [{**USER, "content": [[0] * n] * 2, "seen": {1}}]


@pytest.mark.rule("R-HEAL-15")
@pytest.mark.parametrize(
    "grow", [unanswered, reversed_results, clashing_ids, nameless, hopeless, wide]
)
def test_healing_takes_linear_time(grow: Callable[[int], list[object]]) -> None:
    def steps(size: int) -> int:
        count = 0

        def step(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += 1

        messages = grow(size)
        sys.setprofile(step)
        try:
            heal_messages(messages)
        finally:
            sys.setprofile(None)
        return count

    once = steps(50)
    assert once > 50
    assert steps(200) < 5 * once


@pytest.mark.rule("R-HEAL-15")
def test_nesting_without_end_is_healed() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    loop: list[object] = []
    loop += [loop, loop]
    for value in (deep, loop):
        check_healed([USER, {**USER, "content": value}])
        check_healed([USER, {**USER, "seen": value}])
        check_healed([value, asks(call("a", value))])


@pytest.mark.rule("R-HEAL-04", "R-HEAL-10")
@pytest.mark.parametrize(
    "messages",
    [
        [
            {"role": "user", "content": "Go."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [CALL, {**CALL, "id": "call_1_0"}],
            },
            {"role": "tool", "tool_call_id": "call_1_0", "content": "looked up"},
        ],
        [
            {"role": "user", "content": "Go."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{**CALL, "id": 1}, {**CALL, "id": "1"}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "looked up"},
        ],
        [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": "call_3_0"}]},
            {"role": "user", "content": "And?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_3_0", "content": "looked up"},
        ],
    ],
    ids=["in one message", "a number beside a text", "of an earlier message"],
)
def test_an_id_that_is_made_up_draws_nobody_else_s_result(messages: list[Any]) -> None:
    healed = heal_messages(messages).messages
    answers = [each for each in healed if each["role"] == "tool"]
    (given,) = [each for each in answers if each["content"] == "looked up"]
    asked = [call for each in healed for call in each.get("tool_calls", ())]
    wanted = "call_3_0" if len(messages) == 5 else messages[1]["tool_calls"][1]["id"]
    assert given["tool_call_id"] == wanted
    assert len(answers) == len(asked) == 2
    assert len({each["id"] for each in asked}) == 2
    assert heal_messages(healed).issues == ()
