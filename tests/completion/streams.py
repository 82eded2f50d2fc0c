"""Streams to assemble: any cut of a reply, and the shapes that servers have been seen to send."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
from hypothesis import strategies as st

from harness._errors import DefectKind
from harness._model import CallPiece, Chunk
from harness._usage import Usage
from harness.completion import Assembler, Completion

TEXTS: Final = st.text(max_size=12)
NAMES: Final = st.sampled_from(["read", "search", "f", "get_weather"])
ARGUMENTS: Final = st.sampled_from(["", "{}", '{"city": "Paris"}', '{"n": 12, "s": "a}b"}', "[1]"])


def assembled(chunks: Iterable[Chunk]) -> Completion:
    assembler = Assembler()
    for chunk in chunks:
        assembler.observe(chunk)
    return assembler.completion()


def merged(first: Chunk, second: Chunk) -> Chunk:
    """One chunk that says what *first* and then *second* say."""
    return Chunk(
        text=_joined(first.text, second.text),
        reasoning=_joined(first.reasoning, second.reasoning),
        refusal=_joined(first.refusal, second.refusal),
        calls=first.calls + second.calls,
        usage=first.usage if second.usage is None else second.usage,
        finish_reason=second.finish_reason or first.finish_reason,
        end=first.end or second.end,
    )


def _joined(first: str | None, second: str | None) -> str | None:
    return second if first is None else first + (second or "")


def pieces_of(chunk: Chunk) -> list[Chunk]:
    """*chunk* in the smallest chunks that say the same in this order."""
    atoms = [Chunk(reasoning=letter) for letter in chunk.reasoning or ""]
    atoms += [Chunk(text=letter) for letter in chunk.text or ""]
    atoms += [Chunk(refusal=letter) for letter in chunk.refusal or ""]
    for piece in chunk.calls:
        header = CallPiece(index=piece.index, id=piece.id, type=piece.type, name=piece.name)
        atoms.append(Chunk(calls=(header,)))
        for letter in piece.arguments or "":
            atoms.append(Chunk(calls=(CallPiece(index=piece.index, arguments=letter),)))
    if chunk.usage is not None:
        atoms.append(Chunk(usage=chunk.usage))
    if chunk.finish_reason is not None:
        atoms.append(Chunk(finish_reason=chunk.finish_reason))
    return [*atoms, Chunk(end=True)] if chunk.end else atoms


@st.composite
def other_cuts(draw: st.DrawFn, chunks: Iterable[Chunk]) -> list[Chunk]:
    """Another way to cut the same stream into chunks."""
    cut: list[Chunk] = []
    atoms = [atom for chunk in chunks for atom in pieces_of(chunk)]
    joins = draw(st.lists(st.booleans(), min_size=len(atoms), max_size=len(atoms)))
    for atom, join in zip(atoms, joins, strict=True):
        if cut and join:
            cut[-1] = merged(cut[-1], atom)
        else:
            cut.append(atom)
    return cut


@st.composite
def replies(draw: st.DrawFn) -> tuple[Completion, list[Chunk]]:
    """A reply, and a stream of it whose parts are interleaved in any way."""
    lanes: list[list[Chunk]] = []
    text, reasoning, refusal = draw(TEXTS), draw(TEXTS), draw(TEXTS)
    lanes.append([Chunk(text=letter) for letter in text])
    lanes.append([Chunk(reasoning=letter) for letter in reasoning])
    lanes.append([Chunk(refusal=letter) for letter in refusal])
    indexes = draw(st.lists(st.integers(0, 9), max_size=4, unique=True))
    calls = [(index, draw(NAMES), draw(ARGUMENTS)) for index in indexes]
    for index, name, arguments in calls:
        piece = CallPiece(index=index, id=f"call_{index}", name=name, arguments=arguments)
        lanes.append(pieces_of(Chunk(calls=(piece,))))
    usages = [Usage(output=n) for n in draw(st.lists(st.integers(0, 9), max_size=3))]
    lanes.append([Chunk(usage=usage) for usage in usages])
    reasons = draw(st.lists(st.sampled_from(["stop", "length"]), max_size=2))
    lanes.append([Chunk(finish_reason=reason) for reason in reasons])
    end = draw(st.booleans())
    if end:
        lanes.append([Chunk(end=True)])
    stream: list[Chunk] = []
    while lanes := [lane for lane in lanes if lane]:
        stream.append(draw(st.sampled_from(lanes)).pop(0))
    completion = Completion(
        text=text,
        reasoning=reasoning,
        refusal=refusal,
        calls=tuple(
            {
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, name, arguments in sorted(calls)
        ),
        usage=usages[-1] if usages else Usage(),
        finish_reason=reasons[-1] if reasons else None,
        clean_end=end or bool(reasons),
    )
    return completion, stream


# -- what servers send -------------------------------------------------------------------------


@attrs.frozen
class OddShape:
    """A stream as some server sends it, and what has to come of it."""

    name: str
    chunks: tuple[Chunk, ...]
    expected: list[tuple[str, str, str]] | DefectKind
    """Its calls as ``(id, name, arguments)``, or the defect."""
    text: str = ""


def call(
    arguments: str | None = None,
    *,
    index: int | None = None,
    id: str | None = None,
    type: str | None = None,
    name: str | None = None,
) -> Chunk:
    """A chunk with one piece of a call."""
    piece = CallPiece(index=index, id=id, type=type, name=name, arguments=arguments)
    return Chunk(calls=(piece,))


def said(text: str) -> Chunk:
    return Chunk(text=text)


END: Final = Chunk(end=True)
STOP: Final = Chunk(finish_reason="stop")
CALLS: Final = Chunk(finish_reason="tool_calls")
LENGTH: Final = Chunk(finish_reason="length")
NOTHING: Final = Chunk()
PARIS: Final = '{"city": "Paris"}'
ROME: Final = '{"city": "Rome"}'
SPENT: Final = Chunk(usage=Usage(input=9, output=3))

ODD_SHAPES: Final = (
    OddShape(
        "the body ends with no event at all",
        (),
        "empty",
    ),
    OddShape(
        "an event without choices first, a role without content, usage alone at the end",
        (NOTHING, NOTHING, said("Hi"), STOP, SPENT, END),
        [],
        text="Hi",
    ),
    OddShape(
        "the finish reason comes twice",
        (said("Hi"), STOP, Chunk(finish_reason="stop", usage=Usage(output=1)), END),
        [],
        text="Hi",
    ),
    OddShape(
        "every chunk has a finish reason, the last one the real one",
        (
            Chunk(text="I ", finish_reason="stop"),
            Chunk(text="look", finish_reason="stop"),
            Chunk(calls=(CallPiece(index=0, id="a", name="f", arguments=PARIS[:9]),)),
            LENGTH,
        ),
        "truncated",
    ),
    OddShape(
        "no finish reason, only the end event",
        (NOTHING, said("Hi"), END),
        [],
        text="Hi",
    ),
    OddShape(
        "text that just ends",
        (said("Hi"),),
        [],
        text="Hi",
    ),
    OddShape(
        "thinking and then nothing",
        (Chunk(reasoning="Hm."), STOP, END),
        "empty",
    ),
    OddShape(
        "thinking until the tokens are used up",
        (Chunk(reasoning="Hm."), LENGTH, END),
        "truncated",
    ),
    OddShape(
        "blank text before a call, and more between two calls",
        (
            said("\n"),
            call(PARIS, index=0, id="a", name="f"),
            said("Now"),
            call(ROME, index=1, id="b", name="f"),
            CALLS,
        ),
        [("a", "f", PARIS), ("b", "f", ROME)],
        text="\nNow",
    ),
    OddShape(
        "a whole call in one piece",
        (call(PARIS, index=0, id="a", type="function", name="f"), CALLS, END),
        [("a", "f", PARIS)],
    ),
    OddShape(
        "no index, no type; call, finish reason and usage in one chunk",
        (
            Chunk(
                calls=(
                    CallPiece(id="a", name="f", arguments=PARIS),
                    CallPiece(id="b", name="g", arguments=ROME),
                ),
                finish_reason="tool_calls",
                usage=Usage(output=4),
            ),
            END,
        ),
        [("a", "f", PARIS), ("b", "g", ROME)],
    ),
    OddShape(
        "empty name on later pieces",
        (
            call("", index=0, id="a", name="f"),
            call(PARIS[:5], index=0, id="a", name=""),
            call(PARIS[5:], index=0, id="a", name=""),
            CALLS,
        ),
        [("a", "f", PARIS)],
    ),
    OddShape(
        "empty id on later pieces, a last one with empty arguments",
        (
            call("", index=0, id="a", type="function", name="f"),
            call(PARIS, index=0, id="", type="function"),
            call("", index=0, id="", type="function"),
            CALLS,
            END,
        ),
        [("a", "f", PARIS)],
    ),
    OddShape(
        "null id, type and name on later pieces, null arguments first, no end event",
        (
            call(None, index=0, id="a", type="function", name="f"),
            call(PARIS[:4], index=0),
            call(PARIS[4:], index=0),
            CALLS,
        ),
        [("a", "f", PARIS)],
    ),
    OddShape(
        "id and name in full with every piece",
        (
            call(PARIS[:4], index=0, id="a", type="function", name="f"),
            call(PARIS[4:], index=0, id="a", type="function", name="f"),
            call("", index=0, id="a", type="function", name="f"),
            CALLS,
            END,
        ),
        [("a", "f", PARIS)],
    ),
    OddShape(
        "null arguments and never anything else",
        (call(None, index=0, id="a", name="f"), CALLS, END),
        [("a", "f", "")],
    ),
    OddShape(
        "a forced call that ends with stop",
        (call("{}", index=0, id="a", name="f"), STOP, END),
        [("a", "f", "{}")],
    ),
    OddShape(
        "a call and the end event, but no finish reason",
        (call("{}", index=0, id="a", name="f"), END),
        [("a", "f", "{}")],
    ),
    OddShape(
        "a call, and then the body ends",
        (call("{}", index=0, id="a", name="f"),),
        "unfinished",
    ),
    OddShape(
        "the body ends inside the arguments",
        (call(PARIS[:9], index=0, id="a", name="f"),),
        "unfinished",
    ),
    OddShape(
        "another request killed this one: an end event inside the arguments",
        (call(PARIS[:9], index=0, id="a", name="f"), END),
        "malformed_tool_call",
    ),
    OddShape(
        "arguments that stop short, with a finish reason",
        (call(PARIS[:9], index=0, id="a", name="f"), CALLS, END),
        "malformed_tool_call",
    ),
    OddShape(
        "the tokens run out inside the arguments",
        (call(PARIS[:9], index=0, id="a", name="f"), LENGTH, END),
        "truncated",
    ),
    OddShape(
        "the tokens run out before the arguments",
        (
            call("{}", index=0, id="a", name="f"),
            call("", index=1, id="b", name="delete"),
            LENGTH,
            END,
        ),
        "truncated",
    ),
    OddShape(
        "indexes from 1",
        (
            call("", index=1, id="a", name="f"),
            call(PARIS, index=1),
            call("", index=2, id="b", name="g"),
            call(ROME, index=2),
            CALLS,
        ),
        [("a", "f", PARIS), ("b", "g", ROME)],
    ),
    OddShape(
        "parallel calls without an index, one in each chunk",
        (call(PARIS, id="a", name="f"), call(ROME, id="b", name="f"), STOP, END),
        [("a", "f", PARIS), ("b", "f", ROME)],
    ),
    OddShape(
        "the same with nothing but order to tell the pieces apart",
        (
            call("", id="a", name="f"),
            call(PARIS[:3]),
            call(PARIS[3:]),
            call("", id="b", name="f"),
            call(ROME[:3]),
            call(ROME[3:]),
            CALLS,
        ),
        [("a", "f", PARIS), ("b", "f", ROME)],
    ),
    OddShape(
        "parallel calls with neither index nor id",
        (call(PARIS, id="", name="f"), call(ROME, id="", name="g"), STOP, END),
        "malformed_tool_call",
    ),
    OddShape(
        "index 0 for every call, each whole",
        (
            call(PARIS, index=0, id="a", name="f"),
            said("\n"),
            call(ROME, index=0, id="b", name="g"),
            call("{}", index=0, id="c", name="f"),
            CALLS,
        ),
        [("a", "f", PARIS), ("b", "g", ROME), ("c", "f", "{}")],
        text="\n",
    ),
    OddShape(
        "index 0 for every call, each in pieces",
        (
            call("", index=0, id="a", name="f"),
            call(PARIS[:9], index=0),
            call(PARIS[9:], index=0),
            call("", index=0, id="b", name="f"),
            call(ROME[:9], index=0),
            call(ROME[9:], index=0),
            call("", index=0, id="a"),
            CALLS,
        ),
        [("a", "f", PARIS), ("b", "f", ROME)],
    ),
    OddShape(
        "index 0 for every call, interleaved",
        (
            call(PARIS[:9], index=0, id="a", name="f"),
            call(ROME[:9], index=0, id="b", name="g"),
            call(PARIS[9:], index=0, id="a", name="f"),
            call(ROME[9:], index=0, id="b", name="g"),
            CALLS,
        ),
        "malformed_tool_call",
    ),
    OddShape(
        "index 0 for every call, and the first seems to have no arguments",
        (
            call("", index=0, id="a", name="f"),
            call(ROME, index=0, id="b", name="f"),
            CALLS,
        ),
        "malformed_tool_call",
    ),
    OddShape(
        "a new id with every piece",
        (
            call(PARIS[:9], index=0, id="x1", name="f"),
            call(PARIS[9:], index=0, id="x2", name="f"),
            CALLS,
        ),
        "malformed_tool_call",
    ),
    OddShape(
        "pieces on a wrong, rising index",
        (
            call("", index=0, id="a", name="f"),
            call(PARIS[:9], index=1),
            call(PARIS[9:], index=2),
            CALLS,
        ),
        "malformed_tool_call",
    ),
    OddShape(
        "the name only after the arguments",
        (call(PARIS, index=0, id="a"), call(None, index=0, name="f"), CALLS),
        [("a", "f", PARIS)],
    ),
    OddShape(
        "no function first, then name and arguments without the id",
        (
            call(None, index=0, id="a", type="function"),
            call("", index=0, name="f"),
            call(PARIS, index=0),
            CALLS,
        ),
        [("a", "f", PARIS)],
    ),
    OddShape(
        "nothing first, then everything",
        (call(None, index=0), call(PARIS, index=0, id="a", name="f"), CALLS),
        [("a", "f", PARIS)],
    ),
    OddShape(
        "an id that never comes",
        (call(PARIS, index=0, name="f"), CALLS),
        "malformed_tool_call",
    ),
    OddShape(
        "a name that never comes",
        (call(PARIS, index=0, id="a"), CALLS),
        "malformed_tool_call",
    ),
    OddShape(
        "a name that is the text null, and a type in capitals",
        (call(PARIS, index=0, id="a", type="FUNCTION", name="null"), CALLS),
        [("a", "null", PARIS)],
    ),
    OddShape(
        "the first piece of the arguments is lost",
        (call("", index=0, id="a", name="f"), call(PARIS[4:], index=0), CALLS),
        "malformed_tool_call",
    ),
    OddShape(
        "one id for two calls",
        (call(PARIS, index=0, id="a", name="f"), call(ROME, index=1, id="a", name="f"), CALLS),
        "malformed_tool_call",
    ),
)
