"""A screen at the end of a slow connection, and a model whose first attempt breaks off."""

import trio

import harness
from harness.completion import TurnView, merge_text
from harness.events import (
    AssistantMessage,
    Event,
    TextDelta,
    TextReset,
    TurnFinished,
    decode_event,
    encode_event,
)
from harness.testing import run_virtual


async def model(request: harness.ModelRequest, stream: harness.TurnStream) -> harness.ModelTurn:
    try:
        async with stream.attempt() as attempt:
            for word in ["By ", "bus, ", "from ", "the "]:
                await trio.sleep(1)
                attempt.send_nowait(harness.Chunk(text=word))
            raise OSError("the connection was reset")
    except OSError:
        pass  # a routed model would turn to another provider
    async with stream.attempt() as attempt:
        for word in ["Take ", "the ", "tram ", "to ", "the ", "harbour."]:
            await trio.sleep(1)
            attempt.send_nowait(harness.Chunk(text=word))
        attempt.send_nowait(harness.Chunk(finish_reason="stop", end=True))
    return attempt.turn()


async def serve(connection: trio.MemorySendChannel[bytes]) -> None:
    send, events = trio.open_memory_channel[Event](0)
    async with (
        harness.open_run(model, "How do I get there?") as run,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(merge_text, run.events, send)
        with events, connection:
            async for event in events:
                await connection.send(encode_event(event))


async def show(connection: trio.MemoryReceiveChannel[bytes]) -> None:
    view = TurnView()
    async for line in connection:
        match decode_event(line):
            case (TextDelta() | TextReset()) as event:
                shown = view.apply(event, now=trio.current_time())
            case AssistantMessage(turn_id=turn_id, text=text):
                shown = view.finalize(turn_id, text)
            case TurnFinished(turn_id=turn_id):
                shown = view.finalize(turn_id)
            case _:
                continue
        if shown is not None:
            print(f"{trio.current_time():2.0f} s  {shown.text}")
            await trio.sleep(2.5)  # drawing takes its time


async def main() -> None:
    near, far = trio.open_memory_channel[bytes](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, near)
        nursery.start_soon(show, far)


run_virtual(main)
