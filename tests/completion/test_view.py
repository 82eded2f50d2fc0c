import math
import weakref
from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._events import TextDelta, TextReset
from harness.completion._view import (
    HOLD_EVENTS,
    HOLD_SECONDS,
    REMEMBERED_TURNS,
    TurnText,
    TurnView,
)
from tests.completion.texts import TextEvent, reset, text, told, turns, written


def view_of(events: Sequence[TextEvent], *, now: float = 0.0) -> TurnView:
    view = TurnView()
    for event in events:
        view.apply(event, now=now)
    return view


def shown(view: TurnView, turn_id: str = "t1") -> TurnText:
    found = view.get(turn_id)
    assert found is not None
    return found


# -- what is next ------------------------------------------------------------------------------


@pytest.mark.rule("R-VIEW-01")
def test_the_first_event_of_a_turn_is_shown() -> None:
    view = TurnView()
    assert view.get("t1") is None
    first = TurnText(turn_id="t1", text="a", epoch=0, seq=0)
    assert view.apply(text(0, "a"), now=0.0) == first
    assert view.get("t1") == first


@pytest.mark.rule("R-VIEW-01")
def test_turns_are_kept_apart() -> None:
    view = view_of([text(0, "a"), text(1, "y", turn_id="t2"), text(1, "b")])
    assert shown(view).text == "ab"
    assert shown(view, "t2") == TurnText(turn_id="t2")
    view.apply(text(0, "x", turn_id="t2"), now=0.0)
    assert shown(view, "t2").text == "xy"
    assert shown(view).text == "ab"


@pytest.mark.rule("R-VIEW-02")
def test_an_event_that_comes_twice_counts_once() -> None:
    view = TurnView()
    for event in told([["a", "b"], ["c", "d"]]):
        assert view.apply(event, now=0.0) is not None
        before = view.get("t1")
        assert view.apply(event, now=0.0) is None
        assert view.get("t1") is before
    assert shown(view).text == "cd"


@pytest.mark.rule("R-VIEW-02")
def test_an_event_that_waits_and_comes_again_counts_once() -> None:
    view = view_of([text(1, "b"), text(1, "b"), text(0, "a"), text(1, "b")])
    assert shown(view).text == "ab"


@pytest.mark.rule("R-VIEW-03")
def test_an_event_that_is_early_waits_for_those_before_it() -> None:
    view = TurnView()
    assert view.apply(text(2, "c"), now=0.0) is None
    assert view.apply(text(1, "b"), now=0.0) is None
    assert shown(view).text == ""
    caught_up = view.apply(text(0, "a"), now=0.0)
    assert caught_up == TurnText(turn_id="t1", text="abc", epoch=0, seq=2)


@pytest.mark.rule("R-VIEW-03")
def test_the_order_of_arrival_does_not_matter() -> None:
    events = told([["a", "b"], ["c", "d"]])
    assert len(events) == 5
    for order in permutations(events):
        assert shown(view_of(order)) == TurnText(turn_id="t1", text="cd", epoch=1, seq=4)


# -- whose text --------------------------------------------------------------------------------


@pytest.mark.rule("R-VIEW-04")
def test_text_of_an_attempt_that_was_given_up_is_passed_over_and_its_number_counts() -> None:
    view = view_of([text(0, "a"), reset(1, epoch=1), text(2, "b", epoch=1)])
    passed = view.apply(text(3, "late", epoch=0), now=0.0)
    assert passed == TurnText(turn_id="t1", text="b", epoch=1, seq=3)
    view.apply(text(4, "c", epoch=1), now=0.0)
    assert shown(view) == TurnText(turn_id="t1", text="bc", epoch=1, seq=4)


@pytest.mark.rule("R-VIEW-04")
def test_a_reset_of_an_attempt_that_was_given_up_clears_nothing() -> None:
    view = view_of([text(0, "a"), reset(1, epoch=2), text(2, "b", epoch=2), reset(3, epoch=1)])
    assert shown(view).text == "b"


@pytest.mark.rule("R-VIEW-04")
def test_text_of_a_newer_attempt_is_appended_where_nothing_was_taken_back() -> None:
    events = told([["a"], ["b"]], retractable=False)
    assert [type(event) for event in events] == [TextDelta, TextDelta]
    assert shown(view_of(events)) == TurnText(turn_id="t1", text="ab", epoch=1, seq=1)


@pytest.mark.rule("R-VIEW-05")
def test_text_that_overtakes_its_reset_is_not_wiped_by_it() -> None:
    first, taken_back, retried = told([["a"], ["b"]])
    assert isinstance(taken_back, TextReset)
    assert shown(view_of([first, retried, taken_back])).text == "b"


