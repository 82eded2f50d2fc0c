"""Answering a batch: the one place where results enter a transcript.

A batch is *open* from the step in which its message is appended until every call has its result
or the run has paused. `OpenBatch.settle` writes the results in call order while the run goes
on. `OpenBatch.close` stands in the ``finally`` around everything that may happen meanwhile, and
writes what is missing: what ended, as it ended, and the rest as ``not_run``. It repairs nothing;
each outcome was recorded before.

Results stand in call order, always. An answer that comes in a later leg is inserted at its
place: no model call came between, so no provider's cache is lost.
"""

from __future__ import annotations

from functools import partial

import attrs

from harness._errors import (
    JournalTimeoutError,
    MissingPortError,
    MisuseError,
    add_note,
    error_text,
)
from harness._events import CallRejected, Failure, SuspendWithdrawn
from harness._messages import WITHDRAWN_TEXT, Message
from harness._shield import only_cancelled
from harness._toolset import Admission, Batch, Outcome, Suspend
from harness.kernel._batch import BatchRunner, CallSlot, LegTools
from harness.kernel._state import Pause
from harness.kernel._writer import Writer
from harness.tools import render_outcome
from harness.transcript import joining_fault

__all__ = ["OpenBatch"]


@attrs.define(eq=False)
class OpenBatch:
    """The batch of one turn, from its message to its last result."""

    slots: tuple[CallSlot, ...]
    batch: Batch
    _leg: LegTools
    _writer: Writer
    place: int | None = attrs.field(default=None, init=False)
    """Index of the first result in the transcript; None until the message is there."""
    runner: BatchRunner = attrs.field(init=False)
    _pause: Pause = attrs.field(factory=partial(Pause, admitted=False), init=False)
    _answers: int = attrs.field(default=0, init=False)
    _by_id: dict[str, list[CallSlot]] = attrs.field(factory=dict, init=False)
    _over: bool = attrs.field(default=False, init=False)
    _refusal: BaseException | None = attrs.field(default=None, init=False)
    """What the journal raised, or the cancellation that cut it."""

    def __attrs_post_init__(self) -> None:
        self.runner = BatchRunner(self._leg, self.batch)
        for slot in self.slots:
            self._by_id.setdefault(slot.call.id, []).append(slot)

    def opened(self) -> None:
        """The message has just been appended: from this step on every call must be answered."""
        self.place = len(self._writer.messages)

    def reopen(self, place: int, pause: Pause) -> None:
        """Go on where *pause* left the batch; hand each answer to the call that asked."""
        self.place = place
        self._pause = pause
        for slot in self.slots:
            slot.answered = slot.call.id not in pause.open
            self._answers += slot.answered
            if pause.admitted and slot.call.id in pause.replies:
                asked = pause.suspends.pop(slot.call.id)
                slot.reply = attrs.evolve(pause.replies.pop(slot.call.id), payload=asked.payload)

    def admit(self, admission: Admission) -> None:
        """Take the toolset's verdict; if it asks for anything, the whole batch stays open.

        Raises:
            ValueError: a decision names no call of the batch, or is neither of the two.
        """
        asked: dict[str, Suspend] = {}
        for call_id, decision in admission.decisions.items():
            slots = self._by_id.get(call_id)
            if slots is None:
                known = list(self._by_id)
                raise ValueError(f"a decision names {call_id!r}, expected one of {known}")
            if isinstance(decision, Outcome):
                for slot in slots:
                    slot.outcome = decision
            elif getattr(decision, "kind", None) == "answer":
                asked[call_id] = decision
            else:
                text = f"the decision on {call_id!r} is {decision!r}"
                raise ValueError(f"{text}, expected an outcome or a question")
        replies = {key: value for key, value in self.batch.replies.items() if key not in asked}
        self._pause = Pause(
            suspends=asked, replies=replies if asked else {}, memo=admission.memo,
            admitted=not asked,
        )  # fmt: skip
        if asked:
            self._over = True
            for slot in self.slots:
                slot.outcome = None

    @property
    def admitted(self) -> bool:
        """Whether calls may start."""
        return self._pause.admitted

    def to_run(self) -> list[CallSlot]:
        """Return the calls to run now: all that were admitted, or those whose answer came."""
        waiting = self._pause.suspends
        return [
            slot
            for slot in self.slots
            if not slot.answered and slot.outcome is None and slot.call.id not in waiting
        ]

    def raise_fatal(self) -> None:
        """Raise what ended the run: the first in request order, the others as its notes."""
        fatal = [(slot.call.id, slot.fatal) for slot in self.slots if slot.fatal is not None]
        fatal.sort(key=lambda each: isinstance(each[1], Exception))  # an interrupt comes first
        if fatal:
            (_, first), *others = fatal
            for call_id, error in others:
                kind = type(error).__name__
                add_note(first, f"call {call_id!r} failed fatally too: {kind}: {error_text(error)}")
            raise first

    @property
    def fatal(self) -> bool:
        """Whether the run has to end."""
        return self.runner.fatal

    @property
    def wants_compaction(self) -> bool:
        """Whether a call asked for a compaction."""
        return any(slot.outcome is not None and slot.outcome.compact for slot in self.slots)

    @property
    def open_calls(self) -> tuple[str, ...]:
        """Ids of the calls that have no result."""
        return tuple(slot.call.id for slot in self.slots if not slot.answered)

    @property
    def waits_to_wake(self) -> bool:
        """Whether a call scheduled the run's own resume."""
        return any(each.kind == "wake" for each in self._pause.suspends.values())

    def pause(self) -> Pause:
        """Return where the run waits, once the batch has been settled as far as it can be."""
        self._pause.open = self.open_calls
        return self._pause

    async def activate(self, slot: CallSlot) -> None:
        """Make what a call loaded live; if that fails or is cut, the call did not succeed."""
        outcome = slot.outcome
        if outcome is None or slot.activated or not outcome.activates:
            return
        try:
            await self._leg.toolset.activate(outcome)
        except MissingPortError as missing:
            self._report(slot, missing)
        except Exception as error:  # noqa: BLE001  # the model must not think it has loaded
            self._report(slot, error)
            slot.outcome = Outcome.failed(error_text(error), "system")
            self.runner.is_fatal(slot, error)
        slot.activated = True

    async def settle(self) -> None:
        """Write every result that is there, in call order; what asked a question stays open."""
        assert self.place is not None
        place = self.place
        for slot in self.slots:
            if not slot.answered:
                await self.activate(slot)
                if slot.fatal is not None:
                    return
                if self._stays_open(slot):
                    continue
                await self._writer.shielded(partial(self._answer, slot, place))
            place += 1
        self._over = True

    async def close(self) -> None:
        """Answer every call that has no result yet, if the batch was opened and is not over.

        For a ``finally``: it awaits nothing but the journal, shielded until the settle deadline.

        Raises:
            JournalTimeoutError: the journal was cut off; it lists what stays unanswered.
        """
        if self.place is None or self._over:
            return
        try:
            if self._refusal is None:
                self._conclude()
                await self._writer.shielded(self._answer_rest)
        finally:
            if self._refusal is not None and only_cancelled(self._refusal):
                raise JournalTimeoutError(self.open_calls)

    def refuse_all(self) -> None:
        """Answer every call ``not_run``: a limit forbids the batch, or the model halted."""
        for slot in self.slots:
            self.runner.refuse(slot, ask=False)

    def _stays_open(self, slot: CallSlot) -> bool:
        """Note a suspend; True for a call that waits for its answer."""
        outcome, call_id = slot.outcome, slot.call.id
        if outcome is None:
            return True  # it asked in an earlier leg
        suspend = outcome.suspend
        if suspend is None:
            return False
        if outcome.kind != "completed":
            text = f"call {call_id!r} failed and asked for a pause, expected one or the other"
            self._report(slot, MisuseError("suspend.on-failure", text))
            return False
        if len(self._by_id[call_id]) > 1:
            text = f"call {call_id!r} asked for a pause, and its id is not its own in its batch"
            self._report(slot, MisuseError("suspend.repeated-id", text))
            slot.outcome = Outcome.failed(text, "conflict")
            return False
        self._pause.suspends[call_id] = suspend
        return suspend.kind == "answer"

    def _conclude(self) -> None:
        """Give every call that has no result its last outcome. Is no checkpoint."""
        pause = self._pause
        asked = {key for key, each in pause.suspends.items() if each.kind == "answer"}
        for slot in self.slots:
            if slot.answered:
                continue
            suspend = slot.outcome.suspend if slot.outcome is not None else None
            asks = slot.call.id in asked or (suspend is not None and suspend.kind == "answer")
            if asks:
                self._leg.books.tell(SuspendWithdrawn(call_id=slot.call.id))
            if asks and pause.admitted:
                slot.outcome = Outcome.interrupted(WITHDRAWN_TEXT)
            elif slot.outcome is None and slot.reply is not None:
                slot.outcome = Outcome.interrupted()  # it had begun in an earlier leg
            elif slot.outcome is not None and slot.outcome.activates and not slot.activated:
                slot.outcome = Outcome.interrupted()  # what it has loaded is not live
            elif slot.outcome is None:
                self.runner.refuse(slot, ask=self._leg.stop.aborted)

    async def _answer_rest(self) -> None:
        assert self.place is not None
        for place, slot in enumerate(self.slots, self.place):
            if not slot.answered:
                await self._answer(slot, place)
        self._over = True

    async def _answer(self, slot: CallSlot, place: int) -> None:
        try:
            await self._writer.put_result(place, self._render(slot), self._answers)
        except BaseException as error:
            self._refusal = error
            if not only_cancelled(error):
                add_note(error, f"calls left unanswered: {list(self.open_calls)}")
            raise
        self._answers += 1
        slot.answered = True

    def _render(self, slot: CallSlot) -> Message:
        """Let the toolset write the answer; what is no answer to this call becomes ours."""
        assert slot.outcome is not None
        try:
            message: Message = self._leg.toolset.render(slot.call, slot.outcome)
            fault = joining_fault(message)
            if fault:
                raise ValueError(f"render wrote what no transcript can hold: {fault}")
            if message["role"] == "tool" and message["tool_call_id"] == slot.call.id:
                return message
            raise ValueError(f"render wrote {message!r}, expected the answer to {slot.call.id!r}")
        except Exception as error:  # noqa: BLE001  # foreign code; the call must be answered
            self._report(slot, error)
            # Without its parts, which may be what is wrong; the envelope can always be written.
            return render_outcome(slot.call, attrs.evolve(slot.outcome, parts=()))

    def _report(self, slot: CallSlot, error: BaseException) -> None:
        self._leg.books.tell(CallRejected(call_id=slot.call.id, failure=Failure.of(error)))
