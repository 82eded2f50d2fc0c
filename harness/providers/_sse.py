"""Server-sent events from bytes, cut anywhere.

The rules are those of the event-stream format: a line ends with CR, LF or both; a line that
begins with a colon is a comment; ``data`` lines of one event are joined with LF; a blank line
ends an event. Four things are decided here:

* **Bytes, not text.** Only ASCII matters to the format, so nothing is decoded before a line is
  whole, and a character cut in two by the network needs no care.
* **The last event counts without its blank line.** The format would drop it. But servers exist
  that end with ``data: [DONE]`` and one line end, and half an event dropped without a word would
  make a torn reply look whole. A half JSON text at the end fails as JSON instead.
* **An event called ``error`` counts without data.** The format would drop that too, and what is
  left could look like a reply that ended well.
* **A line is bounded.** A server that never ends one would fill the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs
import msgspec

from harness._bounds import check_count
from harness.providers._failures import WireError

__all__ = ["MAX_EVENT_BYTES", "EventDecoder", "ServerEvent"]

MAX_EVENT_BYTES = 16 * 2**20
"""Bound of one line, and of one event's data. A call with a megabyte of arguments fits."""

_LINE_END = re.compile(rb"\r\n?|\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ServerEvent(msgspec.Struct, frozen=True, gc=False):
    """One event: its name, empty if it had none, and its data, empty only in an ``error``."""

    name: str
    data: bytes


@attrs.define(eq=False)
class EventDecoder:
    """Bytes in, events out; any split of the bytes gives the same events."""

    _limit: int = attrs.field(default=MAX_EVENT_BYTES, alias="limit")
    _pieces: list[bytes] = attrs.field(init=False, factory=list)
    """Of the line that has not ended yet."""
    _held: int = attrs.field(init=False, default=0)
    """Bytes in `_pieces`."""
    _after_cr: bool = attrs.field(init=False, default=False)
    """The last byte was a CR: an LF that follows belongs to it."""
    _first_line: bool = attrs.field(init=False, default=True)
    _name: str = attrs.field(init=False, default="")
    _data: list[bytes] = attrs.field(init=False, factory=list)
    _size: int = attrs.field(init=False, default=0)
    """Bytes in `_data`."""

    @_limit.validator
    def _check_limit(self, _: object, value: object) -> None:
        check_count("limit", value, least=1)

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """Yield the events that *piece* completes; take all of them before the next call.

        Raises:
            WireError: a line, or the data of an event, is longer than the limit.
        """
        start = 1 if self._after_cr and piece.startswith(b"\n") else 0
        self._after_cr = piece.endswith(b"\r") if piece else self._after_cr
        for end in _LINE_END.finditer(piece, start):
            self._hold(piece[start : end.start()])
            start = end.end()
            event = self._end_line()
            if event is not None:
                yield event
        self._hold(piece[start:])

    def close(self) -> Iterator[ServerEvent]:
        """Yield the event that the end of the body completes, if there is one.

        Raises:
            WireError: as `feed`.
        """
        event = self._end_line() or self._end_event()
        if event is not None:
            yield event

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._held += len(piece)
            self._check_size(self._held, "a line")

    def _end_line(self) -> ServerEvent | None:
        line = b"".join(self._pieces)
        self._pieces.clear()
        self._held = 0
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            return self._end_event()
        self._read_field(line)
        return None

    def _read_field(self, line: bytes) -> None:
        # A comment is a field without a name, and is left out like any name we do not know.
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            self._check_size(self._size - 1, "an event")
        elif field == b"event":
            self._name = value.decode(errors="replace")

    def _end_event(self) -> ServerEvent | None:
        event = ServerEvent(self._name, b"\n".join(self._data))
        self._name = ""
        self._data.clear()
        self._size = 0
        return event if event.data or event.name == "error" else None

    def _check_size(self, size: int, what: str) -> None:
        if size > self._limit:
            raise WireError(f"{what} of {size} bytes or more, expected at most {self._limit}")