# -- gaps --------------------------------------------------------------------------------------


def with_a_gap(count: int) -> list[TextEvent]:
    """Events 0 and 2 to *count*; the second is lost."""
    return [text(seq, "x") for seq in range(count + 1) if seq != 1]


@pytest.mark.rule("R-VIEW-06")
def test_a_gap_is_held_open_for_a_number_of_events_and_no_more() -> None:
    full = [text(0, "x"), *(text(seq, "x") for seq in range(2, HOLD_EVENTS + 2))]
    view = view_of(full)
    assert not shown(view).needs_resync
    assert shown(view_of([*full, text(1, "x")])).text == "x" * (HOLD_EVENTS + 2)
    overflown = view.apply(text(HOLD_EVENTS + 2, "x"), now=0.0)
    assert overflown == TurnText(turn_id="t1", text="x", epoch=0, seq=0, needs_resync=True)
    assert view.expires_at == math.inf  # nothing is held


@pytest.mark.rule("R-VIEW-06")
def test_a_gap_is_held_open_for_a_time_and_no_longer() -> None:
    view = view_of([text(0, "x"), text(2, "x")], now=5.0)
    assert view.apply(text(3, "x"), now=14.9) is None
    given_up = view.apply(text(4, "x"), now=15.0)
    assert given_up is not None
    assert given_up.needs_resync
    assert given_up.text == "x"


@pytest.mark.rule("R-VIEW-06")
def test_what_fills_the_gap_in_the_last_moment_fills_it() -> None:
    view = view_of([text(0, "a"), text(2, "c")], now=0.0)
    assert view.apply(text(1, "b"), now=HOLD_SECONDS) == TurnText(
        turn_id="t1", text="abc", epoch=0, seq=2
    )


@pytest.mark.rule("R-VIEW-06")
def test_an_event_that_comes_again_does_not_wait_longer() -> None:
    view = view_of([text(2, "c")], now=0.0)
    view.apply(text(2, "c"), now=9.0)
    assert view.expires_at == HOLD_SECONDS


@pytest.mark.rule("R-VIEW-06")
def test_each_event_waits_for_its_own_time() -> None:
    view = view_of([text(2, "c")], now=0.0)
    view.apply(text(4, "e"), now=6.0)
    view.apply(text(0, "a"), now=7.0)
    view.apply(text(1, "b"), now=8.0)
    assert shown(view).text == "abc"
    assert view.expires_at == 16.0


@pytest.mark.rule("R-VIEW-06")
def test_a_gap_with_nothing_behind_it_coming_is_seen_by_the_clock() -> None:
    view = TurnView()
    assert view.expires_at == math.inf
    view.apply(text(1, "b"), now=2.0)
    view.apply(text(1, "z", turn_id="t2"), now=3.0)
    view.apply(text(0, "p", turn_id="t3"), now=3.0)
    assert view.expires_at == 12.0
    assert view.expire(now=11.9) == ()
    assert view.expire(now=12.0) == (TurnText(turn_id="t1", needs_resync=True),)
    assert view.expires_at == 13.0
    assert [each.turn_id for each in view.expire(now=20.0)] == ["t2"]
    assert view.expire(now=99.0) == ()
    assert shown(view, "t3").text == "p"


@pytest.mark.rule("R-VIEW-06")
def test_a_turn_that_needs_a_resync_ignores_its_events_until_it_had_one() -> None:
    view = view_of(with_a_gap(HOLD_EVENTS + 5))
    lost = shown(view)
    assert lost.needs_resync
    assert view.apply(text(1, "x"), now=0.0) is None
    assert view.apply(reset(2, epoch=9), now=0.0) is None
    assert view.get("t1") is lost
    caught_up = view.resync("t1", "from the server", epoch=0, seq=300)
    assert caught_up == TurnText(turn_id="t1", text="from the server", epoch=0, seq=300)
    assert view.apply(text(300, "!"), now=0.0) is None
    view.apply(text(301, "!"), now=0.0)
    assert shown(view).text == "from the server!"


@pytest.mark.rule("R-VIEW-06")
def test_a_text_without_a_place_is_the_whole_of_the_turn() -> None:
    view = view_of(with_a_gap(HOLD_EVENTS + 5))
    view.resync("t1", "the message")
    assert shown(view) == TurnText(turn_id="t1", text="the message", epoch=0, seq=0)
    for late in (text(1, "x"), text(HOLD_EVENTS + 6, "x"), reset(2, epoch=3)):
        assert view.apply(late, now=0.0) is None
    assert shown(view).text == "the message"


