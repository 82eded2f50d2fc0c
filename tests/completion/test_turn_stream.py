from collections.abc import Iterator
from typing import Any

import pytest

from harness._errors import RunUseError
from harness._events import Event, Progress, TextDelta, TextReset, TurnStarted
from harness._messages import assistant_message
from harness._model import Assembly, ModelTurn, ResetReason, StreamBudgets, TextSurface
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
            budgets=StreamBudgets(),
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


class Open:
    """An open attempt, as a turn's stream sees it."""

    def __init__(self, stream: TurnStreamState, reason: ResetReason | None = None) -> None:
        self.number = stream.begin_attempt(reason, None)
        self.given_up_for: int | None = None
        stream.enter(self)

    def supersede(self, by: int) -> None:
        self.given_up_for = by


@pytest.mark.rule("R-ATTEMPT-08")
def test_attempts_are_numbered_as_they_open() -> None:
    stream = Turn().stream
    assert stream.opened == 0
    assert [Open(stream).number, Open(stream).number] == [0, 1]
    assert stream.opened == 2


@pytest.mark.rule("R-ATTEMPT-08")
def test_a_number_can_be_had_before_its_attempt_is_opened() -> None:
    stream = Turn().stream
    first, second = stream.number_attempt(), stream.number_attempt()
    assert stream.opened == 0
    assert Open(stream).number == 2
    assert stream.begin_attempt(None, second) == second
    assert stream.begin_attempt(None, first) == first
    for number in (3, -1):
        with pytest.raises(ValueError, match=rf"^number is {number}, expected one that"):
            stream.begin_attempt(None, number)
    assert stream.opened == 3


@pytest.mark.rule("R-ATTEMPT-08")
def test_a_refused_reason_opens_nothing() -> None:
    stream = Turn().stream
    reason: Any = "bored"
    with pytest.raises(ValueError, match=r"^reason is 'bored'"):
        stream.begin_attempt(reason, None)
    assert stream.opened == 0
    assert stream.begin_attempt(None, None) == 0


@pytest.mark.rule("R-OVERLAP-01")
def test_an_attempt_takes_the_surface_and_an_epoch_when_it_answers_and_not_before() -> None:
    stream = Turn().stream
    first, second = Open(stream), Open(stream)
    assert stream.text.epoch == -1
    stream.claim(second)
    stream.claim(second)
    assert stream.text.epoch == 0
    assert (first.given_up_for, second.given_up_for) == (1, None)


@pytest.mark.rule("R-OVERLAP-03")
def test_an_attempt_that_opens_while_another_has_the_surface_is_given_up_at_once() -> None:
    stream = Turn().stream
    first = Open(stream)
    stream.claim(first)
    late = Open(stream)
    assert late.given_up_for == 0
    stream.leave(late)
    stream.leave(first)
    assert Open(stream).given_up_for is None


@pytest.mark.rule("R-OVERLAP-04")
@pytest.mark.parametrize("left", [True, False], ids=["it ended silent", "it is still silent"])
def test_a_reason_stands_until_an_attempt_takes_the_surface(left: bool) -> None:
    turn = Turn()
    first = Open(turn.stream)
    turn.stream.claim(first)
    turn.stream.text.observe("a")
    turn.stream.leave(first)
    silent = Open(turn.stream, "structured_output_retry")
    if left:
        turn.stream.leave(silent)
    for text in ("b", "c"):
        following = Open(turn.stream)
        turn.stream.claim(following)
        turn.stream.text.observe(text)
        turn.stream.leave(following)
    assert texts_of(turn.told) == [
        "a",
        "<structured_output_retry>",
        "b",
        "<attempt_failed>",
        "c",
    ]


@pytest.mark.rule("R-ATTEMPT-09", "R-LOOP-17")
def test_chunks_are_counted_until_somebody_knows_better() -> None:
    turn = Turn()
    for _ in range(3):
        turn.stream.count_answer_chunk(turn.now)
        turn.now += 0.25
    turn.stream.progress(40)
    turn.stream.count_answer_chunk(turn.now)
    turn.now += 1
    turn.stream.count_answer_chunk(turn.now)
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
    turn.stream.count_answer_chunk(turn.now)
    assert list(turn.reports()) == [1, 3]


@pytest.mark.rule("R-ATTEMPT-10")
def test_no_attempt_opens_after_the_end() -> None:
    stream = Turn().stream
    stream.finish(succeeded=True)
    with pytest.raises(RunUseError, match=r"^turn 't1' is over, expected an attempt before"):
        stream.begin_attempt(None, None)


def texts_of(told: list[Event]) -> list[str]:
    return [
        event.text if isinstance(event, TextDelta) else f"<{event.reason}>"
        for event in told
        if isinstance(event, TextDelta | TextReset)
    ]


