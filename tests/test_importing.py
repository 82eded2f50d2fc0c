"""What importing and running the package does to the process around it."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import fences

CORE = [
    re.sub(r"\.?__init__$", "", f"harness.{source.name}")
    for source in fences.package_sources()
    if not source.is_edge
]
AUDITED = Path(__file__).with_name("audited.py")


def in_a_fresh_process(*arguments: str, cwd: Path = fences.ROOT) -> Any:
    """Run Python with *arguments* and return the JSON that it prints."""
    env = {**os.environ, "PYTHONPATH": str(cwd)}
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd,
        env=env,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.rule("R-FENCE-02")
def test_importing_touches_no_file_socket_or_process() -> None:
    assert in_a_fresh_process(str(AUDITED), str(fences.PACKAGE), "-", *CORE) == []


@pytest.mark.rule("R-FENCE-02")
def test_a_run_touches_no_file_socket_or_process() -> None:
    run = "tests.audited_run:main"
    assert in_a_fresh_process(str(AUDITED), str(fences.PACKAGE), run) == []


@pytest.mark.parametrize(
    "text",
    [
        "open(__file__).close()",
        "import os; os.listdir('.')",
        "import socket; socket.socket().close()",
        "import subprocess; subprocess.run(['true'])",
        "import pathlib; pathlib.Path(__file__).read_text()",
        "import importlib.metadata; importlib.metadata.version('trio')",
    ],
)
def test_a_module_that_touches_the_world_is_seen(tmp_path: Path, text: str) -> None:
    tmp_path.joinpath("planted.py").write_text(text, "utf-8")
    faults = in_a_fresh_process(str(AUDITED), str(tmp_path), "-", "planted", cwd=tmp_path)
    assert faults
    assert all("planted.py:1" in fault for fault in faults)


def test_a_call_that_touches_the_world_is_seen(tmp_path: Path) -> None:
    text = "def touch():\n    open(__file__).close()"
    tmp_path.joinpath("planted.py").write_text(text, "utf-8")
    faults = in_a_fresh_process(str(AUDITED), str(tmp_path), "planted:touch", cwd=tmp_path)
    assert len(faults) == 1
    assert "planted.py:2 open" in faults[0]


def test_what_an_imported_package_does_is_its_own(tmp_path: Path) -> None:
    tmp_path.joinpath("ours").mkdir()
    tmp_path.joinpath("ours", "__init__.py").write_text("import theirs", "utf-8")
    tmp_path.joinpath("theirs.py").write_text("open(__file__).close()", "utf-8")
    ours = str(tmp_path / "ours")
    assert in_a_fresh_process(str(AUDITED), ours, "-", "ours", cwd=tmp_path) == []


ALONE = """
import importlib, json, sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in allowed and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)

allowed, modules = json.loads(sys.argv[1])
sys.meta_path.insert(0, Nothing())
print(json.dumps([importlib.import_module(name).__name__ for name in modules]))
"""


def required_packages() -> set[str]:
    """The import names of the run-time dependencies, and of all that these require."""
    distributions = set()
    waiting = sorted(fences.RUNTIME)
    while waiting:
        name = waiting.pop()
        # A requirement of another platform or an older Python is not installed.
        if name in distributions or not list(importlib.metadata.distributions(name=name)):
            continue
        distributions.add(name)
        for requirement in importlib.metadata.requires(name) or ():
            if "extra ==" not in requirement:
                waiting.append(_plain(re.split(r"[^\w.-]", requirement, maxsplit=1)[0]))
    found = importlib.metadata.packages_distributions()
    return {name for name, homes in found.items() if set(map(_plain, homes)) & distributions}


def _plain(name: str) -> str:
    """A distribution may be spelt in several ways."""
    return name.lower().replace("-", "_")


@pytest.mark.rule("R-FENCE-03", "R-FENCE-05")
def test_importing_needs_only_the_runtime_dependencies() -> None:
    allowed = sorted({"harness", *required_packages()})
    assert in_a_fresh_process("-c", ALONE, json.dumps([allowed, CORE])) == CORE


def test_a_dependency_that_nobody_declared_would_be_missed(tmp_path: Path) -> None:
    tmp_path.joinpath("planted.py").write_text("import pytest", "utf-8")
    with pytest.raises(AssertionError, match="No module named 'pytest'"):
        in_a_fresh_process("-c", ALONE, json.dumps([["planted"], ["planted"]]), cwd=tmp_path)
