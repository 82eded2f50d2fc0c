"""What the attempts of one turn share.

A turn's text has one reader, so its epochs and numbers last over all attempts, and so does the
count of what came so far. This is the half that decides and waits for nothing; the half that opens
attempts is in `_attempt`.

**Whose the text is.** Attempts may overlap: a second one is started because the first is silent.
The reader can follow one only, so the surface has an *owner*. An attempt takes it, and with it a
new epoch, when its answer begins, or when it ends well with an answer that had no pieces to show;
every other open attempt is given up in that same step. It keeps the surface until its block has
told all that was sent. An attempt that is opened meanwhile is given up before it begins.

**What a reply has cost** counts once. A usable reply is *held* until it is known what becomes of
it: the one that the turn returns is the turn's, and all others are spent without one, whether they
were dropped or forgotten, and also if the turn was stopped before it could return.

To take the epoch when an attempt is opened was turned down: two that overlap would take turns in
one text, and one that dies without a word would have counted. Why text is taken back belongs to
the surface for the same reason. A reason that was given with an attempt stands until one takes the
surface, whichever that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from harness._bounds import check_count
from harness._errors import RunUseError
from harness._events import Event, Progress
from harness._model import Assembly, ModelTurn, ResetReason, StreamBudgets
from harness._usage import Usage
from harness.completion._progress import ProgressGate
from harness.completion._text import TextMachine, check_reason

__all__ = ["Contender", "TurnStreamState"]


class Contender(Protocol):
    """An open attempt, as the others see it."""

    @property
    def number(self) -> int:
        """Number of the attempt in its turn, from 0."""
        ...

    def supersede(self, by: int) -> None:
        """Give the attempt up: attempt *by* has the surface."""
        ...


@attrs.define(eq=False)
class TurnStreamState:
    """The live side of one turn but for its attempts. Nothing here is a checkpoint."""

    turn_id: str
    assembly: Assembly
    """How the replies of its attempts are judged."""
    budgets: StreamBudgets
    """How long an attempt that brings none of its own may wait."""
    text: TextMachine
    """What the reader of the turn's text is sent."""
    _tell: Callable[[Event], None]
    _spend: Callable[[Usage], None]
    _now: Callable[[], float]
    _tool_calls: int
    _gate: ProgressGate = attrs.field(factory=ProgressGate, init=False)
    _numbered: int = attrs.field(default=0, init=False)
    _opened: int = attrs.field(default=0, init=False)
    _open: list[Contender] = attrs.field(factory=list, init=False)
    _owner: Contender | None = attrs.field(default=None, init=False)
    """The open attempt that has the surface."""
    _reason: ResetReason | None = attrs.field(default=None, init=False)
    """The last reason given that no attempt has taken to the surface yet."""
    _shown: int | None = attrs.field(default=None, init=False)
    """Number of the last attempt that took the surface, until it comes to nothing."""
    _held: list[tuple[int, ModelTurn]] = attrs.field(factory=list, init=False)
    """Usable replies, by the number of their attempt, that are neither returned nor dropped."""
    _counted: int | None = attrs.field(default=0, init=False)
    """Answer chunks so far; None once somebody reports better figures."""
    _finished: bool = attrs.field(default=False, init=False)

    @property
    def opened(self) -> int:
        """How many attempts were opened; 0 means that the model did not stream."""
        return self._opened

    @property
    def produced_output(self) -> bool:
        """Whether something left this turn that cannot be taken back."""
        return self.text.produced_output

    def tell(self, event: Event) -> None:
        """Send an event, stamped as the run's own."""
        self._tell(event)

    def spend(self, usage: Usage) -> None:
        """Count spend that belongs to no turn."""
        self._spend(usage)

    def hold(self, number: int, turn: ModelTurn) -> None:
        """Note that attempt *number* has ended with a usable reply."""
        self._held.append((number, turn))

    def drop(self, turn: ModelTurn, reason: ResetReason) -> None:
        """Count what a reply that is not used cost, and take back what it showed.

        Raises:
            ValueError: *reason* is none of the known ones.
        """
        check_reason(reason)
        self._reason = reason
        number = self._release(turn)
        if number is not None and number == self._shown:
            self._shown = None
        self._spend_known(turn.usage)

    def progress(self, output_tokens: int) -> None:
        """Report how many tokens came so far; from now on chunks are no longer counted.

        Raises:
            TypeError, ValueError: *output_tokens* is no count.
        """
        self._counted = None
        self._report(check_count("output_tokens", output_tokens), self._now())

    def now(self) -> float:
        """Return the time."""
        return self._now()

    def count_answer_chunk(self, now: float) -> None:
        """Report one more chunk of an answer, unless somebody reports tokens."""
        if self._counted is not None:
            self._counted += 1
            self._report(self._counted, now)

    def number_attempt(self) -> int:
        """Return the number of the next attempt."""
        self._numbered += 1
        return self._numbered - 1

    def begin_attempt(self, reason: ResetReason | None, number: int | None) -> int:
        """Note that an attempt is about to be opened; return its number.

        Raises:
            RunUseError: the turn is over.
            ValueError: *reason* is none of the known ones, or *number* was not given out.
        """
        check_reason(reason)
        if number is not None and not 0 <= number < self._numbered:
            raise ValueError(f"number is {number!r}, expected one that number_attempt returned")
        if self._finished:
            raise RunUseError(f"turn {self.turn_id!r} is over, expected an attempt before its end")
        self._reason = reason or self._reason
        self._opened += 1
        return self.number_attempt() if number is None else number

    def enter(self, attempt: Contender) -> None:
        """Note that *attempt* is open; it is given up at once if another has the surface."""
        if self._owner is not None:
            attempt.supersede(self._owner.number)
        self._open.append(attempt)

    def claim(self, attempt: Contender) -> None:
        """Give *attempt*, which is open and was not given up, the surface."""
        if self._owner is attempt:
            return
        self._owner = attempt
        self._shown = attempt.number
        self.text.begin_attempt(self._reason)
        self._reason = None
        for other in self._open:
            if other is not attempt:
                other.supersede(attempt.number)

    def leave(self, attempt: Contender) -> None:
        """Note that *attempt* has ended, and all that it sent has been told."""
        self._open.remove(attempt)
        if self._owner is attempt:
            self._owner = None

    def void(self, number: int, usage: Usage) -> None:
        """Note that attempt *number* came to nothing, and what it cost as far as it said so."""
        if self._shown == number:
            self._shown = None
        self._spend_known(usage)

    def finish(self, succeeded: bool, turn: ModelTurn | None = None) -> None:
        """End the turn: send the reset that is due, if any, and the last progress report.

        *turn* is what the model returned; without it, it is the last usable reply. The first call
        counts.
        """
        if self._finished:
            return
        self._finished = True
        if succeeded:
            number = self._release(turn)
            if self._opened and (number is None or number != self._shown):
                # The reply came without an attempt of its own, so what was shown is no part of it.
                self.text.begin_attempt(self._reason)
        for _, held in self._held:
            self._spend_known(held.usage)
        self.text.finish("succeeded" if succeeded else "failed")
        self._tell_progress(self._gate.last())

    def _release(self, turn: ModelTurn | None) -> int | None:
        """Take *turn* out of the replies that are held; return the number of its attempt.

        A model around the one that streamed may have made a turn of its own of it: then it is the
        last one.
        """
        for place, (number, held) in enumerate(self._held):
            if turn is not None and held.message is turn.message:
                del self._held[place]
                return number
        return self._held.pop()[0] if self._held else None

    def _spend_known(self, usage: Usage) -> None:
        if usage != Usage():
            self._spend(usage)

    def _report(self, count: int, now: float) -> None:
        if not self._finished:
            self._tell_progress(self._gate.report(count, now))

    def _tell_progress(self, count: int | None) -> None:
        if count is not None:
            self._tell(Progress(output_tokens=count, tool_calls=self._tool_calls))
