"""The loop. There is one, and this is it.

::

    a leg     = a paused batch first, if the state has one; then turns until something ends it
    a turn    = may it begin? → posts → the model → accept its message → its batch, or would end
    a batch   = admit → serial calls, one by one → the others side by side → answers, in order
    between   = suspend → compaction → boundary → the next turn

Everything that could end a leg is looked at in the order of the table in `_stop`. A stop is not
looked for: it is a cancellation, and arrives inside whatever is being awaited. What must be
true afterwards is in two ``finally`` blocks, one around a completion and one around a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

import attrs
import trio

from harness._errors import MisuseError
from harness._events import AssistantMessage, StopReason, TurnStarted
from harness._messages import Message, MessagesView
from harness._model import Halt, ModelTurn
from harness._shield import only_cancelled
from harness._toolset import Admission, Batch, CallPolicy
from harness.kernel._answers import OpenBatch
from harness.kernel._asking import Asking, TurnRecord
from harness.kernel._batch import CallSlot, LegTools
from harness.kernel._between import Between
from harness.kernel._books import Books
from harness.kernel._ports import answered
from harness.kernel._state import Pause
from harness.kernel._stop import first_reason
from harness.kernel._turn import text_of
from harness.kernel._writer import Writer
from harness.transcript import calls_of

__all__ = ["Leg"]


@attrs.define(eq=False)
class Leg:
    """One stretch of a run. `run` is the loop; what it ended with is read afterwards."""

    books: Books
    asking: Asking
    between: Between
    tools: LegTools
    writer: Writer
    batch: OpenBatch | None = attrs.field(default=None, init=False)
    """The open batch, if any."""
    text: str | None = attrs.field(default=None, init=False)
    parsed: object = attrs.field(default=None, init=False)
    halt: Halt | None = attrs.field(default=None, init=False)

    async def run(self) -> StopReason:
        """Go on until something ends the leg. A checkpoint; a stop is raised as a cancellation."""
        pause = self.books.state.pause
        reason = await self._resume(pause) if pause is not None else None
        while reason is None:
            await trio.lowlevel.checkpoint()
            reason = await self._turn()
        return reason

    # -- a paused batch -----------------------------------------------------------------------

    async def _resume(self, pause: Pause) -> StopReason | None:
        state, source = self.books.state, self.books.source
        if not pause.open:
            state.pause = None
            return None
        batch, place = self._paused_batch(pause)
        try:
            await trio.lowlevel.checkpoint()
        finally:
            if self.tools.stop.aborted:
                # Aborted before the batch was entered: the pause is withdrawn.
                state.pause = None
                batch.reopen(place, pause)
                await self._close(batch)  # noqa: ASYNC102  # see there
        if not pause.replies:
            return first_reason("open_calls")
        turn = TurnRecord(batch.batch.turn_id, counted=True)
        source.turn = batch.batch.turn
        source.tell(TurnStarted(turn_id=turn.turn_id, resumed=True))
        try:
            state.pause = None
            batch.reopen(place, pause)
            return await self._work_through(batch)
        finally:
            source.tell(turn.event())

    def _paused_batch(self, pause: Pause) -> tuple[OpenBatch, int]:
        """Return the batch that is paused, and where its first result goes."""
        messages = self.books.state.messages
        place = len(messages)
        while not messages[place - 1].get("tool_calls"):
            place -= 1
        turn = self.books.state.turn - 1
        return self._new_batch(messages[place - 1], turn, place, pause), place

    # -- a turn -------------------------------------------------------------------------------

    async def _turn(self) -> StopReason | None:
        reason = await self.between.before_turn()
        if reason is not None:
            return reason
        source = self.books.source
        source.turn = self.books.state.turn
        turn = TurnRecord(self.books.turn_id(source.turn))
        source.tell(TurnStarted(turn_id=turn.turn_id))
        try:
            answer = await self.asking.complete(self.books, turn)
            return await self._act_on(answer)
        finally:
            source.tell(turn.event())

    async def _act_on(self, answer: ModelTurn | Halt) -> StopReason | None:
        if isinstance(answer, Halt):
            self.halt = answer
            finished = answer.turn
            if finished is None:
                return await self.between.ended("halted")
        else:
            finished = answer
        self.parsed = finished.parsed
        message = finished.message
        if message.get("tool_calls"):
            if not finished.accept:
                text = "a turn with tool calls was to be discarded, expected one without"
                self.books.report(MisuseError("turn.discarded-with-calls", text))
            place = len(self.books.state.messages) + 1
            batch = self._new_batch(message, self.books.source.turn, place)
            return await self._work_through(batch, message=message)
        if finished.accept:
            await self.writer.add_assistant(message, lambda: self._appended(message))
        if self.halt is not None:
            return await self.between.ended("halted")
        return await self.between.would_end()

    def _appended(self, message: Message) -> None:
        """Count and tell of a message of the model that has just entered the transcript."""
        self.books.state.tool_calls += len(message.get("tool_calls") or ())
        text = text_of(message)
        if text:
            self.text = text
            turn_id = self.books.turn_id(self.books.source.turn)
            self.books.tell(AssistantMessage(turn_id=turn_id, text=text))

    # -- a batch ------------------------------------------------------------------------------

    async def _work_through(
        self, batch: OpenBatch, *, message: Message | None = None
    ) -> StopReason | None:
        """Take a batch from its message, or from where it paused, to what follows it."""
        self.batch = batch
        refused = False
        failure: BaseException | None = None
        try:
            if message is not None:
                await self.writer.add_assistant(message, lambda: self._open(batch, message))
                refused = self._refuses(batch)
            if not refused:
                await self._run_calls(batch)
            if batch.admitted and not batch.fatal:
                await batch.settle()
        except BaseException as error:
            failure = error
            raise
        finally:
            self.batch = None
            await self._close(batch, failure)  # noqa: ASYNC102  # see there
        if refused:
            return await self.between.ended("halted" if self.halt is not None else "refused")
        return await self.between.after_batch(batch)

    async def _close(self, batch: OpenBatch, failure: BaseException | None = None) -> None:
        """Answer what is left of *batch*, then raise what ended it; for a ``finally``.

        A stop that comes while the journal writes does not take the place of *failure*, which is
        on its way already.
        """
        try:
            # ASYNC102: it awaits nothing but the journal, in a shield with a deadline
            await batch.close()  # noqa: ASYNC102
        except BaseException as error:  # noqa: ASYNC103  # as the docstring says
            if failure is None or not only_cancelled(error):
                raise
        finally:
            batch.raise_fatal()

    def _open(self, batch: OpenBatch, message: Message) -> None:
        batch.opened()
        self._appended(message)

    def _refuses(self, batch: OpenBatch) -> bool:
        """Answer a whole batch ``not_run`` that may not run; True if it was refused."""
        count = len(batch.slots)
        if self.halt is None and self.books.budget.take_calls(count):
            self.books.state.calls_taken += count
            return False
        batch.refuse_all()
        return True

    async def _run_calls(self, batch: OpenBatch) -> None:
        """Admit the batch, and run what may run: serial calls first, then the others."""
        toolset = self.tools.toolset
        if not batch.admitted:
            admission = await toolset.admit(batch.batch)
            await trio.lowlevel.checkpoint_if_cancelled()
            batch.admit(answered("Toolset.admit", admission, Admission))
            if not batch.admitted:
                return
        slots = batch.to_run()
        self._ask_policies(slots)
        serial = [slot for slot in slots if slot.policy.serial]
        others = [slot for slot in slots if not slot.policy.serial]
        for slot in serial:
            await batch.runner.run([slot])
            await batch.activate(slot)
            if batch.fatal:
                return
        if serial:
            # What the serial calls loaded may be what the others are calls of.
            self._ask_policies(others)
        await batch.runner.run(others)

    def _ask_policies(self, slots: Iterable[CallSlot]) -> None:
        for slot in slots:
            policy = self.tools.toolset.policy(slot.call)
            slot.policy = answered("Toolset.policy", policy, CallPolicy)

    def _new_batch(
        self, message: Message, turn: int, place: int, pause: Pause | None = None
    ) -> OpenBatch:
        """Return the batch of *message*, whose first result goes to *place*."""
        calls = calls_of(message)
        batch = Batch(
            run_id=self.books.state.run_id,
            turn_id=self.books.turn_id(turn),
            turn=turn,
            calls=calls,
            messages=MessagesView(self.books.state.messages, length=place),
            memo=None if pause is None else pause.memo,
            replies={} if pause is None else dict(pause.replies),
            forgotten=MappingProxyType(self.books.state.forgotten),
        )
        return OpenBatch(tuple(CallSlot(call) for call in calls), batch, self.tools, self.writer)
