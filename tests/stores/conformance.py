"""Every store there is, and what the tests of all of them are written with.

A store joins by a line in `STORES`, or in the fixture `open_subject` if it needs a server. Time
passes as the store's clock says: where a clock can be put in, a test moves it and waits for
nothing; else it waits, and leases are short.
"""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from harness._durable import ReceiptClaim, ReceiptKey, RunKey
from harness._events import StopReason
from harness._json import JSON
from harness._messages import Message, user_message
from harness._toolset import Effect
from harness.checkpoints import (
    Checkpoint,
    CheckpointHead,
    CheckpointStatus,
    CheckpointStore,
    Commit,
    Position,
)
from harness.kernel import Limits, Pause, RunStats
from harness.receipts import Receipt, ReceiptStore
from harness.stores import MemoryStore, open_postgres_store, open_sqlite_store

KEY: Final = RunKey(tenant="tenant", run_id="run")
CALL: Final = ReceiptKey(tenant="tenant", run_id="run", tool="pay", args_hash="5f")

ODD_TEXTS: Final = (
    "A",
    "a",
    "a ",
    " a",
    "'; drop table runs; --",
    '"quoted"',
    "100%_",
    "line\nline",
    "café",
    "cafe\N{COMBINING ACUTE ACCENT}",
    "猫",
    "\N{OLD PERSONAL COMPUTER}",
    "\x01",
    "x" * 2_000,
)
"""Texts that are easily taken for another one."""


class Store(CheckpointStore, ReceiptStore, Protocol):
    """A store of both kinds."""


OpenStore: TypeAlias = Callable[[], AbstractAsyncContextManager[Store]]


class Clock:
    """A store's clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 12, 1, tzinfo=UTC).timestamp()

    def __call__(self) -> float:
        return self.now


@attrs.frozen(kw_only=True)
class Subject:
    """A place that stores are opened at."""

    open_store: OpenStore
    """Opens a store there, as often as it is called; each is another worker's."""
    store: Store
    """One that is open."""
    clock: Clock | None
    """None: it is the database's own."""
    lease: float
    """Seconds of a lease that a test can outlive."""

    async def let_pass(self, leases: float) -> None:
        """Return when so many leases have passed by the store's clock."""
        if self.clock is None:
            await trio.sleep(leases * self.lease)
        else:
            self.clock.now += leases * self.lease

    async def claim(
        self, key: ReceiptKey = CALL, *, owner: str = "owner", effect: Effect = "opaque"
    ) -> ReceiptClaim:
        """Claim a call that has to be executed."""
        claimed = await self.store.claim_receipt(
            key, effect=effect, owner=owner, seconds=self.lease
        )
        assert claimed.action == "execute"
        assert claimed.claim is not None
        return claimed.claim

    async def receipt(self, key: ReceiptKey = CALL) -> Receipt:
        """Return the receipt of a key."""
        listed = await self.store.list_receipts(key.tenant)
        return next(each for each in listed if each.key == key)


OpenSubject: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Subject]]
"""Opens a store at a place in a folder, which is new."""


@asynccontextmanager
async def memory(_: Path) -> AsyncIterator[Subject]:
    clock = Clock()
    store = MemoryStore(clock=clock, wall_clock=clock)

    @asynccontextmanager
    async def again() -> AsyncIterator[Store]:
        yield store

    yield Subject(open_store=again, store=store, clock=clock, lease=10.0)


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Subject]:
    clock = Clock()

    def again() -> AbstractAsyncContextManager[Store]:
        return open_sqlite_store(folder / "store.db", clock=clock)

    async with again() as store:
        yield Subject(open_store=again, store=store, clock=clock, lease=10.0)


def postgres(url: str, folder: Path) -> AbstractAsyncContextManager[Subject]:
    """Open a store in a schema that nobody else has, whose name comes from *folder*."""
    schema = f"s{folder.name}"[-40:] + secrets.token_hex(4)
    clock = Clock()

    def again() -> AbstractAsyncContextManager[Store]:
        return open_postgres_store(url, schema=schema, clock=clock)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Subject]:
        async with again() as store:
            yield Subject(open_store=again, store=store, clock=clock, lease=10.0)

    return opened()


STORES: Final = {"memory": memory, "sqlite": sqlite}


# -- what is stored ----------------------------------------------------------------------------


def a_head(
    revision: int = 0,
    *,
    run_id: str = KEY.run_id,
    status: CheckpointStatus = "ready",
    stop_reason: StopReason | None = None,
    pause: Pause | None = None,
    position: Position | None = None,
    bindings: JSON = None,
) -> CheckpointHead:
    """Return a head, most of it empty."""
    return CheckpointHead(
        run_id=run_id,
        revision=revision,
        parent=None,
        status=status,
        stop_reason=stop_reason,
        limits=Limits(),
        position=position or Position(),
        stats=RunStats(),
        pause=pause,
        bindings=bindings,
    )


def texts(*words: str) -> tuple[Message, ...]:
    """Return a message for each word."""
    return tuple(user_message(word) for word in words)


def a_checkpoint(*words: str, head: CheckpointHead | None = None) -> Checkpoint:
    """Return a checkpoint with a message for each word."""
    return Checkpoint(head=head or a_head(), messages=texts(*words))


def a_commit(revision: int, keep: int, *words: str, run_id: str = KEY.run_id) -> Commit:
    """Return a commit that adds a message for each word."""
    return Commit(head=a_head(revision, run_id=run_id), keep=keep, tail=texts(*words))
