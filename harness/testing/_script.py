"""The turns of a model that plays them: how to write them, and what a script must hold to.

A script is a list. Each item is one turn: a `ModelTurn`, a `Halt`, an exception to raise, a list
of chunks to stream, a turn to stream in pieces (`streamed`), or any of these after a wait
(`timed`). Calls without an id are numbered over the whole script, and no id may stand twice in
it: a strict provider refuses a transcript that repeats one, and so a test that meant something
else would fail far from its cause. Chunk lists are played as they are, whatever they hold.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

import attrs

from harness._bounds import check_count, check_seconds
from harness._json import JSON, encode_text
from harness._messages import CallMessage, assistant_message
from harness._model import CallPiece, Chunk, Halt, ModelTurn
from harness._usage import Usage
from harness.testing._errors import ScriptError

__all__ = [
    "Piece",
    "Script",
    "ScriptItem",
    "Streamed",
    "Timed",
    "build_script",
    "called_names",
    "chunks_of",
    "final_answer",
    "streamed",
    "tool_call",
    "tool_call_turn",
]

ItemT_co = TypeVar("ItemT_co", covariant=True)


@attrs.frozen
class Timed(Generic[ItemT_co]):
    """*item* after a wait of so many seconds."""

    seconds: float = attrs.field()
    item: ItemT_co

    @seconds.validator
    def _check_seconds(self, _: object, value: object) -> None:
        check_seconds("seconds", value)


@attrs.frozen
class Streamed:
    """A turn that comes in pieces."""

    turn: ModelTurn
    size: int = attrs.field()

    @size.validator
    def _check_size(self, _: object, value: object) -> None:
        check_count("size", value, least=1)


Piece: TypeAlias = Chunk | BaseException | Timed[Chunk | BaseException]
Played: TypeAlias = ModelTurn | Halt | BaseException | Streamed | Sequence[Piece]
ScriptItem: TypeAlias = Played | Timed[Played]
_PIECES: Final = (Chunk, BaseException)
Script: TypeAlias = tuple[tuple[float, Played], ...]
"""Each turn after its wait in seconds, with all ids in place."""


def tool_call(
    name: str, arguments: Mapping[str, JSON] | str = "{}", *, id: str | None = None
) -> CallMessage:
    """Return a call of the tool *name*, as it stands in an assistant message.

    A mapping is written as JSON; a text is taken as it is, so that it may be malformed. Without
    an *id* the script numbers it.

    Raises:
        NotJSONError: the arguments are no JSON.
    """
    text = arguments if isinstance(arguments, str) else encode_text(dict(arguments))
    return {"id": id or "", "type": "function", "function": {"name": name, "arguments": text}}


def tool_call_turn(
    calls: Sequence[CallMessage],
    text: str | None = None,
    *,
    usage: Usage = Usage(),
    reasoning: str | None = None,
) -> ModelTurn:
    """Return a turn that asks for *calls*."""
    return ModelTurn(
        message=assistant_message(text, calls),
        usage=usage,
        finish_reason="tool_calls",
        reasoning=reasoning,
    )


def final_answer(text: str, *, usage: Usage = Usage(), reasoning: str | None = None) -> ModelTurn:
    """Return a turn that answers *text* and asks for nothing."""
    return ModelTurn(
        message=assistant_message(text), usage=usage, finish_reason="stop", reasoning=reasoning
    )


def streamed(turn: ModelTurn, *, size: int = 4) -> Streamed:
    """Return *turn* as one that is streamed, its texts in pieces of *size* characters."""
    return Streamed(turn, size)


def build_script(turns: Sequence[ScriptItem]) -> Script:
    """Return *turns* with every call numbered. The turns given are left as they were.

    Raises:
        ScriptError: a call id stands twice.
        TypeError: an item is nothing that can be played.
    """
    script: list[tuple[float, Played]] = []
    taken: set[str] = set()
    unnamed = 0
    for item in turns:
        seconds = item.seconds if isinstance(item, Timed) else 0.0
        played = _own(_untimed(item))
        for call in _calls_of(played):
            if not call["id"]:
                unnamed += 1
                call["id"] = f"call_{unnamed}"
            if call["id"] in taken:
                raise ScriptError(f"call id {call['id']!r} stands twice, expected each id once")
            taken.add(call["id"])
        script.append((seconds, played))
    return tuple(script)


def _own(item: object) -> Played:
    """Return *item* with messages that nobody else holds: a run may change what it is given."""
    match item:
        case ModelTurn():
            return _own_turn(item)
        case Halt(turn=ModelTurn() as turn) | Streamed(turn=turn):
            return attrs.evolve(item, turn=_own_turn(turn))
        case Halt() | BaseException():
            return item
        case list() | tuple() if all(isinstance(_untimed(each), _PIECES) for each in item):
            return item
        case _:
            raise TypeError(f"the script holds {item!r}, expected a turn")


def _own_turn(turn: ModelTurn) -> ModelTurn:
    return attrs.evolve(turn, message=copy.deepcopy(turn.message))


def _untimed(item: object) -> object:
    return item.item if isinstance(item, Timed) else item


def _calls_of(played: Played) -> Sequence[CallMessage]:
    match played:
        case ModelTurn() as turn:
            return turn.message.get("tool_calls", [])
        case Halt(turn=ModelTurn() as turn) | Streamed(turn=turn):
            return turn.message.get("tool_calls", [])
        case _:
            return ()


def chunks_of(streaming: Streamed) -> Iterator[Chunk]:
    """Yield the chunks of a streamed turn, the way providers send them."""
    turn, size = streaming.turn, streaming.size
    for piece in _pieces(turn.reasoning or "", size):
        yield Chunk(reasoning=piece)
    content = turn.message.get("content")
    for piece in _pieces(content if isinstance(content, str) else "", size):
        yield Chunk(text=piece)
    for index, call in enumerate(turn.message.get("tool_calls", [])):
        function = call["function"]
        yield _call_chunk(
            CallPiece(
                index=index, id=call["id"], type=call["type"], name=function["name"], arguments=""
            )
        )
        for piece in _pieces(function["arguments"], size):
            yield _call_chunk(CallPiece(index=index, arguments=piece))
    yield Chunk(finish_reason=turn.finish_reason, usage=turn.usage)
    yield Chunk(end=True)


def _call_chunk(piece: CallPiece) -> Chunk:
    return Chunk(calls=(piece,))


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def called_names(turns: Sequence[ScriptItem]) -> tuple[str, ...]:
    """Return the names of the tools that *turns* call, each once; lists of chunks not read."""
    calls = (call for item in turns for call in _calls_of(_own(_untimed(item))))
    return tuple(dict.fromkeys(call["function"]["name"] for call in calls))
