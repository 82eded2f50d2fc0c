"""The streaming of one attempt.

An attempt is a block that a model opens around the chunks of one reply. What arrives is judged and
counted at once, in `StreamAttempt.send_nowait`, which waits for nothing. Only the text takes a
detour: it goes through a channel to a *carrier*, the one task of the block, which puts it through
the text machine. The carrier is shielded, and its shield needs no deadline: it awaits nothing but
its own channel, and the block closes that on every exit. So what was sent has been told when the
block ends, wherever it was cut. An unshielded carrier loses what was sent in its last step before
a stop, and one that drains its channel after a stop would be a second way to do the same.

``await attempt.send(chunk)`` was turned down. On an unbounded channel it either has no checkpoint,
and then its ``await`` lies, or has one, which costs more than all the rest together.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Literal

import attrs
import trio

from harness._errors import CompletionDefectError, RunUseError
from harness._events import Event, ReasoningDelta, ToolCallDelta
from harness._model import Assembly, Attempt, Chunk, ModelTurn, ResetReason, TextSurface
from harness._shield import open_kept_nursery
from harness._usage import Usage
from harness.completion._accumulator import GrowingCall
from harness.completion._assembly import Assembler
from harness.completion._defects import detect_completion_defect
from harness.completion._text import TextMachine
from harness.completion._turn_stream import TurnStreamState

__all__ = ["OpenTurnStream", "StreamAttempt", "open_turn_stream"]


@attrs.define(eq=False)
class StreamAttempt:
    """One try of a completion, see `harness.Attempt`. Nothing here is a checkpoint."""

    _stream: TurnStreamState
    _number: int
    _texts: trio.MemorySendChannel[str]
    _assembler: Assembler = attrs.field(factory=Assembler, init=False)
    _stage: Literal["open", "ended", "failed"] = attrs.field(default="open", init=False)

    @property
    def number(self) -> int:
        """Number of the attempt in its turn, from 0."""
        return self._number

    def send_nowait(self, chunk: Chunk) -> None:
        """Take one chunk of the reply. Never waits, is no checkpoint.

        After a block that was left by an exception or a stop, chunks are dropped: whoever still
        sends them is being stopped as well.

        Raises:
            RunUseError: the block has ended well; the reply is complete.
        """
        if self._stage != "open":
            if self._stage == "failed":
                return
            raise RunUseError(
                f"a chunk came after attempt {self._number} had ended, expected it inside the block"
            )
        grown = self._assembler.observe(chunk)
        if chunk.text:
            self._texts.send_nowait(chunk.text)
            self._stream.count_answer_chunk()
        elif grown or chunk.refusal:
            self._stream.count_answer_chunk()
        if chunk.reasoning:
            self._tell_reasoning(chunk.reasoning)
        if grown:
            self._tell_calls(grown)

    def turn(self) -> ModelTurn:
        """Return the finished reply; for after the block.

        What a reply that is refused has cost is spent without a turn.

        Raises:
            CompletionDefectError: the reply is truncated or otherwise unusable.
            RunUseError: the block has not ended, or was left by an exception or a stop.
        """
        if self._stage == "open":
            raise RunUseError(f"attempt {self._number} is open, expected its block to have ended")
        if self._stage == "failed":
            raise RunUseError(
                f"attempt {self._number} was left by an exception, expected its block to end well"
            )
        completion = self._assembler.completion()
        defect = detect_completion_defect(completion, self._stream.assembly)
        if defect is not None:
            self._stream.void_attempt(self._number, completion.usage)
            raise CompletionDefectError(defect.kind, defect.detail)
        return ModelTurn(
            message=completion.message(),
            usage=completion.usage,
            finish_reason=completion.finish_reason,
            reasoning=completion.reasoning or None,
        )

    def mark_produced_output(self) -> None:
        """Say that this attempt had an effect outside the stream: it cannot be replayed."""
        self._stream.text.mark_produced_output()

    def close(self, *, well: bool) -> None:
        """Take no more chunks. *well*: the block was not left by an exception."""
        self._stage = "ended" if well else "failed"
        self._texts.close()
        self._stream.end_attempt()
        if not well:
            self._stream.void_attempt(self._number, self._assembler.usage)

    def _tell_reasoning(self, text: str) -> None:
        event = ReasoningDelta(turn_id=self._stream.turn_id, attempt=self._number, text=text)
        self._stream.tell(event)

    def _tell_calls(self, grown: list[tuple[GrowingCall, str]]) -> None:
        for call, arguments in grown:
            self._stream.tell(
                ToolCallDelta(
                    turn_id=self._stream.turn_id,
                    attempt=self._number,
                    index=call.place,
                    call_id=call.id,
                    name=call.name,
                    arguments=arguments,
                )
            )


@attrs.define(eq=False)
class OpenTurnStream(TurnStreamState):
    """The live side of one turn, see `harness.TurnStream`. It opens nothing by itself."""

    def attempt(self, reason: ResetReason | None = None) -> AbstractAsyncContextManager[Attempt]:
        """Open an attempt; one may be open at a time.

        Entering the block is no checkpoint. Leaving it is one, but no stop is raised there: what
        was sent is told first. What the body raises leaves as the same object.

        Raises:
            RunUseError: another attempt of the turn is open, or the turn is over.
            ValueError: *reason* is none of the known ones.
        """
        return _open_attempt(self, reason)


def open_turn_stream(
    turn_id: str,
    *,
    tell: Callable[[Event], None],
    spend: Callable[[Usage], None],
    surface: TextSurface,
    assembly: Assembly,
    tool_calls: int,
    now: Callable[[], float] = trio.current_time,
) -> OpenTurnStream:
    """Return the stream of one turn; whoever makes it calls `finish` when the turn ends.

    *tool_calls* is how many calls the run has been asked for so far, for progress reports.

    Raises:
        TypeError: *turn_id* is no text or empty, or ``surface.max_resets`` is no count.
    """
    return OpenTurnStream(
        turn_id=turn_id,
        assembly=assembly,
        text=TextMachine(turn_id, tell, surface),
        tell=tell,
        spend=spend,
        now=now,
        tool_calls=tool_calls,
    )


@asynccontextmanager
async def _open_attempt(
    stream: TurnStreamState, reason: ResetReason | None
) -> AsyncIterator[StreamAttempt]:
    number = stream.begin_attempt(reason)
    texts, carried = trio.open_memory_channel[str](math.inf)
    attempt = StreamAttempt(stream, number, texts)
    well = False
    async with open_kept_nursery() as nursery:
        nursery.start_soon(_carry_text, carried, stream.text)
        try:
            yield attempt
            well = True
        finally:
            attempt.close(well=well)


async def _carry_text(texts: trio.MemoryReceiveChannel[str], machine: TextMachine) -> None:
    """Put *texts* through *machine* until the channel is closed."""
    with trio.CancelScope(shield=True), texts:
        async for text in texts:
            machine.observe(text)
            # What else is there by now costs a tenth of an item that is awaited.
            for further in _already_there(texts):
                machine.observe(further)


def _already_there(texts: trio.MemoryReceiveChannel[str]) -> Iterator[str]:
    with suppress(trio.WouldBlock, trio.EndOfChannel):
        while True:
            yield texts.receive_nowait()
