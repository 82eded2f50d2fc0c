"""One completion, seen from the reader of its text."""

from contextlib import suppress
from typing import Literal, TypeAlias

import pytest
import trio
from trio.testing import MockClock

from harness import Chunk, ModelRequest, ModelTurn, TurnStream, assistant_message, open_run
from harness.errors import CompletionDefectError
from harness.events import Event, TextDelta, TextReset

Way: TypeAlias = Literal["good", "raises", "stopped", "defective"]


@pytest.mark.rule("R-STREAM-25")
@pytest.mark.parametrize("way", ["good", "raises", "stopped", "defective"])
async def test_a_turn_s_text_is_always_ended(autojump_clock: MockClock, way: Way) -> None:
    async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        try:
            async with stream.attempt() as attempt:
                attempt.send_nowait(Chunk(text="half"))
                raise OSError("lost")
        except OSError:
            pass
        if way == "raises":
            raise OSError("lost for good")
        if way == "stopped":
            await trio.sleep_forever()
        return ModelTurn(message=assistant_message("" if way == "defective" else "whole"))

    events: list[Event] = []
    with suppress(OSError, CompletionDefectError):
        async with open_run(model, "Hi", deadline=5) as run:
            events += [event async for event in run.events]
    # Only a turn that ends well takes its half answer back.
    texts = [event for event in events if isinstance(event, TextDelta | TextReset)]
    assert [isinstance(event, TextReset) for event in texts] == [False, True][: 1 + (way == "good")]
