import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.skills import RESOURCE_ROWS, Obstacle
from harness.skills._confined import _content, read_below
from tests.skills.examples import link

MOST = 1_000
AS_ROOT = os.geteuid() == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A skill's folder, with a secret beside it."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "folder-secret").write_text("secret")
    inside = tmp_path / "folder"
    (inside / "sub" / "deep").mkdir(parents=True)
    (inside / "a.txt").write_text("A")
    (inside / "sub" / "b.txt").write_text("B")
    (inside / "sub" / "deep" / "c.txt").write_text("C")
    return inside


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    before = os.listdir("/proc/self/fd")
    yield
    assert len(os.listdir("/proc/self/fd")) == len(before)


def read(folder: Path, path: str, most: int = MOST) -> bytes | Obstacle:
    return read_below(str(folder), path, most=most)


def test_every_obstacle_has_one_row() -> None:
    assert sorted(row.obstacle for row in RESOURCE_ROWS) == sorted(get_args(Obstacle))
    assert {row.kind for row in RESOURCE_ROWS} == {"authz", "not_found"}
    assert all(row.text for row in RESOURCE_ROWS)


@pytest.mark.rule("R-SKILL-31")
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.txt", b"A"),
        ("./a.txt", b"A"),
        ("sub/b.txt", b"B"),
        ("sub//deep/./c.txt", b"C"),
    ],
)
def test_a_regular_file_below_the_folder_is_read(folder: Path, path: str, content: bytes) -> None:
    assert read(folder, path) == content


@pytest.mark.rule("R-SKILL-31")
@pytest.mark.parametrize(
    ("path", "obstacle"),
    [
        ("../secret", "parent"),
        ("sub/../../secret", "parent"),
        ("sub/../a.txt", "parent"),
        ("..", "parent"),
        ("/etc/passwd", "absolute"),
        ("//etc/passwd", "absolute"),
        ("", "directory"),
        (".", "directory"),
        ("sub", "directory"),
        ("sub/", "directory"),
        ("none.txt", "missing"),
        ("none/../a.txt", "parent"),
        ("a.txt/b", "missing"),
        ("a.txt/", "missing"),
        ("a\0b", "missing"),
        ("a.txt\0/secret", "missing"),
        ("\ud800", "missing"),
        ("x" * 300, "missing"),
        ("a/" * 5_000, "missing"),
        ("..\\secret", "missing"),
        ("~/secret", "missing"),
        ("%2e%2e/secret", "missing"),
    ],
)
def test_any_other_path_is_refused(folder: Path, path: str, obstacle: Obstacle) -> None:
    assert read(folder, path) == obstacle


@pytest.mark.rule("R-SKILL-31")
@pytest.mark.parametrize(
    ("at", "target", "path", "result"),
    [
        ("l", "a.txt", "l", b"A"),
        ("l", "sub", "l/b.txt", b"B"),
        ("sub/l", "../a.txt", "sub/l", b"A"),
        ("sub/deep/l", "../../sub/./b.txt", "sub/deep/l", b"B"),
        ("l", "sub/deep/../b.txt", "l", b"B"),
        ("l", "../folder/a.txt", "l", "outside"),
        ("l", "../secret", "l", "outside"),
        ("l", "..", "l/secret", "outside"),
        ("sub/l", "../../secret", "sub/l", "outside"),
        ("l", "/etc/passwd", "l", "outside"),
        ("l", "/proc/self/environ", "l", "outside"),
        ("l", "/", "l/etc/passwd", "outside"),
        ("l", "{root}/sub/b.txt", "l", b"B"),
        ("sub/deep/l", "{root}/a.txt", "sub/deep/l", b"A"),
        ("l", "{root}-secret", "l", "outside"),
        ("l", "{root}", "l/a.txt", b"A"),
        ("l", "{root}/../secret", "l", "outside"),
        ("l", "none", "l", "missing"),
        ("l", "l", "l", "missing"),
        ("l", "sub", "l", "directory"),
    ],
)
def test_a_link_is_followed_only_as_far_as_it_stays_below(
    folder: Path, at: str, target: str, path: str, result: bytes | Obstacle
) -> None:
    link(target.format(root=folder), folder / at)
    assert read(folder, path) == result


@pytest.mark.rule("R-SKILL-31")
def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    link(folder, tmp_path / "linked")
    link(f"{folder}/a.txt", folder / "l")
    assert read(tmp_path / "linked", "sub/b.txt") == b"B"
    assert read(tmp_path / "linked", "l") == b"A"


@pytest.mark.rule("R-SKILL-31")
def test_links_that_never_end_are_given_up(folder: Path) -> None:
    for number in range(50):
        link(f"{number + 1}", folder / f"{number}")
    (folder / "50").write_text("far")
    assert read(folder, "0") == "missing"
    assert read(folder, "15") == b"far"
    link("loop/loop", folder / "loop")
    assert read(folder, "loop") == "missing"


