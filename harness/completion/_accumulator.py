"""Tool calls from the pieces in which they are streamed.

A call arrives as a header (id, name) and a run of argument pieces, interleaved with those of other
calls. Which call a piece belongs to is the whole problem, and a wrong answer is the worst defect
there is: a tool run with another call's arguments. Providers say it by an *index*, by an *id*, by
both, or by nothing but order:

* an index decides, whatever the order of arrival;
* without an index, an id decides; a new id begins a new call;
* without either, a piece belongs to the call that the piece before it belonged to.

Some servers send index 0 for every call, one call after the other. A second id on an occupied
index is therefore another call if it comes with a name and the arguments so far are one whole JSON
object: no proper beginning of an object is itself one, so nothing more can belong to it. In every
other case it is a *conflict*. The piece is dropped and counted, and the reply is a defect. To begin
a new call whenever the id changes was turned down: a server that makes up a fresh id for each piece
would have its calls torn into several, the first of them with no arguments at all.

Others count the index up in mid-call, so that arguments come to one that nobody has introduced. If
the call before is not whole they may be its own, or those of a call whose header is late. That is a
conflict too: the header that comes to this index next would otherwise take over the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from harness._arguments import Parsed, parse_arguments, tool_call_arguments_absent
from harness._messages import CallMessage
from harness._model import CallPiece

__all__ = ["GrowingCall", "ToolCallAccumulator"]


@attrs.define(eq=False)
class GrowingCall:
    """One call while its pieces arrive; read it, do not change it."""

    place: int
    """Its place in the order of the finished calls; no other call of the reply has it."""
    index: int
    """What the provider numbers it by; its place, if the provider does not."""
    id: str = ""
    name: str = ""
    contested: bool = False
    """Whether a piece that may be its own was dropped as a conflict."""
    _type: str = ""
    _arguments: list[str] = attrs.field(factory=list)

    def take(self, piece: CallPiece) -> bool:
        """Add *piece*; return whether it brought anything new."""
        grew = bool(piece.arguments)
        if piece.arguments:
            self._arguments.append(piece.arguments)
        if piece.id and not self.id:
            self.id = piece.id
            grew = True
        # Servers that repeat the header in every piece send the whole name again.
        if piece.name and piece.name != self.name:
            self.name += piece.name
            grew = True
        if piece.type and not self._type:
            self._type = piece.type
        return grew

    def is_whole(self) -> bool:
        """Whether the arguments so far are one JSON object, so that nothing can follow."""
        text = self.arguments()
        return not tool_call_arguments_absent(text) and isinstance(parse_arguments(text), Parsed)

    def arguments(self) -> str:
        """Return the text of the arguments so far."""
        return "".join(self._arguments)

    def message(self) -> CallMessage:
        """Return the call in the chat-completions shape, as a fresh value."""
        kind = "function" if self._type.lower() in ("", "function") else self._type
        return {
            "id": self.id,
            "type": kind,
            "function": {"name": self.name, "arguments": self.arguments()},
        }


@attrs.define(eq=False)
class ToolCallAccumulator:
    """The calls of one reply. Feed it each chunk's pieces, in order."""

    _conflicts: int = attrs.field(default=0, init=False)
    _calls: list[GrowingCall] = attrs.field(factory=list, init=False)
    _by_index: dict[int, GrowingCall] = attrs.field(factory=dict, init=False)
    _by_id: dict[str, GrowingCall] = attrs.field(factory=dict, init=False)
    _places: set[int] = attrs.field(factory=set, init=False)
    _following: int = attrs.field(default=0, init=False)
    """The place after the highest one taken."""
    _latest: GrowingCall | None = attrs.field(default=None, init=False)

    @property
    def is_empty(self) -> bool:
        """Whether no call has begun."""
        return not self._calls

    @property
    def conflicts(self) -> int:
        """How many pieces were dropped because they named two calls at once."""
        return self._conflicts

    def observe(self, pieces: Sequence[CallPiece] | None) -> list[tuple[GrowingCall, str]]:
        """Add *pieces*; return each call that grew, with the arguments that were new."""
        grown: list[tuple[GrowingCall, str]] = []
        for piece in pieces or ():
            if not (piece.id or piece.name or piece.arguments or piece.type):
                continue
            call = self._call_of(piece)
            if call is None:
                self._conflicts += 1
                continue
            self._latest = call
            if call.take(piece):
                grown.append((call, piece.arguments or ""))
            if piece.id:
                self._by_id.setdefault(call.id, call)
        return grown

    def assembled(self) -> list[CallMessage]:
        """Return the calls so far, ordered by index, as fresh copies; also in mid-stream."""
        return [call.message() for call in sorted(self._calls, key=lambda call: call.place)]

    def _call_of(self, piece: CallPiece) -> GrowingCall | None:
        """Return the call that *piece* belongs to, begun now if need be; None is a conflict."""
        if piece.index is None:
            known = self._by_id.get(piece.id) if piece.id else self._latest
            return known or self._begin(None)
        at_index = self._by_index.get(piece.index)
        if at_index is None:
            return None if self._is_stray(piece) else self._begin(piece.index)
        if not piece.id or not at_index.id or piece.id == at_index.id:
            return at_index
        earlier = self._by_id.get(piece.id)
        if earlier is not None and earlier.index == piece.index:
            return earlier
        # Asked once only, or a stream of strange ids would have the text parsed for each.
        if piece.name and not at_index.contested and at_index.is_whole():
            return self._begin(piece.index)
        at_index.contested = True
        return None

    def _is_stray(self, piece: CallPiece) -> bool:
        """Whether *piece*, at a new index, brings but arguments while another call lacks some."""
        before = self._latest
        if piece.id or piece.name or not piece.arguments or before is None:
            return False
        if not before.contested and not before.is_whole():
            before.contested = True
        return before.contested

    def _begin(self, index: int | None) -> GrowingCall:
        place = self._following if index is None or index in self._places else index
        self._following = max(self._following, place + 1)
        call = GrowingCall(place, place if index is None else index)
        self._calls.append(call)
        self._places.add(place)
        self._by_index[call.index] = call
        return call
