"""Make one of the project's virtual environments, unless it is there and current.

``environment.py DIRECTORY EXTRA...`` installs this project, editable and with these extras, into
DIRECTORY. The last thing written is a stamp that says what the environment was made of: the
project file, the extras, the interpreter and the place. A stamp that is absent (an interrupted
install) or says something else (a changed dependency, another Python, a checkout that was moved,
whose editable install still points at the old place) means: start again from nothing. Mending a
half-made environment would save a few seconds and cost the certainty of knowing what is in it.

Only the interpreter that will run the project may run this file, and it may be too old; so the
first statements keep to a syntax that any Python 3 can read.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit(
        "python is %d.%d (%s), expected 3.11 or newer: name one with  make PYTHON=python3.12 ..."
        % (sys.version_info[0], sys.version_info[1], sys.executable)
    )

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = "harness-stamp.json"


def fingerprint(directory: Path, extras: list[str], project: Path) -> dict[str, object]:
    """Return what an environment in *directory* would be made of now."""
    return {
        "directory": str(directory),
        "extras": extras,
        "project": hashlib.sha256(project.read_bytes()).hexdigest(),
        "python": [sys.base_prefix, sys.version],
    }


def is_current(directory: Path, wanted: dict[str, object]) -> bool:
    """Tell whether *directory* holds a finished environment made of *wanted*."""
    try:
        return bool(json.loads((directory / STAMP).read_text("utf-8")) == wanted)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def create(directory: Path, *packages: str) -> None:
    """Make an environment in *directory*, where nothing is, and pip-install *packages* into it.

    Raises:
        subprocess.CalledProcessError: pip failed; its own words are in the error's output.
    """
    # Some distributions ship pip but not the wheel that `venv` would unpack: then the pip of
    # this interpreter serves the new environment from outside.
    own_pip = importlib.util.find_spec("ensurepip") is not None
    venv.create(directory, with_pip=own_pip, symlinks=True)
    python = str(directory / "bin" / "python")
    pip = [python, "-m", "pip"] if own_pip else [sys.executable, "-m", "pip", "--python", python]
    flags = ["--quiet", "--disable-pip-version-check", "--no-input"]
    # Kept back: where all went well nobody wants to read pip's warnings about its own settings.
    subprocess.run(
        [*pip, "install", *flags, *packages],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def install(directory: Path, extras: list[str]) -> None:
    """Make an environment in *directory*, where nothing is, and install the project into it.

    Raises:
        subprocess.CalledProcessError: as `create`.
    """
    target = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    create(directory, "--editable", target)


def ensure(
    directory: Path,
    extras: list[str],
    *,
    project: Path = ROOT / "pyproject.toml",
    install: Callable[[Path, list[str]], None] = install,
) -> bool:
    """Make the environment in *directory* unless it is current; tell whether it was made."""
    wanted = fingerprint(directory, extras, project)
    if is_current(directory, wanted):
        return False
    print(f"making {os.path.relpath(directory)}, which takes up to a minute, once", flush=True)
    if directory.exists():
        shutil.rmtree(directory)
    install(directory, extras)
    (directory / STAMP).write_text(json.dumps(wanted, indent=2) + "\n", "utf-8")
    return True


def main(arguments: list[str]) -> int:
    """Do what the command line asks, and return the exit code."""
    if not arguments:
        print("usage: environment.py DIRECTORY [EXTRA ...]", file=sys.stderr)
        return 2
    try:
        ensure(Path(arguments[0]).absolute(), arguments[1:])
    except subprocess.CalledProcessError as error:
        print(error.output or "", file=sys.stderr, end="")
        print(f"{arguments[0]} was not made: pip exited with {error.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
