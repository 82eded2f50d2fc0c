"""The fault servers of `scripts.fault_servers`, running, and what they tell about their clients."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pytest

from scripts.environment import STAMP
from scripts.fault_servers import AIMOCK, DIRECTORY, NODE, PYTHON

__all__ = ["Behaviour", "Llmock", "aimock", "llmock"]

Behaviour: TypeAlias = Mapping[str, object]
"""What llmock does with the next request that it fits, in its own words."""

SERVE: Final = """
import socket, sys, uvicorn
from llmock.main import app
config = uvicorn.Config(app, log_level="error", loop="asyncio", timeout_graceful_shutdown=1)
uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""


@attrs.frozen
class Llmock:
    """A running llmock."""

    origin: str

    def plan(self, *behaviours: Behaviour) -> None:
        """Forget what was, and do these."""
        self._ask("/reset", {})
        self.add(*behaviours)

    def add(self, *behaviours: Behaviour) -> None:
        """Do these when what was planned before is done."""
        if behaviours:
            self._ask("/scenario", {"behaviors": behaviours})

    def pending(self) -> list[Any]:
        """What has been planned and not been done."""
        return self._ask("/scenario")["pending"]  # type: ignore[no-any-return]  # JSON

    def drop_pending(self) -> list[Any]:
        """Forget what has been planned and not been done, and return it; the log stays."""
        pending = self.pending()
        self._ask("/scenario", method="DELETE")
        return pending

    def served(self) -> list[dict[str, Any]]:
        """The log: one record for each request, in order."""
        return self._ask("/requests")["requests"]  # type: ignore[no-any-return]  # JSON

    def failures(self) -> list[Any]:
        """What its verdict on the client calls an error."""
        verdict = self._ask("/verdict")
        return [each for each in verdict["findings"] if each["severity"] == "error"]

    def _ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        request = urllib.request.Request(
            f"{self.origin}/_llmock{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
            method=method,
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=10
        ) as answer:
            return json.load(answer)


def _must_be_there() -> None:
    if not (DIRECTORY / STAMP).exists():
        pytest.skip("the fault servers are not there: python3 -m scripts.fault_servers")


@contextmanager
def llmock() -> Iterator[Llmock]:
    """Run llmock for the block."""
    _must_be_there()
    # It is given the socket to listen on: no port to race for, and a question that comes too
    # early waits for it.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        command = [PYTHON, "-c", SERVE, str(number)]
        with _running(command, pass_fds=[number], stdout=subprocess.DEVNULL):
            server = Llmock(f"http://127.0.0.1:{listener.getsockname()[1]}")
            server.plan()
            yield server


@contextmanager
def aimock(fixtures: Sequence[Mapping[str, object]], folder: Path) -> Iterator[str]:
    """Run aimock with *fixtures* for the block, and give its address."""
    _must_be_there()
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": fixtures}), "utf-8")
    command = [NODE, AIMOCK, "--port", "0", "--fixtures", folder]
    with _running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = re.search(rb"listening on (http://\S+)", line)
            if found:
                yield found[1].decode()
                return
        raise AssertionError(f"aimock ended with {process.wait()}")


@contextmanager
def _running(
    command: list[Any], *, stdout: int, pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=stdout, pass_fds=pass_fds) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
