import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._messages import CallMessage
from harness._model import Assembly, CallPiece
from harness.completion import Completion, ToolCallAccumulator, detect_completion_defect
from harness.completion._accumulator import GrowingCall
from tests.completion.streams import ARGUMENTS, NAMES


def accumulated(*pieces: CallPiece) -> ToolCallAccumulator:
    accumulator = ToolCallAccumulator()
    for piece in pieces:
        accumulator.observe((piece,))
    return accumulator


def plain(calls: list[CallMessage]) -> list[tuple[str, str, str]]:
    return [(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in calls]


@pytest.mark.rule("R-ACC-01")
def test_nothing_observed_is_no_call() -> None:
    accumulator = ToolCallAccumulator()
    assert accumulator.observe(None) == []
    assert accumulator.observe(()) == []
    assert accumulator.is_empty
    assert accumulator.assembled() == []
    accumulator.observe((CallPiece(index=0, id="a"),))
    assert not accumulator.is_empty


@pytest.mark.rule("R-ACC-01", "R-ACC-12")
def test_a_piece_that_says_nothing_begins_no_call() -> None:
    accumulator = accumulated(CallPiece(), CallPiece(index=3), CallPiece(index=0, id="", name=""))
    assert accumulator.is_empty
    assert accumulator.conflicts == 0


@pytest.mark.rule("R-ACC-02")
def test_the_index_says_which_call_a_piece_belongs_to() -> None:
    accumulator = accumulated(
        CallPiece(index=1, id="b", name="g", arguments="[1"),
        CallPiece(index=0, id="a", name="f", arguments="[0"),
        CallPiece(index=1, arguments=",1]"),
        CallPiece(index=0, arguments=",0]"),
    )
    assert plain(accumulator.assembled()) == [("a", "f", "[0,0]"), ("b", "g", "[1,1]")]


@pytest.mark.rule("R-ACC-03")
def test_a_late_id_counts_and_the_first_one_stays() -> None:
    late = accumulated(
        CallPiece(index=0, name="f"),
        CallPiece(index=0, arguments="{"),
        CallPiece(index=0, id="a", arguments="}"),
    )
    assert plain(late.assembled()) == [("a", "f", "{}")]
    repeated = accumulated(
        CallPiece(index=0, id="a", name="f"),
        CallPiece(index=0, id="a", arguments="{"),
        CallPiece(index=0, id="", arguments="}"),
        CallPiece(index=0, id="a"),
    )
    assert plain(repeated.assembled()) == [("a", "f", "{}")]
    assert repeated.conflicts == 0


@pytest.mark.rule("R-ACC-04")
def test_names_and_arguments_are_joined() -> None:
    accumulator = accumulated(
        CallPiece(index=0, id="a", name="read", arguments='{"x"'),
        CallPiece(index=0, name="_file", arguments=": 1}"),
    )
    assert plain(accumulator.assembled()) == [("a", "read_file", '{"x": 1}')]


@pytest.mark.rule("R-ACC-04")
def test_a_name_that_is_repeated_whole_is_no_continuation() -> None:
    accumulator = accumulated(
        CallPiece(index=0, id="a", name="read_file", arguments="{"),
        CallPiece(index=0, id="a", name="read_file", arguments="}"),
    )
    assert plain(accumulator.assembled()) == [("a", "read_file", "{}")]


@pytest.mark.rule("R-ACC-05")
def test_calls_come_out_in_the_order_of_their_indexes() -> None:
    accumulator = accumulated(*(CallPiece(index=n, id=f"c{n}", name="f") for n in (5, 2, 9)))
    assert [each["id"] for each in accumulator.assembled()] == ["c2", "c5", "c9"]


@pytest.mark.rule("R-ACC-06")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(("f", '{"a"'), ("g", "{}"), id="the first is not whole"),
        pytest.param(("f", ""), ("g", "{}"), id="the first may lack its arguments"),
        pytest.param(("f", "{}"), (None, "{}"), id="the second has no name"),
        pytest.param(("f", "[1]"), ("g", "{}"), id="the first is no object"),
        pytest.param(("f", "12"), ("g", "{}"), id="the first may go on"),
    ],
)
def test_a_second_id_on_an_index_is_a_conflict(
    first: tuple[str, str], second: tuple[str | None, str]
) -> None:
    accumulator = accumulated(
        CallPiece(index=0, id="a", name=first[0], arguments=first[1]),
        CallPiece(index=0, id="b", name=second[0], arguments=second[1]),
    )
    assert accumulator.conflicts == 1
    assert plain(accumulator.assembled()) == [("a", *first)]


