from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from harness._errors import RunUseError
from harness._events import TextDelta, TextReset
from harness._model import ResetReason, TextSurface
from harness.completion import TextMachine
from harness.completion._text import TurnOutcome

Row: TypeAlias = tuple[str, int, int, str]
"""An event: its kind, epoch, seq, and its text or reason."""

PERMANENT: Final = TextSurface(retractable=False)
RETRACTABLE: Final = TextSurface()


class Screen:
    """A sink that keeps what it gets, and fails at the events with the given numbers."""

    def __init__(self, failing: Sequence[int] = (), error: BaseException | None = None) -> None:
        self.rows: list[Row] = []
        self.failing = frozenset(failing)
        self.error = error or ConnectionError("the reader is gone")
        self.react: Callable[[], None] | None = None

    def __call__(self, event: TextDelta | TextReset) -> None:
        assert event.turn_id == "t1"
        what = event.text if isinstance(event, TextDelta) else event.reason
        kind = "text" if isinstance(event, TextDelta) else "reset"
        if self.react is not None:
            self.react()
        if event.seq in self.failing:
            raise self.error
        self.rows.append((kind, event.epoch, event.seq, what))


def machine_on(
    screen: Callable[[TextDelta | TextReset], None], surface: TextSurface = RETRACTABLE
) -> TextMachine:
    return TextMachine("t1", screen, surface)


def play(machine: TextMachine, *steps: str) -> None:
    """Play a short script: ``begin``, ``begin retry``, ``finish ...``, ``mark``, else a text."""
    for step in steps:
        match step.split():
            case ["begin"]:
                machine.begin_attempt()
            case ["begin", "retry"]:
                machine.begin_attempt("structured_output_retry")
            case ["finish", outcome]:
                machine.finish(cast("TurnOutcome", outcome))
            case ["mark"]:
                machine.mark_produced_output()
            case _:
                machine.observe(step)


def shown(
    *steps: str, surface: TextSurface = RETRACTABLE, failing: Sequence[int] = ()
) -> list[Row]:
    screen = Screen(failing)
    play(machine_on(screen, surface), *steps)
    return screen.rows


# -- construction ------------------------------------------------------------------------------


@pytest.mark.rule("R-STREAM-02")
@pytest.mark.parametrize("turn_id", ["", None, 3])
def test_a_turn_id_is_a_text_that_is_not_empty(turn_id: Any) -> None:
    with pytest.raises(TypeError, match=r"^turn_id is .*, expected a text that is not empty$"):
        TextMachine(turn_id, Screen(), RETRACTABLE)


@pytest.mark.rule("R-STREAM-04")
@pytest.mark.parametrize("most", [float("nan"), 1.5, -1, True, False, "1"])
def test_the_cap_on_resets_is_a_count(most: Any) -> None:
    with pytest.raises(TypeError, match=r"^max_resets is .*, expected None or a count"):
        machine_on(Screen(), cast("TextSurface", _Surface(max_resets=most)))


@pytest.mark.rule("R-STREAM-04")
@pytest.mark.parametrize("most", [None, 0, 7])
def test_there_need_be_no_cap_on_resets(most: int | None) -> None:
    assert machine_on(Screen(), TextSurface(max_resets=most)).reset_count == 0


class _Surface:
    """Something else that can be asked what a surface is asked."""

    def __init__(self, *, max_resets: Any = None) -> None:
        self.max_resets = max_resets
        self.asked = 0

    @property
    def retractable(self) -> bool:
        self.asked += 1
        return self.asked == 1


@pytest.mark.rule("R-STREAM-05")
def test_a_surface_that_changes_its_mind_is_asked_once() -> None:
    surface, screen = _Surface(), Screen()
    machine = machine_on(screen, cast("TextSurface", surface))
    play(machine, "begin", "a", "begin", "b")
    assert surface.asked == 1
    assert not machine.produced_output
    assert [row[0] for row in screen.rows] == ["text", "reset", "text"]


# -- attempts ----------------------------------------------------------------------------------


@pytest.mark.rule("R-STREAM-06")
def test_each_attempt_is_an_epoch_even_if_it_is_silent() -> None:
    screen = Screen()
    machine = machine_on(screen)
    assert machine.epoch == -1
    play(machine, "begin", "begin", "begin")
    assert machine.epoch == 2
    assert screen.rows == []


@pytest.mark.rule("R-STREAM-06")
def test_an_unknown_reason_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^reason is 'bored', expected one of"):
        machine_on(Screen()).begin_attempt(cast("ResetReason", "bored"))


