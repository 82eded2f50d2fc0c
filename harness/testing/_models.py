"""A model that plays a script."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from harness._model import Attempt, Halt, ModelRequest, ModelTurn, TurnStream
from harness.testing._errors import ScriptExhausted
from harness.testing._script import (
    Piece,
    Script,
    ScriptItem,
    Streamed,
    Timed,
    build_script,
    chunks_of,
)

__all__ = ["ScriptedModel", "scripted_model"]


def scripted_model(turns: Sequence[ScriptItem]) -> ScriptedModel:
    """Return a model that plays *turns* in order, one for each completion.

    A turn is a `ModelTurn` (see `final_answer` and `tool_call_turn`), a `Halt`, an exception,
    which is raised, a list of chunks, which are streamed, ``streamed(turn)``, or
    ``timed(seconds, turn)``. In a list of chunks an exception breaks the stream, and each piece
    may be timed too. Every completion is a checkpoint, and so is every chunk.

    Raises:
        ScriptError: a call id stands twice in the script.
        TypeError: an item is nothing that can be played.
    """
    return ScriptedModel(build_script(turns))


@attrs.define(eq=False)
class ScriptedModel:
    """A `Model` that plays a script and keeps what it was asked."""

    _script: Script
    requests: list[ModelRequest] = attrs.field(factory=list, init=False)
    """Every request so far, with the messages as they were then."""

    @property
    def remaining(self) -> int:
        """How many turns have not been asked for."""
        return len(self._script) - len(self.requests)

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        """Play the next turn. A checkpoint.

        Raises:
            ScriptExhausted: there is none.
        """
        turn = len(self.requests)
        if turn >= len(self._script):
            raise ScriptExhausted(turn, len(self._script))
        self.requests.append(attrs.evolve(request, messages=tuple(request.messages)))
        seconds, played = self._script[turn]
        await trio.sleep(seconds)
        match played:
            case ModelTurn() | Halt():
                return played
            case BaseException():
                raise played
            case Streamed():
                pieces: Sequence[Piece] = tuple(chunks_of(played))
            case _:
                pieces = played
        async with stream.attempt() as attempt:
            for piece in pieces:
                await _send(piece, attempt)
        return attempt.turn()


async def _send(piece: Piece, attempt: Attempt) -> None:
    seconds, what = (piece.seconds, piece.item) if isinstance(piece, Timed) else (0.0, piece)
    await trio.sleep(seconds)
    if isinstance(what, BaseException):
        raise what
    attempt.send_nowait(what)