def test_a_resync_takes_over_what_waited_behind_its_place() -> None:
    view = view_of([text(0, "a"), text(2, "c"), text(4, "e"), text(5, "f")])
    assert view.resync("t1", "abcd", epoch=0, seq=3) == TurnText(
        turn_id="t1", text="abcdef", epoch=0, seq=5
    )
    assert view.expires_at == math.inf


def test_a_resync_to_a_place_that_was_passed_changes_nothing() -> None:
    view = view_of([text(0, "a"), text(1, "b")])
    assert view.resync("t1", "a", epoch=0, seq=0) is None
    assert shown(view).text == "ab"


def test_a_reader_that_joins_late_begins_with_a_resync() -> None:
    view = TurnView()
    view.resync("t1", "so far", epoch=2, seq=57)
    view.apply(text(58, ", so good", epoch=2), now=0.0)
    view.apply(text(59, "late", epoch=1), now=0.0)
    assert shown(view) == TurnText(turn_id="t1", text="so far, so good", epoch=2, seq=59)
    whole = TurnView()
    whole.resync("t1", "all")
    assert whole.apply(text(0, "a"), now=0.0) is None
    assert shown(whole).text == "all"


@pytest.mark.parametrize(
    ("place", "error", "match"),
    [
        ({"epoch": 1}, TypeError, r"^epoch is 1 and seq is None, expected both or neither$"),
        ({"seq": 1}, TypeError, r"^epoch is None and seq is 1, expected both or neither$"),
        ({"epoch": 0, "seq": True}, TypeError, r"^seq is True, expected an int$"),
        ({"epoch": 0, "seq": -2}, ValueError, r"^seq is -2, expected at least -1$"),
        ({"epoch": -2, "seq": 0}, ValueError, r"^epoch is -2, expected at least -1$"),
    ],
)
def test_a_place_is_two_counts(place: dict[str, int], error: type[Exception], match: str) -> None:
    view = view_of([text(0, "a")])
    with pytest.raises(error, match=match):
        view.resync("t1", "b", **place)
    assert shown(view).text == "a"


# -- the end -----------------------------------------------------------------------------------


class Text(str):
    """A text that a weak reference can look at."""

    __slots__ = ("__weakref__",)


@pytest.mark.rule("R-VIEW-07")
def test_the_end_of_a_turn_drops_what_was_kept_of_it() -> None:
    words = Text("held")
    held = weakref.ref(words)
    view = view_of([text(0, "a"), text(2, words)])
    del words
    assert held() is not None
    assert view.finalize("t1") == TurnText(
        turn_id="t1", text="a", epoch=0, seq=0, needs_resync=True
    )
    assert held() is None
    assert view.get("t1") is None
    assert view.expires_at == math.inf
    assert view.finalize("t1") is None


@pytest.mark.rule("R-VIEW-07")
def test_a_turn_that_lacks_nothing_ends_as_it_is_shown() -> None:
    view = view_of(told([["a"], ["b"]]))
    assert view.finalize("t1") == TurnText(turn_id="t1", text="b", epoch=1, seq=2)
    assert view.finalize("unheard of") is None
    lost = view_of(with_a_gap(HOLD_EVENTS + 2))
    ended = lost.finalize("t1")
    assert ended is not None
    assert ended.needs_resync


@pytest.mark.rule("R-VIEW-08")
def test_nothing_that_comes_late_brings_a_turn_back() -> None:
    view = view_of(told([["a", "b"]]))
    view.finalize("t1")
    assert view.apply(text(2, "c"), now=0.0) is None
    assert view.apply(text(0, "a"), now=0.0) is None
    assert view.resync("t1", "abc") is None
    assert view.get("t1") is None


@pytest.mark.rule("R-VIEW-08")
def test_a_bounded_number_of_ended_turns_is_remembered() -> None:
    view = TurnView()
    view.finalize("first")
    view.finalize("second")
    view.finalize("first")  # again: now it is the younger one
    for number in range(REMEMBERED_TURNS - 1):
        view.finalize(f"t{number}")
    assert view.apply(text(0, "x", turn_id="first"), now=0.0) is None
    assert view.apply(text(0, "x", turn_id="second"), now=0.0) is not None


@pytest.mark.rule("R-VIEW-08", "R-STREAM-33")
def test_the_message_of_the_transcript_replaces_what_was_streamed() -> None:
    final = TurnText(turn_id="t1", text="The message.", epoch=1, seq=2)
    view = view_of(told([["half"], ["The mess"]]))
    assert view.finalize("t1", "The message.") == final
    assert view.get("t1") is None
    incomplete = view_of(with_a_gap(HOLD_EVENTS + 2))
    whole = incomplete.finalize("t1", "whole")
    assert whole == TurnText(turn_id="t1", text="whole", epoch=0, seq=0)
    unheard = TurnView().finalize("t1", "whole")
    assert unheard == TurnText(turn_id="t1", text="whole")


