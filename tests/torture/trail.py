"""What happened, written down outside of every store: one append-only file for each process.

A record is one line, written by one call before the next thing is done, so a process that is
killed leaves all that it had come to. Times are those of the machine's monotonic clock, which all
its processes share: what began after something else had returned came after it, whoever did it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

__all__ = [
    "DRIVER",
    "Blow",
    "Created",
    "Doubted",
    "Effect",
    "Ended",
    "Failed",
    "Left",
    "Record",
    "Refused",
    "Struck",
    "Took",
    "Trail",
    "Verb",
    "Wrote",
    "read_effects",
    "read_trails",
]

DRIVER: Final = "driver"
"""Who writes of what is done to the workers, and stands for the host of the runs."""

Verb: TypeAlias = Literal["commit", "claim", "settle", "renew_run", "renew_receipt"]
Blow: TypeAlias = Literal["kill", "stop", "continue", "restart", "full", "read_only", "no_writes"]


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all records."""

    worker: str
    """The process that wrote it."""
    at: int = msgspec.field(default_factory=time.monotonic_ns)
    """Nanoseconds. What it tells of had happened by then."""


class Took(_Record, frozen=True, kw_only=True):
    """A run was taken, or a call was claimed, under a number that shuts lower ones out."""

    name: str
    """The run's id, or the receipt's key."""
    number: int
    """The fence of the run, or the attempt of the receipt."""
    receipt: bool


class Wrote(_Record, frozen=True, kw_only=True):
    """A store took a write that its writer made under a number."""

    verb: Verb
    name: str
    """What the number is of, as in `Took`; a claim is written under its run's."""
    number: int
    asked: int
    """When the store was asked. The number was the last one then, or it was too late."""
    revision: int | None = None
    settlement: str | None = None


class Refused(_Record, frozen=True, kw_only=True):
    """A store said to a writer that somebody else had taken over."""

    verb: Verb
    name: str
    number: int


class Doubted(_Record, frozen=True, kw_only=True):
    """A store said that the effect of a call is in doubt."""

    receipt: str


class Effect(_Record, frozen=True, kw_only=True):
    """A tool did something that cannot be undone: this very line is what it did."""

    run_id: str
    tool: str
    item: str
    part: int
    token: str
    """Unique; the call's result repeats it."""
    receipt: str
    """The receipt under which it was done, or an empty text."""
    attempt: int


class Left(_Record, frozen=True, kw_only=True):
    """A call was cut or raised: it will never be settled by this worker."""

    receipt: str
    attempt: int


class Failed(_Record, frozen=True, kw_only=True):
    """A worker's run ended with an error; some are to be expected."""

    run_id: str
    code: str
    """The error's own, or the name of its class."""
    error: str
    expected: bool


class Created(_Record, frozen=True, kw_only=True):
    """A run was stored."""

    run_id: str


class Struck(_Record, frozen=True, kw_only=True):
    """Something was done to a worker, or to all."""

    blow: Blow
    victim: str


class Ended(_Record, frozen=True, kw_only=True):
    """A worker ended by itself, when nobody had told it to."""

    victim: str
    code: int


Record: TypeAlias = (
    Took | Wrote | Refused | Doubted | Effect | Left | Failed | Created | Struck | Ended
)

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)


class Trail:
    """Appends records to a file of its own."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.worker = worker
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(folder / f"{worker}.trail", flags, 0o644)

    def write(self, record: Record) -> None:
        """Append *record*; an effect is on the disk when this returns.

        Raises:
            OSError: it could not be written.
        """
        line = _ENCODER.encode(record) + b"\n"
        if os.write(self._file, line) != len(line):
            raise OSError(f"the record {record!r} was cut")
        if isinstance(record, Effect):
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_trails(folder: Path) -> list[Record]:
    """Return the records of all processes, in the order of their times."""
    records = [record for file in folder.glob("*.trail") for record in _read(file)]
    return sorted(records, key=lambda each: each.at)


def read_effects(file: Path) -> list[Effect]:
    """Return the effects in one file, in the order in which they were written; none without it."""
    return [each for each in _read(file) if isinstance(each, Effect)] if file.exists() else []


def _read(file: Path) -> Iterator[Record]:
    """Yield the records of a file. A last line without an end is of a write that was cut."""
    *lines, _cut = file.read_bytes().split(b"\n")
    for line in lines:
        yield _DECODER.decode(line)
