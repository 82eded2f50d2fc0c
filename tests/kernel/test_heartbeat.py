"""Progress written every now and then, whatever the store does."""

import itertools
import math
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from harness import Emitter, open_run
from harness.events import Event, Failure, FlushDue, FlushFailed, Posted, RunFinished
from harness.kernel._heartbeat import Heartbeat
from harness.testing import (
    Scene,
    cancel_everywhere,
    final_answer,
    record_events,
    run_harness,
    scripted_model,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)


@attrs.define(eq=False)
class Store:
    """A store whose writes take time, and that fails when it is told to."""

    seconds: float = 0.0
    fails: bool = False
    writes: list[tuple[float, float]] = attrs.field(factory=list)
    """When each write was begun and over; also those that failed, not those that were cut."""
    begun: int = 0

    async def flush(self) -> None:
        start = trio.current_time()
        fails = self.fails
        self.begun += 1
        await trio.sleep(self.seconds)
        self.writes.append((start, trio.current_time()))
        if fails:
            raise OSError("disk full")

    @property
    def starts(self) -> list[float]:
        return [start for start, _ in self.writes]


async def beat_at(heartbeat: Heartbeat, times: list[float], *, force: bool = False) -> None:
    for time in times:
        await trio.sleep_until(time)
        await heartbeat.beat(force=force)


# -- coalescing --------------------------------------------------------------------------------


@pytest.mark.rule("R-BEAT-01")
async def test_beats_within_the_interval_write_nothing(autojump_clock: MockClock) -> None:
    store = Store()
    await beat_at(Heartbeat(store.flush), [0, 3, 9, 10, 12])
    assert store.starts == [0, 10]


@pytest.mark.rule("R-BEAT-01")
async def test_the_interval_counts_from_the_start_of_a_write(autojump_clock: MockClock) -> None:
    store = Store(seconds=4)
    heartbeat = Heartbeat(store.flush, coalesce=5)
    await beat_at(heartbeat, [0, 4.5, 5])
    assert store.starts == [0, 5]


@pytest.mark.rule("R-BEAT-02")
async def test_a_forced_beat_has_written_when_it_returns(autojump_clock: MockClock) -> None:
    store = Store(seconds=2)
    heartbeat = Heartbeat(store.flush)
    await heartbeat.beat()
    await trio.sleep_until(3)
    await heartbeat.beat(force=True)
    assert store.writes == [(0, 2), (3, 5)]


@pytest.mark.rule("R-BEAT-02", "R-BEAT-01")
async def test_a_forced_write_begins_the_interval_anew(autojump_clock: MockClock) -> None:
    store = Store()
    heartbeat = Heartbeat(store.flush)
    await beat_at(heartbeat, [0])
    await beat_at(heartbeat, [6], force=True)
    await beat_at(heartbeat, [10, 15.9, 16])
    assert store.starts == [0, 6, 16]


@pytest.mark.rule("R-BEAT-06")
async def test_nothing_is_written_later_by_itself(autojump_clock: MockClock) -> None:
    store = Store()
    await beat_at(Heartbeat(store.flush), [0, 5])
    assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf
    await trio.sleep(100)
    assert store.starts == [0]


# -- one at a time -----------------------------------------------------------------------------


@pytest.mark.rule("R-BEAT-04")
async def test_writes_never_overlap(autojump_clock: MockClock) -> None:
    store = Store(seconds=3)
    heartbeat = Heartbeat(store.flush, coalesce=0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat_at, heartbeat, [0.0, 4.0])
        nursery.start_soon(lambda: beat_at(heartbeat, [1, 5], force=True))
    assert store.writes == [(0, 3), (3, 6), (6, 9)]


@pytest.mark.rule("R-BEAT-05")
async def test_a_plain_beat_during_a_write_returns_at_once(autojump_clock: MockClock) -> None:
    store = Store(seconds=30)
    heartbeat = Heartbeat(store.flush)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat.beat)
        await trio.sleep(20)
        await heartbeat.beat()
        assert trio.current_time() == 20
    assert store.begun == 1


