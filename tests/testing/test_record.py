import math

import pytest
import trio

from harness import TextSurface
from harness.completion import TextMachine
from harness.events import Event, RunFinished, RunStarted, TextReset
from harness.testing import (
    final_answer,
    record_events,
    recording_sink,
    run_harness,
    tool_call,
    tool_call_turn,
)


@pytest.mark.rule("R-KIT-09")
async def test_events_are_recorded_in_the_order_in_which_they_were_sent() -> None:
    send, receive = trio.open_memory_channel[int](math.inf)
    for number in range(100):
        send.send_nowait(number)
    send.close()
    assert await record_events(receive) == list(range(100))


@pytest.mark.rule("R-KIT-09")
async def test_a_run_is_recorded_from_its_start_to_its_end() -> None:
    kit = run_harness([tool_call_turn([tool_call("search")]), final_answer("Found.")])
    reader = kit.ports["events"].open_reader()  # type: ignore[union-attr]
    async with trio.open_nursery() as nursery:
        recorded: list[Event] = []
        nursery.start_soon(record_events, reader, recorded)
        await kit.run()
        kit.ports["events"].close()  # type: ignore[union-attr]
    assert isinstance(recorded[0], RunStarted)
    assert isinstance(recorded[-1], RunFinished)
    assert recorded == kit.events


@pytest.mark.rule("R-KIT-09")
async def test_a_reader_that_is_stopped_has_what_came_so_far(
    autojump_clock: trio.testing.MockClock,
) -> None:
    send, receive = trio.open_memory_channel[str](math.inf)
    got: list[str] = []
    with send, trio.move_on_after(1):
        send.send_nowait("first")
        await record_events(receive, got)
    assert got == ["first"]


def _machine(sink: object, surface: TextSurface) -> TextMachine:
    machine = TextMachine("t", sink, surface)  # type: ignore[arg-type]
    machine.begin_attempt()
    machine.observe("Hel")
    machine.begin_attempt()
    machine.observe("Hi")
    machine.observe(" you")
    machine.finish("succeeded")
    return machine


@pytest.mark.rule("R-KIT-06")
def test_a_sink_shows_what_its_reader_sees() -> None:
    sink = recording_sink()
    _machine(sink, TextSurface())
    resets = [isinstance(event, TextReset) for event in sink.events]
    assert resets == [False, True, False, False]
    assert sink.text == "Hi you"


@pytest.mark.rule("R-KIT-06")
@pytest.mark.parametrize(
    ("failing", "text", "lost"), [({0}, "Hi you", 1), ({1}, "Hel", 1), ({3}, "Hi", 1)]
)
def test_a_sink_raises_on_the_events_it_was_told_to(
    failing: set[int], text: str, lost: int
) -> None:
    sink = recording_sink(failing=failing)
    machine = _machine(sink, TextSurface())
    assert machine.sink_errors == lost
    assert sink.text == text


@pytest.mark.rule("R-KIT-06")
def test_a_sink_that_cannot_take_text_back_objects_to_a_reset() -> None:
    fixed = recording_sink(retractable=False)
    reset = TextReset(turn_id="t", epoch=1, seq=1, reason="attempt_failed")
    with pytest.raises(AssertionError, match="expected no reset on this surface"):
        fixed(reset)
    assert fixed.events == []
    _machine(fixed, TextSurface(retractable=False))
    assert fixed.text == "HelHi you"
