from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from harness._errors import CompletionDefectError, RunUseError
from harness._events import (
    Event,
    Progress,
    ReasoningDelta,
    TextDelta,
    TextReset,
    ToolCallDelta,
)
from harness._model import Assembly, Attempt, CallPiece, Chunk, ModelTurn, TextSurface, TurnStream
from harness._usage import Usage
from harness.completion import (
    Completion,
    detect_completion_defect,
    open_turn_stream,
)
from harness.testing import Scene, cancel_everywhere
from tests.completion.streams import (
    ODD_SHAPES,
    OddShape,
    assembled,
    call,
    other_cuts,
    replies,
    said,
)
from tests.completion.turns import Turn

STOP: Final = Chunk(finish_reason="stop", end=True)
RESET: Final = OSError("connection reset")


def test_a_turn_stream_is_what_a_model_expects() -> None:
    stream: TurnStream = Turn().stream
    assert not stream.produced_output


# -- a reply -----------------------------------------------------------------------------------


async def test_a_reply_is_told_while_it_comes_and_returned_at_the_end() -> None:
    turn = Turn()
    async with turn.stream.attempt() as attempt:
        attempt.send_nowait(Chunk(reasoning="Hm. "))
        attempt.send_nowait(said("Hel"))
        await trio.testing.wait_all_tasks_blocked()
        assert turn.text == "Hel"
        attempt.send_nowait(said("lo"))
        attempt.send_nowait(Chunk(finish_reason="stop", usage=Usage(input=2, output=3), end=True))
    assert turn.text == "Hello"
    assert attempt.number == 0
    assert attempt.turn() == ModelTurn(
        message={"role": "assistant", "content": "Hello"},
        usage=Usage(input=2, output=3),
        finish_reason="stop",
        reasoning="Hm. ",
    )
    turn.stream.finish(succeeded=True)
    assert turn.spent == []
    assert not turn.stream.produced_output


async def test_a_reply_with_calls_and_one_that_is_a_refusal_become_messages() -> None:
    asked = (await Turn().attempt(call("{}", index=0, id="a", name="f"), STOP)).turn()
    assert asked.message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    }
    refused = (await Turn().attempt(Chunk(refusal="No"), STOP)).turn()
    assert refused.message == {"role": "assistant", "content": None, "refusal": "No"}
    assert refused.reasoning is None


@pytest.mark.rule("R-ATTEMPT-07", "R-STREAM-32")
async def test_thinking_and_growing_calls_are_told_and_are_no_output() -> None:
    turn = Turn(TextSurface(retractable=False))
    await turn.attempt()
    await turn.attempt(
        Chunk(reasoning="Hm"),
        Chunk(
            calls=(
                CallPiece(index=1, id="a", name="f", arguments='{"x'),
                CallPiece(id="b", name="g"),
            )
        ),
        call('": 1}', index=1),
        call("", index=1, id="a"),
    )
    assert turn.of(ReasoningDelta) == [ReasoningDelta(turn_id="t1", attempt=1, text="Hm")]
    grown = [
        (each.attempt, each.index, each.call_id, each.name, each.arguments)
        for each in turn.told
        if isinstance(each, ToolCallDelta)
    ]
    assert grown == [(1, 1, "a", "f", '{"x'), (1, 2, "b", "g", ""), (1, 1, "a", "f", '": 1}')]
    assert turn.of(TextDelta) == []
    assert not turn.stream.produced_output


@pytest.mark.rule("R-ATTEMPT-07")
async def test_calls_that_share_an_index_grow_apart() -> None:
    turn = Turn()
    await turn.attempt(
        call("{}", index=0, id="a", name="f"), call("{}", index=0, id="b", name="g"), STOP
    )
    grown = [(e.index, e.call_id) for e in turn.told if isinstance(e, ToolCallDelta)]
    assert grown == [(0, "a"), (1, "b")]


