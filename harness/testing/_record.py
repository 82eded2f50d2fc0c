"""Recorders: what a channel or a text surface was told, in order."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import attrs
import trio

from harness._events import TextDelta, TextReset
from harness.testing._errors import FindingError

__all__ = ["RecordingSink", "record_events", "recording_sink"]

T = TypeVar("T")


async def record_events(
    receive_channel: trio.abc.ReceiveChannel[T], into: list[T] | None = None
) -> list[T]:
    """Return everything that comes out of *receive_channel*, in order, once it has ended.

    What has come so far is in *into*, for a reader that is stopped before that. A checkpoint.
    """
    events: list[T] = [] if into is None else into
    async for event in receive_channel:
        events.append(event)  # noqa: PERF401  # a reader that is stopped has got this far
    return events


def recording_sink(*, retractable: bool = True, failing: Collection[int] = ()) -> RecordingSink:
    """Return a text surface that records: give it to a text machine as its sink.

    Args:
        retractable: whether text can be taken back; if not, a reset is a failure of the test.
        failing: the numbers of the events, from 0, that it raises on instead of taking them.
    """
    return RecordingSink(retractable=retractable, failing=frozenset(failing))


@attrs.define(kw_only=True, eq=False)
class RecordingSink:
    """A text surface: a callable that takes the text events of a turn."""

    retractable: bool
    failing: frozenset[int]
    events: list[TextDelta | TextReset] = attrs.field(factory=list, init=False)
    """What it took."""
    text: str = attrs.field(default="", init=False)
    """What its reader sees now."""
    _offered: int = attrs.field(default=0, init=False)

    def __call__(self, event: TextDelta | TextReset) -> None:
        """Take *event*. Not a checkpoint.

        Raises:
            OSError: this is one of the failing ones.
            FindingError: a reset, and the surface cannot take text back.
        """
        number = self._offered
        self._offered += 1
        if number in self.failing:
            raise OSError(f"event {number} was refused, as the test asked")
        if isinstance(event, TextReset):
            if not self.retractable:
                raise FindingError(f"{event!r} came, expected no reset on this surface")
            self.text = ""
        else:
            self.text += event.text
        self.events.append(event)