@pytest.mark.rule("R-STREAM-07")
def test_an_explicit_reason_stands_until_it_was_sent() -> None:
    rows = shown("begin", "a", "begin retry", "begin", "b", "begin", "c")
    assert rows == [
        ("text", 0, 0, "a"),
        ("reset", 2, 1, "structured_output_retry"),
        ("text", 2, 2, "b"),
        ("reset", 3, 3, "attempt_failed"),
        ("text", 3, 4, "c"),
    ]
    assert shown("begin", "a", "begin", "begin retry", "b")[1][3] == "structured_output_retry"


@pytest.mark.rule("R-STREAM-08")
def test_nothing_is_taken_back_where_nothing_was_shown() -> None:
    assert shown("begin", "begin retry", "b") == [("text", 1, 0, "b")]


@pytest.mark.rule("R-STREAM-09")
def test_a_permanent_surface_is_never_sent_a_reset() -> None:
    rows = shown("begin", "a", "begin", "b", "begin", "finish succeeded", surface=PERMANENT)
    assert rows == [("text", 0, 0, "a"), ("text", 1, 1, "b")]


@pytest.mark.rule("R-STREAM-10")
def test_a_reset_waits_for_the_text_that_follows_it() -> None:
    assert shown("begin", "a", "begin", "begin", "finish failed") == [("text", 0, 0, "a")]
    assert [row[0] for row in shown("begin", "a", "begin", "", "b")] == ["text", "reset", "text"]


@pytest.mark.rule("R-STREAM-11")
def test_a_turn_without_text_sends_nothing() -> None:
    assert shown("begin", "begin retry", "begin", "finish succeeded") == []


# -- text --------------------------------------------------------------------------------------


@pytest.mark.rule("R-STREAM-12")
def test_no_text_is_no_output() -> None:
    screen = Screen()
    machine = machine_on(screen, PERMANENT)
    machine.begin_attempt()
    machine.observe(None)
    machine.observe("")
    assert screen.rows == []
    assert not machine.produced_output
    assert machine.seq == 0


@pytest.mark.rule("R-STREAM-13")
@pytest.mark.parametrize("text", ["a", "", None])
def test_text_before_any_attempt_is_an_error(text: str | None) -> None:
    machine = machine_on(Screen())
    with pytest.raises(RunUseError, match=r"came before any attempt, expected one to have begun$"):
        machine.observe(text)


@pytest.mark.rule("R-STREAM-13")
def test_text_after_the_end_is_ignored() -> None:
    assert shown("finish failed", "a") == []
    assert shown("begin", "a", "finish succeeded", "b") == [("text", 0, 0, "a")]


@pytest.mark.rule("R-STREAM-14")
def test_a_number_is_used_up_even_if_its_event_is_lost() -> None:
    assert shown("begin", "a", "b", "c", failing=[1]) == [("text", 0, 0, "a"), ("text", 0, 2, "c")]


@pytest.mark.rule("R-STREAM-15")
def test_a_sink_that_calls_back_does_not_change_the_event_it_was_given() -> None:
    screen = Screen()
    machine = machine_on(screen)
    screen.react = machine.begin_attempt
    play(machine, "begin", "a")
    screen.react = None
    assert screen.rows == [("text", 0, 0, "a")]
    play(machine, "b")
    assert screen.rows[1:] == [("reset", 1, 1, "attempt_failed"), ("text", 1, 2, "b")]


@pytest.mark.rule("R-STREAM-15")
def test_a_sink_that_calls_back_during_a_reset_leaves_the_text_its_own_epoch() -> None:
    screen = Screen()
    machine = machine_on(screen)
    play(machine, "begin", "a", "begin")
    screen.react = machine.begin_attempt
    play(machine, "b")
    assert screen.rows[1:] == [("reset", 1, 1, "attempt_failed"), ("text", 1, 2, "b")]
    assert machine.epoch == 3
    with pytest.raises(AttributeError):
        TextDelta(turn_id="t1", epoch=0, seq=0, text="a").epoch = 1  # type: ignore[misc]


@pytest.mark.rule("R-STREAM-15", "R-STREAM-20")
def test_an_attempt_that_a_sink_begins_while_it_takes_the_last_reset_is_not_shown() -> None:
    screen = Screen()
    machine = machine_on(screen, TextSurface(max_resets=1))
    play(machine, "begin", "a", "begin")
    screen.react = lambda: machine.begin_attempt() if machine.epoch == 1 else None
    play(machine, "b", "c")
    assert [row[3] for row in screen.rows] == ["a", "attempt_failed", "b"]


@pytest.mark.rule("R-STREAM-16")
def test_text_counts_from_the_moment_its_delivery_is_tried() -> None:
    machine = machine_on(Screen(failing=[0]), PERMANENT)
    play(machine, "begin", "a")
    assert machine.produced_output


# -- lost resets and the cap -------------------------------------------------------------------


@pytest.mark.rule("R-STREAM-17")
def test_a_reset_counts_even_if_it_is_lost() -> None:
    machine = machine_on(Screen(failing=[1]))
    play(machine, "begin", "a", "begin", "b")
    assert machine.reset_count == 1
    assert machine.sink_errors == 1


