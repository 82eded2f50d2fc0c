"""Readers of events: how many there are and what they do changes nothing for the run."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, assert_no_checkpoints

from harness import (
    CallContext,
    Emitter,
    Message,
    ModelRequest,
    ModelTurn,
    RunResult,
    TurnStream,
    Usage,
    open_run,
    run,
    tool,
)
from harness._ids import counting_ids
from harness.errors import RunUseError
from harness.events import (
    Event,
    FlushDue,
    Posted,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolFinished,
    decode_event,
    encode_event,
)
from harness.kernel._emitter import EventSource
from harness.testing import (
    ScriptItem,
    assert_channels_ended,
    assert_events_balance,
    final_answer,
    record_events,
    run_harness,
    scripted_model,
    slow_tool,
    streamed,
    timed,
    tool_call,
    tool_call_turn,
)

Channel = trio.MemoryReceiveChannel[Event]


def unread(reader: Channel) -> list[Event]:
    events: list[Event] = []
    while True:
        try:
            events.append(reader.receive_nowait())
        except (trio.WouldBlock, trio.EndOfChannel):
            return events


def posted(text: str) -> Posted:
    return Posted(text=text)


# -- the emitter -------------------------------------------------------------------------------


@pytest.mark.rule("R-EVENT-01")
async def test_each_reader_gets_everything_from_when_it_was_opened() -> None:
    emitter = Emitter()
    early = emitter.open_reader()
    emitter.send_nowait(posted("a"))
    late = emitter.open_reader()
    emitter.send_nowait(posted("b"))
    assert unread(early) == [posted("a"), posted("b")]
    assert unread(late) == [posted("b")]


async def test_closing_ends_every_reader_once_it_has_read_what_was_sent() -> None:
    emitter = Emitter()
    readers = [emitter.open_reader() for _ in range(3)]
    emitter.send_nowait(posted("a"))
    emitter.close()
    emitter.close()
    for reader in readers:
        assert await record_events(reader) == [posted("a")]


async def test_a_reader_of_a_closed_emitter_ends_at_once() -> None:
    emitter = Emitter()
    emitter.close()
    emitter.send_nowait(posted("nobody hears"))
    assert await record_events(emitter.open_reader()) == []


async def test_a_reader_that_has_closed_is_forgotten_and_the_others_are_not() -> None:
    emitter = Emitter()
    gone, other, last = (emitter.open_reader() for _ in range(3))
    gone.close()
    emitter.send_nowait(posted("a"))
    last.close()
    emitter.send_nowait(posted("b"))
    assert unread(other) == [posted("a"), posted("b")]
    other.close()
    emitter.send_nowait(posted("c"))
    assert not emitter.has_readers


async def test_sending_never_waits_however_much_is_unread() -> None:
    emitter = Emitter()
    reader = emitter.open_reader()
    with assert_no_checkpoints():
        for number in range(10_000):
            emitter.send_nowait(posted(str(number)))
    assert len(unread(reader)) == 10_000


# -- stamps ------------------------------------------------------------------------------------


@pytest.mark.rule("R-EVENT-02")
async def test_what_a_leg_tells_is_stamped_with_run_leg_turn_and_time(
    autojump_clock: MockClock,
) -> None:
    emitter = Emitter()
    reader = emitter.open_reader()
    source = EventSource(emitter, "run_1", 3, 7)
    await trio.sleep(2)
    event = Posted(text="a", run_id="another", leg=9, turn=9, at=9.0)
    source.tell(event)
    source.turn = 8
    source.tell(event)
    first, second = unread(reader)
    assert first == Posted(text="a", run_id="run_1", leg=3, turn=7, at=trio.current_time())
    assert (second.turn, event.turn) == (8, 9)


@pytest.mark.rule("R-EVENT-02")
@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("told", [None, "progress", {"type": "Posted", "text": "a"}, Usage()])
async def test_what_is_no_event_is_refused_whether_anybody_reads_or_not(
    told: object, read: bool
) -> None:
    emitter = Emitter()
    readers = [emitter.open_reader()] if read else []
    with pytest.raises(TypeError, match=r" was told, expected an event$"):
        EventSource(emitter, "run", 1, 0).tell(told)  # type: ignore[arg-type]  # what is tested
    assert not [event for reader in readers for event in unread(reader)]


async def test_the_stamps_of_a_run_are_those_of_its_turns_and_never_go_back(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness(
        [timed(1, tool_call_turn([tool_call("slow")])), timed(1, streamed(final_answer("Done.")))],
        tools=[slow_tool(2)],
    )
    result = await kit.run()
    events = kit.events
    assert {event.run_id for event in events} == {result.run_id}
    assert {event.leg for event in events} == {1}
    assert [event.turn for event in events] == sorted(event.turn for event in events)
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert (events[0].at, events[-1].at, events[-1].turn) == (0.0, 4.0, 1)
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (finished.turn, finished.at, finished.duration) == (0, 3.0, 2.0)


async def test_every_event_of_a_run_goes_through_json_and_back() -> None:
    kit = run_harness([tool_call_turn([tool_call("look")]), streamed(final_answer("Done."))])
    await kit.run()
    assert [decode_event(encode_event(event)) for event in kit.events] == kit.events


# -- the events of a run -----------------------------------------------------------------------


async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
    return final_answer("Done.")


async def test_a_run_tells_from_its_start_and_ends_its_channel_with_its_end() -> None:
    async with open_run(model, "Go.") as run:
        events = await record_events(run.events)
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert_events_balance(events)


@pytest.mark.rule("R-EVENT-01")
async def test_further_readers_get_what_comes_from_then_on(autojump_clock: MockClock) -> None:
    script = [timed(1, tool_call_turn([tool_call("slow")])), timed(1, final_answer("Done."))]
    async with open_run(scripted_model(script), "Go.", tools=[slow_tool(1)]) as run:
        early = run.tee()
        await trio.sleep(1.5)
        late = run.tee()
        await run.wait()
        after = run.tee()
    whole = unread(run.events)
    # The leg starts when the block is entered, so only its very first event is missing.
    assert unread(early) == whole[1:]
    assert unread(late) == [event for event in whole if event.at > 1.5]
    assert unread(after) == []
    assert_channels_ended(run.events, early, late, after)


@pytest.mark.rule("R-LOOP-10")
async def test_one_reader_that_stops_takes_nothing_from_another() -> None:
    script: list[ScriptItem] = [
        tool_call_turn([tool_call("slow")]),
        streamed(final_answer("A long answer.")),
    ]
    async with open_run(scripted_model(script), "Go.", tools=[slow_tool(0)]) as run:
        quitter, stayer = run.tee(), run.tee()
        await quitter.receive()
        quitter.close()
        events = await record_events(stayer)
    assert isinstance(events[-1], RunFinished)
    assert_events_balance([*unread(run.events)])
    assert "".join(each.text for each in events if isinstance(each, TextDelta)) == "A long answer."


async def read_to_the_end(events: Channel) -> None:
    await record_events(events)


async def read_nothing(events: Channel) -> None:
    await trio.lowlevel.checkpoint()


async def stop_reading(events: Channel) -> None:
    await events.receive()
    await trio.lowlevel.checkpoint()


async def close_at_once(events: Channel) -> None:
    events.close()
    await trio.lowlevel.checkpoint()


async def close_after_one(events: Channel) -> None:
    await events.receive()
    await events.aclose()


async def read_slowly(events: Channel) -> None:
    with trio.move_on_after(50):
        async for _ in events:
            await trio.sleep(10)


async def raise_after_one(events: Channel) -> None:
    await events.receive()
    with pytest.raises(ZeroDivisionError):
        async for _ in events:
            raise ZeroDivisionError


READERS: list[Callable[[Channel], Awaitable[None]]] = [
    read_nothing,
    stop_reading,
    close_at_once,
    close_after_one,
    read_slowly,
    raise_after_one,
]


@pytest.mark.rule("R-LOOP-10", "R-PROM-06")
@pytest.mark.parametrize("read", READERS)
async def test_a_run_ends_the_same_whatever_its_reader_does(
    read: Callable[[Channel], Awaitable[None]], autojump_clock: MockClock
) -> None:
    async def once(reader: Callable[[Channel], Awaitable[None]]) -> RunResult:
        @tool
        async def talk(context: CallContext[object]) -> str:
            context.tell(FlushDue())
            await trio.sleep(1)
            return "told"

        calls = [tool_call("talk"), tool_call("fail")]
        script = [
            timed(1, streamed(tool_call_turn(calls, "Let me look."))),
            timed(1, streamed(final_answer("It is there.", reasoning="So."))),
        ]
        model = scripted_model(script)
        async with (
            open_run(model, "Go.", tools=[talk], ids=counting_ids()) as run,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(reader, run.events)
            await run.wait()
        return run.result

    assert await once(read) == await once(read_to_the_end)


@pytest.mark.rule("R-LOOP-10")
async def test_a_reader_in_the_block_that_raises_stops_the_run_and_nothing_else(
    autojump_clock: MockClock,
) -> None:
    kit = run_harness([tool_call_turn([tool_call("slow")])], tools=[slow_tool(60)])
    with pytest.raises(ZeroDivisionError):
        async with open_run(kit.script, "Go.", tools=kit.ports["tools"]) as run:
            async for _ in run.events:
                raise ZeroDivisionError
    assert run.result.stop_reason == "aborted"
    assert run.result.error is None


# -- an emitter of the caller's ----------------------------------------------------------------


@pytest.mark.rule("R-EVENT-01")
async def test_two_runs_may_tell_one_emitter_and_neither_closes_it(
    autojump_clock: MockClock,
) -> None:
    emitter, ids = Emitter(), counting_ids()
    reader = emitter.open_reader()
    kits = [
        run_harness(
            [timed(seconds, tool_call_turn([tool_call("look")])), final_answer("Done.")],
            events=emitter,
            ids=ids,
        )
        for seconds in (1, 2)
    ]
    async with trio.open_nursery() as nursery:
        for kit in kits:
            nursery.start_soon(kit.run)
    assert emitter.has_readers
    events = unread(reader)
    assert_events_balance(events)
    by_run = {run: [event for event in events if event.run_id == run] for run in ("run_1", "run_2")}
    assert sum(map(len, by_run.values())) == len(events)
    for told in by_run.values():
        assert isinstance(told[0], RunStarted)
        assert isinstance(told[-1], RunFinished)
    # They were told as they happened, not one run after the other.
    assert [event.run_id for event in events] != sorted(event.run_id for event in events)
    emitter.close()
    assert_channels_ended(reader)


async def test_a_run_with_the_callers_emitter_has_no_channel_of_its_own() -> None:
    emitter = Emitter()
    async with open_run(model, "Go.", events=emitter) as run:
        with pytest.raises(RunUseError, match="emitter it was given"):
            _ = run.events
        reader = run.tee()
        await run.wait()
    assert isinstance(unread(reader)[-1], RunFinished)


async def test_an_emitter_that_is_closed_in_mid_run_only_ends_its_readers() -> None:
    emitter = Emitter()
    reader = emitter.open_reader()
    messages: list[Message] = [{"role": "user", "content": "Go."}]

    async def closing(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        emitter.close()
        return final_answer("Done.")

    result = await run(closing, messages, events=emitter)
    assert result.stop_reason == "done"
    assert [type(event).__name__ for event in unread(reader)] == ["RunStarted", "TurnStarted"]
