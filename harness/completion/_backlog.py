"""Events that a slow reader has not taken yet, kept as short as what it will see allows.

Whoever reads late has no use for each piece of a text apart: pieces of one attempt become one.
They meet at the place of the first, also across other events, since a stream of two turns, or of
text and reports, would otherwise never shrink. Text moves forward in this way and nothing else
moves; what says that a turn's text is complete comes after all of it, here too.

A reset voids the text before it. What of that is still here need not be shown at all. The reset
itself is needed only if the reader has something to take back, which is what `showing` knows. A
piece that is on its way to the reader counts as shown: its reset will come.

What is void stays in its place until it is passed over, since to look for it would take as long
as everything else that is unread.

Leaving events out makes holes in their numbers, and a correct reader waits for a hole to fill. So
the numbers are given anew as events leave, without holes. The epochs stay as they are: they only
have to grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, TypeVar

import attrs
import msgspec

from harness._events import Event, TextDelta, TextReset, TurnFinished

__all__ = ["Backlog"]

_VOID_ALLOWED: Final = 64
"""So many void ones may stay where they are until they are cleared away together."""

TextEventT = TypeVar("TextEventT", TextDelta, TextReset)


@attrs.define(eq=False)
class _Growing:
    """Unread text of one attempt: its first event, and the text of all."""

    first: TextDelta
    pieces: list[str]
    void: bool = False
    """Taken back before it was read: it is passed over."""

    def event(self) -> TextDelta:
        return msgspec.structs.replace(self.first, text="".join(self.pieces))


@attrs.define(eq=False)
class _Pending:
    """An unread reset."""

    reset: TextReset
    void: bool = False
    """A later one says the same."""


@attrs.define(eq=False)
class _Text:
    """Where the reader stands in the text of one turn."""

    next_seq: int = 0
    showing: bool = False
    """Whether it was sent text that no reset has taken back since."""
    growing: _Growing | None = None
    """The last text of the turn that is unread, as long as more can be added to it."""
    unread: list[_Growing | _Pending] = attrs.field(factory=list)
    """What of it is unread and not void."""

    def read(self, event: _Growing | _Pending) -> None:
        """Note that *event* is unread no longer."""
        self.unread = [each for each in self.unread if each is not event]

    def numbered(self, event: TextEventT) -> TextEventT:
        """Return *event* with the next number of the turn."""
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        return msgspec.structs.replace(event, seq=seq)


@attrs.define(eq=False)
class Backlog:
    """What has not been released, in order. Nothing here is a checkpoint."""

    _unread: deque[Event | _Growing | _Pending] = attrs.field(factory=deque, init=False)
    _void: int = attrs.field(default=0, init=False)
    """How many of these are void."""
    _texts: dict[str, _Text] = attrs.field(factory=dict, init=False)
    """By turn id, until the turn's end is released."""

    def __bool__(self) -> bool:
        return len(self._unread) > self._void

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
        while isinstance(oldest, _Growing | _Pending) and oldest.void:
            self._void -= 1
            oldest = self._unread.popleft()
        match oldest:
            case _Growing():
                text = self._text(oldest.first.turn_id)
                text.showing = True
                if text.growing is oldest:
                    text.growing = None
                text.read(oldest)
                return text.numbered(oldest.event())
            case _Pending():
                text = self._text(oldest.reset.turn_id)
                text.showing = False
                text.read(oldest)
                return text.numbered(oldest.reset)
            case TurnFinished():
                self._texts.pop(oldest.turn_id, None)
        return oldest

    def _add_text(self, event: TextDelta) -> None:
        text = self._text(event.turn_id)
        if text.growing is not None and text.growing.first.epoch == event.epoch:
            text.growing.pieces.append(event.text)
            return
        text.growing = _Growing(event, [event.text])
        text.unread.append(text.growing)
        self._unread.append(text.growing)

    def _add_reset(self, reset: TextReset) -> None:
        text = self._text(reset.turn_id)
        text.growing = None
        for each in text.unread:
            each.void = True
        self._void += len(text.unread)
        text.unread.clear()
        if text.showing:
            text.unread.append(_Pending(reset))
            self._unread.append(text.unread[0])
        if self._void > _VOID_ALLOWED and self._void * 2 > len(self._unread):
            self._unread = deque(each for each in self._unread if not _is_void(each))
            self._void = 0

    def _text(self, turn_id: str) -> _Text:
        return self._texts.setdefault(turn_id, _Text())


def _is_void(event: Event | _Growing | _Pending) -> bool:
    return isinstance(event, _Growing | _Pending) and event.void
