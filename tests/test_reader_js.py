"""The reader in JavaScript shows what the one in Python shows, after every step.

Hypothesis writes the sequences, and one process of Node plays them all: it reads each as a line of
JSON and answers with a line. A machine without Node fails these tests; they are never skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias, assert_never

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.completion._view import HOLD_EVENTS, REMEMBERED_TURNS, TurnText, TurnView
from scripts import fault_servers
from tests.completion.texts import TextEvent, reset, text, told, turns

READER: Final = Path(__file__).resolve().parent.parent / "docs" / "examples" / "turn_view.mjs"

PLAYER: Final = """
import { createInterface } from "node:readline"
import { pathToFileURL } from "node:url"
const { TurnView } = await import(pathToFileURL(process.argv[1]))
const snapshots = ([method, ...given], view) => [view[method](...given) ?? []].flat()
for await (const line of createInterface({ input: process.stdin })) {
  const view = new TurnView()
  console.log(JSON.stringify(JSON.parse(line).map((step) => snapshots(step, view))))
}
"""


class Place(msgspec.Struct, frozen=True):
    epoch: int
    seq: int


Step: TypeAlias = (
    tuple[Literal["apply"], TextEvent, float]
    | tuple[Literal["expire"], float]
    | tuple[Literal["resync"], str, str, Place | None]
    | tuple[Literal["finalize"], str, str | None]
)
"""A method of the reader, and what it is given."""
Shown: TypeAlias = list[list[TurnText]]
"""The snapshots that each step gives."""


def in_python(steps: list[Step]) -> Shown:
    view = TurnView()
    return [_take(view, step) for step in steps]


def _take(view: TurnView, step: Step) -> list[TurnText]:
    match step:
        case ("expire", now):
            return list(view.expire(now=now))
        case ("apply", event, now):
            shown = view.apply(event, now=now)
        case ("resync", turn_id, words, place):
            where = {} if place is None else {"epoch": place.epoch, "seq": place.seq}
            shown = view.resync(turn_id, words, **where)
        case ("finalize", turn_id, words):
            shown = view.finalize(turn_id, words)
        case _:
            assert_never(step)
    return [] if shown is None else [shown]


@attrs.define
class Node:
    """A process that plays sequences on a reader."""

    process: subprocess.Popen[bytes]
    complaints: Path

    def play(self, steps: list[Step]) -> Shown:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(msgspec.json.encode(steps) + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = b""
        assert line, f"node has ended:\n{self.complaints.read_text('utf-8')}"
        return msgspec.json.decode(line, type=Shown)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    found = str(fault_servers.NODE) if fault_servers.NODE.exists() else shutil.which("node")
    if found is None:
        pytest.fail(
            "there is no Node.js, expected that of scripts/fault_servers.py or one on the PATH"
        )
    with tempfile.NamedTemporaryFile() as complaints:
        process = subprocess.Popen(
            [found, "--input-type=module", "--eval", PLAYER, str(READER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
        )
        with process:  # leaving it closes the pipes, which ends the process, and waits for it
            yield Node(process, Path(complaints.name))


@st.composite
def sequences(draw: st.DrawFn) -> list[Step]:
    """What may happen to a reader: most events in order, and some lost, late, twice or stray."""
    events: list[TextEvent] = told(draw(turns))
    events += draw(st.sampled_from([told([["x", "y"]], "t2"), told(draw(turns), "t1")]))
    strays = [reset(2, epoch=3), text(3, "stray", epoch=2), text(4, "stray", epoch=0), *events]
    places = st.builds(Place, st.integers(-1, 3), st.integers(-1, 4))
    steps: list[Step] = []
    now = 0.0
    for event in events:
        match draw(st.sampled_from(["next"] * 6 + ["lost", "stray", "expire", "resync", "end"])):
            case "next":
                steps.append(("apply", event, now))
            case "stray":
                steps += [("apply", draw(st.sampled_from(strays)), now), ("apply", event, now)]
            case "expire":
                now += draw(st.sampled_from([6.0, 12.0]))
                steps.append(("expire", now))
            case "resync":
                steps.append(("resync", event.turn_id, "other", draw(st.none() | places)))
            case "end":
                words = draw(st.sampled_from([None, "", "final"]))
                steps.append(("finalize", event.turn_id, words))
    return steps


@pytest.mark.rule("R-VIEW-01", "R-VIEW-02", "R-VIEW-03", "R-VIEW-04", "R-VIEW-05", "R-VIEW-09")
@given(steps=sequences())
def test_both_readers_show_the_same_after_every_step(node: Node, steps: list[Step]) -> None:
    assert node.play(steps) == in_python(steps)


@pytest.mark.rule("R-VIEW-06")
@pytest.mark.parametrize("count", [HOLD_EVENTS, HOLD_EVENTS + 1])
def test_both_readers_hold_as_many_events(node: Node, count: int) -> None:
    steps: list[Step] = [("apply", text(seq, "x"), 0.0) for seq in range(1, count + 1)]
    steps += [("apply", text(0, "x"), 0.0), ("finalize", "t1", None)]
    shown = node.play(steps)
    assert shown == in_python(steps)
    (last,) = shown[-1]
    assert last.needs_resync == (count > HOLD_EVENTS)


@pytest.mark.rule("R-VIEW-06")
@pytest.mark.parametrize("method", ["apply", "expire"])
def test_both_readers_hold_them_as_long(node: Node, method: str) -> None:
    steps: list[Step] = []
    for now in (0.0, 9.5, 10.0):
        steps.append(("expire", now) if method == "expire" else ("apply", text(2, "x"), now))
        steps.append(("apply", text(1, "x"), now))
    shown = node.play(steps)
    assert shown == in_python(steps)
    assert [each.needs_resync for found in shown for each in found] == [True]


@pytest.mark.rule("R-VIEW-06")
@pytest.mark.parametrize("given_up", [False, True])
@pytest.mark.parametrize("seq", [None, -1, 0, 1, 2, 3, 4, 5])
def test_both_readers_go_on_from_the_same_place(
    node: Node, seq: int | None, given_up: bool
) -> None:
    place = None if seq is None else Place(0, seq)
    steps: list[Step] = [("apply", text(each, str(each)), 0.0) for each in (0, 1, 3, 5)]
    steps += [("expire", 10.0)] if given_up else []
    steps += [("apply", text(4, "4"), 9.0), ("resync", "t1", "other", place)]
    steps += [("apply", text(each, str(each)), 10.0) for each in (2, 3, 6)]
    steps += [("finalize", "t1", None)]
    assert node.play(steps) == in_python(steps)


@pytest.mark.rule("R-VIEW-07", "R-VIEW-08")
@pytest.mark.parametrize("words", [None, "", "final"])
def test_both_readers_end_a_turn_that_lacks_something_alike(node: Node, words: str | None) -> None:
    steps: list[Step] = [("apply", text(1, "b"), 0.0), ("expire", 10.0)]
    steps += [("apply", text(0, "a"), 10.0), ("finalize", "t1", words), ("expire", 99.0)]
    steps += [("resync", "t1", "late", None), ("finalize", "t1", words)]
    assert node.play(steps) == in_python(steps)


@pytest.mark.rule("R-VIEW-07", "R-VIEW-08")
def test_both_readers_remember_as_many_ended_turns(node: Node) -> None:
    ended = [f"t{number}" for number in range(REMEMBERED_TURNS + 1)]
    steps: list[Step] = [("finalize", turn_id, None) for turn_id in ended]
    steps.insert(9, ("finalize", "t3", None))  # again, which makes it no second one
    steps += [("apply", text(0, "x", turn_id=turn_id), 0.0) for turn_id in ended]
    shown = node.play(steps)
    assert shown == in_python(steps)
    assert [each.turn_id for found in shown for each in found] == ["t0"]
