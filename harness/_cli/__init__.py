"""The command line, ``harness`` and ``python -m harness``: the one reader of the environment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from harness._cli._demo import add_demo_parser
from harness._cli._output import replace_unknown
from harness._cli._run import add_run_parser

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="harness", description="Agent runs with structured concurrency."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_run_parser(commands)
    add_demo_parser(commands)
    options = parser.parse_args(arguments)
    replace_unknown(sys.stdout)
    code: int = options.command(options)
    return code