@pytest.mark.rule("R-BEAT-05")
async def test_forced_beats_that_wait_share_one_write(autojump_clock: MockClock) -> None:
    store = Store(seconds=5)
    heartbeat = Heartbeat(store.flush)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat.beat)
        for time in (1.0, 2.0, 3.0):
            nursery.start_soon(lambda t: beat_at(heartbeat, [t], force=True), time)
    assert store.writes == [(0, 5), (5, 10)]


@pytest.mark.rule("R-BEAT-05")
async def test_a_forced_beat_does_not_share_a_write_that_was_begun_before_it(
    autojump_clock: MockClock,
) -> None:
    store = Store(seconds=5)
    heartbeat = Heartbeat(store.flush)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat.beat)
        for time in (1.0, 2.0, 6.0, 7.0):
            nursery.start_soon(lambda t: beat_at(heartbeat, [t], force=True), time)
    assert store.writes == [(0, 5), (5, 10), (10, 15)]


# -- failures ----------------------------------------------------------------------------------

DISK_FULL = Failure(kind="OSError", code="error", message="disk full")


@pytest.mark.rule("R-BEAT-03")
@pytest.mark.parametrize("force", [False, True])
async def test_a_failure_is_told_counted_and_kept_and_never_raised(force: bool) -> None:
    store, told = Store(fails=True), list[Event]()
    heartbeat = Heartbeat(store.flush, tell=told.append)
    await heartbeat.beat(force=force)
    assert told == [FlushFailed(failure=DISK_FULL)]
    assert (heartbeat.errors, heartbeat.failure) == (1, DISK_FULL)
    store.fails = False
    await heartbeat.beat()
    assert (heartbeat.errors, heartbeat.failure, len(told)) == (1, None, 1)


async def test_a_failure_is_counted_where_nobody_is_told() -> None:
    heartbeat = Heartbeat(Store(fails=True).flush)
    await heartbeat.beat()
    assert (heartbeat.errors, heartbeat.failure) == (1, DISK_FULL)


@pytest.mark.rule("R-BEAT-06")
async def test_after_a_failure_the_next_beat_writes_at_once(autojump_clock: MockClock) -> None:
    store = Store(fails=True)
    heartbeat = Heartbeat(store.flush)
    await heartbeat.beat()
    store.fails = False
    await beat_at(heartbeat, [1, 2, 10, 11])
    assert store.starts == [0, 1, 11]


@pytest.mark.rule("R-BEAT-06")
async def test_a_failure_leaves_the_interval_of_the_last_good_write(
    autojump_clock: MockClock,
) -> None:
    store = Store()
    heartbeat = Heartbeat(store.flush)
    await beat_at(heartbeat, [0])
    store.fails = True
    await beat_at(heartbeat, [4], force=True)
    store.fails = False
    await beat_at(heartbeat, [9, 10])
    assert store.starts == [0, 4, 10]


def grouped(*errors: BaseException) -> Callable[[], Awaitable[None]]:
    async def flush() -> None:
        raise BaseExceptionGroup("writers", list(errors))

    return flush


@pytest.mark.rule("R-BEAT-03")
async def test_a_group_of_one_error_is_told_as_that_error() -> None:
    heartbeat = Heartbeat(grouped(ExceptionGroup("inner", [OSError("disk full")])))
    await heartbeat.beat()
    assert heartbeat.failure == DISK_FULL


@pytest.mark.rule("R-BEAT-03")
async def test_a_group_of_several_errors_is_told_as_a_group() -> None:
    heartbeat = Heartbeat(grouped(OSError("a"), ValueError("b")))
    await heartbeat.beat()
    assert heartbeat.errors == 1
    assert heartbeat.failure is not None
    assert heartbeat.failure.kind == "ExceptionGroup"


@pytest.mark.rule("R-BEAT-03")
async def test_what_is_no_error_of_the_store_goes_on_its_way() -> None:
    heartbeat = Heartbeat(grouped(OSError("disk full"), KeyboardInterrupt()))
    with pytest.RaisesGroup(KeyboardInterrupt):
        await heartbeat.beat()


# -- cancellation ------------------------------------------------------------------------------


@pytest.mark.rule("R-BEAT-03", "R-BEAT-06")
async def test_a_cut_write_is_no_error_and_frees_the_lock(autojump_clock: MockClock) -> None:
    store, told = Store(seconds=5), list[Event]()
    heartbeat = Heartbeat(store.flush, tell=told.append)
    with trio.move_on_after(1) as scope:
        await heartbeat.beat()
    assert scope.cancelled_caught
    assert (heartbeat.errors, heartbeat.failure, told) == (0, None, [])
    await heartbeat.beat()
    assert store.writes == [(1, 6)]


