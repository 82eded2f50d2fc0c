"""The line about the tests with the real model, and the flag that insists on them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import rules

RUNS = "import pytest\n@pytest.mark.local_model\ndef test_runs(): pass\n"
SKIPS = (
    "import pytest\n@pytest.mark.local_model\n@pytest.mark.skip(reason='no file')\n"
    "def test_skips(): pass\n"
)
FAILS = "import pytest\n@pytest.mark.local_model\ndef test_fails(): assert len('x') == 2\n"
OTHER = "def test_other(): pass\n"


def outcome(folder: Path, text: str, *flags: str) -> tuple[int, str]:
    """Run pytest with the plugin over one planted file: its exit code and its line."""
    folder.joinpath("test_planted.py").write_text(text, "utf-8")
    folder.joinpath("pytest.ini").write_text("[pytest]\nmarkers =\n    local_model\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "scripts.local_model", *flags],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(rules.ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        check=False,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    (title,) = [n for n, line in enumerate(lines) if re.fullmatch("-+ local model -+", line)]
    return done.returncode, lines[title + 1]


@pytest.mark.parametrize(
    ("text", "code", "required", "line"),
    [
        (RUNS, 0, 0, "1 of 1 tests with the real model ran"),
        (SKIPS + OTHER, 0, 1, "1 of 1 tests with the real model did NOT run: no file"),
        (RUNS + SKIPS, 0, 1, "1 of 2 tests with the real model did NOT run: no file"),
        (FAILS, 1, 1, "1 of 1 tests with the real model ran"),
        (OTHER, 0, 1, "no test with the real model was selected"),
    ],
    ids=["runs", "skips", "half", "fails", "none"],
)
def test_a_session_says_what_ran_and_fails_only_when_told_to(
    tmp_path: Path, text: str, code: int, required: int, line: str
) -> None:
    assert outcome(tmp_path, text) == (code, line)
    assert outcome(tmp_path, text, "--require-local-model") == (required, line)
