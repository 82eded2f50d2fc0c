"""Text events of whole turns, as a `TextMachine` tells them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from hypothesis import strategies as st

from harness._events import Event, Progress, TextDelta, TextReset, TurnFinished
from harness._model import TextSurface
from harness.completion import TextMachine
from harness.completion._view import TurnText, TurnView

TextEvent: TypeAlias = TextDelta | TextReset
Stream: TypeAlias = tuple[list[Event], dict[str, list[list[str]]]]
"""Events, and for each turn what its attempts wrote."""

PIECES: Final = ["a", "b ", "ß", "🙂", "\n", "lorem ipsum"]


def text(seq: int, words: str, *, epoch: int = 0, turn_id: str = "t1") -> TextDelta:
    return TextDelta(turn_id=turn_id, epoch=epoch, seq=seq, text=words)


def reset(seq: int, *, epoch: int, turn_id: str = "t1") -> TextReset:
    return TextReset(turn_id=turn_id, epoch=epoch, seq=seq, reason="attempt_failed")


def told(
    attempts: Sequence[Sequence[str]], turn_id: str = "t1", *, retractable: bool = True
) -> list[TextEvent]:
    """What a turn that ends well tells, whose attempts write these pieces."""
    events: list[TextEvent] = []
    machine = TextMachine(turn_id, events.append, TextSurface(retractable=retractable))
    for pieces in attempts:
        machine.begin_attempt()
        for piece in pieces:
            machine.observe(piece)
    machine.finish("succeeded")
    return events


def written(attempts: Sequence[Sequence[str]], *, retractable: bool = True) -> str:
    """What its reader is to see in the end: the last attempt's text, where others can be void."""
    if not retractable:
        return "".join(piece for pieces in attempts for piece in pieces)
    return "".join(attempts[-1]) if attempts else ""


turns = st.lists(st.lists(st.sampled_from(PIECES), max_size=5), max_size=4)
"""The pieces of each attempt of a turn."""


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """The events of two turns, mixed with others, and what each attempt wrote."""
    attempts = {turn_id: draw(turns) for turn_id in ("t1", "t2")}
    queues: list[list[Event]] = [
        [*told(attempts["t1"]), TurnFinished(turn_id="t1", counted=True)],
        [*told(attempts["t2"], "t2"), TurnFinished(turn_id="t2", counted=True)],
        [Progress(output_tokens=count, tool_calls=0) for count in range(draw(st.integers(0, 4)))],
    ]
    events: list[Event] = []
    while any(queues):
        events.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    return events, attempts


def assert_as_sent(got: Sequence[Event], sent: Sequence[Event]) -> None:
    """All but texts came as they were; texts are numbered from 0, with no hole."""
    texts = [event for event in got if isinstance(event, TextDelta | TextReset)]
    for turn_id in ("t1", "t2"):
        of_turn = [event for event in texts if event.turn_id == turn_id]
        assert [event.seq for event in of_turn] == list(range(len(of_turn)))
        assert not any(
            isinstance(one, TextReset) and isinstance(other, TextReset)
            for one, other in pairwise(of_turn)
        )
        assert not of_turn or isinstance(of_turn[0], TextDelta)
    others = [event for event in got if not isinstance(event, TextDelta | TextReset)]
    assert others == [event for event in sent if not isinstance(event, TextDelta | TextReset)]


def rendered(events: Iterable[Event], turn_id: str = "t1") -> str:
    """What a reader shows of a turn; it may not have to ask for anything."""
    view = TurnView()
    for event in events:
        if isinstance(event, TextDelta | TextReset):
            changed = view.apply(event, now=0.0)
            assert changed is not None
            assert not changed.needs_resync
    return (view.get(turn_id) or TurnText(turn_id=turn_id)).text
