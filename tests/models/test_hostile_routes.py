"""Endpoints that do what no endpoint should, or in another order than one would think."""

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness import (
    Assembly,
    Chunk,
    ModelLike,
    ModelRequest,
    ModelTurn,
    TurnStream,
    Usage,
    assistant_message,
    open_run,
)
from harness.errors import CompletionDefectError
from harness.events import AttemptFinished, Event, TextDelta, decode_event, encode_event
from harness.models import Output, RoutedModel, StructuredModel
from harness.routing import CircuitBreaker, Hedge
from harness.testing import Scene, Timed, cancel_everywhere, counting_ids
from tests.models.routes import STOP, down, route, said, told_by


@attrs.frozen
class Form:
    n: int


def whole(text: str, cost: int) -> Chunk:
    return Chunk(text=text, usage=Usage(input=cost), finish_reason="stop", end=True)


class Replying:
    """Streams a whole reply after a while."""

    def __init__(self, text: str, cost: int, seconds: float = 0) -> None:
        self.chunk, self.seconds = whole(text, cost), seconds

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn:
        async with stream.attempt() as attempt:
            await trio.sleep(self.seconds)
            attempt.send_nowait(self.chunk)
        return attempt.turn()


async def plain(request: ModelRequest, stream: TurnStream) -> ModelTurn:
    return ModelTurn(message=assistant_message('{"n": 1}'), usage=Usage(input=5))


async def spoilt(request: ModelRequest, stream: TurnStream) -> ModelTurn:
    await Replying("not a form", 7).complete(request, stream)
    raise down()


@pytest.mark.rule("R-ROUTED-03", "R-OVERLAP-08", "R-OVERLAP-09")
@pytest.mark.parametrize(
    "first",
    [StructuredModel(Replying("not a form", 7), Output(Form), retries=0), spoilt],
    ids=["refused by its form", "spoilt afterwards"],
)
async def test_a_good_reply_of_a_try_that_failed_is_taken_back_and_paid_for(
    autojump_clock: MockClock, first: StructuredModel
) -> None:
    told = await told_by(route(first, plain, max_defect_retries=0))
    assert told.result is not None
    assert told.text == ""
    assert told.result.text == '{"n": 1}'
    assert told.result.stats.usage.input == 12
    assert [each.usage.input for each in told.finished] == [7, 5]


