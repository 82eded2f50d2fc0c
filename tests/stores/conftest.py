import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.stores.conformance import STORES, OpenSubject, Subject, postgres


@pytest.fixture(
    scope="session", params=[*STORES, pytest.param("postgres", marks=pytest.mark.postgres)]
)
def open_subject(request: pytest.FixtureRequest) -> OpenSubject:
    if request.param in STORES:
        return STORES[request.param]
    return partial(postgres, request.getfixturevalue("postgres_server").url)


@pytest.fixture
async def subject(open_subject: OpenSubject, tmp_path: Path) -> AsyncIterator[Subject]:
    async with open_subject(tmp_path) as opened:
        yield opened


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory, if there is one: where a test writes a thousand files."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)