@pytest.mark.rule("R-ATTEMPT-06")
@pytest.mark.parametrize("shape", ODD_SHAPES, ids=lambda shape: shape.name)
async def test_a_defective_reply_is_raised_and_nothing_of_it_returned(shape: OddShape) -> None:
    turn = Turn()
    attempt = await turn.attempt(*shape.chunks)
    if isinstance(shape.expected, str):
        with pytest.raises(CompletionDefectError) as caught:
            attempt.turn()
        assert caught.value.defect == shape.expected
    else:
        calls = attempt.turn().message.get("tool_calls", [])
        assert [each["id"] for each in calls] == [expected[0] for expected in shape.expected]
        assert turn.text == shape.text


@pytest.mark.rule("R-ATTEMPT-06")
async def test_a_reply_is_judged_by_the_assembly_that_the_turn_was_given() -> None:
    twice = (call("{}", index=0, id="a", name="f"), call("{}", index=1, id="a", name="f"), STOP)
    kept = (await Turn(assembly=Assembly(ids="keep")).attempt(*twice)).turn()
    assert len(kept.message["tool_calls"]) == 2
    blank = (await Turn(assembly=Assembly(empty="accept")).attempt(STOP)).turn()
    assert blank.message["content"] == ""
    strict = await Turn(assembly=Assembly(require_finish_reason=True)).attempt(said("Hi"))
    with pytest.raises(CompletionDefectError, match=r"^the completion is unfinished: "):
        strict.turn()


# -- the stages of an attempt ------------------------------------------------------------------


@pytest.mark.rule("R-ATTEMPT-05")
async def test_a_turn_is_there_once_the_block_has_ended_well() -> None:
    turn = Turn()
    async with turn.stream.attempt() as attempt:
        attempt.send_nowait(said("Hi"))
        with pytest.raises(RunUseError, match=r"^attempt 0 is open, expected its block"):
            attempt.turn()
    assert attempt.turn().message["content"] == "Hi"
    kept: list[Attempt] = []
    with pytest.raises(OSError, match="reset"):
        await _leave_one_behind(turn, kept)
    with pytest.raises(RunUseError, match=r"^attempt 1 was left by an exception, expected"):
        kept[0].turn()


async def _leave_one_behind(turn: Turn, kept: list[Attempt]) -> None:
    async with turn.stream.attempt() as attempt:
        kept.append(attempt)
        attempt.send_nowait(said("Hi"))
        raise RESET


@pytest.mark.rule("R-ATTEMPT-04")
async def test_a_chunk_after_a_good_end_is_an_error() -> None:
    attempt = await Turn().attempt(said("Hi"))
    with pytest.raises(RunUseError, match=r"^a chunk came after attempt 0 had ended, expected"):
        attempt.send_nowait(said("!"))
    assert attempt.turn().message["content"] == "Hi"


@pytest.mark.rule("R-ATTEMPT-04")
async def test_a_chunk_after_a_stop_is_dropped() -> None:
    turn = Turn()
    with trio.CancelScope() as scope:
        async with turn.stream.attempt() as attempt:
            attempt.send_nowait(said("Hi"))
            scope.cancel()
            attempt.send_nowait(said("!"))
            await trio.lowlevel.checkpoint()
    told = list(turn.told)
    attempt.send_nowait(said("?"))
    attempt.send_nowait(Chunk(reasoning="?"))
    assert turn.text == "Hi!"
    assert turn.told == told


@pytest.mark.rule("R-ATTEMPT-08")
async def test_asking_for_an_attempt_opens_nothing_before_it_is_entered() -> None:
    turn = Turn()
    unused, used = turn.stream.attempt(), turn.stream.attempt()
    async with used as attempt:
        assert attempt.number == 0
    assert turn.stream.opened == 1
    async with unused as attempt:
        assert attempt.number == 1


@pytest.mark.rule("R-ATTEMPT-10")
async def test_no_attempt_opens_when_the_turn_is_over() -> None:
    turn = Turn()
    turn.stream.finish(succeeded=False)
    with pytest.raises(RunUseError, match=r"^turn 't1' is over, expected"):
        async with turn.stream.attempt():
            pytest.fail("an attempt opened")
    assert turn.stream.opened == 0


