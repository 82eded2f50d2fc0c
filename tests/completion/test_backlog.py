import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._events import Event, ReasoningDelta, TextDelta, TextReset, TurnFinished
from harness.completion._backlog import Backlog
from tests.completion.texts import (
    Stream,
    assert_as_sent,
    rendered,
    reset,
    streams,
    text,
    told,
    written,
)


def backlog_of(*events: Event) -> Backlog:
    backlog = Backlog()
    for event in events:
        backlog.add(event)
    return backlog


def released(backlog: Backlog) -> list[Event]:
    events: list[Event] = []
    while backlog:
        events.append(backlog.release())
    return events


def thought(words: str) -> ReasoningDelta:
    return ReasoningDelta(turn_id="t1", attempt=0, text=words)


ENDED = TurnFinished(turn_id="t1", counted=True)


# -- merging -----------------------------------------------------------------------------------


def test_texts_of_one_attempt_become_one_with_the_stamps_of_the_first() -> None:
    first = TextDelta(run_id="r", leg=1, turn=2, at=3.0, turn_id="t1", epoch=0, seq=0, text="a")
    later = TextDelta(run_id="r", leg=1, turn=2, at=4.0, turn_id="t1", epoch=0, seq=1, text="b")
    assert released(backlog_of(first, later)) == [
        TextDelta(run_id="r", leg=1, turn=2, at=3.0, turn_id="t1", epoch=0, seq=0, text="ab")
    ]


def test_an_event_that_is_alone_comes_out_as_it_went_in() -> None:
    for event in (text(0, "a"), thought("hm"), ENDED):
        backlog = backlog_of(event)
        assert backlog
        assert backlog.release() == event
        assert not backlog
    with pytest.raises(IndexError):
        backlog_of().release()


def test_texts_meet_across_other_events_and_other_turns() -> None:
    other = [text(0, "x", turn_id="t2"), text(1, "y", turn_id="t2")]
    backlog = backlog_of(text(0, "a"), other[0], thought("hm"), text(1, "b"), other[1], ENDED)
    expected = [text(0, "ab"), text(0, "xy", turn_id="t2"), thought("hm"), ENDED]
    assert released(backlog) == expected


def test_texts_of_two_attempts_stay_apart() -> None:
    events = told([["a", "b"], ["c", "d"]], retractable=False)
    assert released(backlog_of(*events)) == [text(0, "ab"), text(1, "cd", epoch=1)]


def test_text_is_not_added_to_what_was_released() -> None:
    backlog = backlog_of(text(0, "a"), text(1, "b"))
    assert backlog.release() == text(0, "ab")
    backlog.add(text(2, "c"))
    assert released(backlog) == [text(1, "c")]


def test_releasing_an_older_text_does_not_end_the_growth_of_a_newer_one() -> None:
    backlog = backlog_of(text(0, "a"), text(1, "b", epoch=1))
    backlog.release()
    backlog.add(text(2, "c", epoch=1))
    assert released(backlog) == [text(1, "bc", epoch=1)]


# -- dropping ----------------------------------------------------------------------------------


@pytest.mark.rule("R-STREAM-34")
def test_text_that_was_not_released_goes_with_its_reset() -> None:
    events = told([["a", "b"], ["c"], ["d", "e"]])
    assert [type(event) for event in events].count(TextReset) == 2
    kept = released(backlog_of(*events))
    assert kept == [text(0, "de", epoch=2)]
    assert rendered(kept) == "de"


@pytest.mark.rule("R-STREAM-34")
def test_a_reset_is_kept_where_some_of_its_text_was_released() -> None:
    backlog = backlog_of(text(0, "a"))
    sent = [backlog.release()]
    for event in (text(1, "b"), reset(2, epoch=1), text(3, "c", epoch=1)):
        backlog.add(event)
    sent += released(backlog)
    assert sent == [text(0, "a"), reset(1, epoch=1), text(2, "c", epoch=1)]
    assert rendered(sent) == "c"


