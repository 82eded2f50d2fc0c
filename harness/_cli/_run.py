"""``harness run``: one leg of a run, shown live."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from harness._bounds import check_count, check_seconds
from harness._cli._exit import ERROR, EXIT_CODES, code_of
from harness._cli._interrupt import interruptible
from harness._cli._models import add_model_arguments, models_of
from harness._cli._output import discard_rest
from harness._cli._show import JsonLines, Lines, Show
from harness._cli._store import add_store_arguments
from harness._cli._stored import NotReadyError, open_stored
from harness._cli._tools import add_tool_arguments, tools_of
from harness._errors import HarnessError
from harness.kernel import Limits, Run, open_run

__all__ = ["add_run_parser", "run_command"]


def add_run_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``run`` command."""
    parser = commands.add_parser("run", help="ask a model, let it use tools, show it live")
    parser.add_argument("question", nargs="?")
    add_model_arguments(parser)
    add_tool_arguments(parser)
    parser.add_argument("--deadline", type=float, default=None, help="seconds for the whole run")
    parser.add_argument("--max-turns", type=int, help="completions at the most (default: 30)")
    parser.add_argument("--max-tokens", type=int, help="of input and output together")
    parser.add_argument("--json", action="store_true", help="print one event per line")
    add_store_arguments(parser, required=False)
    parser.add_argument(
        "--lease",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="how long others leave a kept run alone after its process was killed",
    )
    parser.add_argument("--resume", metavar="RUN_ID", help="go on with a run of the store")
    parser.set_defaults(command=run_command)


def run_command(options: argparse.Namespace) -> int:
    """Run what the command line asks for; return the exit code."""
    try:
        asked = _read(options)
        show: Show = JsonLines(sys.stdout) if options.json else Lines(sys.stdout)
        return trio.run(_run, options, asked, show)
    except NotReadyError as error:
        print(f"harness run: {error}", file=sys.stderr)
        return EXIT_CODES[error.reason]
    except _USAGE_ERRORS as error:
        print(f"harness run: {error}", file=sys.stderr)
        return code_of(error)


_USAGE_ERRORS = (ImportError, AttributeError, TypeError, ValueError, OSError, HarnessError)
"""What the arguments may be refused with, before anything is asked. A server of tools that does not
start is no wrong usage, though it is named there."""


@attrs.frozen(kw_only=True)
class _Asked:
    """What is run, in numbers."""

    limits: Limits
    seconds: float | None


def _read(options: argparse.Namespace) -> _Asked:
    """Return what *options* say, once they are in order."""
    if options.resume is not None and options.store is None:
        raise ValueError(f"--resume is {options.resume!r}, expected --store with it")
    if (options.question is None) == (options.resume is None):
        raise ValueError(f"the question is {options.question!r}, expected one, or --resume")
    if options.resume is not None:
        for name in ("max_turns", "max_tokens"):
            _check_absent(name, getattr(options, name))
    turns, tokens = options.max_turns, options.max_tokens
    seconds = options.deadline
    return _Asked(
        limits=Limits(
            turns=30 if turns is None else check_count("--max-turns", turns),
            tokens=None if tokens is None else check_count("--max-tokens", tokens),
        ),
        seconds=None if seconds is None else check_seconds("--deadline", seconds),
    )


def _check_absent(name: str, value: object) -> None:
    if value is not None:
        option = f"--{name.replace('_', '-')}"
        raise ValueError(
            f"{option} is {value!r} for a run that has its limits, expected harness fork {option}"
        )


async def _run(options: argparse.Namespace, asked: _Asked, show: Show) -> int:
    deadline = None if asked.seconds is None else trio.current_time() + asked.seconds
    opening = _open_plain if options.store is None else open_stored
    run: Run | None = None
    try:
        async with opening(options, asked.limits, deadline) as run, interruptible(run):
            await show_events(run, show)
    except Exception as error:
        if run is None or run.result.error is not error:
            raise
        return ERROR  # it was shown with the run's last event
    return EXIT_CODES[run.result.stop_reason]


@asynccontextmanager
async def _open_plain(
    options: argparse.Namespace, limits: Limits, deadline: float | None
) -> AsyncIterator[Run]:
    models, tools = models_of(options), tools_of(options)
    async with (
        models.open() as model,
        tools.open() as toolset,
        open_run(model, options.question, tools=toolset, limits=limits, deadline=deadline) as run,
    ):
        yield run


async def show_events(run: Run, show: Show) -> None:
    """Show every event of *run*; if the output takes no more, abort it."""
    try:
        async for event in run.events:
            show.event(event)
    except OSError as error:
        discard_rest(sys.stdout)
        run.abort(f"the output failed: {error}")
