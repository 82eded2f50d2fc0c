import math
from collections.abc import Sequence

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from harness._events import Event, Progress, TextDelta, TextReset, TurnFinished
from harness.completion._merge import merge_text
from harness.kernel import Emitter
from harness.testing import Scene, cancel_everywhere, run_virtual
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

Receive = trio.MemoryReceiveChannel[Event]
Send = trio.MemorySendChannel[Event]


class Ends:
    """The four ends of a merge's two channels."""

    def __init__(self, *, bound: int = 0) -> None:
        self.tell: Send
        self.events: Receive
        self.send: Send
        self.reader: Receive
        self.tell, self.events = trio.open_memory_channel[Event](math.inf)
        self.send, self.reader = trio.open_memory_channel[Event](bound)

    def say(self, *events: Event) -> None:
        for event in events:
            self.tell.send_nowait(event)

    @property
    def closed(self) -> bool:
        """Whether the merge has closed both of its ends."""
        told_to = self.tell.statistics().open_receive_channels
        return (told_to, self.reader.statistics().open_send_channels) == (0, 0)


async def rest_of(reader: Receive) -> list[Event]:
    with reader:
        return [event async for event in reader]


def count(number: int) -> Progress:
    return Progress(output_tokens=number, tool_calls=0)


async def test_a_reader_that_keeps_up_is_sent_each_event_as_it_comes() -> None:
    ends, events = Ends(), [*told([["a", "b"], ["c"]]), count(1)]
    got: list[Event] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(merge_text, ends.events, ends.send)
        for event in events:
            ends.say(event)
            got.append(await ends.reader.receive())
        ends.tell.close()
        with pytest.raises(trio.EndOfChannel):
            await ends.reader.receive()
    assert got == events
    assert ends.closed
    ends.reader.close()


async def test_what_comes_while_the_reader_is_slow_comes_in_one_piece() -> None:
    ends = Ends()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(merge_text, ends.events, ends.send)
        ends.say(text(0, "a"))
        await wait_all_tasks_blocked()
        ends.say(text(1, "b"), count(1), text(2, "c"))
        await wait_all_tasks_blocked()
        ends.say(text(3, "d"), count(2))
        ends.tell.close()
        assert await rest_of(ends.reader) == [text(0, "a"), text(1, "bcd"), count(1), count(2)]


async def test_text_still_grows_while_what_is_before_it_is_on_its_way() -> None:
    ends = Ends()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(merge_text, ends.events, ends.send)
        ends.say(count(1), text(0, "a"))
        await wait_all_tasks_blocked()
        ends.say(text(1, "b"))
        ends.tell.close()
        assert await rest_of(ends.reader) == [count(1), text(0, "ab")]


@pytest.mark.rule("R-STREAM-34")
async def test_what_is_there_from_the_start_is_merged_before_any_of_it_is_sent() -> None:
    ends = Ends()
    ends.say(*told([["lost"], ["ke", "pt"]]))
    ends.tell.close()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(merge_text, ends.events, ends.send)
        assert await rest_of(ends.reader) == [text(0, "kept", epoch=1)]


@pytest.mark.rule("R-STREAM-34")
async def test_an_attempt_that_the_reader_was_not_sent_is_dropped_with_its_reset() -> None:
    ends = Ends()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(merge_text, ends.events, ends.send)
        ends.say(count(1))
        await wait_all_tasks_blocked()  # the reader is busy with something else
        ends.say(*told([["lost", " words"], ["kept", " words"]]))
        ends.tell.close()
        got = await rest_of(ends.reader)
    assert got == [count(1), text(0, "kept words", epoch=1)]
    assert rendered(got) == "kept words"


@pytest.mark.rule("R-STREAM-34")
async def test_a_piece_that_is_on_its_way_when_it_is_taken_back_is_followed_by_its_reset() -> None:
    ends = Ends()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(merge_text, ends.events, ends.send)
        ends.say(text(0, "a"))
        await wait_all_tasks_blocked()
        ends.say(text(1, "b"), reset(2, epoch=1), text(3, "c", epoch=1))
        ends.tell.close()
        got = await rest_of(ends.reader)
    assert got == [text(0, "a"), reset(1, epoch=1), text(2, "c", epoch=1)]


