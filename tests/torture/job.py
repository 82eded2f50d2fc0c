"""What a torture is told to do, and how its processes reach the store."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from harness.stores import open_postgres_store, open_sqlite_store
from tests.torture.line import BothStores, Line
from tests.torture.trail import Trail

__all__ = [
    "AT_ONCE",
    "RECEIPT_SECONDS",
    "RUN_SECONDS",
    "TENANT",
    "Job",
    "StoreKind",
    "Variant",
    "load",
    "open_line",
    "open_store",
]

StoreKind: TypeAlias = Literal["sqlite", "postgres"]
Variant: TypeAlias = Literal["as_it_is", "no_fence", "claim_late"]
"""What the workers run: the product as it is, or one of two mistakes, on purpose."""

TENANT: Final = "torture"
RUN_SECONDS: Final = 1.5
"""How long a worker's lease of a run lasts."""
RECEIPT_SECONDS: Final = 1.0
LINE_SECONDS: Final = 0.1
"""How long a request to the store, or its answer, is on its way, at most."""
AT_ONCE: Final = 6
"""Runs that a worker goes on with side by side."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What all workers of a torture have in common."""

    folder: str
    """Where the trails are."""
    store: StoreKind
    address: str
    """The file of the store, or its URL."""
    seed: int
    variant: Variant

    @property
    def trails(self) -> Path:
        """Where the trails are."""
        return Path(self.folder)


def open_store(
    kind: StoreKind, address: str, *, verify: bool = False
) -> AbstractAsyncContextManager[BothStores]:
    """Open the store for a block; with *verify* all of it is looked at first, if it is a file."""
    if kind == "sqlite":
        return open_sqlite_store(Path(address), verify=verify)
    return open_postgres_store(address)


def load(kind: StoreKind) -> None:
    """Load what a store of this kind would load when it is opened."""
    if kind == "postgres":
        import_module("harness.stores._postgres_requests")


@asynccontextmanager
async def open_line(job: Job, trail: Trail, rng: random.Random) -> AsyncIterator[Line]:
    """Open the store for a block, at the end of a line."""
    async with open_store(job.store, job.address) as store:
        yield Line(store, trail, rng, LINE_SECONDS)
