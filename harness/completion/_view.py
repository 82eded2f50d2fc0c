"""The reader's side of a turn's live text.

A run tells its text in order and once. What reaches a reader over a network may come twice after
a reconnect, in another order over two paths, or not at all, and a reader that appends whatever
comes shows words twice, in the wrong place, or the end of a text that was taken back. So each
event carries two numbers, and it takes both. `seq` says what comes next in the turn: what is
behind was shown already, and what is ahead waits for the gap before it to fill. `epoch` says which
attempt wrote it: text of an attempt that was given up stays away even if its number is next.

A gap may never fill, since what would fill it may be lost. So it is waited for only as long as 256
events or ten seconds; then the reader stands still and says that it needs the text from elsewhere.
To go on behind the gap was turned down: a text that stands still is true as far as it goes, and
one with a hole is not. A loss at the very end leaves no gap at all, which is why a turn also has an
end that somebody declares, with the text that is in the transcript.

Nothing here waits or looks at a clock. The same rules are some forty lines in any language.
"""

from __future__ import annotations

import math
from typing import Final

import attrs
import msgspec

from harness._bounds import check_count
from harness._events import TextDelta, TextReset

__all__ = ["HOLD_EVENTS", "HOLD_SECONDS", "REMEMBERED_TURNS", "TurnText", "TurnView"]

HOLD_EVENTS: Final = 256
"""How many events of a turn may wait for a gap to fill."""
HOLD_SECONDS: Final = 10.0
"""How long one may."""
REMEMBERED_TURNS: Final = 256
"""How many turns that have ended are known, so that a late event does not begin them anew."""


