"""``harness run``: one leg of a run, shown live."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import trio

from harness._bounds import check_count, check_seconds
from harness._cli._exit import ERROR, EXIT_CODES, USAGE
from harness._cli._interrupt import interruptible
from harness._cli._models import Models, add_model_arguments, models_of
from harness._cli._output import discard_rest
from harness._cli._show import JsonLines, Lines, Show
from harness._errors import HarnessError
from harness._toolset import Toolset
from harness.kernel import Limits, Run, open_run
from harness.tools import Tool, as_toolset, tool

__all__ = ["add_run_parser", "run_command"]


def add_run_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``run`` command."""
    parser = commands.add_parser("run", help="ask a model, let it use tools, show it live")
    parser.add_argument("question")
    add_model_arguments(parser)
    parser.add_argument(
        "--tools",
        nargs="*",
        default=[],
        metavar="MODULE:NAME",
        help="a tool, a function, a list of them, or a toolset; put the question before it",
    )
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
        toolset = as_toolset(load_tools(options.tools))
        models = models_of(options)
        show: Show = JsonLines(sys.stdout) if options.json else Lines(sys.stdout)
        return trio.run(_run, models, options.question, toolset, limits, deadline, show)
    except _USAGE_ERRORS as error:
        print(f"harness run: {error}", file=sys.stderr)
        return USAGE


_USAGE_ERRORS = (ImportError, AttributeError, TypeError, ValueError, HarnessError)
"""What the arguments may be refused with, before anything is asked."""


async def _run(
    models: Models,
    question: str,
    toolset: Toolset,
    limits: Limits,
    seconds: float | None,
    show: Show,
) -> int:
    deadline = None if seconds is None else trio.current_time() + seconds
    run: Run | None = None
    try:
        async with (
            models.open() as model,
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


def load_tools(names: Sequence[str]) -> Toolset | list[Tool]:
    """Import what ``MODULE:NAME`` names; functions become tools.

    Raises:
        ImportError, AttributeError, ValueError: there is no such thing.
        ToolDefinitionError: it cannot be a tool.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: list[Tool] = []
    for name in names:
        module, colon, attribute = name.partition(":")
        if not (module and colon and attribute):
            raise ValueError(f"--tools has {name!r}, expected MODULE:NAME")
        value = getattr(importlib.import_module(module), attribute)
        if hasattr(value, "execute") and hasattr(value, "definitions"):
            if len(names) > 1:
                raise ValueError(f"{name!r} is a whole toolset, expected it alone")
            return value  # type: ignore[no-any-return]  # a Toolset, by its methods
        each = value if isinstance(value, (list, tuple)) else [value]
        found.extend(one if isinstance(one, Tool) else tool(one) for one in each)
    return found
