"""The text of one turn, on a surface where it may have to be taken back.

A turn's text is shown while it arrives. If the attempt that wrote it is then thrown away, another
one starts from nothing, and the reader would see one half answer after another. The question is
whether the surface can take text back.

If it can, a *reset* is sent, which voids all that was shown. It is sent as late as possible, just
before the first text of the new attempt: an attempt that dies without a word leaves the old text
readable, and a turn that fails keeps its half answer beside its error. If the turn ends well
without any new text, as one of tool calls does, the reset is sent at its end.

If it cannot, or has been asked to as often as it allows, what was shown stands and the turn cannot
be tried again: `TextMachine.produced_output` says so, and it is what routing asks. A reset that was
lost leaves a surface whose state nobody knows. It is *stale*: it keeps the one old coherent answer
rather than a splice of two, and gets nothing more but the reset at a good end.

`epoch` counts attempts and `seq` counts what was sent, so that a reader who missed something can
tell. Both are set before an event is handed over, and nothing here waits, so a stop cannot fall
between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args

import attrs

from harness._errors import RunUseError
from harness._events import TextDelta, TextReset
from harness._model import ResetReason, TextSurface

__all__ = ["TextMachine", "TextSink", "TurnOutcome", "check_reason"]

TextSink: TypeAlias = Callable[[TextDelta | TextReset], None]
"""Where the events go. It must not wait; an `Exception` that it raises is counted and dropped."""

TurnOutcome: TypeAlias = Literal["succeeded", "failed"]

_REASONS: Final = get_args(ResetReason)
_OUTCOMES: Final = get_args(TurnOutcome)


def check_reason(reason: ResetReason | None) -> None:
    """Raise `ValueError` if *reason* is none of the known ones."""
    if reason is not None and reason not in _REASONS:
        raise ValueError(f"reason is {reason!r}, expected one of {_REASONS}")


def _as_it_is_now(surface: TextSurface) -> TextSurface:
    """Read *surface* once: one that changes its mind later would leave half a repair behind."""
    return TextSurface(retractable=surface.retractable, max_resets=surface.max_resets)


# The fields with a check would otherwise make every assignment to any field five times dearer.
@attrs.define(eq=False, on_setattr=attrs.setters.NO_OP)
class TextMachine:
    """Decides what the reader of one turn's text is sent. No method is a checkpoint.

    *turn_id* tells the texts of different turns apart and authorises nothing: the sink has to be
    bound to the right reader already.

    Raises:
        TypeError: *turn_id* is no text or empty, or ``surface.max_resets`` is no count.
    """

    _turn_id: str = attrs.field()
    _sink: TextSink
    _surface: TextSurface = attrs.field(converter=_as_it_is_now)
    _epoch: int = attrs.field(default=-1, init=False)
    _seq: int = attrs.field(default=0, init=False)
    _armed: ResetReason | None = attrs.field(default=None, init=False)
    _emitted: bool = attrs.field(default=False, init=False)
    _marked: bool = attrs.field(default=False, init=False)
    _stale: bool = attrs.field(default=False, init=False)
    _finished: bool = attrs.field(default=False, init=False)
    _reset_count: int = attrs.field(default=0, init=False)
    _sink_errors: int = attrs.field(default=0, init=False)

    @_turn_id.validator
    def _check_turn_id(self, _: object, value: object) -> None:
        if not isinstance(value, str) or not value:
            raise TypeError(f"turn_id is {value!r}, expected a text that is not empty")

    @property
    def epoch(self) -> int:
        """Number of the present attempt, from 0; -1 before the first."""
        return self._epoch

    @property
    def seq(self) -> int:
        """Number of the next event."""
        return self._seq

    @property
    def reset_count(self) -> int:
        """How many resets were sent, those that were lost included."""
        return self._reset_count

    @property
    def sink_errors(self) -> int:
        """How many events were lost because the sink raised."""
        return self._sink_errors

    @property
    def produced_output(self) -> bool:
        """Whether something left this turn that cannot be taken back, so that no attempt may
        follow. It never becomes false again, and says nothing about what the reader sees.
        """
        if self._marked or not self._emitted:
            return self._marked
        return not self._surface.retractable or self._stale or self._spent

    @property
    def _spent(self) -> bool:
        most = self._surface.max_resets
        return most is not None and self._reset_count >= most

    def begin_attempt(self, reason: ResetReason | None = None) -> None:
        """Begin an attempt, the first or a further one.

        *reason* is why text of an earlier attempt is taken back, should it come to that; it
        stands until it has been sent. Without one it is the last that was given, else
        ``attempt_failed``.

        Raises:
            ValueError: *reason* is none of the known ones.
        """
        check_reason(reason)
        if self._finished:
            return
        self._epoch += 1
        if not self._emitted or not self._surface.retractable:
            return
        if self._spent:
            self._stale = True
        else:
            self._armed = reason or self._armed or "attempt_failed"

    def observe(self, text: str | None) -> None:
        """Send *text* of the present attempt, after the reset that it makes due.

        Raises:
            RunUseError: no attempt has begun.
        """
        if self._finished:
            return
        if self._epoch < 0:
            raise RunUseError(f"text {text!r} came before any attempt, expected one to have begun")
        if not text or self._stale:
            return
        epoch = self._epoch  # a sink may begin the next attempt while it takes the reset
        if self._armed is not None and not self._reset(self._armed):
            return
        seq = self._seq
        self._seq += 1
        self._emitted = True
        self._deliver(TextDelta(turn_id=self._turn_id, epoch=epoch, seq=seq, text=text))

    def finish(self, outcome: TurnOutcome) -> None:
        """End the turn. The first call counts; after it every method does nothing.

        Raises:
            ValueError: *outcome* is none of the two.
        """
        if outcome not in _OUTCOMES:
            raise ValueError(f"outcome is {outcome!r}, expected one of {_OUTCOMES}")
        if self._finished:
            return
        self._finished = True
        if outcome == "succeeded" and self._armed is not None:
            self._reset(self._armed)

    def mark_produced_output(self) -> None:
        """Say that the turn had an effect that no reset takes back. Text goes on being sent."""
        if not self._finished:
            self._marked = True

    def _reset(self, reason: ResetReason) -> bool:
        """Send a reset; return whether it arrived."""
        self._armed = None
        self._reset_count += 1
        seq = self._seq
        self._seq += 1
        reset = TextReset(turn_id=self._turn_id, epoch=self._epoch, seq=seq, reason=reason)
        arrived = False
        try:
            arrived = self._deliver(reset)
        finally:
            if not arrived:
                self._stale = True
        return arrived

    def _deliver(self, event: TextDelta | TextReset) -> bool:
        try:
            self._sink(event)
        except Exception:  # noqa: BLE001  # whatever it is, the turn goes on; it is counted
            self._sink_errors += 1
            return False
        return True