@pytest.mark.rule("R-BEAT-02", "R-BEAT-05")
async def test_who_shared_a_write_that_was_cut_makes_another(autojump_clock: MockClock) -> None:
    store = Store(seconds=5)
    heartbeat = Heartbeat(store.flush)

    async def impatient() -> None:
        with trio.move_on_at(7):
            await beat_at(heartbeat, [1], force=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat.beat)
        nursery.start_soon(impatient)
        nursery.start_soon(lambda: beat_at(heartbeat, [2], force=True))
    assert (store.writes, store.begun) == ([(0, 5), (7, 12)], 3)


@pytest.mark.rule("R-BEAT-03")
async def test_who_stops_waiting_leaves_the_write_to_the_others(autojump_clock: MockClock) -> None:
    store = Store(seconds=5)
    heartbeat = Heartbeat(store.flush)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat.beat)
        nursery.start_soon(lambda: beat_at(heartbeat, [2], force=True))
        with trio.move_on_at(3):
            await beat_at(heartbeat, [1], force=True)
    assert store.writes == [(0, 5), (5, 10)]


@pytest.mark.rule("R-BEAT-04")
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.booleans(), st.integers(1, 9), st.booleans()),
        max_size=12,
    ),
    st.integers(0, 6),
)
@settings(max_examples=60, deadline=None)
def test_any_beats_keep_order_and_interval_and_force_has_its_write(
    beats: list[tuple[int, bool, int, bool]], coalesce: int
) -> None:
    intervals: list[tuple[float, float]] = []
    good: list[float] = []
    asked: list[float] = []
    plan = iter([(seconds, fails) for _, _, seconds, fails in beats])

    async def flush() -> None:
        start = trio.current_time()
        seconds, fails = next(plan)
        await trio.sleep(seconds)
        intervals.append((start, trio.current_time()))
        if fails:
            raise OSError
        good.append(start)

    async def one(heartbeat: Heartbeat, time: int, force: bool) -> None:
        await trio.sleep(time)
        await heartbeat.beat(force)
        if force:
            asked.append(time)
            assert any(time <= start for start, end in intervals if end <= trio.current_time())

    async def main() -> None:
        heartbeat = Heartbeat(flush, coalesce=coalesce)
        async with trio.open_nursery() as nursery:
            for time, force, _, _ in beats:
                nursery.start_soon(one, heartbeat, time, force)
        assert heartbeat.errors == len(intervals) - len(good)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(intervals))
    if not asked:
        assert all(after - before >= coalesce for before, after in itertools.pairwise(good))


# -- fed by a channel --------------------------------------------------------------------------


async def follow(heartbeat: Heartbeat, *events: Event) -> None:
    send, receive = trio.open_memory_channel[Event](math.inf)
    for event in events:
        send.send_nowait(event)
    send.close()
    await heartbeat.follow(receive)
    with pytest.raises(trio.ClosedResourceError):
        receive.receive_nowait()


async def test_a_reader_that_is_cut_closes_its_channel(autojump_clock: MockClock) -> None:
    emitter, store = Emitter(), Store(seconds=5)
    with trio.move_on_after(1):
        reader = emitter.open_reader()
        emitter.send_nowait(FlushDue())
        await Heartbeat(store.flush).follow(reader)
    assert (store.begun, store.writes) == (1, [])
    emitter.send_nowait(FlushDue())
    assert not emitter.has_readers


ENDED = RunFinished(stop_reason="done")


@pytest.mark.rule("R-BEAT-07")
@pytest.mark.parametrize(
    ("events", "writes"),
    [
        ([], 1),
        ([Posted(text="a")], 1),
        ([FlushDue()], 2),
        ([FlushDue(), FlushDue()], 2),
        ([FlushDue(), ENDED], 2),
        ([ENDED, FlushDue(), ENDED], 2),
        ([ENDED, Posted(text="b")], 2),
    ],
)
async def test_a_reader_of_events_writes_at_good_moments_and_always_at_the_end(
    events: list[Event], writes: int, autojump_clock: MockClock
) -> None:
    store = Store()
    await follow(Heartbeat(store.flush), *events)
    assert store.begun == writes