class TurnText(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What there is to show of one turn; a new one for each change, so it can be compared by
    identity, kept, or sent to a reader that has to catch up.
    """

    turn_id: str
    text: str = ""
    epoch: int = -1
    """The newest attempt that was heard of."""
    seq: int = -1
    """Number of the last event that the text accounts for."""
    needs_resync: bool = False
    """Whether something is missing that will not come any more."""


class _Held(msgspec.Struct, frozen=True):
    event: TextDelta | TextReset
    since: float


@attrs.define(eq=False)
class _Turn:
    """One turn that has not ended."""

    shown: TurnText
    _held: dict[int, _Held] = attrs.field(factory=dict, init=False)
    """By number; as they came, so that the first has waited longest."""
    _following: bool = attrs.field(default=True, init=False)

    @property
    def incomplete(self) -> bool:
        return self.shown.needs_resync or bool(self._held)

    @property
    def gives_up_at(self) -> float:
        for held in self._held.values():
            return held.since + HOLD_SECONDS
        return math.inf

    def take(self, event: TextDelta | TextReset, now: float) -> bool:
        """Take *event*; return whether that changed what is shown."""
        if not self._following or event.seq <= self.shown.seq:
            return False
        self._held.setdefault(event.seq, _Held(event, now))
        advanced = self._advance()
        return self.give_up(now) or advanced

    def give_up(self, now: float) -> bool:
        """Stand still if a gap is open for too long; return whether that is so."""
        if len(self._held) <= HOLD_EVENTS and now < self.gives_up_at:
            return False
        self._stand_still()
        self.shown = msgspec.structs.replace(self.shown, needs_resync=True)
        return True

    def replace(self, shown: TurnText, *, follow: bool) -> None:
        """Show *shown*, and go on from there or stand still."""
        self.shown = shown
        if not follow:
            self._stand_still()
            return
        self._following = True
        self._held = {seq: held for seq, held in self._held.items() if seq > shown.seq}
        self._advance()

    def _stand_still(self) -> None:
        self._following = False
        self._held.clear()

    def _advance(self) -> bool:
        """Apply what is next, as far as it is here; return whether anything was."""
        pieces, epoch, seq = [self.shown.text], self.shown.epoch, self.shown.seq
        while (held := self._held.pop(seq + 1, None)) is not None:
            event = held.event
            seq += 1
            if event.epoch < epoch:
                continue
            epoch = event.epoch
            if isinstance(event, TextReset):
                pieces.clear()
            else:
                pieces.append(event.text)
        if seq == self.shown.seq:
            return False
        text = "".join(pieces)
        self.shown = TurnText(turn_id=self.shown.turn_id, text=text, epoch=epoch, seq=seq)
        return True


@attrs.define(eq=False)
class TurnView:
    """What to show of any number of turns, from their text events in whatever order they come.

    Each method that changes a turn returns what is to be shown of it from then on, and None if
    that is what it was. No method is a checkpoint; *now* is any clock of seconds that never goes
    back. A turn takes memory until `finalize` is called for it.
    """

    _turns: dict[str, _Turn] = attrs.field(factory=dict, init=False)
    _ended: dict[str, None] = attrs.field(factory=dict, init=False)
    """An ordered set."""

    def apply(self, event: TextDelta | TextReset, *, now: float) -> TurnText | None:
        """Take an event. If it leaves a gap open for too long, the turn needs a resync and takes
        no further event until it has had one.
        """
        turn = self._turn(event.turn_id)
        return turn.shown if turn is not None and turn.take(event, now) else None

    def get(self, turn_id: str) -> TurnText | None:
        """Return what there is to show of a turn; None if nothing was heard of it, or it ended."""
        turn = self._turns.get(turn_id)
        return None if turn is None else turn.shown

    @property
    def expires_at(self) -> float:
        """When `expire` will have something to do; infinity while no turn has a gap."""
        return min((turn.gives_up_at for turn in self._turns.values()), default=math.inf)

    def expire(self, *, now: float) -> tuple[TurnText, ...]:
        """Return the turns whose gaps are open for too long by now: they need a resync.

        It matters where the events of a turn stop coming; `apply` looks at the turn of its event.
        """
        return tuple(turn.shown for turn in self._turns.values() if turn.give_up(now))

    def resync(
        self, turn_id: str, text: str, *, epoch: int | None = None, seq: int | None = None
    ) -> TurnText | None:
        """Replace the text of a turn by one from elsewhere.

        With *epoch* and *seq*, those of a `TurnText` whose text it is, the turn goes on behind
        that place; a place before the one that is shown changes nothing. Without them nobody can
        say which events the text has already, so it is taken for the whole and later events of
        the turn are ignored.

        Raises:
            TypeError: *epoch* came without *seq* or the other way round, or one is no ``int``.
            ValueError: one is below -1.
        """
        if (epoch is None) != (seq is None):
            raise TypeError(f"epoch is {epoch!r} and seq is {seq!r}, expected both or neither")
        turn = self._turn(turn_id)
        if turn is None:
            return None
        if epoch is None or seq is None:
            shown = msgspec.structs.replace(turn.shown, text=text, needs_resync=False)
            turn.replace(shown, follow=False)
            return turn.shown
        check_count("epoch", epoch, least=-1)
        if check_count("seq", seq, least=-1) < turn.shown.seq:
            return None
        shown = TurnText(turn_id=turn_id, text=text, epoch=epoch, seq=seq)
        turn.replace(shown, follow=True)
        return turn.shown

    def finalize(self, turn_id: str, text: str | None = None) -> TurnText | None:
        """End a turn and forget what was kept of it; return what is to be shown for good.

        *text*, that of the message in the transcript, replaces all that was streamed. Without
        it the streamed text stands, and its `needs_resync` says whether some is known to be
        missing. What comes later of the turn changes nothing, but for another call with a text.
        """
        turn = self._turns.pop(turn_id, None)
        self._ended.pop(turn_id, None)
        self._ended[turn_id] = None
        if len(self._ended) > REMEMBERED_TURNS:
            del self._ended[next(iter(self._ended))]
        shown = turn.shown if turn is not None else TurnText(turn_id=turn_id)
        if text is not None:
            return msgspec.structs.replace(shown, text=text, needs_resync=False)
        if turn is None:
            return None
        return msgspec.structs.replace(shown, needs_resync=turn.incomplete)

    def _turn(self, turn_id: str) -> _Turn | None:
        """Return the turn, which begins here if it has not yet; None if it has ended."""
        if turn_id in self._ended:
            return None
        turn = self._turns.get(turn_id)
        if turn is None:
            turn = self._turns[turn_id] = _Turn(TurnText(turn_id=turn_id))
        return turn