@pytest.mark.rule("R-STREAM-34")
@settings(max_examples=60)
@given(
    stream=streams(),
    bound=st.integers(0, 3),
    pauses=st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.5]), min_size=12, max_size=12),
    naps=st.lists(st.sampled_from([0.0, 1.0, 7.0]), min_size=12, max_size=12),
)
def test_however_slow_the_reader_it_shows_the_same_in_the_end(
    stream: Stream,
    bound: int,
    pauses: list[float],
    naps: list[float],
) -> None:
    events, attempts = stream

    async def tell(ends: Ends) -> None:
        for place, event in enumerate(events):
            await trio.sleep(pauses[place % len(pauses)])
            ends.say(event)
        ends.tell.close()

    async def main() -> list[Event]:
        ends, got = Ends(bound=bound), list[Event]()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(merge_text, ends.events, ends.send)
            nursery.start_soon(tell, ends)
            with ends.reader:
                async for event in ends.reader:
                    got.append(event)
                    await trio.sleep(naps[len(got) % len(naps)])
        assert ends.closed
        return got

    got = run_virtual(main)
    assert_as_sent(got, events)
    for turn_id, pieces in attempts.items():
        ended = got.index(TurnFinished(turn_id=turn_id, counted=True))
        assert rendered(got[:ended], turn_id) == written(pieces)


# -- ends --------------------------------------------------------------------------------------


async def test_it_returns_when_the_last_event_was_taken() -> None:
    ends = Ends()
    ends.say(count(1), count(2))
    ends.tell.close()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(merge_text, ends.events, ends.send)
        await wait_all_tasks_blocked()
        assert not ends.closed
        assert await rest_of(ends.reader) == [count(1), count(2)]
    assert ends.closed


async def test_a_stream_without_an_event_ends_at_once() -> None:
    ends = Ends()
    ends.tell.close()
    await merge_text(ends.events, ends.send)
    assert await rest_of(ends.reader) == []
    assert ends.closed


@pytest.mark.parametrize("unread", [0, 3])
async def test_a_reader_that_goes_away_ends_it_and_the_run_goes_on_untold(unread: int) -> None:
    emitter, (send, reader) = Emitter(), trio.open_memory_channel[Event](0)
    events = emitter.open_reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(merge_text, events, send)
        for number in range(unread):
            emitter.send_nowait(count(number))
        await wait_all_tasks_blocked()
        reader.close()
        emitter.send_nowait(count(9))
    emitter.send_nowait(count(10))
    assert not emitter.has_readers


async def test_a_channel_that_somebody_else_closed_is_an_error_that_is_told() -> None:
    ends = Ends()
    ends.say(count(1))
    ends.send.close()
    with pytest.raises(trio.ClosedResourceError):
        await merge_text(ends.events, ends.send)
    assert ends.closed
    ends.reader.close()


async def test_a_stop_ends_it_with_both_channels_closed() -> None:
    ends = Ends(bound=1)
    ends.say(count(1), count(2), count(3))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(merge_text, ends.events, ends.send)
            await wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert ends.closed
    assert await rest_of(ends.reader) == [count(1)]  # what it had been sent before


def _is_beginning(part: Sequence[Event], whole: Sequence[Event]) -> bool:
    return list(part) == list(whole[: len(part)])


def test_wherever_it_is_cut_the_reader_was_sent_a_true_beginning() -> None:
    events: list[Event] = [
        *told([["a", "b"], ["c", "d", "e"]]),
        count(1),
        count(2),
        TurnFinished(turn_id="t1", counted=True),
    ]

    async def tell(ends: Ends) -> None:
        with ends.tell:
            for event in events:
                await trio.sleep(0.4)
                ends.say(event)

    async def scenario(scene: Scene) -> None:
        ends, got = Ends(), list[Event]()

        @scene.afterwards
        def check() -> None:
            assert ends.closed
            others = [event for event in got if not isinstance(event, TextDelta | TextReset)]
            assert _is_beginning(others, events[-3:])
            texts = [event for event in got if isinstance(event, TextDelta | TextReset)]
            assert [event.seq for event in texts] == list(range(len(texts)))
            assert rendered(got) in {"", "a", "ab", "c", "cd", "cde"}
            if scene.outcome == "completed":
                assert others == events[-3:]
                assert rendered(got) == "cde"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell, ends)
            nursery.start_soon(merge_text, ends.events, ends.send)
            with ends.reader:
                async for event in ends.reader:
                    got.append(event)
                    await trio.sleep(1)

    report = cancel_everywhere(scenario, minimum=65, seeds=(0, 1, 2))
    assert report.cancelled > 0
