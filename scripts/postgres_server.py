"""Run a PostgreSQL server for a test, which may stop and kill it.

A server listens in its own folder and on no port, so any number run side by side with nothing to
race for. It ends with the process that started it, however that ends: a shell waits for the end of
a pipe that only this process holds, then stops the server and removes its folder. The normal end
goes the same way, so there is no second one that is rarely walked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

from scripts.postgres import PostgresError, Programs, account, privileges, programs, surroundings

PORT: Final = 5432
"""Part of the socket's name, and of nothing else."""
SOCKET_PATH_LIMIT: Final = 103
"""Bytes of a socket's path: the least that any system allows."""
PID_FILE_LINES: Final = 8
"""Of a server that has come up; the first is its number, the last its state."""
PATIENCE: Final = 60.0
"""Seconds until a server that does not start or stop is given up."""

StopMode: TypeAlias = Literal["fast", "immediate"]
"""``fast`` ends every session and writes all out; ``immediate`` is a crash, and the next start
recovers from it."""
STOP_SIGNALS: Final[dict[StopMode, signal.Signals]] = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

# Its own session, so Ctrl-C at a terminal does not reach it. Where a killed server's processes are
# still leaving, the folder is not empty yet.
GUARD: Final = """
cat >/dev/null
"$1/pg_ctl" --pgdata="$2" --mode="$3" stop
for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$4" && exit 0; sleep 0.2; done
exit 1
"""


class PostgresServer:
    """A server of one's own; made by `running_postgres`.

    All of its methods block, and some for seconds: an async test calls them in a thread.
    """

    def __init__(self, found: Programs, *, folder: Path, data: Path, fsync: bool) -> None:
        self._folder = folder
        self._pid_file = data / "postmaster.pid"
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        # Not to wait for the disk loses nothing when processes die, only when the machine does.
        # synchronous_commit stays on: without it a server's crash loses what was committed.
        unsafe = [] if fsync else ["fsync=off", "full_page_writes=off"]
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", f"port={PORT}"]
        self._command = [
            str(found.folder / "postgres"),
            "-D",
            str(data),
            *(word for setting in [*settings, *unsafe] for word in ("-c", setting)),
        ]

    @property
    def url(self) -> str:
        """What a client connects to: the database that every server has."""
        host = quote(str(self._folder), safe="")
        return f"postgresql://postgres@/postgres?host={host}&port={PORT}"

    @property
    def pid(self) -> int:
        """The process that all of the server's others are children of.

        Raises:
            PostgresError: The server is not running.
        """
        if self._process is None or self._process.poll() is not None:
            raise PostgresError("the server is stopped, expected it to run")
        return self._process.pid

    def start(self) -> None:
        """Return when the server accepts connections; at once where it does.

        Raises:
            PostgresError: It did not start; the end of its log is in the error.
        """
        if not self._runs():
            self._spawn()
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise PostgresError(f"the server is not ready in {PATIENCE} seconds: {self._end()}")
            if not self._runs():
                # The children of one that was killed need a moment to notice.
                if "still in use" not in self._end():
                    raise PostgresError(f"the server did not start: {self._end()}")
                self._spawn()
            time.sleep(0.01)

    def stop(self, mode: StopMode = "fast") -> None:
        """Return when the server has ended; at once where it is stopped.

        Raises:
            PostgresError: It goes on running.
        """
        self._signal(STOP_SIGNALS[mode])

    def restart(self, mode: StopMode = "immediate") -> None:
        """Stop the server and start it again.

        Raises:
            PostgresError: As `stop` and `start`.
        """
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Kill the server's first process; its others end when they notice, shortly after.

        Raises:
            PostgresError: It goes on running.
        """
        self._signal(signal.SIGKILL)

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _spawn(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=surroundings(),
                start_new_session=True,
                **privileges(),
            )

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise PostgresError(
                f"the server outlived {number.name} by {PATIENCE} seconds"
            ) from None
        self._process = None

    def _is_ready(self) -> bool:
        try:
            lines = self._pid_file.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return False
        # A killed server leaves its file behind, which goes on saying that it is ready.
        return (
            self._process is not None
            and self._runs()
            and len(lines) == PID_FILE_LINES
            and lines[0] == str(self._process.pid)
            and lines[-1].strip() == "ready"
        )

    def _end(self) -> str:
        return " / ".join(self._log.read_text("utf-8", "replace").splitlines()[-8:])


@contextlib.contextmanager
def running_postgres(*, fsync: bool = False, data: Path | None = None) -> Iterator[PostgresServer]:
    """Run a server for the block, with one user, ``postgres``, who needs no password.

    Args:
        fsync: Whether it waits until a commit is on the disk. What commits cost can be measured
            only so.
        data: Where the cluster is and stays. It is made where it is not; the folders above must
            let the account in that the server runs as. By default it is new, and removed.

    Raises:
        PostgresError: There are no programs, or the server did not start or could not be removed.
    """
    found = programs()
    folder = make_folder()
    place = folder / "data" if data is None else data.absolute()
    with guarded(found, folder, place, keep=data is not None):
        initialise(found, place)
        server = PostgresServer(found, folder=folder, data=place, fsync=fsync)
        try:
            server.start()
            yield server
        finally:
            # Here, so that the server is waited for by whom it is the child of.
            server.stop("immediate" if data is None else "fast")


def make_folder() -> Path:
    """Return a new folder of the server's account, where a socket can be.

    Raises:
        PostgresError: No place for temporary files will do.
    """
    for parent in dict.fromkeys([tempfile.gettempdir(), "/tmp"]):
        folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=parent))
        if len(os.fsencode(folder / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_LIMIT and lets_in(folder):
            give(folder)
            return folder
        folder.rmdir()
    raise PostgresError(
        f"{tempfile.gettempdir()!r} is too long or closed to the server's account, "
        "expected a short path that it may pass"
    )


def lets_in(folder: Path) -> bool:
    """Tell whether the server's account may pass the folders above *folder*."""
    other = account()
    if other is None:
        return True
    modes = [(each.stat().st_uid == other.pw_uid, each.stat().st_mode) for each in folder.parents]
    return all(mode & (0o100 if owns else 0o001) for owns, mode in modes)