@pytest.mark.rule("R-SKILL-31")
def test_a_pipe_a_socket_and_a_device_are_refused_at_once(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "pipe")
    before = time.monotonic()
    assert read(folder, "pipe") == "special"
    assert time.monotonic() - before < 5
    here = os.getcwd()
    os.chdir(folder)  # the name of a socket has little room
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
            assert read(folder, "socket") == "special"
    finally:
        os.chdir(here)
    for device in ("null", "zero", "tty"):
        assert read(Path("/dev"), device) == "special"


@pytest.mark.rule("R-SKILL-31")
def test_what_took_the_place_of_a_file_is_not_read_when_it_is_open(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    opened = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert _content(opened, MOST) == "special"
    finally:
        os.close(opened)


@pytest.mark.rule("R-SKILL-31")
def test_a_file_of_a_gigabyte_is_not_read(folder: Path) -> None:
    with open(folder / "huge", "wb") as huge:
        huge.truncate(1024**3)
    before = time.monotonic()
    assert read(folder, "huge") == "too_large"
    assert time.monotonic() - before < 5


@pytest.mark.rule("R-SKILL-31")
def test_a_file_may_have_so_many_bytes_and_no_more(folder: Path) -> None:
    (folder / "x").write_bytes(b"x" * MOST)
    assert read(folder, "x") == b"x" * MOST
    assert read(folder, "x", most=MOST - 1) == "too_large"
    (folder / "x").write_bytes(b"")
    assert read(folder, "x", most=0) == b""


@pytest.mark.rule("R-SKILL-31")
def test_a_file_that_has_more_than_it_claims_is_not_read() -> None:
    # What the kernel makes up claims to be empty.
    assert os.stat("/proc/self/maps").st_size == 0
    assert read(Path("/proc/self"), "maps", most=100) == "too_large"
    assert isinstance(read(Path("/proc/self"), "maps", most=10**7), bytes)


@pytest.mark.skipif(AS_ROOT, reason="root may read everything")
def test_what_may_not_be_read_is_refused(folder: Path) -> None:
    os.chmod(folder / "a.txt", 0)
    assert read(folder, "a.txt") == "forbidden"


def test_folders_are_held_open_only_so_deep(folder: Path) -> None:
    path = "/".join("d" * 33)
    (folder / path).mkdir(parents=True)
    (folder / path / "x").write_text("x")
    (folder / path[:61] / "x").write_text("x")
    assert read(folder, f"{path[:61]}/x") == b"x"
    assert read(folder, f"{path}/x") == "missing"


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / "none", "x") == "missing"


def test_what_the_path_does_not_explain_is_raised(folder: Path) -> None:
    # A process's memory can be opened, and reading from its first page is an input error.
    with pytest.raises(OSError, match="Input/output error") as raised:
        read(Path("/proc/self"), "mem")
    assert raised.value.errno == errno.EIO


AUDIT = """
import os, sys
from harness.skills._confined import read_below

opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append((args[0], args[2])))
assert read_below(sys.argv[1], "sub/deep/c.txt", most=9) == b"C"
assert read_below(sys.argv[1], "pipe", most=9) == "special"
for name, flags in opened:
    print(os.path.basename(name), bool(flags & os.O_NOFOLLOW), bool(flags & os.O_NONBLOCK))
"""


@pytest.mark.rule("R-SKILL-31")
def test_nothing_is_opened_through_a_link_and_no_pipe_at_all(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    ended = subprocess.run(
        [sys.executable, "-c", AUDIT, str(folder)], check=True, capture_output=True, text=True
    )
    assert ended.stdout.split("\n") == [
        "folder False False",
        "sub True False",
        "deep True False",
        "c.txt True True",
        "folder False False",
        "",
    ]


@pytest.mark.rule("R-SKILL-31")
def test_whoever_swaps_names_meanwhile_gets_nothing_out(folder: Path, tmp_path: Path) -> None:
    """A directory and a file become links to what is outside and back, all the time."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b.txt").write_text("secret")
    link(outside, folder / "evil-dir")
    link("../secret", folder / "evil-file")
    os.mkfifo(folder / "evil-pipe")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name, evil in (("sub", "evil-dir"), ("a.txt", "evil-file"), ("a.txt", "evil-pipe")):
                for one, other in ((name, "aside"), (evil, name), (name, evil), ("aside", name)):
                    os.rename(folder / one, folder / other)

    swapping = threading.Thread(target=swap)
    swapping.start()
    results: list[bytes | Obstacle] = []
    try:
        for _ in range(2_000):
            results += [read(folder, "sub/b.txt"), read(folder, "a.txt")]
    finally:
        stop.set()
        swapping.join()
    assert b"secret" not in results
    assert {b"A", b"B"} <= {*results}
    assert {each for each in results if isinstance(each, str)} <= {"outside", "missing", "special"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["..", ".", "", "sub", "a.txt", "l", "out", "deep", "\0"]), max_size=8)
)
def test_no_path_leads_out(folder: Path, parts: list[str]) -> None:
    if not (folder / "l").is_symlink():
        link("sub", folder / "l")
        link("../../../secret", folder / "sub" / "deep" / "out")
        link("..", folder / "out")
    result = read(folder, "/".join(parts))
    assert result in (b"A", b"B", b"C") or result in get_args(Obstacle)
