from collections.abc import Iterator
from typing import Any

import pytest

from harness._errors import RunUseError
from harness._events import Event, Progress, TextDelta, TextReset, TurnStarted
from harness._model import Assembly, TextSurface
from harness._usage import Usage
from harness.completion import TextMachine
from harness.completion._turn_stream import TurnStreamState


class Turn:
    """A turn's stream on a clock that is moved by hand, and what it told and spent."""

    def __init__(self) -> None:
        self.now = 10.0
        self.told: list[Event] = []
        self.spent: list[Usage] = []
        self.stream = TurnStreamState(
            turn_id="t1",
            assembly=Assembly(),
            text=TextMachine("t1", self.told.append, TextSurface()),
            tell=self.told.append,
            spend=self.spent.append,
            now=lambda: self.now,
            tool_calls=3,
        )

    def reports(self) -> Iterator[int]:
        for event in self.told:
            if isinstance(event, Progress):
                assert event.tool_calls == 3
                yield event.output_tokens


def test_what_is_told_and_spent_is_passed_on() -> None:
    turn = Turn()
    event = TurnStarted(turn_id="t1")
    turn.stream.tell(event)
    turn.stream.spend(Usage(output=4))
    assert turn.told == [event]
    assert turn.spent == [Usage(output=4)]


@pytest.mark.rule("R-ATTEMPT-08")
def test_attempts_are_numbered_and_one_is_open_at_a_time() -> None:
    stream = Turn().stream
    assert stream.opened == 0
    assert stream.begin_attempt(None) == 0
    with pytest.raises(RunUseError, match=r"^attempt 0 is open, expected it to end before"):
        stream.begin_attempt(None)
    assert stream.opened == 1
    stream.end_attempt()
    assert stream.begin_attempt("structured_output_retry") == 1
    assert stream.text.epoch == 1


@pytest.mark.rule("R-ATTEMPT-08")
def test_a_refused_reason_opens_nothing() -> None:
    stream = Turn().stream
    reason: Any = "bored"
    with pytest.raises(ValueError, match=r"^reason is 'bored'"):
        stream.begin_attempt(reason)
    assert stream.opened == 0
    assert stream.begin_attempt(None) == 0


@pytest.mark.rule("R-ATTEMPT-09", "R-LOOP-17")
def test_chunks_are_counted_until_somebody_knows_better() -> None:
    turn = Turn()
    for _ in range(3):
        turn.stream.count_answer_chunk()
        turn.now += 0.25
    turn.stream.progress(40)
    turn.stream.count_answer_chunk()
    turn.now += 1
    turn.stream.count_answer_chunk()
    turn.stream.progress(41)
    assert list(turn.reports()) == [1, 2, 3, 40, 41]


@pytest.mark.rule("R-ATTEMPT-09")
@pytest.mark.parametrize("count", [-1, True, 1.5, float("nan"), None])
def test_a_report_is_a_count(count: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^output_tokens is"):
        Turn().stream.progress(count)


@pytest.mark.rule("R-ATTEMPT-10", "R-LOOP-17")
@pytest.mark.parametrize("succeeded", [True, False])
def test_the_end_tells_the_count_that_was_held_back_and_comes_once(succeeded: bool) -> None:
    turn = Turn()
    for count in (1, 2, 3):
        turn.stream.progress(count)
    turn.stream.finish(succeeded)
    turn.stream.finish(not succeeded)
    assert list(turn.reports()) == [1, 3]
    turn.now += 9
    turn.stream.progress(4)
    turn.stream.count_answer_chunk()
    assert list(turn.reports()) == [1, 3]


@pytest.mark.rule("R-ATTEMPT-10")
def test_no_attempt_opens_after_the_end() -> None:
    stream = Turn().stream
    stream.finish(succeeded=True)
    with pytest.raises(RunUseError, match=r"^turn 't1' is over, expected an attempt before"):
        stream.begin_attempt(None)


def texts_of(told: list[Event]) -> list[str]:
    return [
        event.text if isinstance(event, TextDelta) else f"<{event.reason}>"
        for event in told
        if isinstance(event, TextDelta | TextReset)
    ]


@pytest.mark.rule("R-ATTEMPT-11")
def test_text_of_an_attempt_that_came_to_nothing_is_taken_back_if_the_turn_succeeds() -> None:
    for succeeded, expected in ((True, ["a", "<attempt_failed>"]), (False, ["a"])):
        turn = Turn()
        number = turn.stream.begin_attempt(None)
        turn.stream.text.observe("a")
        turn.stream.end_attempt()
        turn.stream.void_attempt(number, Usage())
        turn.stream.finish(succeeded)
        assert texts_of(turn.told) == expected
        assert turn.stream.opened == 1
        assert turn.stream.text.epoch == int(succeeded)


@pytest.mark.rule("R-ATTEMPT-11")
def test_a_turn_that_was_not_streamed_has_no_epoch() -> None:
    turn = Turn()
    turn.stream.finish(succeeded=True)
    assert turn.told == []
    assert turn.stream.text.epoch == -1


@pytest.mark.rule("R-ATTEMPT-11")
def test_text_of_the_attempt_that_follows_stands() -> None:
    turn = Turn()
    number = turn.stream.begin_attempt(None)
    turn.stream.text.observe("a")
    turn.stream.end_attempt()
    turn.stream.void_attempt(number, Usage())
    turn.stream.begin_attempt(None)
    turn.stream.text.observe("b")
    turn.stream.finish(succeeded=True)
    assert texts_of(turn.told) == ["a", "<attempt_failed>", "b"]


@pytest.mark.rule("R-ATTEMPT-12")
def test_what_an_attempt_that_came_to_nothing_cost_is_spent_once() -> None:
    turn = Turn()
    number = turn.stream.begin_attempt(None)
    turn.stream.void_attempt(number, Usage(input=9))
    turn.stream.void_attempt(number, Usage(input=9))
    turn.stream.end_attempt()
    turn.stream.void_attempt(turn.stream.begin_attempt(None), Usage())
    assert turn.spent == [Usage(input=9)]
