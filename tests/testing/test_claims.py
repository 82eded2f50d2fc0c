import pytest
import trio

from harness import assistant_message, tool_message, user_message
from harness._messages import FailureKind, Message, failure_envelope, success_envelope
from harness.events import (
    CompactionFinished,
    CompactionStarted,
    Event,
    Posted,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from harness.kernel import Limiters
from harness.testing import (
    assert_answers_truthful,
    assert_calls_answered_once,
    assert_channels_ended,
    assert_events_balance,
    assert_no_permit_held,
    assert_provider_valid,
    assert_transcript_settled,
    tool_call,
)

_ASKED = [
    user_message("Go."),
    assistant_message(None, [tool_call("a", id="x"), tool_call("b", id="y")]),
]


def _answer(call: str, kind: FailureKind | None = None) -> Message:
    return tool_message(call, failure_envelope("no", kind) if kind else success_envelope(1))


# -- transcripts -------------------------------------------------------------------------------


@pytest.mark.rule("R-KIT-08")
def test_a_settled_transcript_passes() -> None:
    assert_transcript_settled([*_ASKED, _answer("x"), _answer("y"), assistant_message("Done.")])
    assert_transcript_settled([*_ASKED, _answer("y")], open_calls=["x"])


@pytest.mark.rule("R-KIT-08")
@pytest.mark.parametrize(
    ("tail", "complaint"),
    [
        ([_answer("x")], "unanswered_call"),
        ([_answer("y"), _answer("x")], "out_of_order"),
        ([_answer("x"), user_message("?"), _answer("y")], "misplaced_result"),
        ([_answer("x"), _answer("y"), _answer("y")], "result"),
    ],
    ids=["unanswered", "out of order", "torn", "answered twice"],
)
def test_an_unsettled_transcript_fails_and_says_why(tail: list[Message], complaint: str) -> None:
    with pytest.raises(AssertionError, match=f"not settled: .*{complaint}"):
        assert_transcript_settled([*_ASKED, *tail])


@pytest.mark.rule("R-KIT-08")
def test_an_open_call_that_was_answered_is_not_open() -> None:
    with pytest.raises(AssertionError, match="not settled"):
        assert_transcript_settled([*_ASKED, _answer("x"), _answer("y")], open_calls=["x"])


@pytest.mark.rule("R-KIT-19")
def test_a_transcript_that_can_go_on_is_valid_for_both_families() -> None:
    assert_provider_valid([*_ASKED, _answer("x"), _answer("y"), assistant_message("Done.")])
    assert_provider_valid([user_message("Go.")])


@pytest.mark.rule("R-KIT-19")
@pytest.mark.parametrize(
    ("messages", "family"),
    [
        ([*_ASKED, _answer("x")], "chat completions"),
        ([user_message("Go."), {"role": "assistant", "content": None}], "chat completions"),
        ([assistant_message("Hello."), user_message("Hi.")], "the messages interface"),
    ],
)
def test_a_transcript_that_one_family_refuses_fails(messages: list[Message], family: str) -> None:
    with pytest.raises(AssertionError, match=f"the transcript is not valid for {family}: "):
        assert_provider_valid(messages)


@pytest.mark.rule("R-KIT-19")
def test_each_call_has_one_answer() -> None:
    assert_calls_answered_once([*_ASKED, _answer("x"), _answer("y")])
    assert_calls_answered_once([*_ASKED, _answer("x")], open_calls=["y"])
    twice = [*_ASKED, _answer("x"), _answer("y")]
    assert_calls_answered_once([*twice, *twice])


@pytest.mark.rule("R-KIT-19")
@pytest.mark.parametrize(
    ("tail", "open_calls", "complaint"),
    [
        ([_answer("x")], [], "'y' asked 1 times, answered 0"),
        ([_answer("x"), _answer("y"), _answer("y")], [], "'y' asked 1 times, answered 2"),
        ([_answer("x"), _answer("y"), _answer("z")], [], "'z' asked 0 times, answered 1"),
        ([_answer("x"), _answer("y")], ["y"], "'y' asked 0 times, answered 1"),
    ],
)
def test_another_number_of_answers_fails(
    tail: list[Message], open_calls: list[str], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        assert_calls_answered_once([*_ASKED, *tail], open_calls)


@pytest.mark.rule("R-KIT-19")
def test_answers_agree_with_what_ran() -> None:
    messages = [*_ASKED, _answer("x", "interrupted"), _answer("y", "not_run")]
    assert_answers_truthful(messages, ran=["x"])
    assert_answers_truthful([*_ASKED, _answer("x"), _answer("y", "validation")], ran=[])
    parts: list[Message] = [
        tool_message("x", failure_envelope("no", "interrupted"), [{"type": "image"}])
    ]
    assert_answers_truthful(parts, ran=["x"])
    with pytest.raises(AssertionError, match="'x' was answered interrupted, and it never started"):
        assert_answers_truthful(parts, ran=[])
    with pytest.raises(AssertionError, match="'y' was answered not_run, and it had been started"):
        assert_answers_truthful(messages, ran=["x", "y"])


# -- what was taken ----------------------------------------------------------------------------


@pytest.mark.rule("R-KIT-19")
async def test_a_permit_that_is_taken_is_held() -> None:
    limiter, limiters = trio.CapacityLimiter(1), Limiters()
    assert_no_permit_held(limiter, limiters)
    async with limiter:
        with pytest.raises(AssertionError, match="has 1 permits taken, expected none"):
            assert_no_permit_held(limiters, limiter)
    permit = limiters.permit("pool")
    await permit.take()
    with pytest.raises(AssertionError, match="has 1 permits taken"):
        assert_no_permit_held(limiter, limiters)
    permit.release()
    assert_no_permit_held(limiter, limiters)


@pytest.mark.rule("R-KIT-19")
def test_a_channel_has_ended_when_nobody_can_send() -> None:
    send, receive = trio.open_memory_channel[object](1)
    copy = send.clone()
    with pytest.raises(AssertionError, match="has 2 open send sides"):
        assert_channels_ended(receive)
    send.close()
    with pytest.raises(AssertionError, match="has 1 open send sides"):
        assert_channels_ended(receive)
    copy.close()
    assert_channels_ended(receive)


# -- events ------------------------------------------------------------------------------------

_RUN = RunStarted()
_TURN = TurnStarted(turn_id="t")
_CALL = ToolStarted(call_id="c", name="a")
_CALLED = ToolFinished(call_id="c", name="a", outcome="completed", duration=1)
_TURNED = TurnFinished(turn_id="t", counted=True)
_RAN = RunFinished(stop_reason="done")
_SHRINK = CompactionStarted()
_SHRUNK = CompactionFinished(applied=True)


@pytest.mark.rule("R-KIT-19")
@pytest.mark.parametrize(
    "events",
    [
        [],
        [_RUN, _RAN],
        [_RUN, _TURN, _CALL, _CALLED, _TURNED, _SHRINK, _SHRUNK, _RAN],
        [
            _RUN,
            _TURN,
            _TURNED,
            _RAN,
            RunStarted(leg=1),
            _TURN,
            _TURNED,
            RunFinished(leg=1, stop_reason="done"),
        ],
        [_RUN, RunStarted(run_id="b"), RunFinished(run_id="b", stop_reason="done"), _RAN],
        [
            _RUN,
            Posted(text="x"),
            _TURN,
            TextDelta(turn_id="t", epoch=0, seq=0, text="x"),
            _TURNED,
            _RAN,
        ],
    ],
)
def test_events_that_balance_pass(events: list[Event]) -> None:
    assert_events_balance(events)


@pytest.mark.rule("R-KIT-19")
@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([_RUN], "never finished"),
        ([_RAN], "outside of a leg"),
        ([_RUN, _RAN, Posted(text="x")], "outside of a leg"),
        ([Posted(text="x"), _RUN, _RAN], "outside of a leg"),
        ([_RUN, _TURN, _RAN], "open at the end of the leg"),
        ([_RUN, _TURN, _CALL, _TURNED, _RAN], "open at the end of the leg"),
        ([_RUN, _TURNED, _RAN], "expected it to have been started"),
        ([_RUN, _CALL, _CALL, _CALLED, _RAN], "started twice"),
        ([_RUN, _CALL, _CALLED, _CALLED, _RAN], "expected it to have been started"),
        ([_RUN, _SHRINK, _RAN], "open at the end"),
        ([_RUN, _RUN, _RAN, _RAN], "started twice"),
    ],
)
def test_events_that_do_not_balance_fail(events: list[Event], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        assert_events_balance(events)
