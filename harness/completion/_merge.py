"""A run's events for a reader that sets the pace: a connection, for example.

A run never waits for a reader, so its channel has no bound. A host that wants one runs `merge_text`
between that channel and a bounded one of its own. While the reader takes its time the events pile
up where they are, and each time it takes one, all that has come meanwhile goes through a `Backlog`,
which is where texts are merged. One task does both: a second one that empties the channel all the
time would merge sooner and show the reader nothing else, since what is on its way to the reader
cannot be changed anyhow.
"""

from __future__ import annotations

import trio

from harness._events import Event
from harness.completion._backlog import Backlog
from harness.completion._channel import already_there

__all__ = ["merge_text"]


async def merge_text(
    events: trio.MemoryReceiveChannel[Event], send_channel: trio.MemorySendChannel[Event]
) -> None:
    """Send *events* on, with as little text as the reader of *send_channel* needs to see.

    While it is slow, the text of an attempt comes in one piece. Text that is taken back before
    the reader was sent any of it does not come at all, and neither does its reset. What is sent
    of a turn is numbered anew, from 0 and without holes. All other events come as they are and in
    their order.

    It owns both channels and closes them on every exit, so a reader sees its channel end. It
    returns when *events* have ended and the last was taken, or when an event finds that the reader
    has closed its side: a reader that goes away is no fault of the run, which goes on untold. A
    checkpoint. If it is cancelled, what was not taken is dropped, and the reader's channel ends
    without the run's last event.

    Raises:
        trio.ClosedResourceError: somebody else closed one of the channels on this side.
    """
    backlog = Backlog()
    with events, send_channel:
        async for event in events:
            backlog.add(event)
            backlog.extend(already_there(events))
            while backlog:
                try:
                    await send_channel.send(backlog.release())
                except trio.BrokenResourceError:
                    return
                backlog.extend(already_there(events))
