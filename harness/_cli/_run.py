"""``harness run``: one leg of a run, shown live."""

from __future__ import annotations

import argparse
import sys

import trio

from harness._bounds import check_count, check_seconds
from harness._cli._exit import ERROR, EXIT_CODES, USAGE
from harness._cli._interrupt import interruptible
from harness._cli._models import Models, add_model_arguments, models_of
from harness._cli._output import discard_rest
from harness._cli._show import JsonLines, Lines, Show
from harness._cli._tools import Tools, add_tool_arguments, tools_of
from harness._errors import HarnessError, ProviderError
from harness.kernel import Limits, Run, open_run

__all__ = ["add_run_parser", "run_command"]


def add_run_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``run`` command."""
    parser = commands.add_parser("run", help="ask a model, let it use tools, show it live")
    parser.add_argument("question")
    add_model_arguments(parser)
    add_tool_arguments(parser)
    parser.add_argument("--deadline", type=float, default=None, help="seconds for the whole run")
    parser.add_argument("--max-turns", type=int, default=30, help="completions at the most")
    parser.add_argument("--max-tokens", type=int, default=None, help="of input and output together")
    parser.add_argument("--json", action="store_true", help="print one event per line")
    parser.set_defaults(command=run_command)


def run_command(options: argparse.Namespace) -> int:
    """Run what the command line asks for; return the exit code."""
    try:
        deadline = options.deadline
        if deadline is not None:
            deadline = check_seconds("--deadline", deadline)
        limits = Limits(
            turns=check_count("--max-turns", options.max_turns),
            tokens=options.max_tokens and check_count("--max-tokens", options.max_tokens),
        )
        tools = tools_of(options)
        models = models_of(options)
        show: Show = JsonLines(sys.stdout) if options.json else Lines(sys.stdout)
        return trio.run(_run, models, options.question, tools, limits, deadline, show)
    except _USAGE_ERRORS as error:
        print(f"harness run: {error}", file=sys.stderr)
        return ERROR if isinstance(error, ProviderError) else USAGE


_USAGE_ERRORS = (ImportError, AttributeError, TypeError, ValueError, OSError, HarnessError)
"""What the arguments may be refused with, before anything is asked. A server of tools that does not
start is no wrong usage, though it is named there."""


async def _run(
    models: Models,
    question: str,
    tools: Tools,
    limits: Limits,
    seconds: float | None,
    show: Show,
) -> int:
    deadline = None if seconds is None else trio.current_time() + seconds
    run: Run | None = None
    try:
        async with (
            models.open() as model,
            tools.open() as toolset,
            open_run(model, question, tools=toolset, limits=limits, deadline=deadline) as run,
            interruptible(run),
        ):
            await show_events(run, show)
    except Exception as error:
        if run is None or run.result.error is not error:
            raise
        return ERROR  # it was shown with the run's last event
    return EXIT_CODES[run.result.stop_reason]


async def show_events(run: Run, show: Show) -> None:
    """Show every event of *run*; if the output takes no more, abort it."""
    try:
        async for event in run.events:
            show.event(event)
    except OSError as error:
        discard_rest(sys.stdout)
        run.abort(f"the output failed: {error}")