@pytest.mark.rule("R-STREAM-18")
@pytest.mark.parametrize("error", [ConnectionError(), KeyboardInterrupt()])
def test_after_a_lost_reset_its_text_is_not_sent(error: BaseException) -> None:
    screen = Screen(failing=[1], error=error)
    machine = machine_on(screen)
    play(machine, "begin", "a", "begin")
    try:
        play(machine, "b")
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)
    play(machine, "c")
    assert screen.rows == [("text", 0, 0, "a")]
    assert machine.produced_output


@pytest.mark.rule("R-STREAM-19")
def test_a_stale_surface_is_sent_nothing_more() -> None:
    rows = shown("begin", "a", "begin", "b", "begin retry", "c", "begin", "d", failing=[1])
    assert rows == [("text", 0, 0, "a")]


@pytest.mark.rule("R-STREAM-20")
def test_once_the_cap_is_reached_no_further_attempt_is_shown() -> None:
    surface = TextSurface(max_resets=1)
    screen = Screen()
    machine = machine_on(screen, surface)
    play(machine, "begin", "A", "begin", "B", "b", "begin", "C", "finish succeeded")
    assert screen.rows == [
        ("text", 0, 0, "A"),
        ("reset", 1, 1, "attempt_failed"),
        ("text", 1, 2, "B"),
        ("text", 1, 3, "b"),
    ]
    assert machine.produced_output


@pytest.mark.rule("R-STREAM-21")
def test_a_stale_surface_is_fresh_again_after_a_delivered_reset() -> None:
    screen = Screen(failing=[1])
    machine = machine_on(screen)
    play(machine, "begin", "a", "begin", "b", "begin", "finish succeeded")
    assert screen.rows == [("text", 0, 0, "a"), ("reset", 2, 2, "attempt_failed")]
    assert machine.produced_output


# -- the end -----------------------------------------------------------------------------------


@pytest.mark.rule("R-STREAM-22")
def test_a_good_end_sends_the_reset_that_is_due_and_a_bad_one_drops_it() -> None:
    told = shown("begin", "a", "begin retry", "finish succeeded")
    assert told == [("text", 0, 0, "a"), ("reset", 1, 1, "structured_output_retry")]
    assert shown("begin", "a", "begin retry", "finish failed") == [("text", 0, 0, "a")]
    assert shown("begin", "a", "finish succeeded") == [("text", 0, 0, "a")]


@pytest.mark.rule("R-STREAM-23")
def test_the_first_end_counts_and_nothing_happens_after_it() -> None:
    screen = Screen()
    machine = machine_on(screen)
    play(machine, "begin", "a", "begin", "finish failed", "finish succeeded")
    play(machine, "begin", "b", "mark", "begin retry", "c")
    assert screen.rows == [("text", 0, 0, "a")]
    assert (machine.epoch, machine.seq, machine.reset_count) == (1, 1, 0)
    assert not machine.produced_output


@pytest.mark.rule("R-STREAM-24")
def test_there_are_two_ends() -> None:
    with pytest.raises(ValueError, match=r"^outcome is 'done', expected one of"):
        machine_on(Screen()).finish(cast("TurnOutcome", "done"))


# -- what the flag means -----------------------------------------------------------------------


@pytest.mark.rule("R-STREAM-27")
def test_output_is_produced_by_the_first_byte_only_where_it_cannot_be_taken_back() -> None:
    permanent, retractable = machine_on(Screen(), PERMANENT), machine_on(Screen())
    for machine in (permanent, retractable):
        play(machine, "begin")
        assert not machine.produced_output
        play(machine, "a")
    assert permanent.produced_output
    for _ in range(5):
        play(retractable, "begin", "b")
        assert not retractable.produced_output


@pytest.mark.rule("R-STREAM-28")
def test_a_cap_of_no_resets_is_as_good_as_permanent() -> None:
    for surface in (PERMANENT, TextSurface(max_resets=0)):
        machine = machine_on(Screen(), surface)
        produced: list[bool] = []
        for step in ("begin", "a"):
            play(machine, step)
            produced.append(machine.produced_output)
        assert produced == [False, True]
        assert machine.reset_count == 0


@pytest.mark.rule("R-STREAM-29")
def test_an_effect_outside_the_stream_is_marked_for_good_and_text_goes_on() -> None:
    screen = Screen()
    machine = machine_on(screen)
    play(machine, "begin", "mark", "a", "begin", "b")
    assert machine.produced_output
    assert [row[0] for row in screen.rows] == ["text", "reset", "text"]
    ended = machine_on(Screen())
    play(ended, "finish failed", "mark")
    assert not ended.produced_output


