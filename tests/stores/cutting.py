"""A line to a PostgreSQL server that is cut at the end of a transaction, before or after it."""

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

When: TypeAlias = Literal["before", "meanwhile", "after", "never"]
"""The server never hears of the end; it hears, and the line is cut at once; it has answered. Or
the line is not cut at all."""

_END: Final = b"COMMIT\x00"
_NAME: Final = ".s.PGSQL.5432"


class Line:
    """What clients connect to in the server's place. Made by `open_line`."""

    def __init__(self, server: str, folder: Path) -> None:
        self.url = f"postgresql://postgres@/postgres?host={quote(str(folder), safe='')}&port=5432"
        self.cuts: list[When] = []
        """What is done to the next transactions, one after the other."""
        self._server = server
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _NAME))
        self._listener.listen()
        self._open.append(self._listener)
        self._start(self._accept)

    def close(self) -> None:
        _hang_up(*self._open)
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                self._open += [client, server]
                server.connect(self._server)
                self._start(partial(self._forward, client, server))
                self._start(partial(self._bring_back, client, server))

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        when: When | None = None
        with suppress(OSError):
            while received := client.recv(1 << 16):
                when = self.cuts.pop(0) if self.cuts and _END in received else None
                if when == "never":
                    when = None
                if when == "before":
                    break
                if when == "after":
                    _hang_up(client)
                server.sendall(received)
                if when is not None:
                    break
            if when == "after":
                threading.Event().wait(0.2)  # until it has answered
        _hang_up(client, server)

    def _bring_back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while received := server.recv(1 << 16):
                client.sendall(received)
        _hang_up(client, server)


def _hang_up(*ends: socket.socket) -> None:
    for each in ends:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def open_line(url: str) -> Iterator[Line]:
    """Open a line to the server at *url*."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        line = Line(f"{conninfo_to_dict(url)['host']}/{_NAME}", Path(folder))
        try:
            yield line
        finally:
            line.close()