def reply(turn: Turn, text: str, cost: int) -> ModelTurn:
    """A usable reply of an attempt that wrote *text*."""
    attempt = Open(turn.stream)
    made = ModelTurn(message=assistant_message(text), usage=Usage(input=cost))
    turn.stream.claim(attempt)
    turn.stream.text.observe(text)
    turn.stream.hold(attempt.number, made)
    turn.stream.leave(attempt)
    return made


def lost(turn: Turn, text: str) -> None:
    """An attempt that writes *text* and comes to nothing."""
    attempt = Open(turn.stream)
    turn.stream.claim(attempt)
    turn.stream.text.observe(text)
    turn.stream.void(attempt.number, Usage())
    turn.stream.leave(attempt)


@pytest.mark.rule("R-ATTEMPT-11")
def test_text_of_an_attempt_that_came_to_nothing_is_taken_back_if_the_turn_succeeds() -> None:
    for succeeded, expected in ((True, ["a", "<attempt_failed>"]), (False, ["a"])):
        turn = Turn()
        lost(turn, "a")
        turn.stream.finish(succeeded)
        assert texts_of(turn.told) == expected
        assert turn.stream.opened == 1


@pytest.mark.rule("R-ATTEMPT-11")
def test_also_if_a_silent_attempt_came_after_it() -> None:
    turn = Turn()
    lost(turn, "a")
    silent = Open(turn.stream)
    turn.stream.void(silent.number, Usage())
    turn.stream.leave(silent)
    turn.stream.finish(succeeded=True)
    assert texts_of(turn.told) == ["a", "<attempt_failed>"]


@pytest.mark.rule("R-ATTEMPT-11")
def test_a_turn_that_was_not_streamed_has_no_epoch() -> None:
    turn = Turn()
    turn.stream.finish(succeeded=True)
    assert turn.told == []
    assert turn.stream.text.epoch == -1


@pytest.mark.rule("R-ATTEMPT-11")
@pytest.mark.parametrize("silent", [False, True])
def test_text_of_the_attempt_that_answered_last_stands(silent: bool) -> None:
    turn = Turn()
    lost(turn, "a")
    reply(turn, "b", 0)
    if silent:
        turn.stream.void(Open(turn.stream).number, Usage())
    turn.stream.finish(succeeded=True)
    assert texts_of(turn.told) == ["a", "<attempt_failed>", "b"]


@pytest.mark.rule("R-ATTEMPT-12")
def test_what_an_attempt_that_came_to_nothing_cost_is_spent() -> None:
    turn = Turn()
    turn.stream.void(Open(turn.stream).number, Usage(input=9))
    turn.stream.void(Open(turn.stream).number, Usage())
    assert turn.spent == [Usage(input=9)]


@pytest.mark.rule("R-OVERLAP-08")
@pytest.mark.parametrize("streamed", [True, False])
def test_what_a_dropped_reply_showed_is_taken_back(streamed: bool) -> None:
    turn = Turn()
    turn.stream.drop(reply(turn, "a", 3), "structured_output_retry")
    following = reply(turn, "b", 5) if streamed else ModelTurn(message=assistant_message("b"))
    turn.stream.finish(True, following)
    assert texts_of(turn.told) == ["a", "<structured_output_retry>", *(["b"] if streamed else [])]
    assert turn.spent == [Usage(input=3)]


@pytest.mark.rule("R-OVERLAP-08")
def test_dropping_a_reply_that_was_not_streamed_takes_nothing_back() -> None:
    turn = Turn()
    turn.stream.drop(
        ModelTurn(message=assistant_message("a"), usage=Usage(output=2)), "attempt_failed"
    )
    kept = reply(turn, "b", 5)
    turn.stream.finish(True, kept)
    assert texts_of(turn.told) == ["b"]
    assert turn.spent == [Usage(output=2)]


@pytest.mark.rule("R-OVERLAP-09")
@pytest.mark.parametrize("succeeded", [True, False])
def test_every_reply_costs_once(succeeded: bool) -> None:
    turn = Turn()
    first, second = reply(turn, "a", 3), reply(turn, "b", 5)
    turn.stream.finish(succeeded, first if succeeded else None)
    turn.stream.finish(succeeded, second)
    assert turn.spent == ([second.usage] if succeeded else [first.usage, second.usage])


@pytest.mark.rule("R-OVERLAP-09")
def test_a_turn_made_of_a_reply_stands_for_the_last_one() -> None:
    turn = Turn()
    first, _ = reply(turn, "a", 3), reply(turn, "b", 5)
    turn.stream.finish(True, ModelTurn(message=assistant_message("B")))
    assert turn.spent == [first.usage]
    assert texts_of(turn.told) == ["a", "<attempt_failed>", "b"]


@pytest.mark.rule("R-OVERLAP-08")
def test_a_reply_is_not_dropped_for_no_known_reason() -> None:
    reason: Any = "bored"
    with pytest.raises(ValueError, match=r"^reason is 'bored'"):
        Turn().stream.drop(ModelTurn(message=assistant_message("a")), reason)
