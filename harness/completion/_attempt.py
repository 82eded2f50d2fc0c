"""The streaming of one attempt.

An attempt is a block that a model opens around the chunks of one reply. What arrives is judged,
timed and counted at once, in `StreamAttempt.send_nowait`, which waits for nothing. What is to be
told takes a detour: it goes through one channel, so that its order holds, to the *carrier*, which
puts text through the text machine and passes the rest on. The carrier is shielded, and its shield
needs no deadline: it awaits nothing but its own channel, and the block closes that on every exit.
So what was sent has been told when the block ends, wherever it was cut. An unshielded carrier loses
what was sent in its last step before a stop, and one that drains its channel after a stop would be
a second way to do the same.

The *watchdog* is the other task of the block. It sleeps until the next budget runs out, and is told
by its channel when that comes closer, which is rare: the first answer moves the end of the wait
from two minutes to half of one. (It moves away with every chunk; the watchdog sees that when it
wakes.) A time that is merely stored would let an answer that begins and then stops wait for the
generous budget. Before it cancels the body it lets one round of the scheduler go by and looks
again: a chunk that is there in that very instant was in time. Only the provider's silence counts.
A slow reader is none, since nothing here waits for one.

An attempt is given up by the same scope, when another open attempt has answered first. Which of the
two it was is a value, set before the scope is cancelled. A transport may make an error of its own
out of the cancellation; it is the cause then. But where a stop from outside is pending, it is that
stop, and nothing here puts another name on it.

``await attempt.send(chunk)`` was turned down. On an unbounded channel it either has no checkpoint,
and then its ``await`` lies, or has one, which costs more than all the rest together.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Literal, TypeAlias

import attrs
import trio

from harness._errors import (
    AttemptSuperseded,
    CompletionDefectError,
    RunUseError,
    StreamStalled,
)
from harness._events import Event, ReasoningDelta, ToolCallDelta
from harness._model import (
    Assembly,
    Attempt,
    Chunk,
    ModelTurn,
    ResetReason,
    StreamBudgets,
    TextSurface,
)
from harness._shield import open_kept_nursery, stop_due
from harness._usage import Usage
from harness.completion._accumulator import GrowingCall
from harness.completion._assembly import Assembler
from harness.completion._channel import already_there
from harness.completion._defects import Defect, detect_completion_defect
from harness.completion._pace import Pace, chunk_kind
from harness.completion._text import TextMachine
from harness.completion._turn_stream import TurnStreamState

__all__ = ["OpenTurnStream", "StreamAttempt", "open_turn_stream"]


_Telling: TypeAlias = str | ReasoningDelta | ToolCallDelta
"""What goes to the carrier: a text is for the text machine."""


@attrs.define(eq=False)
class StreamAttempt:
    """One try of a completion, see `harness.Attempt`. Nothing here is a checkpoint."""

    _stream: TurnStreamState
    _number: int
    _pace: Pace
    _telling: trio.MemorySendChannel[_Telling]
    _closer: trio.MemorySendChannel[None]
    """Tells the watchdog that the deadline has come closer."""
    body: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Cancelled when the attempt is given up; `fault` says why."""
    _assembler: Assembler = attrs.field(factory=Assembler, init=False)
    _stage: Literal["open", "ended", "failed"] = attrs.field(default="open", init=False)
    _fault: StreamStalled | AttemptSuperseded | None = attrs.field(default=None, init=False)
    _missed: bool = attrs.field(default=False, init=False)
    """Whether a chunk was dropped that had more than a usage."""
    _judged: ModelTurn | Defect | None = attrs.field(default=None, init=False)
    _voided: bool = attrs.field(default=False, init=False)

    @property
    def number(self) -> int:
        """Number of the attempt in its turn, from 0."""
        return self._number

    @property
    def given_up(self) -> bool:
        """Whether it was stopped, by a stall or by another attempt: chunks are dropped then."""
        return self._fault is not None

    @property
    def fault(self) -> StreamStalled | AttemptSuperseded | None:
        """Why the attempt was given up, if it was."""
        return self._fault

    def send_nowait(self, chunk: Chunk) -> None:
        """Take one chunk of the reply. Never waits, is no checkpoint.

        After a block that was left by an exception or a stop, and in one that was given up, chunks
        are dropped: whoever still sends them is being stopped as well. But what one that was given
        up reports to have cost is still taken.

        Raises:
            RunUseError: the block has ended well; the reply is complete.
        """
        if self._stage != "open":
            if self._stage == "failed":
                return
            raise RunUseError(
                f"a chunk came after attempt {self._number} had ended, expected it inside the block"
            )
        if self._fault is not None:
            # What it has cost counts all the same.
            rest, chunk = chunk, Chunk(usage=chunk.usage)
            self._missed = self._missed or rest != chunk
        now = self._stream.now()
        grown = self._assembler.observe(chunk)
        kind = chunk_kind(chunk)
        if self._pace.observe(kind, now):
            self._closer.send_nowait(None)
        if kind == "answer":
            self._stream.claim(self)
            self._stream.count_answer_chunk(now)
        if chunk.reasoning:
            self._tell_reasoning(chunk.reasoning)
        if chunk.text:
            self._telling.send_nowait(chunk.text)
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
        judged = self._judge()
        if isinstance(judged, ModelTurn):
            return judged
        self._void()
        raise CompletionDefectError(judged.kind, judged.detail)

    def mark_produced_output(self) -> None:
        """Say that this attempt had an effect outside the stream: it cannot be replayed."""
        self._stream.text.mark_produced_output()

    @property
    def deadline(self) -> float:
        """When the next budget runs out."""
        return self._pace.deadline

    def stalled(self) -> StreamStalled | None:
        """Return which budget has run out, if one has."""
        return self._pace.stall(self._stream.now())

    def supersede(self, by: int) -> None:
        """Give the attempt up: attempt *by* has the surface. Nothing more is shown of it."""
        self.give_up(AttemptSuperseded(self._number, by=by))

    def give_up(self, fault: StreamStalled | AttemptSuperseded) -> None:
        """Cancel the body because of *fault*, if it has not ended.

        What was superseded stays so, however long it then takes.
        """
        if self._stage == "open" and not isinstance(self._fault, AttemptSuperseded):
            self._fault = fault
            self.body.cancel()

    def close(self, *, well: bool) -> None:
        """Take no more chunks. *well*: the body ended, and not by an exception.

        Whoever ended well with all that came was not kept waiting. But of two that did, one is
        shown.
        """
        if well and isinstance(self._fault, StreamStalled) and not self._missed:
            self._fault = None
        well = well and self._fault is None
        self._stage = "ended" if well else "failed"
        if not well:
            self._void()
        elif isinstance(judged := self._judge(), ModelTurn):
            self._stream.claim(self)
            self._stream.hold(self._number, judged)
        self._telling.close()
        self._closer.close()

    def _void(self) -> None:
        """Note that the attempt came to nothing, and spend what it cost; once."""
        if not self._voided:
            self._voided = True
            self._stream.void(self._number, self._assembler.usage)

    def _judge(self) -> ModelTurn | Defect:
        """Return the reply, or what is wrong with it; decided once."""
        if self._judged is None:
            completion = self._assembler.completion()
            defect = detect_completion_defect(completion, self._stream.assembly)
            self._judged = defect or ModelTurn(
                message=completion.message(),
                usage=completion.usage,
                finish_reason=completion.finish_reason,
                reasoning=completion.reasoning or None,
            )
        return self._judged

    def _tell_reasoning(self, text: str) -> None:
        event = ReasoningDelta(turn_id=self._stream.turn_id, attempt=self._number, text=text)
        self._telling.send_nowait(event)

    def _tell_calls(self, grown: list[tuple[GrowingCall, str]]) -> None:
        for call, arguments in grown:
            self._telling.send_nowait(
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

    def attempt(
        self,
        reason: ResetReason | None = None,
        budgets: StreamBudgets | None = None,
        number: int | None = None,
    ) -> AbstractAsyncContextManager[Attempt]:
        """Open an attempt, at the earliest when its request is about to be sent.

        Attempts may overlap: the first to answer is shown, and the others are given up. Entering
        the block is no checkpoint. Leaving it is one, but no stop is raised there: what was sent
        is told first. What the body raises leaves as the same object.

        Raises:
            StreamStalled: the provider kept the body waiting for longer than *budgets* allow.
            AttemptSuperseded: another open attempt of the turn answered first.
            RunUseError: the turn is over.
            ValueError: *reason* is none of the known ones, or *number* was not given out.
        """
        return _open_attempt(self, reason, budgets or self.budgets, number)


def open_turn_stream(
    turn_id: str,
    *,
    tell: Callable[[Event], None],
    spend: Callable[[Usage], None],
    surface: TextSurface,
    assembly: Assembly,
    tool_calls: int,
    budgets: StreamBudgets = StreamBudgets(),
    now: Callable[[], float] = trio.current_time,
) -> OpenTurnStream:
    """Return the stream of one turn; whoever makes it calls `finish` when the turn ends.

    *budgets* are for attempts that bring none. *tool_calls* is how many calls the run has been
    asked for so far, for progress reports.

    Raises:
        TypeError: *turn_id* is no text or empty, or ``surface.max_resets`` is no count.
    """
    return OpenTurnStream(
        turn_id=turn_id,
        assembly=assembly,
        budgets=budgets,
        text=TextMachine(turn_id, tell, surface),
        tell=tell,
        spend=spend,
        now=now,
        tool_calls=tool_calls,
    )


@asynccontextmanager
async def _open_attempt(
    stream: TurnStreamState,
    reason: ResetReason | None,
    budgets: StreamBudgets,
    number: int | None,
) -> AsyncIterator[StreamAttempt]:
    number = stream.begin_attempt(reason, number)
    telling, told = trio.open_memory_channel[_Telling](math.inf)
    # Its receiving end stays open: who still sends during a stop must not mind that it is over.
    closer, to_watch = trio.open_memory_channel[None](math.inf)
    pace = Pace(budgets)
    pace.open(stream.now())
    attempt = StreamAttempt(stream, number, pace, telling, closer)
    stream.enter(attempt)
    try:
        async with open_kept_nursery() as nursery:
            nursery.start_soon(_carry, told, stream)
            nursery.start_soon(_watch, attempt, to_watch)
            well = False
            try:
                with attempt.body:
                    yield attempt
                    well = True
            except Exception as error:
                if attempt.fault is None or stop_due():
                    raise
                raise attempt.fault from error
            finally:
                attempt.close(well=well)
            if attempt.fault is not None:
                raise attempt.fault
    finally:
        stream.leave(attempt)


async def _carry(told: trio.MemoryReceiveChannel[_Telling], stream: TurnStreamState) -> None:
    """Tell what comes until the channel is closed."""
    with trio.CancelScope(shield=True), told:
        async for telling in told:
            _tell(telling, stream)
            # What else is there by now costs a tenth of an item that is awaited.
            for further in already_there(told):
                _tell(further, stream)


def _tell(telling: _Telling, stream: TurnStreamState) -> None:
    if isinstance(telling, str):
        stream.text.observe(telling)
    else:
        stream.tell(telling)


async def _watch(attempt: StreamAttempt, closer: trio.MemoryReceiveChannel[None]) -> None:
    """Give *attempt* up once a budget has run out; end when the channel is closed."""
    with suppress(trio.EndOfChannel):
        while True:
            with trio.move_on_at(attempt.deadline) as sleep:
                await closer.receive()
            if sleep.cancelled_caught and attempt.stalled() is not None:
                await trio.lowlevel.checkpoint()
                stalled = attempt.stalled()
                if stalled is not None:
                    attempt.give_up(stalled)
                    return
