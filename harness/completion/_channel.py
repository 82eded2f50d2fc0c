"""What is in a channel by now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TypeVar

import trio

__all__ = ["already_there"]

T = TypeVar("T")


def already_there(channel: trio.MemoryReceiveChannel[T]) -> Iterator[T]:
    """Yield what can be received without waiting. No checkpoint."""
    with suppress(trio.WouldBlock, trio.EndOfChannel):
        while True:
            yield channel.receive_nowait()