@pytest.mark.rule("R-STREAM-30")
def test_a_good_turn_that_used_up_its_resets_has_produced_output() -> None:
    machine = machine_on(Screen(), TextSurface(max_resets=1))
    play(machine, "begin", "a", "begin", "finish succeeded")
    assert machine.produced_output
    assert machine.reset_count == 1


@pytest.mark.rule("R-STREAM-31")
def test_an_event_that_a_sink_loses_is_counted_and_the_text_goes_on() -> None:
    screen = Screen(failing=[0])
    machine = machine_on(screen)
    play(machine, "begin", "a", "b")
    assert screen.rows == [("text", 0, 1, "b")]
    assert machine.sink_errors == 1
    assert not machine.produced_output


@pytest.mark.rule("R-STREAM-31")
def test_what_is_no_ordinary_exception_passes() -> None:
    machine = machine_on(Screen(failing=[0], error=KeyboardInterrupt()))
    machine.begin_attempt()
    with pytest.raises(KeyboardInterrupt):
        machine.observe("a")
    assert machine.sink_errors == 0
    assert machine.seq == 1


@pytest.mark.rule("R-STREAM-36")
async def test_no_method_can_be_cancelled() -> None:
    screen = Screen()
    machine = machine_on(screen)
    with trio.CancelScope() as scope:
        scope.cancel()
        play(machine, "begin", "a", "begin", "b", "finish succeeded")
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert [row[0] for row in screen.rows] == ["text", "reset", "text"]


# -- against the rules, told once more ---------------------------------------------------------


class Told:
    """The same rules as a plain account of what the reader sees, for the property test."""

    def __init__(self, surface: TextSurface, failing: frozenset[int]) -> None:
        self.surface, self.failing = surface, failing
        self.log: list[Row] = []
        self.attempts = 0
        self.tried: list[tuple[str, bool]] = []  # each event and whether it arrived
        self.due: str | None = None
        self.mute = self.marked = self.over = False

    @property
    def resets_left(self) -> bool:
        sent = sum(kind == "reset" for kind, _ in self.tried)
        return self.surface.max_resets is None or sent < self.surface.max_resets

    @property
    def produced_output(self) -> bool:
        lost = ("reset", False) in self.tried
        final = not self.surface.retractable or lost or not self.resets_left
        return self.marked or (any(kind == "text" for kind, _ in self.tried) and final)

    def send(self, kind: str, what: str) -> bool:
        number = len(self.tried)
        self.tried.append((kind, number not in self.failing))
        if self.tried[-1][1]:
            self.log.append((kind, self.attempts - 1, number, what))
        return self.tried[-1][1]

    def do(self, step: str) -> None:
        if self.over:
            return
        word, _, rest = step.partition(" ")
        if word == "begin":
            self.attempts += 1
            if self.surface.retractable and any(kind == "text" for kind, _ in self.tried):
                if self.resets_left:
                    explicit = "structured_output_retry" if rest else None
                    self.due = explicit or self.due or "attempt_failed"
                else:
                    self.due, self.mute = None, True
        elif word == "mark":
            self.marked = True
        elif word == "finish":
            if rest == "succeeded" and self.due:
                self.send("reset", self.due)
            self.over = True
        elif step and not self.mute:
            if self.due:
                reason, self.due = self.due, None
                self.mute = not self.send("reset", reason)
            if not self.mute:
                self.send("text", step)


STEPS = st.sampled_from(
    [
        "begin",
        "begin",
        "begin retry",
        "a",
        "b",
        "c",
        "",
        "mark",
        "finish failed",
        "finish succeeded",
    ]
)


@pytest.mark.rule(
    *(f"R-STREAM-{n:02}" for n in (6, 7, 8, 9, 10, 11, 14, 16, 17, 18, 19, 20, 21, 22, 23, 26, 31))
)
@given(
    steps=st.lists(STEPS, max_size=25),
    retractable=st.booleans(),
    max_resets=st.none() | st.integers(0, 3),
    failing=st.frozensets(st.integers(0, 12), max_size=5),
)
def test_the_reader_is_sent_what_the_rules_say(
    steps: list[str], retractable: bool, max_resets: int | None, failing: frozenset[int]
) -> None:
    surface = TextSurface(retractable=retractable, max_resets=max_resets)
    screen, told = Screen(tuple(failing)), Told(surface, failing)
    machine = machine_on(screen, surface)
    latched = False
    for step in ["begin", *steps]:
        play(machine, step)
        told.do(step)
        assert screen.rows == told.log
        assert machine.epoch == told.attempts - 1
        assert machine.seq == len(told.tried)
        assert machine.produced_output == told.produced_output
        assert machine.reset_count == sum(kind == "reset" for kind, _ in told.tried)
        assert machine.sink_errors == sum(not arrived for _, arrived in told.tried)
        assert machine.produced_output or not latched
        latched = machine.produced_output
