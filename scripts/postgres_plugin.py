"""A pytest plugin that gives tests a PostgreSQL server of their own.

A test marked ``postgres`` is skipped, with the reason, where there is none to be run;
``--require-postgres`` makes that an error before the first test. Every worker runs a server of its
own, from its first test that asks for one, and every test finds its database empty.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from typing import Final

import pytest

from scripts.postgres import PostgresError, programs
from scripts.postgres_server import PostgresServer, running_postgres

# A new database for each test takes fifteen times as long, since it is 300 files. A schema for each
# would leave what is in none: sessions, their locks, and schemas that the code under test makes.
EMPTY: Final = """
DO $$ DECLARE found text; BEGIN
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid();
    FOR found IN SELECT nspname FROM pg_namespace
        WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
    LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', found);
    END LOOP;
    CREATE SCHEMA public;
END $$
"""


@functools.cache
def why_not() -> str | None:
    """Return why no test can have a server; None: it can."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    try:
        programs()
    except PostgresError as error:
        return str(error)
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--require-postgres``."""
    parser.addoption(
        "--require-postgres",
        action="store_true",
        help="fail unless the tests marked postgres can run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to begin without a server that is required."""
    config.addinivalue_line("markers", "postgres: needs a PostgreSQL server of its own")
    if config.getoption("--require-postgres") and (reason := why_not()) is not None:
        raise pytest.UsageError(f"--require-postgres: {reason}")


def pytest_report_header() -> str:
    """Say which PostgreSQL the tests will run."""
    return f"postgres: {why_not() or programs()}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a marked test that cannot run."""
    if item.get_closest_marker("postgres") is not None and (reason := why_not()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The worker's server; a test that stops one runs its own."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """What a client connects to: a database with nothing in it, and nobody else's session."""
    import psycopg  # noqa: PLC0415  # not there where these tests are skipped

    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(EMPTY)
    return postgres_server.url