@pytest.mark.rule("R-ROUTED-11", "R-OVERLAP-06")
@pytest.mark.parametrize("pause", [0.0, 0.01, 3.0])
@pytest.mark.parametrize("rivals", [1, 2])
async def test_a_winner_without_a_word_is_not_given_up_for_its_losers(
    autojump_clock: MockClock, pause: float, rivals: int
) -> None:
    async def silent(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        async with stream.attempt() as attempt:
            await trio.sleep(1)
            attempt.send_nowait(Chunk(usage=Usage(input=3), finish_reason="stop", end=True))
        await trio.sleep(pause)
        return attempt.turn()

    slow = [Replying("late", 9, seconds=50) for _ in range(rivals)]
    model = route(*slow, silent, hedge=Hedge(after=2, most=1 + rivals))
    events: list[Event] = []
    async with open_run(model, "Hi", assembly=Assembly(empty="accept"), deadline=1000) as run:
        events += [event async for event in run.events]
    assert run.result.stop_reason == "done"
    assert run.result.stats.usage == Usage(input=3)
    ends = {e.tried.provider: e.outcome for e in events if isinstance(e, AttemptFinished)}
    assert ends == {f"p{rivals}": "served"} | {f"p{n}": "superseded" for n in range(rivals)}
    assert not [event for event in events if isinstance(event, TextDelta)]


@pytest.mark.rule("R-ROUTED-11", "R-ROUTED-06")
@pytest.mark.parametrize("streamed", [True, False])
async def test_two_whole_replies_in_one_instant_are_both_paid_for(
    autojump_clock: MockClock, streamed: bool
) -> None:
    both = trio.Event()

    def replying(text: str, cost: int) -> ModelLike:
        async def model(request: ModelRequest, stream: TurnStream) -> ModelTurn:
            if not streamed:
                await both.wait()
                return ModelTurn(message=assistant_message(text), usage=Usage(input=cost))
            async with stream.attempt() as attempt:
                await both.wait()
                attempt.send_nowait(whole(text, cost))
            return attempt.turn()

        return model

    async def set_later() -> None:
        await trio.sleep(5)
        both.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(set_later)
        told = await told_by(route(replying("a", 100), replying("b", 10), hedge=Hedge(after=2)))
    assert told.result is not None
    assert told.result.stats.usage.input == 110
    assert sum(each.usage.input for each in told.finished) == 110
    assert sorted(each.outcome for each in told.finished) == ["served", "superseded"]


@pytest.mark.rule("R-ROUTED-06")
async def test_a_try_costs_what_all_its_replies_cost(autojump_clock: MockClock) -> None:
    class Learning:
        def __init__(self) -> None:
            self.texts = ["no", "no", '{"n": 1}']

        async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn:
            return await Replying(self.texts.pop(0), 10).complete(request, stream)

    told = await told_by(route(StructuredModel(Learning(), Output(Form), retries=3)))
    assert told.result is not None
    assert told.result.stats.usage.input == 30
    assert [each.usage.input for each in told.finished] == [30]

    async def twice(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        with pytest.raises(CompletionDefectError):
            await Replying("", 10).complete(request, stream)
        stream.spend(Usage(input=5))
        return await Replying("x", 10).complete(request, stream)

    told = await told_by(route(twice))
    assert [each.usage.input for each in told.finished] == [25]
    assert told.resets == []


@pytest.mark.rule("R-ROUTED-02", "R-ROUTED-06")
async def test_a_reply_that_was_not_streamed_is_judged_also_after_an_attempt(
    autojump_clock: MockClock,
) -> None:
    async def odd(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        with pytest.raises(CompletionDefectError):
            await Replying("", 1).complete(request, stream)
        return ModelTurn(message=assistant_message(""), usage=Usage(input=1000))

    told = await told_by(route(odd, Replying("x", 100), max_defect_retries=1))
    assert told.tries == [("p0", "defect"), ("p0", "defect"), ("p1", "served")]
    assert [each.usage.input for each in told.finished] == [1001, 1001, 100]
    assert told.result is not None
    assert told.result.stats.usage.input == 2102


@pytest.mark.rule("R-ROUTED-06", "R-PROM-05")
@pytest.mark.parametrize("how", ["abort", "deadline", "cancel"])
@pytest.mark.parametrize("hedged", [False, True])
async def test_a_stop_is_told_as_what_it_is(
    autojump_clock: MockClock, how: str, hedged: bool
) -> None:
    endpoints = [Replying("late", 1, seconds=500) for _ in range(2)]
    breaker = CircuitBreaker()
    model = route(*endpoints, breaker=breaker, hedge=Hedge(after=2) if hedged else None)
    events: list[Event] = []
    with trio.move_on_after(5 if how == "cancel" else 900):
        async with open_run(model, "Hi", deadline=5 if how == "deadline" else 900) as run:
            if how == "abort":
                await trio.sleep(5)
                run.abort()
            await run.wait()
            events += [event async for event in run.events]
    if how == "cancel":
        events += _left(run.events)
    ends = [event.outcome for event in events if isinstance(event, AttemptFinished)]
    assert ends == ["cancelled"] * (1 + hedged)
    assert breaker.snapshot(now=trio.current_time()) == ()


def _left(events: trio.MemoryReceiveChannel[Event]) -> list[Event]:
    found: list[Event] = []
    try:
        while True:
            found.append(events.receive_nowait())
    except (trio.EndOfChannel, trio.ClosedResourceError):
        return found


@pytest.mark.rule("R-ROUTED-05", "R-ROUTED-06")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()], ids=repr)
async def test_a_try_that_raises_is_told_as_failed_and_the_other_as_cancelled(
    autojump_clock: MockClock, error: BaseException
) -> None:
    async def bug(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        await trio.sleep(1)
        raise error

    model = route(Replying("late", 1, seconds=500), bug, hedge=Hedge(after=2))
    events: list[Event] = []
    with pytest.raises(type(error)) as caught:
        async with open_run(model, "Hi") as run:
            await run.wait()
    events += _left(run.events)
    assert caught.value is error
    ends = {e.tried.provider: e.outcome for e in events if isinstance(e, AttemptFinished)}
    assert ends == {"p0": "cancelled", "p1": "failed"}


@pytest.mark.rule("R-ROUTED-11")
async def test_an_effect_is_as_good_as_an_answer(autojump_clock: MockClock) -> None:
    async def fails(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        async with stream.attempt():
            await trio.sleep(4)
            raise down()

    async def acts(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        async with stream.attempt() as attempt:
            await trio.sleep(1)
            attempt.mark_produced_output()
            await trio.sleep(3)
            attempt.send_nowait(whole("done", 1))
        return attempt.turn()

    told = await told_by(route(fails, acts, hedge=Hedge(after=2)))
    assert told.text == "done"
    assert told.tries == [("p0", "superseded"), ("p1", "served")]


@pytest.mark.rule("R-ROUTED-06")
async def test_what_a_route_tells_goes_through_json(autojump_clock: MockClock) -> None:
    told = await told_by(route([down()], Replying("x", 1)))
    assert [decode_event(encode_event(event)) for event in told.events] == told.events


@pytest.mark.rule("R-ROUTED-06", "R-OVERLAP-09")
@pytest.mark.parametrize("kind", ["plain", "routed", "hedged", "not streamed"])
def test_what_a_provider_reported_is_counted_at_every_cut(kind: str) -> None:
    async def scenario(scene: Scene) -> None:
        reported = [0]

        async def quick(request: ModelRequest, stream: TurnStream) -> ModelTurn:
            async with stream.attempt() as attempt:
                attempt.send_nowait(said("qu"))
                await trio.sleep(1)
                attempt.send_nowait(Chunk(usage=Usage(input=100)))
                reported[0] += 100
                attempt.send_nowait(STOP)
            return attempt.turn()

        async def unstreamed(request: ModelRequest, stream: TurnStream) -> ModelTurn:
            await trio.sleep(1)
            reported[0] += 100
            return ModelTurn(message=assistant_message("x"), usage=Usage(input=100))

        slow = Replying("late", 0, seconds=30)
        models: dict[str, ModelLike] = {
            "plain": quick,
            "routed": route(quick),
            "hedged": route(slow, quick, hedge=Hedge(after=2)),
            "not streamed": route(slow, unstreamed, hedge=Hedge(after=2)),
        }
        counted: list[int] = []

        @scene.afterwards
        def check() -> None:
            assert counted in ([], [reported[0]])

        run = None
        try:
            async with open_run(models[kind], "Hi", ids=counting_ids()) as run:
                await run.wait()
        finally:
            if run is not None:
                counted.append(run.result.stats.usage.input)

    assert cancel_everywhere(scenario, minimum=20, seeds=(0, 1)).cancelled > 0


@pytest.mark.rule("R-ROUTED-11", "R-WATCH-15")
async def test_a_chunk_that_comes_too_late_takes_nothing_from_a_healthy_hedge(
    autojump_clock: MockClock,
) -> None:
    async def stalls(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        async with stream.attempt() as attempt:
            with trio.CancelScope(shield=True):
                await trio.sleep(125)
            attempt.send_nowait(whole("late", 1))
        return attempt.turn()

    healthy = [[Timed(119, said("good")), Timed(10, STOP)]]
    told = await told_by(route(stalls, healthy, hedge=Hedge(after=2)))
    assert told.text == "good"
    assert told.resets == []
    assert dict(told.tries) == {"p0": "superseded", "p1": "served"}
    assert isinstance(route(), RoutedModel)