@pytest.mark.rule("R-VIEW-08", "R-STREAM-33")
def test_the_message_may_come_after_the_end_and_still_counts() -> None:
    view = view_of(told([["a"]]))
    view.finalize("t1")
    final = view.finalize("t1", "A.")
    assert final is not None
    assert final.text == "A."
    assert view.apply(text(1, "b"), now=0.0) is None


# -- what is handed out ------------------------------------------------------------------------


@pytest.mark.rule("R-VIEW-09")
def test_each_event_gives_a_new_snapshot_and_changes_no_old_one() -> None:
    view = TurnView()
    snapshots = [view.apply(event, now=0.0) for event in told([["a", "b"], ["c"]])]
    texts = [snapshot.text for snapshot in snapshots if snapshot is not None]
    assert texts == ["a", "ab", "", "c"]
    assert len({id(snapshot) for snapshot in snapshots}) == 4
    with pytest.raises(AttributeError):
        shown(view).text = "other"  # type: ignore[misc]  # frozen


@pytest.mark.rule("R-VIEW-10")
def test_epochs_and_numbers_begin_anew_in_each_turn() -> None:
    view = view_of([*told([["a"], ["b"]]), *told([["c", "d"]], "t2")])
    assert shown(view, "t2") == TurnText(turn_id="t2", text="cd", epoch=0, seq=1)
    assert shown(view).text == "b"


@pytest.mark.rule("R-STREAM-01")
def test_one_stream_for_all_attempts_repairs_the_text_and_one_for_each_does_not() -> None:
    attempts = [["half an"], ["an answer"]]
    one = told(attempts)
    assert sum(isinstance(event, TextReset) for event in one) == 1
    assert shown(view_of(one)).text == "an answer"
    each = [event for attempt in attempts for event in told([attempt])]
    assert not any(isinstance(event, TextReset) for event in each)
    assert shown(view_of(each)).text == "half an"


# -- any delivery ------------------------------------------------------------------------------


def replayed(events: Sequence[TextEvent]) -> str:
    """What a reader shows who gets *events* in order and once."""
    words = ""
    for event in events:
        words = "" if isinstance(event, TextReset) else words + event.text
    return words


@pytest.mark.rule("R-VIEW-02", "R-VIEW-03", "R-VIEW-04", "R-VIEW-05", "R-VIEW-06", "R-VIEW-08")
@given(attempts=turns, retractable=st.booleans(), choices=st.data())
def test_whatever_is_lost_doubled_or_late_the_text_is_right_or_a_resync_is_asked_for(
    attempts: list[list[str]], retractable: bool, choices: st.DataObject
) -> None:
    events = told(attempts, retractable=retractable)
    assert replayed(events) == written(attempts, retractable=retractable)
    places = st.integers(0, max(len(events) - 1, 0))
    deliveries = choices.draw(st.lists(places, max_size=20 if events else 0))
    pauses = choices.draw(st.lists(st.sampled_from([0.0, 1.0, 12.0]), min_size=20, max_size=20))
    view, now, arrived = TurnView(), 0.0, set[int]()
    for place, pause in zip(deliveries, pauses, strict=False):
        now += pause
        before = view.get("t1")
        changed = view.apply(events[place], now=now)
        after = shown(view)
        assert changed is after or (changed is None and before in {None, after})
        arrived.add(place)
        assert after.text == replayed(events[: after.seq + 1])  # true, as far as it goes
        if not after.needs_resync:
            assert after.seq + 1 == min({*range(len(events) + 1)} - arrived)
    view.expire(now=now + HOLD_SECONDS)
    last = view.get("t1") or TurnText(turn_id="t1")
    assert last.needs_resync or last.seq == max(arrived, default=-1)
    if arrived == set(range(len(events))) and not last.needs_resync:
        assert last.text == written(attempts, retractable=retractable)
    final = view.finalize("t1", "as it is in the transcript")
    assert final is not None
    assert final.text == "as it is in the transcript"


@pytest.mark.rule("R-VIEW-03", "R-VIEW-05")
@given(attempts=turns, choices=st.data())
def test_nothing_lost_is_nothing_missing(attempts: list[list[str]], choices: st.DataObject) -> None:
    events = told(attempts)
    order = choices.draw(st.permutations(events))
    doubled = choices.draw(st.lists(st.sampled_from(events), max_size=9)) if events else []
    view = view_of([*order, *doubled])
    assert (view.get("t1") or TurnText(turn_id="t1")).text == written(attempts)
    assert view.expires_at == math.inf
