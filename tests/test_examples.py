"""Every example of the documentation runs, and prints what its page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
EXAMPLES: Final = ROOT / "docs" / "examples"
SCRIPTS: Final = (
    "delegate",
    "first_answer",
    "many_tools",
    "mend",
    "quickstart",
    "receipts",
    "remote_tools",
    "resume",
    "route",
    "show_text",
    "skills",
    "structured_output",
)
"""Those that are run as they are, with neither a model nor a network."""


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        check=False,
        capture_output=True,
        text=True,
    )


def printed(name: str) -> str:
    return (EXAMPLES / f"{name}.txt").read_text("utf-8")


def pattern(excerpt: str) -> str:
    """Return what an excerpt stands for: ``…`` is anything, and a number is any number."""
    lines = ["(.*\n)*" if line == "…" else f".*{_line(line)}\n" for line in excerpt.splitlines()]
    return "".join(lines)


def _line(text: str) -> str:
    return re.sub(r"\d+", r"\\d+", re.escape(text)).replace("…", ".*")


def test_every_example_is_run() -> None:
    # That of the real model is run where there is a server for it.
    elsewhere = {"first_run", "tide_server"}
    hotel = {"hotel", "leaky_hotel", "test_hotel"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SCRIPTS, *elsewhere, *hotel}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_what_its_page_says(name: str, tmp_path: Path) -> None:
    ended = run(str(EXAMPLES / f"{name}.py"), folder=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == printed(name)


@pytest.mark.slow
@pytest.mark.parametrize(("hotel", "code"), [("hotel", 0), ("leaky_hotel", 1)])
def test_the_hotels_tests_find_the_leak_and_pass_without_it(
    hotel: str, code: int, tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / f"{hotel}.py", tmp_path / "hotel.py")
    shutil.copy(EXAMPLES / "test_hotel.py", tmp_path)
    flags = ["-q", "-s", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    ended = run("-m", "pytest", *flags, "test_hotel.py", folder=tmp_path)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert re.search(pattern(printed(hotel)), ended.stdout), ended.stdout


def test_an_excerpt_stands_for_its_lines_and_no_others() -> None:
    excerpt = pattern("cut 8: bad\n…\n  park here, …\n")
    assert re.search(excerpt, "E  cut 12: bad\nE  more\nE    park here, there\n")
    assert not re.search(excerpt, "E  cut 12: good\nE    park here, there\n")
    assert not re.search(excerpt, "E  cut 12: bad\n")