@pytest.mark.rule("R-ACC-06")
def test_after_a_conflict_no_other_call_begins_on_its_index() -> None:
    accumulator = accumulated(
        CallPiece(index=0, id="a", name="f", arguments='{"x": 1'),
        CallPiece(index=0, id="b", name="g", arguments="{}"),
        CallPiece(index=0, arguments="}"),
        CallPiece(index=0, id="b", name="g", arguments="{}"),
    )
    assert accumulator.conflicts == 2
    assert plain(accumulator.assembled()) == [("a", "f", '{"x": 1}')]


@pytest.mark.rule("R-ACC-10")
def test_calls_one_after_the_other_on_one_index_are_several() -> None:
    accumulator = accumulated(
        CallPiece(index=0, id="a", name="f", arguments='{"x": 1}'),
        CallPiece(index=0, id="b", name="g"),
        CallPiece(index=0, arguments="{"),
        CallPiece(index=0, arguments="}"),
        CallPiece(index=0, id="a", type="function", arguments=""),
        CallPiece(index=0, id="c", name="f", arguments="{}"),
        CallPiece(index=1, id="d", name="h", arguments="{}"),
    )
    assert accumulator.conflicts == 0
    assert plain(accumulator.assembled()) == [
        ("a", "f", '{"x": 1}'),
        ("b", "g", "{}"),
        ("c", "f", "{}"),
        ("d", "h", "{}"),
    ]


@pytest.mark.rule("R-ACC-10")
def test_each_call_has_a_place_of_its_own() -> None:
    accumulator = ToolCallAccumulator()
    pieces = [
        CallPiece(index=0, id="a", name="f", arguments="{}"),
        CallPiece(index=0, id="b", name="f", arguments="{}"),
        CallPiece(index=1, id="c", name="f", arguments="{}"),
        CallPiece(id="d", name="f", arguments="{}"),
        CallPiece(index=9, id="e", name="f", arguments="{}"),
        CallPiece(id="f", name="f", arguments="{}"),
    ]
    places = [call.place for call, _ in accumulator.observe(pieces)]
    assert places == [0, 1, 2, 3, 9, 10]


@pytest.mark.rule("R-ACC-06")
def test_an_id_of_another_index_is_a_conflict_too() -> None:
    accumulator = accumulated(
        CallPiece(index=0, id="a", name="f", arguments="{"),
        CallPiece(index=1, id="b", name="g", arguments="{}"),
        CallPiece(index=1, id="a", arguments="}"),
    )
    assert accumulator.conflicts == 1
    assert plain(accumulator.assembled()) == [("a", "f", "{"), ("b", "g", "{}")]


@pytest.mark.rule("R-ACC-06")
def test_arguments_on_a_new_index_are_a_conflict_while_the_call_before_is_not_whole() -> None:
    accumulator = accumulated(
        CallPiece(index=0, id="a", name="f"),
        CallPiece(index=1, arguments='{"x": '),
        CallPiece(index=2, arguments="1}"),
        CallPiece(index=1, id="b", name="g"),
    )
    assert accumulator.conflicts == 2
    assert plain(accumulator.assembled()) == [("a", "f", ""), ("b", "g", "")]


@pytest.mark.rule("R-ACC-03")
@pytest.mark.parametrize("before", [[], [CallPiece(index=0, id="a", name="f", arguments="{}")]])
def test_a_header_may_follow_its_arguments_if_no_other_call_lacks_some(
    before: list[CallPiece],
) -> None:
    accumulator = accumulated(
        *before,
        CallPiece(index=1, arguments='{"x": '),
        CallPiece(index=1, arguments="1}"),
        CallPiece(index=1, id="b", name="g"),
    )
    assert accumulator.conflicts == 0
    assert plain(accumulator.assembled())[-1] == ("b", "g", '{"x": 1}')


@pytest.mark.rule("R-ACC-07")
def test_without_an_index_the_id_decides() -> None:
    accumulator = accumulated(
        CallPiece(index=4, id="z", name="h"),
        CallPiece(id="a", name="f", arguments="[1"),
        CallPiece(id="b", name="g", arguments="[2]"),
        CallPiece(id="a", arguments=",1]"),
    )
    assert plain(accumulator.assembled()) == [
        ("z", "h", ""),
        ("a", "f", "[1,1]"),
        ("b", "g", "[2]"),
    ]


@pytest.mark.rule("R-ACC-11")
def test_a_piece_with_neither_index_nor_id_goes_where_the_one_before_it_went() -> None:
    accumulator = accumulated(
        CallPiece(id="a", name="f"),
        CallPiece(arguments="[1"),
        CallPiece(id="b", name="g", arguments="[2"),
        CallPiece(arguments="]"),
        CallPiece(id="a", arguments=",1"),
        CallPiece(arguments="]"),
    )
    assert plain(accumulator.assembled()) == [("a", "f", "[1,1]"), ("b", "g", "[2]")]


