"""What the attempts of one turn share.

A turn's text has one reader, so its epochs and numbers last over all attempts, and so does the
count of what came so far. This is the half that decides and waits for nothing; the half that opens
attempts is in `_attempt`.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from harness._bounds import check_count
from harness._errors import RunUseError
from harness._events import Event, Progress
from harness._model import Assembly, ResetReason
from harness._usage import Usage
from harness.completion._progress import ProgressGate
from harness.completion._text import TextMachine

__all__ = ["TurnStreamState"]


@attrs.define(eq=False)
class TurnStreamState:
    """The live side of one turn but for its attempts. Nothing here is a checkpoint."""

    turn_id: str
    assembly: Assembly
    """How the replies of its attempts are judged."""
    text: TextMachine
    """What the reader of the turn's text is sent."""
    _tell: Callable[[Event], None]
    _spend: Callable[[Usage], None]
    _now: Callable[[], float]
    _tool_calls: int
    _gate: ProgressGate = attrs.field(factory=ProgressGate, init=False)
    _opened: int = attrs.field(default=0, init=False)
    _open: bool = attrs.field(default=False, init=False)
    _void: int | None = attrs.field(default=None, init=False)
    """Number of the last attempt that came to nothing."""
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

    def progress(self, output_tokens: int) -> None:
        """Report how many tokens came so far; from now on chunks are no longer counted.

        Raises:
            TypeError, ValueError: *output_tokens* is no count.
        """
        self._counted = None
        self._report(check_count("output_tokens", output_tokens))

    def count_answer_chunk(self) -> None:
        """Report one more chunk of an answer, unless somebody reports tokens."""
        if self._counted is not None:
            self._counted += 1
            self._report(self._counted)

    def begin_attempt(self, reason: ResetReason | None) -> int:
        """Note that an attempt opens; return its number.

        Raises:
            RunUseError: another one is open, or the turn is over.
            ValueError: *reason* is none of the known ones.
        """
        if self._finished:
            raise RunUseError(f"turn {self.turn_id!r} is over, expected an attempt before its end")
        if self._open:
            number = self._opened - 1
            raise RunUseError(f"attempt {number} is open, expected it to end before the next")
        self.text.begin_attempt(reason)
        self._open = True
        self._opened += 1
        return self._opened - 1

    def end_attempt(self) -> None:
        """Note that the open attempt has ended."""
        self._open = False

    def void_attempt(self, number: int, usage: Usage) -> None:
        """Note that attempt *number* came to nothing, and what it cost as far as it said so."""
        if number == self._void:
            return
        self._void = number
        if usage != Usage():
            self._spend(usage)

    def finish(self, succeeded: bool) -> None:
        """End the turn: send the reset that is due, if any, and the last progress report.

        The first call counts.
        """
        self._finished = True
        if succeeded and self._void == self._opened - 1:
            # The reply came without an attempt of its own, so what was shown is no part of it.
            self.text.begin_attempt()
        self.text.finish("succeeded" if succeeded else "failed")
        self._tell_progress(self._gate.last())

    def _report(self, count: int) -> None:
        if not self._finished:
            self._tell_progress(self._gate.report(count, self._now()))

    def _tell_progress(self, count: int | None) -> None:
        if count is not None:
            self._tell(Progress(output_tokens=count, tool_calls=self._tool_calls))