@pytest.mark.rule("R-STREAM-34")
def test_of_several_resets_that_wait_the_last_is_kept() -> None:
    backlog = backlog_of(text(0, "a"))
    backlog.release()
    for event in told([["a"], ["b"], ["c"], []])[1:]:
        backlog.add(event)
    assert released(backlog) == [reset(1, epoch=3)]


@pytest.mark.rule("R-STREAM-34")
def test_a_reset_that_was_released_leaves_nothing_to_take_back() -> None:
    backlog = backlog_of(text(0, "a"))
    backlog.release()
    backlog.add(reset(1, epoch=1))
    assert backlog.release() == reset(1, epoch=1)
    for event in (text(2, "b", epoch=1), reset(3, epoch=2), text(4, "c", epoch=2)):
        backlog.add(event)
    assert released(backlog) == [text(2, "c", epoch=2)]


@pytest.mark.rule("R-STREAM-34")
def test_a_reset_drops_the_text_of_its_own_turn_and_nothing_else() -> None:
    other = text(0, "x", turn_id="t2")
    backlog = backlog_of(text(0, "a"), thought("hm"), other, reset(1, epoch=1), ENDED)
    assert released(backlog) == [thought("hm"), other, ENDED]


def test_text_that_follows_a_reset_is_not_added_to_what_it_dropped() -> None:
    assert released(backlog_of(text(0, "a"), reset(1, epoch=0), text(2, "b"))) == [text(0, "b")]


def test_a_reset_of_text_that_went_elsewhere_is_dropped() -> None:
    backlog = backlog_of(reset(7, epoch=3), text(8, "b", epoch=3))
    assert released(backlog) == [text(0, "b", epoch=3)]


def test_a_turn_is_forgotten_when_its_end_is_released() -> None:
    backlog = backlog_of(text(0, "a"), ENDED)
    released(backlog)
    backlog.add(text(9, "z"))  # a run tells no such thing, and the backlog survives it
    assert released(backlog) == [text(0, "z")]
    backlog = backlog_of(ENDED, text(9, "z"))
    assert released(backlog) == [ENDED, text(0, "z")]


@pytest.mark.rule("R-STREAM-34")
def test_what_is_void_is_cleared_away_while_nobody_reads() -> None:
    backlog = Backlog()
    for number in range(2000):
        backlog.add(text(2 * number, "a", epoch=number))
        backlog.add(reset(2 * number + 1, epoch=number + 1))
    backlog.add(text(4000, "b", epoch=2000))
    assert len(backlog._unread) < 200
    assert [each.text for each in released(backlog) if isinstance(each, TextDelta)] == ["b"]


# -- any pace ----------------------------------------------------------------------------------


@pytest.mark.rule("R-STREAM-34")
@given(stream=streams(), paces=st.lists(st.integers(0, 3), max_size=30))
def test_at_any_pace_the_reader_shows_the_same_in_the_end(stream: Stream, paces: list[int]) -> None:
    events, attempts = stream
    backlog, got = Backlog(), list[Event]()
    for place, event in enumerate(events):
        backlog.add(event)
        for _ in range(paces[place] if place < len(paces) else 0):
            if backlog:
                got.append(backlog.release())
    got += released(backlog)
    assert_as_sent(got, events)
    for turn_id, pieces in attempts.items():
        assert rendered(got, turn_id) == written(pieces)
        ended = got.index(TurnFinished(turn_id=turn_id, counted=True))
        assert rendered(got[:ended], turn_id) == written(pieces)


@given(stream=streams())
def test_who_reads_nothing_until_the_end_is_sent_one_text_a_turn(
    stream: Stream,
) -> None:
    events, attempts = stream
    got = released(backlog_of(*events))
    assert_as_sent(got, events)
    texts = [event for event in got if isinstance(event, TextDelta | TextReset)]
    for turn_id, pieces in attempts.items():
        of_turn = [event for event in texts if event.turn_id == turn_id]
        assert len(of_turn) == bool(written(pieces))