@pytest.mark.rule("R-STREAM-01")
@pytest.mark.parametrize("streams", [1, 2], ids=["of the turn", "one for each attempt"])
async def test_text_is_repaired_by_one_stream_and_not_by_two(streams: int) -> None:
    turns = [Turn(), Turn()][:streams]
    with pytest.raises(OSError, match="reset"):
        await turns[0].break_off(RESET, said("Hel"))
    await turns[-1].attempt(said("Hello"), STOP)
    told = [event for turn in turns for event in turn.told]
    assert len([event for event in told if isinstance(event, TextReset)]) == 2 - streams


@pytest.mark.rule("R-ATTEMPT-07")
async def test_what_is_told_keeps_the_order_in_which_it_came() -> None:
    turn = Turn()
    await turn.attempt(
        Chunk(reasoning="r"),
        said("a"),
        call("{", index=0, id="x", name="f"),
        said("b"),
        Chunk(reasoning="s", text="c"),
    )
    kinds = {TextDelta: "text", ReasoningDelta: "thought", ToolCallDelta: "call"}
    told = [kinds[type(event)] for event in turn.told if type(event) in kinds]
    assert told == ["thought", "text", "call", "text", "thought", "text"]


async def test_text_of_a_lost_attempt_is_taken_back_when_the_next_one_writes() -> None:
    turn = Turn()
    with pytest.raises(OSError, match="reset"):
        await turn.break_off(RESET, said("Hel"))
    async with turn.stream.attempt("structured_output_retry") as attempt:
        assert turn.text == "Hel"
        attempt.send_nowait(said("Good day"))
    assert turn.text == "Good day"
    assert [reset.reason for reset in turn.told if isinstance(reset, TextReset)] == [
        "structured_output_retry"
    ]
    assert [event.epoch for event in turn.told if isinstance(event, TextDelta)] == [0, 1]


@pytest.mark.rule("R-ATTEMPT-11")
@pytest.mark.parametrize("how", ["exception", "defect"])
async def test_a_reply_from_elsewhere_takes_back_the_text_of_an_attempt_that_came_to_nothing(
    how: str,
) -> None:
    turn = Turn()
    half = (said("Hel"), call("{", index=0, id="a", name="f"), STOP)
    if how == "exception":
        with pytest.raises(OSError, match="reset"):
            await turn.break_off(RESET, half[0])
    else:
        with pytest.raises(CompletionDefectError):
            (await turn.attempt(*half)).turn()
    assert turn.text == "Hel"
    turn.stream.finish(succeeded=True)
    assert turn.text == ""


@pytest.mark.rule("R-ATTEMPT-12")
async def test_what_an_attempt_that_came_to_nothing_cost_is_spent() -> None:
    turn = Turn()
    cost = Usage(input=7, output=2)
    attempt = await turn.attempt(Chunk(usage=cost), STOP)
    for _ in range(2):
        with pytest.raises(CompletionDefectError):
            attempt.turn()
    assert turn.spent == [cost]
    with pytest.raises(OSError, match="reset"):
        await turn.break_off(RESET, Chunk(text="Hi", usage=Usage(input=1)))
    with pytest.raises(OSError, match="reset"):
        await turn.break_off(RESET)
    assert turn.spent == [cost, Usage(input=1)]


async def test_an_effect_outside_the_stream_is_marked_on_the_turn() -> None:
    turn = Turn()
    async with turn.stream.attempt() as attempt:
        attempt.mark_produced_output()
        assert turn.stream.produced_output


@pytest.mark.rule("R-ATTEMPT-09", "R-LOOP-17")
async def test_progress_grows_with_time_and_not_with_chunks(autojump_clock: MockClock) -> None:
    turn = Turn()
    async with turn.stream.attempt() as attempt:
        for _ in range(100):
            await trio.sleep(0.01)
            for _ in range(25):
                attempt.send_nowait(said("x"))
            attempt.send_nowait(Chunk(reasoning="x", usage=Usage(output=1)))
            attempt.send_nowait(call("x", index=0, id="a"))
            attempt.send_nowait(Chunk(refusal="x"))
            attempt.send_nowait(Chunk())
    turn.stream.finish(succeeded=True)
    told = [
        (event.output_tokens, event.tool_calls)
        for event in turn.told
        if isinstance(event, Progress)
    ]
    assert len(told) <= 6
    assert told[0] == (1, 3)
    assert told[-1] == (2700, 3)


