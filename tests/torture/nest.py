"""The parent of all workers: it has everything loaded, so a new worker costs one fork.

It reads commands, one a line, does them, and answers each with one line of JSON: the workers that
have ended by themselves, with their exit codes. Only it knows process ids, and a child is not
reaped before it has been told of, so no signal can go to a stranger that has got the id since.

When its input ends, the workers are told to end by a pipe that closes, and one more line says which
of them did not end well. The pipe closes as well if the parent dies, so none of them outlives a
torture that was cut.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from typing import Final

import msgspec

from tests.torture.job import Job, load
from tests.torture.worker import work

__all__: list[str] = []

_LONGEST: Final = 20.0
"""Seconds that the workers have for ending."""
_MOMENT: Final = 0.02

_SIGNALS: Final = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "continue": signal.SIGCONT,
}


class Nest:
    """The workers, by name."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._children: dict[str, int] = {}
        self._reader, self._writer = os.pipe()

    def spawn(self, name: str) -> None:
        """Start a worker."""
        child = os.fork()
        if child:
            self._children[name] = child
            return
        code = 1
        try:
            os.close(self._writer)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(2, 1)
            work(self._job, name, self._reader)
            code = 0
        except BaseException:  # noqa: ASYNC103, BLE001  # nothing of the parent may run here
            traceback.print_exc()
        finally:
            os._exit(code)

    def send(self, verb: str, name: str) -> None:
        """Send a worker a signal, unless it has ended."""
        if name in self._children:
            os.kill(self._children[name], _SIGNALS[verb])
            if verb == "kill":
                os.waitpid(self._children.pop(name), 0)

    def limit(self, size: str) -> None:
        """Let no worker write beyond *size* bytes of any file; a size of -1 is no limit."""
        for child in self._children.values():
            hard = resource.prlimit(child, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(child, resource.RLIMIT_FSIZE, (int(size), hard))

    def ended(self) -> dict[str, int]:
        """Return which workers have ended by themselves, each once."""
        ended: dict[str, int] = {}
        for name, child in list(self._children.items()):
            reaped, status = os.waitpid(child, os.WNOHANG)
            if reaped:
                ended[name] = os.waitstatus_to_exitcode(status)
                del self._children[name]
        return ended

    def end(self) -> dict[str, int]:
        """Let every worker end, and return which did not end well."""
        os.close(self._writer)
        for child in self._children.values():
            os.kill(child, signal.SIGCONT)
        ended: dict[str, int] = {}
        deadline = time.monotonic() + _LONGEST
        while self._children and time.monotonic() < deadline:
            ended |= self.ended()
            time.sleep(_MOMENT)
        for name in list(self._children):
            self.send("kill", name)
            ended[name] = -signal.SIGKILL
        return {name: code for name, code in ended.items() if code}


def main() -> None:
    """Do as told on the standard input."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    load(job.store)
    nest = Nest(job)
    for line in sys.stdin:
        verb, name = line.split()
        ended = nest.ended()
        match verb:
            case "spawn":
                nest.spawn(name)
            case "limit":
                nest.limit(name)
            case _:
                nest.send(verb, name)
        print(json.dumps(ended), flush=True)
    print(json.dumps(nest.end()), flush=True)


if __name__ == "__main__":
    main()
