"""The model server, as a program of its own: ``python _serve.py MODEL``.

Started by `harness._cli._local`, and deliberately without an import of this package, so that it
is up as soon as the model is loaded. It prints its address, as one line, once it listens.

It ends when its standard input ends. Nobody writes there: the pipe ends when the process that
started this one is gone, however it went. Ctrl-C is ignored, because a terminal sends it to both
processes and the other one decides when this one stops.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import xllamacpp

THREADS = 1
"""llama.cpp's threads spin while they wait for each other: on two cores a second one slows
everything down as soon as anything else runs, and the client does."""
SLOTS = 2
CONTEXT = 8192
"""Tokens of context, shared out evenly over the slots."""


def main(model: str) -> None:
    """Serve *model* until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"smollm2-135m"}
    params.hostnames, params.port = ["127.0.0.1"], 0
    # The default lets any web page that is open on this machine talk to the model.
    params.cors_origins, params.cors_origins_explicit = "http://127.0.0.1", True
    params.n_ctx, params.n_parallel = CONTEXT, SLOTS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.offline, params.ui = True, False
    params.sse_ping_interval = 1
    params.verbosity = 2
    params.chat_template = Path(__file__).with_name("smol_forced.jinja").read_text("utf-8")

    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        # What went wrong has been written to the log; a traceback would push it out of view.
        sys.exit(str(error))
    print(server.listening_address, flush=True)
    # From here on a stray line goes to the log: nobody reads the pipe any more.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdin.buffer.read()
    # The server's own shutdown waits for requests that run; whoever sent them is gone.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