@pytest.mark.rule("R-BEAT-07")
async def test_a_run_is_written_while_it_goes_on_and_when_it_is_over(
    autojump_clock: MockClock,
) -> None:
    calls = [tool_call_turn([tool_call("slow")]) for _ in range(6)]
    model = scripted_model([*calls, timed(1, final_answer("Done."))])
    seen: list[tuple[float, int]] = []
    async with (
        open_run(model, "Go.", tools=[slow_tool(4)]) as run,
        trio.open_nursery() as nursery,
    ):

        async def flush() -> None:
            seen.append((trio.current_time(), len(run.state.messages)))

        nursery.start_soon(Heartbeat(flush, coalesce=10).follow, run.tee())
        await run.wait()
    assert [time for time, _ in seen] == [4, 16, 25]
    assert seen[-1][1] == len(run.state.messages)


@pytest.mark.rule("R-BEAT-07", "R-BEAT-03")
async def test_a_store_that_fails_and_is_slow_changes_nothing_for_the_run(
    autojump_clock: MockClock,
) -> None:
    emitter = Emitter()
    events = emitter.open_reader()
    kit = run_harness([tool_call_turn([tool_call("look")]), final_answer("Done.")], events=emitter)
    store = Store(seconds=60, fails=True)
    heartbeat = Heartbeat(store.flush, tell=emitter.send_nowait)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat.follow, emitter.open_reader())
        result = await kit.run()
        assert trio.current_time() == 0
        emitter.close()
    assert (result.stop_reason, heartbeat.errors) == ("done", 2)
    assert FlushDue in map(type, await record_events(events))


@pytest.mark.rule("R-BEAT-03", "R-BEAT-04")
def test_a_heartbeat_that_is_cut_anywhere_can_go_on() -> None:
    async def scenario(scene: Scene) -> None:
        store = Store(seconds=1)
        heartbeat = Heartbeat(store.flush, coalesce=2)
        emitter = Emitter()
        reader = emitter.open_reader()

        async def work() -> None:
            for _ in range(3):
                emitter.send_nowait(FlushDue())
                await trio.sleep(1)
            emitter.close()

        @scene.afterwards
        def check() -> None:
            assert heartbeat.errors == 0
            pairs = itertools.pairwise(store.writes)
            assert all(end <= start for (_, end), (start, _) in pairs)
            trio.run(heartbeat.beat, True, clock=MockClock(autojump_threshold=0))
            assert store.writes

        async with trio.open_nursery() as nursery:
            nursery.start_soon(heartbeat.follow, reader)
            nursery.start_soon(work)
            nursery.start_soon(lambda: beat_at(heartbeat, [0.5, 1.5], force=True))

    report = cancel_everywhere(scenario, minimum=30)
    assert report.raised == 0


# -- bounds ------------------------------------------------------------------------------------


@pytest.mark.rule("R-BEAT-08")
@pytest.mark.parametrize("coalesce", [-1, math.nan, math.inf, True, "10", None])
def test_an_interval_that_is_none_is_refused(coalesce: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^coalesce is "):
        Heartbeat(Store().flush, coalesce=coalesce)  # type: ignore[arg-type]  # what is tested


@pytest.mark.rule("R-BEAT-08")
def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^flush is 3, expected a function$"):
        Heartbeat(3)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TypeError, match=r"^tell is 3, expected a function$"):
        Heartbeat(Store().flush, tell=3)  # type: ignore[arg-type]  # what is tested


@pytest.mark.rule("R-BEAT-08")
async def test_a_flush_that_is_not_async_is_a_mistake_and_no_failure() -> None:
    heartbeat = Heartbeat(lambda: None)  # type: ignore[arg-type,return-value]  # what is tested
    with pytest.raises(TypeError, match=r"^flush returned None, expected an async function$"):
        await heartbeat.beat()
    assert heartbeat.errors == 0


async def test_every_beat_is_a_checkpoint(autojump_clock: MockClock) -> None:
    heartbeat = Heartbeat(Store().flush)
    for force in (True, False):
        with trio.testing.assert_checkpoints():
            await heartbeat.beat(force)
