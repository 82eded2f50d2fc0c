from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness._cli._fetch import SMOLLM2, cached_model, user_cache


@pytest.fixture(scope="session")
def model_file() -> Path:
    """The embedded model, where `harness demo --fetch-only` puts it."""
    path = cached_model(user_cache(os.environ))
    if path is None:
        pytest.skip(f"{SMOLLM2.name} is not there: run `harness demo --fetch-only`")
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed: pip install 'trio-harness[local]'")
    return path


@pytest.fixture
def gone() -> Callable[..., bool]:
    """Whether a process has ended, now or within the seconds a dying one may need."""

    def check(pid: int, *, within: float = 0.0) -> bool:
        until = time.monotonic() + within
        while _runs(pid):
            if time.monotonic() >= until:
                os.kill(pid, signal.SIGKILL)
                return False
            time.sleep(0.01)
        return True

    return check


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan that nobody has taken away yet is still in the table, but it does not run.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
