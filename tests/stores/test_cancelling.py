"""A method that is cancelled has written nothing, or it returns: at every cut point of each."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness._durable import ReceiptClaim, RunKey, RunLease
from harness.stores import MemoryStore
from harness.testing import Scene, cancel_everywhere
from tests.stores.conformance import CALL, KEY, Clock, Store, a_checkpoint, a_commit, a_head
from tests.stores.inline import open_in_line, open_server_in_line

DOUBTFUL: Final = attrs.evolve(CALL, tool="doubtful")
SETTLED: Final = attrs.evolve(CALL, tool="settled by hand")


@attrs.frozen
class Place:
    """A store, and what a worker has got from it before a test begins."""

    store: Store
    clock: Clock
    lease: RunLease

    async def shown(self) -> list[object]:
        """Return all that a store tells, now and in half a lease: what holds until when."""
        told: list[object] = []
        for _ in range(2):
            told += [*await self.store.list_runs("tenant")]
            told += [*await self.store.list_receipts("tenant")]
            self.clock.now += 6
        self.clock.now -= 12
        return told


async def _place(store: Store, clock: Clock) -> Place:
    await store.create_run(KEY, a_checkpoint())
    lease = await store.acquire_run(KEY, owner="me", seconds=10)
    for key in (DOUBTFUL, SETTLED):
        await store.claim_receipt(key, effect="opaque", owner="gone", seconds=1)
    clock.now += 5
    return Place(store, clock, lease)


OTHER: Final = RunKey(tenant="tenant", run_id="other")
CLAIM: Final = ReceiptClaim(key=CALL, attempt=1, owner="me", seconds=10)

METHODS: Final[tuple[Callable[[Place], Awaitable[object]], ...]] = (
    lambda at: at.store.create_run(OTHER, a_checkpoint(head=a_head(run_id="other"))),
    lambda at: at.store.acquire_run(OTHER, owner="me", seconds=10),
    lambda at: at.store.renew_run(at.lease),
    lambda at: at.store.commit_run(at.lease, a_commit(1, 0, "hi")),
    lambda at: at.store.claim_receipt(CALL, effect="opaque", owner="me", seconds=5),
    lambda at: at.store.renew_receipt(CLAIM),
    lambda at: at.store.settle_receipt(CLAIM, "completed", {"paid": 3}),
    lambda at: at.store.claim_receipt(DOUBTFUL, effect="opaque", owner="me", seconds=5),
    lambda at: at.store.settle_receipt_by_hand(SETTLED, "failed", None),
    lambda at: at.store.release_run(at.lease),
)
"""A use of every method that writes; each changes what is shown."""


OpenStore: TypeAlias = Callable[[Path, Clock], AbstractAsyncContextManager[Store]]


@asynccontextmanager
async def _memory(_: Path, clock: Clock) -> AsyncIterator[Store]:
    yield MemoryStore(clock=clock, wall_clock=clock)


def _sqlite(folder: Path, clock: Clock) -> AbstractAsyncContextManager[Store]:
    return open_in_line(folder / "store.db", clock)


async def _expected() -> list[list[object]]:
    """Return what is shown before the work, and after each method."""
    clock = Clock()
    place = await _place(MemoryStore(clock=clock, wall_clock=clock), clock)
    shown = [await place.shown()]
    for method in METHODS:
        await method(place)
        shown.append(await place.shown())
    return shown


@pytest.mark.rule("R-STORE-04")
@pytest.mark.slow
@pytest.mark.parametrize(("opened", "cuts"), [(_memory, 50), (_sqlite, 150)])
def test_a_method_that_is_cancelled_wrote_nothing_or_returned(
    opened: OpenStore, cuts: int, quick_folder: Path
) -> None:
    _check_every_cut(opened, cuts, quick_folder)


@pytest.mark.rule("R-STORE-04")
@pytest.mark.slow
@pytest.mark.postgres
def test_a_method_of_a_server_that_is_cancelled_wrote_nothing_or_returned(
    postgres_url: str, quick_folder: Path
) -> None:
    def opened(folder: Path, clock: Clock) -> AbstractAsyncContextManager[Store]:
        return open_server_in_line(postgres_url, folder.name, clock)

    _check_every_cut(opened, 100, quick_folder)


def _check_every_cut(opened: OpenStore, cuts: int, quick_folder: Path) -> None:
    expected = trio.run(_expected)
    assert all(one != other for one, other in pairwise(expected))

    async def scenario(scene: Scene) -> None:
        folder, clock, told = Path(tempfile.mkdtemp(dir=quick_folder)), Clock(), 0

        async with opened(folder, clock) as store, trio.open_nursery() as nursery:
            with trio.CancelScope(shield=True):
                place = await _place(store, clock)

            async def look() -> None:
                async with opened(folder, clock) as again:
                    kept = store if isinstance(store, MemoryStore) else again
                    assert await attrs.evolve(place, store=kept).shown() == expected[told]

            scene.afterwards(lambda: trio.run(look, clock=MockClock(autojump_threshold=0)))
            nursery.start_soon(_crowd, store)
            for method in METHODS:
                await method(place)
                told += 1

    report = cancel_everywhere(scenario, minimum=cuts)
    assert report.cancelled > cuts / 2


async def _crowd(store: Store) -> None:
    """Write beside the work, so that it has to wait until it is taken."""
    for number in range(10):
        key = RunKey(tenant="another", run_id=str(number))
        await store.create_run(key, a_checkpoint(head=a_head(run_id=key.run_id)))
