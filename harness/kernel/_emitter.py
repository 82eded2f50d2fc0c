"""Where events go: any number of readers, none of which the run waits for.

A reader is an unbounded memory channel, so sending never waits and a reader that is slow, has
stopped or has failed changes nothing for the run. It costs about 200 bytes per unread event.
"""

from __future__ import annotations

import math
from typing import Final, get_args

import attrs
import msgspec
import trio

from harness._events import Event

__all__ = ["Emitter", "EventSource"]

_KINDS: Final = frozenset(get_args(Event))


@attrs.define(eq=False)
class Emitter:
    """Sends each event to every reader. One may serve several runs."""

    _senders: list[trio.MemorySendChannel[Event]] = attrs.field(factory=list, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def open_reader(self) -> trio.MemoryReceiveChannel[Event]:
        """Return a channel with everything sent from now on; it ends when the emitter closes."""
        send, receive = trio.open_memory_channel[Event](math.inf)
        if self._closed:
            send.close()
        else:
            self._senders.append(send)
        return receive

    def send_nowait(self, event: Event) -> None:
        """Send *event* as it is. Never waits; readers that have closed are forgotten."""
        for send in tuple(self._senders):
            try:
                send.send_nowait(event)
            except trio.BrokenResourceError:
                self._senders.remove(send)

    def close(self) -> None:
        """End every reader's channel. Closing twice is no error."""
        self._closed = True
        for send in self._senders:
            send.close()
        self._senders.clear()

    @property
    def has_readers(self) -> bool:
        """Whether an event would be read by anybody."""
        return bool(self._senders)


@attrs.define(eq=False)
class EventSource:
    """One leg's voice on an emitter: it stamps what it tells."""

    emitter: Emitter
    run_id: str
    leg: int
    turn: int
    """The one in progress, else the last one that there was; 0 before the first."""
    _ended: bool = attrs.field(default=False, init=False)

    def end(self) -> None:
        """Tell nothing more: the last event has been told."""
        self._ended = True

    def tell(self, event: Event) -> None:
        """Stamp *event* and send it. Never waits, is no checkpoint.

        Raises:
            TypeError: it is no event.
            RuntimeError: this is not the run's thread. Whether anybody reads makes no difference.
        """
        if type(event) not in _KINDS:
            raise TypeError(f"{event!r} was told, expected an event")
        now = trio.current_time()
        if self.emitter.has_readers and not self._ended:
            self.emitter.send_nowait(
                msgspec.structs.replace(
                    event,
                    run_id=self.run_id,
                    leg=self.leg,
                    turn=self.turn,
                    at=now,
                )
            )
