import math
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._errors import RunUseError, StreamStalled
from harness._model import CallPiece, Chunk, StreamBudgets
from harness._usage import Usage
from harness.completion._pace import ChunkKind, Pace, chunk_kind
from harness.providers._chunks import read_event
from harness.providers._sse import ServerEvent

BUDGETS: Final = StreamBudgets(first_answer=120, gap=30, absolute=900)


def opened(at: float = 0.0, budgets: StreamBudgets = BUDGETS) -> Pace:
    pace = Pace(budgets)
    pace.open(at)
    return pace


def stalled(pace: Pace, now: float) -> StreamStalled:
    assert pace.stall(math.nextafter(now, -math.inf)) is None
    stall = pace.stall(now)
    assert stall is not None
    return stall


# -- budgets -----------------------------------------------------------------------------------


@pytest.mark.rule("R-WATCH-02")
def test_the_budgets_that_nobody_chose() -> None:
    assert StreamBudgets() == BUDGETS


@pytest.mark.rule("R-WATCH-16")
@pytest.mark.parametrize("name", ["first_answer", "gap", "absolute"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 0, -1, True, "30", None])
def test_a_budget_is_a_positive_finite_number_of_seconds(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{name} is {value!r}, expected"):
        StreamBudgets(**{name: value})


# -- kinds -------------------------------------------------------------------------------------


@pytest.mark.rule("R-WATCH-05")
@pytest.mark.parametrize(
    ("chunk", "kind"),
    [
        (Chunk(text="a"), "answer"),
        (Chunk(refusal="no"), "answer"),
        (Chunk(calls=(CallPiece(index=0, id="a"),)), "answer"),
        (Chunk(text="a", reasoning="b"), "answer"),
        (Chunk(reasoning="b"), "reasoning"),
        (Chunk(), "none"),
        (Chunk(text="", reasoning="", refusal=""), "none"),
        (Chunk(usage=Usage(input=3)), "none"),
        (Chunk(finish_reason="stop", end=True), "none"),
    ],
)
def test_what_a_chunk_is_to_the_budgets(chunk: Chunk, kind: ChunkKind) -> None:
    assert chunk_kind(chunk) == kind


@pytest.mark.rule("R-WATCH-05")
@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        ('{"content": "a"}', "answer"),
        ('{"refusal": "a"}', "answer"),
        ('{"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}', "answer"),
        ('{"reasoning_content": "a"}', "reasoning"),
        ('{"reasoning": "a"}', "reasoning"),
        ('{"role": "assistant", "content": null}', "none"),
        ("{}", "none"),
    ],
)
def test_what_a_delta_on_the_wire_is_to_the_budgets(delta: str, kind: ChunkKind) -> None:
    event = ServerEvent(name="", data=f'{{"choices": [{{"index": 0, "delta": {delta}}}]}}'.encode())
    assert chunk_kind(read_event(event)) == kind


# -- the pace ----------------------------------------------------------------------------------


@pytest.mark.rule("R-WATCH-03")
def test_what_was_before_the_opening_does_not_count() -> None:
    pace = opened(600)
    assert pace.deadline == 720
    assert pace.stall(719) is None


@pytest.mark.rule("R-WATCH-04")
def test_a_pace_is_opened_once_and_before_anything_comes() -> None:
    pace = Pace(BUDGETS)
    for use in (
        lambda: pace.observe("answer", 0),
        lambda: pace.observe("none", 0),
        lambda: pace.deadline,
        lambda: pace.stall(0),
    ):
        with pytest.raises(RunUseError, match=r"expected that first$"):
            use()
    pace.open(0)
    with pytest.raises(RunUseError, match=r"^the pace was opened again"):
        pace.open(0)


@pytest.mark.rule("R-WATCH-01", "R-WATCH-11")
def test_silence_from_the_start() -> None:
    stall = stalled(opened(10), 130)
    assert (stall.budget, stall.seconds, stall.elapsed) == ("first_answer", 120, 120)
    assert not stall.reasoning_seen
    assert not stall.answer_seen
    assert (stall.kind, stall.category) == ("stall", "stalled")


@pytest.mark.rule("R-WATCH-01", "R-WATCH-06", "R-WATCH-11")
def test_silence_within_the_answer() -> None:
    pace = opened()
    assert pace.observe("answer", 10)
    assert not pace.observe("answer", 39)
    stall = stalled(pace, 69)
    assert (stall.budget, stall.seconds, stall.elapsed) == ("gap", 30, 69)
    assert stall.answer_seen
    assert not stall.reasoning_seen


@pytest.mark.rule("R-WATCH-01", "R-WATCH-10", "R-WATCH-11")
def test_an_answer_without_an_end() -> None:
    pace = opened()
    for second in range(1, 900):
        pace.observe("answer", second)
    assert pace.deadline == 900
    stall = stalled(pace, 900)
    assert (stall.budget, stall.seconds, stall.elapsed) == ("absolute", 900, 900)


@pytest.mark.rule("R-WATCH-06")
def test_a_pause_after_thinking_is_judged_by_the_generous_budget() -> None:
    pace = opened()
    pace.observe("reasoning", 5)
    assert pace.stall(105) is None
    pace.observe("answer", 105)
    assert stalled(pace, 135).budget == "gap"


@pytest.mark.rule("R-WATCH-07")
def test_thinking_is_healthy_as_long_as_it_moves() -> None:
    pace = opened()
    for second in range(60, 660, 60):
        assert pace.stall(second) is None
        pace.observe("reasoning", second)
    stall = stalled(pace, 720)
    assert (stall.budget, stall.reasoning_seen, stall.answer_seen) == ("first_answer", True, False)


@pytest.mark.rule("R-WATCH-08")
def test_thinking_between_two_stretches_of_the_answer() -> None:
    pace = opened()
    pace.observe("answer", 1)
    assert not pace.observe("reasoning", 2)
    assert pace.stall(102) is None
    assert pace.observe("answer", 102)
    assert stalled(pace, 132).budget == "gap"


@pytest.mark.rule("R-WATCH-09")
def test_what_is_neither_answer_nor_thinking_moves_nothing() -> None:
    pace = opened()
    for second in range(1, 120):
        assert not pace.observe("none", second)
    assert stalled(pace, 120).budget == "first_answer"


@pytest.mark.rule("R-WATCH-11")
def test_of_two_budgets_that_ran_out_that_of_the_phase_is_named() -> None:
    pace = opened(budgets=StreamBudgets(first_answer=30, gap=30, absolute=30))
    assert stalled(pace, 30).budget == "first_answer"
    pace.observe("answer", 0)
    assert stalled(pace, 30).budget == "gap"


@pytest.mark.rule("R-WATCH-06", "R-WATCH-07", "R-WATCH-08", "R-WATCH-09", "R-WATCH-10")
@given(
    st.lists(
        st.tuples(st.sampled_from(["answer", "reasoning", "none"]), st.integers(0, 200)),
        max_size=12,
    )
)
def test_the_deadline_is_that_of_the_last_chunk_that_counts(
    chunks: list[tuple[ChunkKind, int]],
) -> None:
    pace = opened(7)
    now, since, length = 7, 7, 120
    for kind, wait in chunks:
        before = pace.deadline
        now += wait
        closer = pace.observe(kind, now)
        if kind != "none":
            since, length = now, 30 if kind == "answer" else 120
        assert pace.deadline == min(since + length, 907)
        assert closer or pace.deadline >= before
        assert (pace.stall(now) is None) == (pace.deadline > now)
