"""A turn's stream with its events and its spend at hand."""

from collections.abc import Iterable

from harness._events import Event, TextDelta, TextReset
from harness._model import Assembly, Attempt, Chunk, TextSurface
from harness._usage import Usage
from harness.completion import OpenTurnStream, open_turn_stream

__all__ = ["Turn", "text_shown"]


def text_shown(events: Iterable[Event]) -> str:
    """Return what a reader of the text sees after *events*."""
    text = ""
    for event in events:
        match event:
            case TextDelta():
                text += event.text
            case TextReset():
                text = ""
    return text


class Turn:
    """A turn's stream, and what it told and spent."""

    def __init__(
        self, surface: TextSurface | None = None, assembly: Assembly | None = None
    ) -> None:
        self.told: list[Event] = []
        self.spent: list[Usage] = []
        self.stream: OpenTurnStream = open_turn_stream(
            "t1",
            tell=self.told.append,
            spend=self.spent.append,
            surface=surface or TextSurface(),
            assembly=assembly or Assembly(),
            tool_calls=3,
        )

    @property
    def text(self) -> str:
        """What a reader of the text sees."""
        return text_shown(self.told)

    async def attempt(self, *chunks: Chunk) -> Attempt:
        async with self.stream.attempt() as attempt:
            for chunk in chunks:
                attempt.send_nowait(chunk)
        return attempt

    async def break_off(self, error: BaseException, *chunks: Chunk) -> None:
        async with self.stream.attempt() as attempt:
            for chunk in chunks:
                attempt.send_nowait(chunk)
            raise error

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.told if isinstance(event, kind)]
