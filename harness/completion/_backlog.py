"""Events that a slow reader has not taken yet, kept as short as what it will see allows.

Whoever reads late has no use for each piece of a text apart: pieces of one attempt become one.
They meet at the place of the first, also across other events, since a stream of two turns, or of
text and reports, would otherwise never shrink. Text moves forward in this way and nothing else
moves; what says that a turn's text is complete comes after all of it, here too.

A reset voids the text before it. What of that is still here need not be shown at all. The reset
itself is needed only if the reader has something to take back, which is what `showing` knows. A
piece that is on its way to the reader counts as shown: its reset will come.

Leaving events out makes holes in their numbers, and a correct reader waits for a hole to fill. So
the numbers are given anew as events leave, without holes. The epochs stay as they are: they only
have to grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeVar

import attrs
import msgspec

from harness._events import Event, TextDelta, TextReset, TurnFinished

__all__ = ["Backlog"]

TextEventT = TypeVar("TextEventT", TextDelta, TextReset)


@attrs.define(eq=False)
class _Growing:
    """Unread text of one attempt: its first event, and the text of all."""

    first: TextDelta
    pieces: list[str]

    def event(self) -> TextDelta:
        return msgspec.structs.replace(self.first, text="".join(self.pieces))


@attrs.define(eq=False)
class _Text:
    """Where the reader stands in the text of one turn."""

    next_seq: int = 0
    showing: bool = False
    """Whether it was sent text that no reset has taken back since."""
    growing: _Growing | None = None
    """The last text of the turn that is unread, as long as more can be added to it."""

    def numbered(self, event: TextEventT) -> TextEventT:
        """Return *event* with the next number of the turn."""
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        return msgspec.structs.replace(event, seq=seq)


@attrs.define(eq=False)
class Backlog:
    """What has not been released, in order. Nothing here is a checkpoint."""

    _unread: deque[Event | _Growing] = attrs.field(factory=deque, init=False)
    _texts: dict[str, _Text] = attrs.field(factory=dict, init=False)
    """By turn id, until the turn's end is released."""

    def __bool__(self) -> bool:
        return bool(self._unread)

    def extend(self, events: Iterable[Event]) -> None:
        """Take the next events of the stream."""
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Take the next event of the stream."""
        match event:
            case TextDelta():
                self._add_text(event)
            case TextReset():
                self._add_reset(event)
            case _:
                self._unread.append(event)

    def release(self) -> Event:
        """Return the oldest event, numbered for its reader.

        Raises:
            IndexError: there is none.
        """
        oldest = self._unread.popleft()
        match oldest:
            case _Growing():
                text = self._text(oldest.first.turn_id)
                text.showing = True
                if text.growing is oldest:
                    text.growing = None
                return text.numbered(oldest.event())
            case TextReset():
                text = self._text(oldest.turn_id)
                text.showing = False
                return text.numbered(oldest)
            case TurnFinished():
                self._texts.pop(oldest.turn_id, None)
        return oldest

    def _add_text(self, event: TextDelta) -> None:
        text = self._text(event.turn_id)
        if text.growing is not None and text.growing.first.epoch == event.epoch:
            text.growing.pieces.append(event.text)
            return
        text.growing = _Growing(event, [event.text])
        self._unread.append(text.growing)

    def _add_reset(self, reset: TextReset) -> None:
        text = self._text(reset.turn_id)
        text.growing = None
        self._unread = deque(each for each in self._unread if _text_turn(each) != reset.turn_id)
        if text.showing:
            self._unread.append(reset)

    def _text(self, turn_id: str) -> _Text:
        return self._texts.setdefault(turn_id, _Text())


def _text_turn(event: Event | _Growing) -> str | None:
    """Return the id of the turn whose text *event* is; None if it is something else."""
    match event:
        case _Growing():
            return event.first.turn_id
        case TextReset():
            return event.turn_id
        case _:
            return None
