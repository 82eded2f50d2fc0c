"""The command line, ``harness`` and ``python -m harness``: the one reader of the environment."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from harness._cli._demo import add_demo_parser
from harness._cli._exit import INTERRUPTED
from harness._cli._output import replace_unknown
from harness._cli._receipts import add_receipts_parser
from harness._cli._run import add_run_parser
from harness._cli._runs import add_runs_parsers
from harness._errors import leaf_errors

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="harness", description="Agent runs with structured concurrency."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_run_parser(commands)
    add_runs_parsers(commands)
    add_receipts_parser(commands)
    add_demo_parser(commands)
    options = parser.parse_args(arguments)
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for as long as we run
    replace_unknown(sys.stdout)
    try:
        code: int = options.command(options)
    except BaseException as error:  # noqa: ASYNC103  # after the end of every trio run
        if not all(isinstance(each, KeyboardInterrupt) for each in leaf_errors(error)):
            raise
        print("harness: interrupted", file=sys.stderr)
        return INTERRUPTED  # noqa: ASYNC104
    return code
