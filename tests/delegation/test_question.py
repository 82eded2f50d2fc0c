"""A child inside the payload of its question: there and back, whatever it holds."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import (
    JSON,
    Limits,
    Message,
    RunState,
    RunStats,
    Suspend,
    assistant_message,
    tool_message,
    user_message,
)
from harness._messages import success_envelope
from harness.checkpoints import Checkpoint, checkpoint_of, create_checkpoint, state_of
from harness.delegation import ChildQuestion, asked_by
from harness.delegation._question import ask_for_child, paused_child
from harness.errors import RecordError, ReplyError
from harness.kernel import Pause, RunUsage
from harness.testing import tool_call
from tests.strategies import json_values, settled_transcripts, words

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
LATER = datetime(2031, 1, 2, tzinfo=UTC)


def waiting(
    suspends: dict[str, Suspend],
    *,
    messages: list[Message] | None = None,
    answered: tuple[str, ...] = (),
    run_id: str = "child",
) -> Checkpoint:
    """A run that stopped in a batch of the calls in *suspends*, and those *answered*."""
    calls = [tool_call("ask", id=each) for each in (*answered, *suspends)]
    told = [tool_message(each, success_envelope(None)) for each in answered]
    told += [
        tool_message(each, success_envelope(None))
        for each, suspend in suspends.items()
        if suspend.kind == "wake"
    ]
    state = RunState(
        run_id=run_id,
        leg=1,
        messages=[
            *(messages or [{"role": "user", "content": "Go."}]),
            assistant_message(None, calls),
            *told,
        ],
        turn=1,
        usage=RunUsage(input=3, output=2),
        tool_calls=len(calls),
        calls_taken=len(calls),
        pause=Pause(
            open=tuple(key for key, each in suspends.items() if each.kind == "answer"),
            suspends=suspends,
        ),
        compactions=1,
        forgotten={"digest": 2},
    )
    return checkpoint_of(state, limits=Limits(turns=7), stats=RunStats(turns=1))


@st.composite
def asking_runs(draw: st.DrawFn) -> Checkpoint:
    """A run with one to three questions."""
    ids = [f"call-{n}" for n in range(draw(st.integers(1, 3)))]
    return waiting(
        {each: Suspend.answer(draw(words), draw(json_values)) for each in ids},
        messages=[*draw(settled_transcripts()), user_message(draw(words))],
        answered=draw(st.sampled_from([(), ("other",)])),
    )


@pytest.mark.rule("R-CHILD-10")
@given(asking_runs())
def test_a_child_comes_back_as_it_was(asking: Checkpoint) -> None:
    stored = json.loads(json.dumps(ask_for_child("clerk", asking).payload))
    child = paused_child(stored)
    assert (child.agent, child.checkpoint, child.pause) == ("clerk", asking, asking.head.pause)
    assert child.call_id == stored["call_id"] == next(iter(child.pause.suspends))


@pytest.mark.rule("R-CHILD-10", "R-CHILD-16")
@given(asking_runs(), json_values)
def test_the_first_open_question_is_asked_and_gets_the_reply(
    asking: Checkpoint, value: JSON
) -> None:
    assert asking.head.pause is not None
    for call_id, asked in asking.head.pause.suspends.items():
        question = ask_for_child("clerk", asking)
        assert question.question == asked.question
        state = paused_child(question.payload).go_on("child", value)
        assert state.pause is not None
        assert state.pause.replies[call_id].value == value
        asking = checkpoint_of(state)
    with pytest.raises(ReplyError):
        state_of(asking).reply("call-0", value)


@pytest.mark.rule("R-CHILD-12")
def test_a_child_goes_on_under_the_id_of_its_place() -> None:
    question = ask_for_child("clerk", waiting({"1": Suspend.answer("?")}))
    assert paused_child(question.payload).go_on("elsewhere", True).run_id == "elsewhere"


@pytest.mark.rule("R-CHILD-16")
def test_a_question_comes_before_a_wake_and_the_first_wake_is_told() -> None:
    naps = {"1": Suspend.wake(LATER), "2": Suspend.wake(NOON)}
    asked = ask_for_child("clerk", waiting({**naps, "3": Suspend.answer("Really?")}))
    assert asked.question == "Really?"
    asleep = ask_for_child("clerk", waiting(naps))
    assert asleep.question == (
        "The agent 'clerk' sleeps until 2031-01-01T12:00:00+00:00. Any reply wakes it."
    )
    assert asked_by(asleep) == ChildQuestion(path=("clerk",), run_id="child", call_id=None, at=NOON)
    woken = paused_child(asleep.payload).go_on("child", "whatever")
    assert woken.pause is not None
    assert woken.pause.replies == {}


@pytest.mark.rule("R-CHILD-16")
def test_a_run_that_waits_for_nothing_asks_nothing() -> None:
    with pytest.raises(ValueError, match=r"^run 'r' waits for nothing, expected a question or a"):
        ask_for_child("clerk", create_checkpoint("r", "Go."))


@pytest.mark.rule("R-CHILD-10")
@given(st.integers(1, 6), json_values)
def test_who_asks_is_found_however_deep(depth: int, payload: JSON) -> None:
    suspend = Suspend.answer("Really?", payload)
    for level in range(depth):
        suspend = ask_for_child(f"agent-{level}", waiting({"1": suspend}, run_id=f"run-{level}"))
    assert suspend.question == "Really?"
    assert asked_by(suspend) == ChildQuestion(
        path=tuple(f"agent-{level}" for level in reversed(range(depth))),
        run_id="run-0",
        call_id="1",
        payload=payload,
    )


@pytest.mark.rule("R-CHILD-10")
@given(json_values)
def test_a_question_of_the_runs_own_is_no_childs(payload: JSON) -> None:
    assert asked_by(Suspend.answer("Really?", payload)) is None


@pytest.mark.rule("R-CHILD-16")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"type": "parent"}, "$.type"),
        ({"agent": 7}, "$.agent"),
        ({"run_id": None}, "$.run_id"),
        ({"call_id": 7}, "$.call_id"),
        ({"call_id": "2"}, "$.call_id"),
        ({"colour": 1}, ""),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_with_the_place(
    change: dict[str, JSON], path: str
) -> None:
    payload = ask_for_child("clerk", waiting({"1": Suspend.answer("?")})).payload
    assert isinstance(payload, dict)
    assert paused_child(payload).call_id == "1"
    with pytest.raises(RecordError) as caught:
        paused_child({**payload, **change})
    assert caught.value.path == path


@pytest.mark.rule("R-CHILD-16")
@given(json_values)
def test_what_is_no_checkpoint_is_refused(value: JSON) -> None:
    payload = ask_for_child("clerk", waiting({"1": Suspend.answer("?")})).payload
    assert isinstance(payload, dict)
    with pytest.raises(RecordError):
        paused_child({**payload, "checkpoint": value})


@pytest.mark.rule("R-CHILD-10")
def test_a_child_that_goes_on_has_spent_what_it_spent() -> None:
    asking = waiting({"1": Suspend.answer("?")})
    state = paused_child(ask_for_child("clerk", asking).payload).go_on("child", True)
    assert (state.turn, state.leg, state.calls_taken, state.compactions) == (1, 1, 1, 1)
    assert (state.usage.tokens, state.forgotten) == (5, {"digest": 2})
