"""A routed turn whose tries run side by side."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from harness import Chunk, ModelRequest, ModelTurn, TextSurface, TurnStream, Usage
from harness.events import AttemptFinished, AttemptStarted
from harness.routing import (
    AttemptCursor,
    AttemptError,
    AttemptTarget,
    CircuitBreaker,
    Hedge,
    RouteCandidate,
)
from harness.testing import (
    Scene,
    Timed,
    cancel_everywhere,
    final_answer,
    streamed,
)
from tests.completion.turns import Turn
from tests.models.routes import STOP, Told, down, route, said, told_by

ANSWER = streamed(final_answer("Hello", usage=Usage(input=5, output=2)))


def after(seconds: float, text: str) -> list[Chunk | Timed[Chunk | BaseException]]:
    """A reply that begins after so many seconds, and says what it costs before."""
    cost = Chunk(usage=Usage(input=100))
    return [cost, Timed(seconds, said(text)), Timed(1, STOP)]


@pytest.mark.rule("R-HEDGE-02", "R-ROUTED-11")
async def test_the_second_answers_while_the_first_is_silent(autojump_clock: MockClock) -> None:
    breaker = CircuitBreaker()
    told = await told_by(
        route([after(60, "slow")], [after(1, "quick")], hedge=Hedge(after=2), breaker=breaker)
    )
    assert trio.current_time() == 4
    assert told.text == "quick"
    assert told.resets == []
    assert told.tries == [("p0", "superseded"), ("p1", "served")]
    assert [each.hedge for each in told.started] == [False, True]
    assert breaker.snapshot(now=4) == ()  # to be slower is no failure
    assert told.result is not None
    assert told.result.stats.usage == Usage(input=200)  # both have cost something
    assert [each.usage.input for each in told.finished] == [100, 100]


@pytest.mark.rule("R-ROUTED-11")
async def test_a_first_try_that_answers_in_time_has_the_turn_to_itself(
    autojump_clock: MockClock,
) -> None:
    told = await told_by(route([after(1, "first")], [ANSWER], hedge=Hedge(after=2)))
    assert told.text == "first"
    assert told.tries == [("p0", "served")]


@pytest.mark.rule("R-ROUTED-11")
async def test_the_first_may_still_win(autojump_clock: MockClock) -> None:
    told = await told_by(route([after(3, "first")], [after(60, "second")], hedge=Hedge(after=2)))
    assert told.text == "first"
    assert told.tries == [("p1", "superseded"), ("p0", "served")]


@pytest.mark.rule("R-ROUTED-11")
async def test_when_the_winner_dies_the_one_it_beat_is_tried_again(
    autojump_clock: MockClock,
) -> None:
    dies = [Timed(1, said("Hel")), Timed(1, down(500))]
    told = await told_by(route([after(60, "slow"), ANSWER], [dies], hedge=Hedge(after=2)))
    assert told.text == "Hello"
    assert told.resets == ["attempt_failed"]
    assert told.tries == [("p0", "superseded"), ("p1", "server_error"), ("p0", "served")]


@pytest.mark.rule("R-ROUTED-11")
async def test_models_that_do_not_stream_are_hedged_too(autojump_clock: MockClock) -> None:
    slow = Timed(9, final_answer("slow", usage=Usage(input=7)))
    quick = Timed(1, final_answer("quick", usage=Usage(input=7)))
    told = await told_by(route([slow], [quick], hedge=Hedge(after=2)))
    assert told.result is not None
    assert told.result.text == "quick"
    assert sorted(told.tries) == [("p0", "superseded"), ("p1", "served")]


@pytest.mark.rule("R-ROUTED-11")
async def test_a_loser_that_had_finished_is_dropped_and_paid_for(
    autojump_clock: MockClock,
) -> None:
    async def deaf(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return final_answer("late", usage=Usage(input=30))

    told = await told_by(route(deaf, [after(1, "quick")], hedge=Hedge(after=2)))
    assert told.text == "quick"
    assert told.result is not None
    assert told.result.stats.usage == Usage(input=130)


@pytest.mark.rule("R-ROUTED-11")
async def test_a_loser_shows_nothing_even_if_it_writes(autojump_clock: MockClock) -> None:
    async def stubborn(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        async with stream.attempt() as attempt:
            with trio.CancelScope(shield=True):
                await trio.sleep(4)
            attempt.send_nowait(said("late"))
            attempt.send_nowait(STOP)
        return attempt.turn()

    quick = Timed(1, final_answer("quick"))
    told = await told_by(route(stubborn, [quick], hedge=Hedge(after=2)))
    assert told.text == ""
    assert told.result is not None
    assert told.result.text == "quick"
    assert sorted(told.tries) == [("p0", "superseded"), ("p1", "served")]


def _failure(candidate: RouteCandidate) -> AttemptError:
    cursor = AttemptCursor(stage=0, candidate=0, retry=0, ordinal=0)
    return AttemptError(
        kind="network",
        category="unreachable",
        target=AttemptTarget.of(candidate, cursor=cursor, duration=0),
    )


class OneAtATime:
    """An endpoint that counts the calls that are open, as a server counts connections."""

    def __init__(self, *script: float | Chunk) -> None:
        self.script = script
        self.open = 0

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn:
        async with stream.attempt() as attempt:
            self.open += 1
            try:
                for each in self.script:
                    if isinstance(each, Chunk):
                        attempt.send_nowait(each)
                    else:
                        await trio.sleep(each)
            finally:
                self.open -= 1
        return attempt.turn()


@pytest.mark.rule("R-ROUTED-11", "R-HEDGE-03", "R-EXEC-16")
@pytest.mark.parametrize("retractable", [True, False])
def test_at_every_cut_of_a_hedged_turn_nothing_is_left(retractable: bool) -> None:
    async def scenario(scene: Scene) -> None:
        endpoints = (
            OneAtATime(30.0),
            OneAtATime(2.0, said("a"), 1.0, said("b"), STOP),
            OneAtATime(30.0),
        )
        breaker = CircuitBreaker(failures=1, cooldown=1)
        model = route(*endpoints, breaker=breaker, hedge=Hedge(after=1, most=3))
        # The first one is in trouble, so that its call is a probe.
        key = model.plan().plan.stages[0].candidates[0]
        breaker.record_failure(key, _failure(key), now=0)
        await trio.sleep(1)
        turn = Turn(TextSurface(retractable=retractable))

        @scene.afterwards
        def check() -> None:
            assert [each.open for each in endpoints] == [0, 0, 0]
            assert all(
                breaker.admit(each.key, now=99).admitted for each in breaker.snapshot(now=99)
            )
            told = Told(events=turn.told)
            assert len(told.started) == len(told.finished)
            assert told.text in {"", "a", "ab"}
            assert (told.text == "ab") or scene.outcome != "completed"
            turn.stream.finish(succeeded=scene.outcome == "completed")

        request = ModelRequest(run_id="r", turn_id="t1", turn=0, messages=[])
        await model.complete(request, turn.stream)

    report = cancel_everywhere(scenario, minimum=25, seeds=(0, 1, 2))
    assert report.cancelled > 0


Step = float | Chunk | Exception


@pytest.mark.rule("R-ROUTED-03", "R-ROUTED-11", "R-STREAM-27")
@settings(max_examples=150)
@given(
    scripts=st.lists(
        st.lists(
            st.one_of(
                st.sampled_from([0.0, 1.0, 3.0, 40.0]),
                st.sampled_from([said("x"), Chunk(reasoning="r"), Chunk(usage=Usage(input=1))]),
                st.sampled_from([0, 1]).map(lambda n: down(500 + n)),
            ),
            max_size=5,
        ),
        min_size=1,
        max_size=4,
    ),
    hedge=st.none() | st.builds(Hedge, after=st.sampled_from([0.0, 2.0]), most=st.integers(2, 3)),
    retractable=st.booleans(),
    most=st.none() | st.integers(0, 2),
)
def test_whatever_fails_the_text_is_right_or_the_error_is(
    scripts: list[list[Step]], hedge: Hedge | None, retractable: bool, most: int | None
) -> None:
    """Every endpoint writes a letter of its own, so a splice of two would be seen."""

    class Endpoint:
        def __init__(self, letter: str, script: list[Step]) -> None:
            self.letter, self.script = letter, script

        async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn:
            async with stream.attempt() as attempt:
                for each in self.script:
                    match each:
                        case Chunk(text="x"):
                            attempt.send_nowait(said(self.letter))
                        case Chunk():
                            attempt.send_nowait(each)
                        case Exception():
                            raise each
                        case _:
                            await trio.sleep(each)
                attempt.send_nowait(STOP)
            return attempt.turn()

    async def main() -> None:
        breaker = CircuitBreaker()
        endpoints = [
            Endpoint(letter, script) for letter, script in zip("abcd", scripts, strict=False)
        ]
        model = route(*endpoints, hedge=hedge, breaker=breaker)
        surface = TextSurface(retractable=retractable, max_resets=most)
        told = await told_by(model, surface=surface)
        assert len(set(told.text)) <= 1
        assert len(told.started) == len(told.finished)
        served = [each for each in told.finished if each.outcome == "served"]
        if told.error is None:
            assert told.result is not None
            assert len(served) == 1
            assert told.text == told.result.text
        else:
            assert served == []
        if not retractable:
            assert told.resets == []
        if most is not None:
            assert len(told.resets) <= most
        for number, event in enumerate(told.events):
            if isinstance(event, AttemptFinished) and event.outcome == "failed":
                following = told.events[number:] if event.produced_output else []
                assert not [each for each in following if isinstance(each, AttemptStarted)]

    trio.run(main, clock=MockClock(autojump_threshold=0))