# -- the block ---------------------------------------------------------------------------------


@pytest.mark.rule("R-ATTEMPT-01")
async def test_sending_is_no_checkpoint_and_cannot_be_cancelled() -> None:
    turn = Turn()
    passed: list[str] = []

    async def bystander() -> None:
        passed.append("a scheduler pass")
        await trio.lowlevel.checkpoint()

    with trio.CancelScope() as scope:
        scope.cancel()
        async with trio.open_nursery() as nursery, turn.stream.attempt() as attempt:
            nursery.start_soon(bystander)
            for _ in range(1000):
                attempt.send_nowait(Chunk(text="x", reasoning="y"))
                attempt.send_nowait(call("z", index=0, id="a"))
            assert passed == []
    assert turn.text == "x" * 1000


@pytest.mark.rule("R-ATTEMPT-03")
@pytest.mark.parametrize(
    "error",
    [
        ValueError("odd"),
        ExceptionGroup("two", [ValueError("odd"), OSError("lost")]),
        BaseExceptionGroup("stop", [KeyboardInterrupt()]),
        KeyboardInterrupt(),
        StopAsyncIteration(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_the_body_raises_leaves_as_the_same_object(error: BaseException) -> None:
    turn = Turn()
    with pytest.raises(type(error)) as caught:
        await turn.break_off(error, said("Hi"))
    assert caught.value is error
    assert turn.text == "Hi"


@pytest.mark.rule("R-ATTEMPT-03", "R-STREAM-35")
async def test_a_reader_that_raises_changes_nothing_for_the_model() -> None:
    def tell(event: Event) -> None:
        if isinstance(event, TextDelta):
            raise trio.BrokenResourceError

    stream = open_turn_stream(
        "t1",
        tell=tell,
        spend=lambda usage: None,
        surface=TextSurface(),
        assembly=Assembly(),
        tool_calls=0,
    )
    async with stream.attempt() as attempt:
        attempt.send_nowait(said("Hi"))
    assert attempt.turn().message["content"] == "Hi"
    assert stream.text.sink_errors == 1


Model = Callable[[Turn, list[str]], Awaitable[None]]


async def _one_reply(turn: Turn, sent: list[str]) -> None:
    async with turn.stream.attempt() as attempt:
        for burst in range(4):
            await trio.sleep(1)
            for letter in "abc":
                sent.append(letter)
                attempt.send_nowait(Chunk(text=letter, reasoning="Hm"))
            if burst % 2:
                await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
    attempt.turn()


async def _a_slow_connection(turn: Turn, sent: list[str]) -> None:
    """Its chunks come from another task, and it is slow to close."""
    send, receive = trio.open_memory_channel[str](1)

    async def connection() -> None:
        async with send:
            for letter in "abcdef":
                await send.send(letter)
                await trio.sleep(0.5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection)
        async with turn.stream.attempt() as attempt:
            try:
                async for letter in receive:
                    sent.append(letter)
                    attempt.send_nowait(said(letter))
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.1)
                sent.append("!")
                attempt.send_nowait(said("!"))


async def _a_retry(turn: Turn, sent: list[str]) -> None:
    try:
        await _one_reply_that_breaks(turn, sent)
    except OSError:
        await trio.lowlevel.checkpoint()
    sent.append("<")
    async with turn.stream.attempt() as attempt:
        await trio.sleep(1)
        sent.append("d")
        attempt.send_nowait(said("d"))
        await trio.sleep(1)


async def _one_reply_that_breaks(turn: Turn, sent: list[str]) -> None:
    async with turn.stream.attempt() as attempt:
        for letter in "abc":
            sent.append(letter)
            attempt.send_nowait(said(letter))
            await trio.sleep(1)
        raise OSError("connection reset")


def _told_as_sent(turn: Turn, sent: Sequence[str], surface: TextSurface) -> None:
    """All that was sent has been told, in order, and the flag says what was told."""
    told = "".join(event.text for event in turn.told if isinstance(event, TextDelta))
    assert told == "".join(sent).replace("<", "")
    assert turn.stream.text.sink_errors == 0
    assert turn.stream.produced_output == (told != "" and not surface.retractable)


@pytest.mark.rule("R-ATTEMPT-02")
@pytest.mark.parametrize("surface", [TextSurface(), TextSurface(retractable=False)], ids=repr)
@pytest.mark.parametrize(
    ("model", "minimum"), [(_one_reply, 25), (_a_slow_connection, 60), (_a_retry, 30)]
)
def test_what_was_sent_has_been_told_at_every_cut(
    model: Model, minimum: int, surface: TextSurface
) -> None:
    async def scenario(scene: Scene) -> None:
        turn, sent = Turn(surface), list[str]()

        @scene.afterwards
        def check() -> None:
            _told_as_sent(turn, sent, surface)
            assert scene.outcome in {"completed", "cancelled"}
            told = len(turn.told)
            turn.stream.finish(succeeded=scene.outcome == "completed")
            assert not [event for event in turn.told[told:] if isinstance(event, TextDelta)]

        try:
            await model(turn, sent)
        finally:
            _told_as_sent(turn, sent, surface)  # already now, where the block was left

    report = cancel_everywhere(scenario, minimum=minimum, seeds=(0, 1, 2))
    assert report.cancelled > 0


async def _break_off_later(turn: Turn, error: BaseException) -> None:
    async with turn.stream.attempt() as attempt:
        attempt.send_nowait(said("a"))
        await trio.sleep(1)
        attempt.send_nowait(said("b"))
        raise error


@pytest.mark.rule("R-ATTEMPT-03")
@pytest.mark.parametrize(
    "make",
    [
        lambda: ValueError("odd"),
        lambda: ExceptionGroup("two", [ValueError("odd"), OSError("lost")]),
        KeyboardInterrupt,
    ],
    ids=["ValueError", "ExceptionGroup", "KeyboardInterrupt"],
)
def test_at_every_cut_the_body_fails_as_itself_or_is_cancelled(
    make: Callable[[], BaseException],
) -> None:
    async def scenario(scene: Scene) -> None:
        turn, error, left = Turn(), make(), list[BaseException]()

        @scene.afterwards
        def check() -> None:
            if turn.text == "ab":
                assert left == [error]
                assert left[0] is error
            else:
                assert turn.text == "a"
                assert isinstance(left[0], trio.Cancelled)

        try:
            await _break_off_later(turn, error)
        except BaseException as raised:
            left.append(raised)
            raise

    raises = (ValueError, OSError, KeyboardInterrupt)
    report = cancel_everywhere(scenario, minimum=10, seeds=(0, 1), raises=raises)
    assert report.cancelled > 0
    assert report.raised > 0


@pytest.mark.rule("R-ATTEMPT-02")
@settings(max_examples=40)
@given(reply=replies(), choices=st.data())
def test_any_cut_of_a_stream_is_told_and_returned_alike(
    reply: tuple[Completion, list[Chunk]], choices: st.DataObject
) -> None:
    _, stream = reply
    chunks = choices.draw(other_cuts(stream))
    pauses = choices.draw(st.lists(st.booleans(), min_size=len(chunks), max_size=len(chunks)))

    async def main() -> None:
        turn = Turn()
        async with turn.stream.attempt() as attempt:
            for chunk, pause in zip(chunks, pauses, strict=True):
                attempt.send_nowait(chunk)
                if pause:
                    await trio.lowlevel.checkpoint()
        completion = assembled(chunks)
        assert turn.text == completion.text
        thought = [event.text for event in turn.told if isinstance(event, ReasoningDelta)]
        assert "".join(thought) == completion.reasoning
        for place in {event.index for event in turn.told if isinstance(event, ToolCallDelta)}:
            grown = [e for e in turn.told if isinstance(e, ToolCallDelta) and e.index == place]
            written = {each["id"]: each["function"] for each in completion.calls}
            finished = written[grown[-1].call_id]
            assert "".join(event.arguments for event in grown) == finished["arguments"]
            assert grown[-1].name == finished["name"]
        if detect_completion_defect(completion, Assembly()) is None:
            assert attempt.turn().message == completion.message()

    trio.run(main, clock=MockClock(autojump_threshold=0))