@pytest.mark.rule("R-ACC-08")
def test_a_call_that_never_got_an_id_comes_out_and_is_a_defect() -> None:
    calls = accumulated(CallPiece(index=0, name="f", arguments="{}")).assembled()
    assert calls[0]["id"] == ""
    defect = detect_completion_defect(Completion(calls=tuple(calls), clean_end=True), Assembly())
    assert defect is not None
    assert defect.kind == "malformed_tool_call"


@pytest.mark.rule("R-ACC-09")
def test_calls_can_be_read_in_mid_stream_and_are_copies() -> None:
    accumulator = accumulated(CallPiece(index=0, id="a", name="f", arguments="{"))
    half = accumulator.assembled()
    assert plain(half) == [("a", "f", "{")]
    half[0]["function"]["arguments"] = "spoilt"
    half.clear()
    accumulator.observe((CallPiece(index=0, arguments="}"),))
    assert plain(accumulator.assembled()) == [("a", "f", "{}")]


@pytest.mark.rule("R-ACC-13")
@pytest.mark.parametrize(
    ("sent", "kept"),
    [(None, "function"), ("", "function"), ("FUNCTION", "function"), ("custom", "custom")],
)
def test_a_type_is_function_in_whatever_case(sent: str | None, kept: str) -> None:
    accumulator = accumulated(
        CallPiece(index=0, id="a", type=sent, name="null"),
        CallPiece(index=0, type="function", arguments="{}"),
    )
    assert accumulator.assembled()[0]["type"] == kept
    assert accumulator.assembled()[0]["function"]["name"] == "null"


def test_what_grew_is_returned_with_its_new_arguments() -> None:
    accumulator = ToolCallAccumulator()

    def grown(*pieces: CallPiece) -> list[tuple[int, str, str, str]]:
        found: list[tuple[GrowingCall, str]] = accumulator.observe(pieces)
        return [(call.place, call.id, call.name, arguments) for call, arguments in found]

    assert grown(CallPiece(index=2, id="a", name="f")) == [(2, "a", "f", "")]
    assert grown(CallPiece(index=2, id="a", name="f", type="function", arguments="")) == []
    assert grown(CallPiece(index=2, arguments="{}"), CallPiece(index=3, name="g")) == [
        (2, "a", "f", "{}"),
        (3, "", "g", ""),
    ]
    assert grown(CallPiece(index=2, id="b", arguments="{}")) == []  # a conflict
    assert grown(CallPiece(index=2, id="b", name="h", arguments="{}")) == []


@pytest.mark.rule("R-ACC-02", "R-ACC-05")
@given(
    calls=st.dictionaries(st.integers(0, 20), st.tuples(NAMES, ARGUMENTS), max_size=5),
    order=st.randoms(use_true_random=False),
    repeat_header=st.booleans(),
)
def test_calls_interleaved_in_any_way_come_out_whole(
    calls: dict[int, tuple[str, str]], order: random.Random, repeat_header: bool
) -> None:
    lanes: list[list[CallPiece]] = []
    for index, (name, arguments) in calls.items():
        header = {"id": f"c{index}", "name": name}
        again = header if repeat_header else {}
        letters = [CallPiece(index=index, arguments=letter, **again) for letter in arguments]
        lanes.append([CallPiece(index=index, **header), *letters])
    accumulator = ToolCallAccumulator()
    while lanes:
        lane = order.choice(lanes)
        accumulator.observe((lane.pop(0),))
        lanes = [each for each in lanes if each]
    expected = [(f"c{index}", *calls[index]) for index in sorted(calls)]
    assert plain(accumulator.assembled()) == expected
    assert accumulator.conflicts == 0


def test_a_stream_of_strange_ids_and_ten_thousand_calls_cost_no_more_than_their_length() -> None:
    text = json.dumps({"text": "x" * 200_000})
    accumulator = accumulated(CallPiece(index=0, id="a", name="f", arguments=text[:-1]))
    started = time.process_time()
    for number in range(10_000):
        accumulator.observe((CallPiece(index=0, id=f"x{number}", name="f", arguments="1"),))
    for number in range(10_000):
        accumulator.observe((CallPiece(index=number + 1, arguments="1"),))
    for number in range(10_000):
        accumulator.observe((CallPiece(id=f"y{number}", name="f", arguments="{}"),))
    assert len(accumulator.assembled()) == 10_001
    assert accumulator.conflicts == 20_000
    assert time.process_time() - started < 2  # it takes 0.1; parsing each time takes minutes
