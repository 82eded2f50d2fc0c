"""Where a store is put for a torture, and what can be done to it there.

A fault is something that is the matter with the place for some seconds. What can be made here
depends on the machine: a disk that is really full needs a file system of its own, which only root
may mount; without it, the workers get a limit on how large a file they may write.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from scripts.postgres_server import PostgresServer, running_postgres
from tests.torture.job import StoreKind
from tests.torture.trail import Blow

__all__ = ["Command", "Fault", "Place", "open_place"]

Command: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Has the nest do something; see there."""

_PLAIN: Final = "setpriv"
"""Takes a capability from workers: root may write a file that may not be written."""


class Fault(Protocol):
    """Something that can be the matter with a place."""

    @property
    def blow(self) -> Blow:
        """What it is called in a trail."""
        ...

    async def strike(self, command: Command, seconds: float) -> None:
        """Have it be the matter for so long."""
        ...


@attrs.frozen
class Place:
    """A store's place."""

    address: str
    faults: tuple[Fault, ...]
    prefix: tuple[str, ...] = ()
    """What the nest is started with."""


@contextmanager
def open_place(store: StoreKind, *, megabytes: int) -> Iterator[Place]:
    """A place for a store, for the block; one that is a file may come to have that size."""
    if store == "postgres":
        with running_postgres() as server:
            yield Place(server.url, (_Restart(server),))
    else:
        with _sqlite_place(megabytes) as place:
            yield place


@contextmanager
def _sqlite_place(megabytes: int) -> Iterator[Place]:
    """A folder for a SQLite file; if possible on a disk of its own, of that size."""
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    mounted = _mount(folder, megabytes)
    file = folder / "runs.db"
    full: Fault = _FullDisk(folder) if mounted else _NoRoom(file)
    prefix = (_PLAIN, "--bounding-set=-dac_override", "--") if _is_root() else ()
    try:
        yield Place(str(file), (full, _ReadOnly(folder)), prefix)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)
        shutil.rmtree(folder)


def _is_root() -> bool:
    return os.geteuid() == 0 and shutil.which(_PLAIN) is not None


def _mount(folder: Path, megabytes: int) -> bool:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@attrs.frozen
class _Restart:
    """The server crashes, and is away for a while."""

    _server: PostgresServer
    blow: Blow = "restart"

    async def strike(self, command: Command, seconds: float) -> None:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._server.stop, "immediate")
            await trio.sleep(seconds / 2)
            await trio.to_thread.run_sync(self._server.start)


@attrs.frozen
class _FullDisk:
    """Nothing more fits on the disk."""

    _folder: Path
    blow: Blow = "full"

    async def strike(self, command: Command, seconds: float) -> None:
        filler = self._folder / "filler"
        block = b"\0" * (1 << 20)
        try:
            # Synchronously: nobody else is to have the room that is being taken.
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(block) == len(block):
                    pass
            await trio.sleep(seconds)
        finally:
            filler.unlink()


@attrs.frozen
class _NoRoom:
    """No file of a worker may grow beyond what the store has already."""

    _file: Path
    blow: Blow = "full"

    async def strike(self, command: Command, seconds: float) -> None:
        # Well above a worker's trail, which is to be written whatever happens to the store.
        size = max(1 << 17, self._file.stat().st_size // 2)
        try:
            await command("limit", str(size))
            await trio.sleep(seconds)
        finally:
            with trio.CancelScope(shield=True):
                await command("limit", "-1")


@attrs.frozen
class _ReadOnly:
    """Whoever opens the file from now on can only read it."""

    _folder: Path
    blow: Blow = "read_only"

    async def strike(self, command: Command, seconds: float) -> None:
        files = [each for each in self._folder.iterdir() if each.name.startswith("runs.db")]
        try:
            for file in files:
                file.chmod(0o444)
            self._folder.chmod(0o555)
            await trio.sleep(seconds)
        finally:
            self._folder.chmod(0o755)
            for file in files:
                with suppress(FileNotFoundError):
                    file.chmod(0o644)
