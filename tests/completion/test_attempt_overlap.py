"""Attempts of one turn that are open at the same time."""

import math
from collections.abc import Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from harness._errors import AttemptSuperseded, CompletionDefectError
from harness._events import ReasoningDelta, TextDelta, TextReset
from harness._model import Assembly, Chunk, TextSurface
from harness._usage import Usage
from harness.testing import Scene, cancel_everywhere, schedule
from tests.completion.streams import call, said
from tests.completion.turns import Turn

STOP = Chunk(finish_reason="stop", end=True)


class Race:
    """Attempts of one turn side by side, and how each of them ended."""

    def __init__(self, turn: Turn | None = None) -> None:
        self.turn = turn or Turn()
        self.ends: dict[str, object] = {}

    async def attempt(self, name: str, *script: Chunk | float | Exception) -> None:
        """Open an attempt and play *script*: chunks, pauses, and perhaps an error."""
        try:
            async with self.turn.stream.attempt() as attempt:
                for each in script:
                    match each:
                        case Chunk():
                            attempt.send_nowait(each)
                        case Exception():
                            raise each
                        case _:
                            await trio.sleep(each)
            self.ends[name] = attempt.turn().message["content"]
        except (AttemptSuperseded, CompletionDefectError, OSError) as error:
            self.ends[name] = error

    async def run(self, **scripts: Sequence[Chunk | float | Exception]) -> None:
        async with trio.open_nursery() as nursery:
            for name, script in scripts.items():
                nursery.start_soon(self.attempt, name, *script)


@pytest.mark.rule("R-OVERLAP-02")
@pytest.mark.parametrize(
    "answer", [said("b"), Chunk(refusal="b"), call("{}", index=0, id="a", name="f")], ids=repr
)
async def test_the_first_to_answer_is_shown_and_the_others_are_given_up_at_once(
    autojump_clock: MockClock, answer: Chunk
) -> None:
    race = Race()
    await race.run(slow=[math.inf], quick=[2, answer, 1, STOP], later=[1, 5, said("c")])
    assert trio.current_time() == 3
    assert isinstance(race.ends["slow"], AttemptSuperseded)
    assert isinstance(race.ends["later"], AttemptSuperseded)
    assert not isinstance(race.ends["quick"], Exception)
    assert not race.turn.of(TextReset)


@pytest.mark.rule("R-OVERLAP-02")
async def test_thinking_is_no_answer(autojump_clock: MockClock) -> None:
    race = Race()
    await race.run(
        thinking=[Chunk(reasoning="Hm"), 3, said("a"), STOP], quick=[1, said("b"), 9, STOP]
    )
    assert race.turn.text == "b"
    assert [e.text for e in race.turn.told if isinstance(e, ReasoningDelta)] == ["Hm"]


@pytest.mark.rule("R-OVERLAP-02")
async def test_nothing_more_is_taken_from_an_attempt_that_was_given_up(
    autojump_clock: MockClock,
) -> None:
    turn, left = Turn(), list[object]()

    async def stubborn() -> None:
        try:
            async with turn.stream.attempt() as attempt:
                try:
                    await trio.sleep_forever()
                finally:
                    for chunk in (said("x"), Chunk(reasoning="x"), Chunk(usage=Usage(input=1))):
                        attempt.send_nowait(chunk)
        except AttemptSuperseded as error:
            left.append((error.number, error.by))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stubborn)
        await trio.testing.wait_all_tasks_blocked()
        await turn.attempt(said("b"), STOP)
    assert left == [(0, 1)]
    assert turn.text == "b"
    assert not turn.of(ReasoningDelta)
    assert turn.spent == [Usage(input=1)]  # but that is owed all the same


@pytest.mark.rule("R-OVERLAP-02")
async def test_a_reply_that_was_finished_too_late_is_given_up() -> None:
    turn = Turn()
    with pytest.raises(AttemptSuperseded):
        async with turn.stream.attempt(), turn.stream.attempt() as second:
            second.send_nowait(said("b"))
    assert second.turn().message["content"] == "b"


@pytest.mark.rule("R-OVERLAP-05")
@pytest.mark.parametrize("seed", range(20))
def test_of_two_that_answer_in_one_instant_one_is_shown(seed: int) -> None:
    async def main() -> None:
        race = Race()
        await race.run(
            one=[1, said("a"), said("a"), 1, STOP], two=[1, said("b"), said("b"), 1, STOP]
        )
        assert race.turn.text in {"aa", "bb"}
        assert sum(isinstance(each, AttemptSuperseded) for each in race.ends.values()) == 1

    with schedule(seed):
        trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.rule("R-OVERLAP-06")
async def test_a_reply_without_a_piece_of_answer_takes_the_surface_at_its_end(
    autojump_clock: MockClock,
) -> None:
    race = Race(Turn(assembly=Assembly(empty="accept")))
    await race.run(slow=[math.inf], silent=[2, STOP])
    assert trio.current_time() == 2
    assert isinstance(race.ends["slow"], AttemptSuperseded)
    assert race.ends["silent"] == ""


