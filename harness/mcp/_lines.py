"""The lines of a server's output: where one ends, and whose answer an unreadable one was.

Servers print. A stray line is no message and says nothing about the others, so it is dropped.
But an *answer* that cannot be read (nested too deeply, not UTF-8, longer than anything that
could be used) must not be dropped, or whoever asked would wait for ever. An answer carries its
id, and every implementation writes the id within the first or the last members of the object,
beside a result that may be megabytes. So it is looked for at both ends, and whoever asked is
told that the answer was unusable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

__all__ = ["LONGEST_LINE", "Line", "LineBuffer", "answered_id"]

LONGEST_LINE: Final = 64 * 1024 * 1024
"""In bytes. Of a longer one only the ends are kept."""

_END: Final = 256
_ID: Final = re.compile(rb'"id"\s*:\s*(?:(-?\d{1,18})|"([^"\\]{1,100})")\s*[,}]')


@attrs.frozen
class Line:
    """One line, without its end."""

    text: bytes
    whole: bool = True
    """Whether *text* is all of it; else it is both ends of it."""


@attrs.define(eq=False)
class LineBuffer:
    """Cuts a stream of bytes into lines. Each byte is copied once or twice, however long a line."""

    _limit: int = LONGEST_LINE
    _pieces: list[bytes] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)
    _head: bytes | None = attrs.field(default=None, init=False)
    """The start of a line that has grown too long."""

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that *data* ends."""
        *ended, rest = data.split(b"\n")
        for each in ended:
            self._add(each)
            yield self._take()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            joined = b"".join(self._pieces)
            if self._head is None:
                self._head = joined[:_END]
            self._pieces, self._size = [joined[-_END:]], _END

    def _take(self) -> Line:
        text = b"".join(self._pieces)
        head = self._head
        self._pieces, self._size, self._head = [], 0, None
        return Line(text) if head is None else Line(head + b" " + text[-_END:], whole=False)


def answered_id(text: bytes) -> int | str | None:
    """Return the id of the request that *text*, an unreadable message, answers, if it tells."""
    head, tail = text[:_END], text[-_END:]
    if not head.lstrip().startswith(b"{") or b'"method"' in head:
        return None
    found = _ID.search(head) or next(iter([*_ID.finditer(tail)][-1:]), None)
    if found is None:
        return None
    number, name = found.groups()
    return int(number) if number is not None else name.decode(errors="replace")