def give(folder: Path) -> None:
    """Make *folder* the property of the server's account."""
    other = account()
    if other is not None:
        os.chown(folder, other.pw_uid, other.pw_gid)


@contextlib.contextmanager
def guarded(found: Programs, folder: Path, data: Path, *, keep: bool) -> Iterator[None]:
    """Stop what runs on *data*, and remove *folder*, when the block or this process ends.

    Raises:
        PostgresError: The folder is still there.
    """
    mode: StopMode = "fast" if keep else "immediate"
    arguments = [str(each) for each in (found.folder, data, mode, folder)]
    with subprocess.Popen(
        ["/bin/sh", "-c", GUARD, "postgres-guard", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=surroundings(),
        start_new_session=True,
        **privileges(),
    ) as guard:
        yield
    if guard.returncode != 0:
        raise PostgresError(f"{str(folder)!r} was not removed, expected the server to leave it")


def initialise(found: Programs, data: Path) -> None:
    """Make a cluster in *data*, unless one is there.

    Raises:
        PostgresError: The account may not go there, or initdb failed, with its own words.
    """
    if (data / "PG_VERSION").exists():
        return
    if not lets_in(data):
        raise PostgresError(
            f"{str(data)!r} is below a folder that is closed to the server's account"
        )
    data.mkdir(mode=0o700, exist_ok=True)
    give(data)
    flags = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres", "--no-sync"]
    done = subprocess.run(
        [found.folder / "initdb", *flags, f"--pgdata={data}"],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        env=surroundings(),
        **privileges(),
    )
    if done.returncode != 0:
        raise PostgresError(f"initdb failed: {' / '.join(done.stdout.splitlines()[-8:])}")
