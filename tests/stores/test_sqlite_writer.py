"""Who is in which transaction, and where a cancellation falls."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from harness._errors import StoreError
from harness.stores._sqlite_transaction import Answer
from harness.stores._sqlite_writer import Writer
from harness.testing import Scene, cancel_everywhere


class Disk:
    """Writes a batch of names a second, and says which."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.fail_next: Exception | None = None

    async def write(self, works: Sequence[str]) -> Sequence[Answer]:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        if self.fail_next is not None:
            raise self.fail_next
        self.batches.append(list(works))
        return [
            Answer(error=LookupError(work)) if work.startswith("bad") else Answer(work.upper())
            for work in works
        ]

    @property
    def written(self) -> list[str]:
        return [work for batch in self.batches for work in batch]


@asynccontextmanager
async def _writing(disk: Disk) -> AsyncIterator[Writer[str]]:
    writer = Writer(disk.write)

    async def serve() -> None:
        with trio.CancelScope(shield=True):
            await writer.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)  # noqa: ASYNC113  # what is asked before it runs waits for it
        try:
            yield writer
        finally:
            writer.close()


@pytest.mark.rule("R-STORE-02")
async def test_what_waits_is_written_together(autojump_clock: MockClock) -> None:
    disk, answers = Disk(), dict[str, str]()
    async with _writing(disk) as writer, trio.open_nursery() as nursery:

        async def ask(work: str) -> None:
            answers[work] = await writer.ask(work)

        nursery.start_soon(ask, "first")
        await wait_all_tasks_blocked()
        for number in range(300):
            nursery.start_soon(ask, f"work {number}")
    assert [len(batch) for batch in disk.batches] == [1, 256, 44]
    assert answers == {work: work.upper() for work in disk.written}
    assert trio.current_time() == pytest.approx(3)


async def test_one_request_is_refused_and_its_neighbours_are_not(
    autojump_clock: MockClock,
) -> None:
    disk, answers = Disk(), list[str]()
    async with _writing(disk) as writer, trio.open_nursery() as nursery:

        async def ask(work: str) -> None:
            try:
                answers.append(await writer.ask(work))
            except LookupError as error:
                answers.append(str(error))

        for work in ("a", "bad b", "c"):
            nursery.start_soon(ask, work)
    assert sorted(answers) == ["A", "C", "bad b"]


@pytest.mark.rule("R-STORE-04")
async def test_a_request_that_waits_is_withdrawn(autojump_clock: MockClock) -> None:
    disk = Disk()
    async with _writing(disk) as writer, trio.open_nursery() as nursery:
        nursery.start_soon(writer.ask, "first")
        await wait_all_tasks_blocked()
        with trio.move_on_after(0.5) as scope:
            await writer.ask("second")
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(0.5)
    assert disk.written == ["first"]


@pytest.mark.rule("R-STORE-04")
async def test_a_request_that_was_taken_returns_and_the_cancellation_comes_later(
    autojump_clock: MockClock,
) -> None:
    disk = Disk()
    async with _writing(disk) as writer:
        with trio.move_on_after(0.5) as scope:
            assert await writer.ask("first") == "FIRST"
            assert trio.current_time() == pytest.approx(1)
            await trio.lowlevel.checkpoint()
            raise AssertionError("the cancellation did not come")
        assert scope.cancelled_caught


@pytest.mark.rule("R-STORE-04")
def test_wherever_it_is_cancelled_what_returned_was_written_and_nothing_else() -> None:
    async def scenario(scene: Scene) -> None:
        disk, told = Disk(), list[str]()
        scene.afterwards(lambda: _equal(sorted(disk.written), sorted(told)))

        async def ask(writer: Writer[str], name: str, after: float) -> None:
            await trio.sleep(after)
            for number in range(2):
                told.append((await writer.ask(f"{name}{number}")).lower())

        async with _writing(disk) as writer, trio.open_nursery() as nursery:
            for name, after in (("a", 0), ("b", 0.5), ("c", 1), ("d", 1.5)):
                nursery.start_soon(ask, writer, name, after)

    report = cancel_everywhere(scenario, seeds=(0, 1), minimum=50)
    assert report.cancelled > 50


def _equal(one: object, other: object) -> None:
    assert one == other


@pytest.mark.rule("R-STORE-05")
async def test_a_writer_that_closes_finishes_what_it_took_and_refuses_the_rest(
    autojump_clock: MockClock,
) -> None:
    disk, ends = Disk(), list[str]()

    async def ask(work: str) -> None:
        try:
            ends.append(await writer.ask(work))
        except StoreError as error:
            ends.append(f"{work} {error.code} at {trio.current_time():g}")

    async with trio.open_nursery() as outside:
        async with _writing(disk) as writer:
            for work in ("taken", "waits"):
                outside.start_soon(ask, work)
                await wait_all_tasks_blocked()
            await trio.sleep(0.5)
        assert trio.current_time() == pytest.approx(1)
        outside.start_soon(ask, "late")
    assert ends == ["waits store.closed at 0.5", "TAKEN", "late store.closed at 1"]
    assert disk.written == ["taken"]


@pytest.mark.rule("R-STORE-04")
async def test_a_shielded_task_is_served_although_all_around_it_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    disk = Disk()
    with trio.CancelScope() as around:
        async with _writing(disk) as writer:
            around.cancel()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
                assert await writer.ask("settle") == "SETTLE"
    assert disk.written == ["settle"]


async def test_asking_in_a_scope_that_was_cancelled_asks_for_nothing(
    autojump_clock: MockClock,
) -> None:
    disk = Disk()
    async with _writing(disk) as writer:
        with trio.CancelScope() as scope:
            scope.cancel()
            await writer.ask("first")
        assert scope.cancelled_caught
        assert await writer.ask("second") == "SECOND"
    assert disk.written == ["second"]


async def test_asking_is_a_checkpoint_even_of_a_writer_that_is_closed() -> None:
    writer = Writer(Disk().write)
    writer.close()
    with assert_checkpoints(), pytest.raises(StoreError) as caught:
        await writer.ask("late")
    assert caught.value.code == "store.closed"


async def test_whoever_asked_hears_of_a_writer_that_fails(autojump_clock: MockClock) -> None:
    disk = Disk()
    async with _writing(disk) as writer:
        disk.fail_next = RuntimeError("can't start new thread")
        with pytest.raises(StoreError, match=r"can't start new thread") as caught:
            await writer.ask("first")
        assert caught.value.code == "store.unreachable"
        disk.fail_next = None
        assert await writer.ask("second") == "SECOND"