@pytest.mark.rule("R-OVERLAP-06")
async def test_a_defective_reply_without_a_piece_of_answer_gives_nobody_up(
    autojump_clock: MockClock,
) -> None:
    race = Race()
    await race.run(slow=[5, said("a"), STOP], empty=[2, STOP])
    assert race.ends["slow"] == "a"
    assert isinstance(race.ends["empty"], CompletionDefectError)


@pytest.mark.rule("R-OVERLAP-07")
async def test_one_that_fails_leaves_the_others_alone(autojump_clock: MockClock) -> None:
    race = Race()
    await race.run(lost=[1, OSError("lost")], slow=[5, said("a"), STOP])
    assert race.ends["slow"] == "a"
    assert isinstance(race.ends["lost"], OSError)


@pytest.mark.rule("R-OVERLAP-03")
async def test_an_attempt_that_is_opened_too_late_begins_nothing(autojump_clock: MockClock) -> None:
    race = Race()
    await race.run(quick=[said("a"), 5, STOP], late=[])
    started = list[str]()

    async def late() -> None:
        await trio.sleep(1)
        with pytest.raises(AttemptSuperseded, match=r"^attempt \d was given up"):
            async with race.turn.stream.attempt():
                await trio.lowlevel.checkpoint()
                started.append("late")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(race.attempt, "quick", said("b"), 5, STOP)
        nursery.start_soon(late)
    assert started == []


@pytest.mark.rule("R-OVERLAP-07")
async def test_when_the_one_that_answered_fails_the_next_repairs_the_text(
    autojump_clock: MockClock,
) -> None:
    race = Race()
    await race.run(slow=[math.inf], breaks=[1, said("Hel"), 1, OSError("lost")])
    await race.attempt("third", said("Good day"), STOP)
    assert race.turn.text == "Good day"
    assert len(race.turn.of(TextReset)) == 1
    assert [e.epoch for e in race.turn.told if isinstance(e, TextDelta)] == [0, 1]


@pytest.mark.rule("R-OVERLAP-02")
async def test_a_stall_that_was_overtaken_shows_nothing(autojump_clock: MockClock) -> None:
    # Given up for its silence, it still holds a chunk when another one has answered.
    turn = Turn()

    async def silent() -> None:
        with pytest.raises(AttemptSuperseded):
            async with turn.stream.attempt() as attempt:
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(5)
                    attempt.send_nowait(said("x"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(silent)
        await trio.sleep(121)
        async with turn.stream.attempt() as attempt:
            attempt.send_nowait(said("b"))
            await trio.sleep(20)
    assert turn.text == "b"
    assert trio.current_time() == 141


@pytest.mark.rule("R-ATTEMPT-12")
async def test_what_an_attempt_that_was_given_up_cost_is_spent(autojump_clock: MockClock) -> None:
    race = Race()
    cost = Usage(input=40)
    await race.run(
        slow=[Chunk(usage=cost), math.inf],
        quick=[1, said("a"), Chunk(usage=Usage(input=41)), STOP],
    )
    assert race.turn.spent == [cost]


@pytest.mark.rule("R-OVERLAP-01", "R-OVERLAP-05", "R-OVERLAP-07")
@given(
    scripts=st.lists(
        st.lists(
            st.sampled_from([said("x"), Chunk(reasoning="r"), 1.0, 0.0, OSError("lost"), STOP]),
            max_size=6,
        ),
        min_size=1,
        max_size=4,
    ),
    retractable=st.booleans(),
)
def test_whatever_they_do_the_reader_sees_one_of_them(
    scripts: list[list[Chunk | float | Exception]], retractable: bool
) -> None:
    async def main() -> None:
        race = Race(Turn(TextSurface(retractable=retractable)))
        letters = "abcd"
        named = {
            letter: [said(letter) if each == said("x") else each for each in script]
            for letter, script in zip(letters, scripts, strict=False)
        }
        await race.run(**named)
        shown = race.turn.text
        good = [end for end in race.ends.values() if isinstance(end, str)]
        assert len(set(shown)) <= 1
        assert len(race.ends) == len(scripts)
        if good and retractable:
            assert shown in good

    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.rule("R-OVERLAP-02", "R-ATTEMPT-02")
def test_at_every_cut_one_is_shown_and_what_it_sent_has_been_told() -> None:
    async def scenario(scene: Scene) -> None:
        race = Race()

        @scene.afterwards
        def check() -> None:
            assert race.turn.text in {"", "b", "bb"}
            race.turn.stream.finish(succeeded=scene.outcome == "completed")

        await race.run(slow=[Chunk(reasoning="r"), 9], quick=[1, said("b"), 1, said("b"), STOP])

    assert cancel_everywhere(scenario, minimum=12, seeds=(0, 1, 2)).cancelled > 0
