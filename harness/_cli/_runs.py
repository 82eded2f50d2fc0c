"""``harness runs``, ``reply`` and ``fork``: what a store holds, and what is done to it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence

import trio

from harness._bounds import check_count
from harness._cli._exit import ERROR, code_of
from harness._cli._output import discard_rest
from harness._cli._show import shortened
from harness._cli._store import Store, add_store_arguments, key_of, open_store, owner_name
from harness._errors import CheckpointInputError, HarnessError
from harness._ids import random_id
from harness._json import encode_text
from harness._messages import user_message
from harness.checkpoints import (
    Checkpoint,
    CheckpointInput,
    MessageInput,
    ReplyInput,
    StoredRun,
    WakeInput,
    apply_stored_input,
    fork_stored,
)
from harness.kernel import Limits

__all__ = ["add_runs_parsers", "ask_store"]


def add_runs_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    runs = commands.add_parser("runs", help="list the runs of a store")
    add_store_arguments(runs, required=True)
    runs.add_argument("--json", action="store_true", help="print one run per line")
    runs.set_defaults(command=lambda options: ask_store(options, _runs))

    reply = commands.add_parser("reply", help="answer what a run waits for, or say more to it")
    reply.add_argument("run_id", metavar="RUN_ID")
    reply.add_argument("text")
    reply.add_argument("--call", help="the call that asks, if there are several")
    add_store_arguments(reply, required=True)
    reply.set_defaults(command=lambda options: ask_store(options, _reply))

    fork = commands.add_parser("fork", help="begin a run of its own where another one stands")
    fork.add_argument("run_id", metavar="RUN_ID")
    fork.add_argument("--revision", type=int, help="where it stood then (default: where it is)")
    fork.add_argument("--max-turns", type=int, help="completions of the new run at the most")
    add_store_arguments(fork, required=True)
    fork.set_defaults(command=lambda options: ask_store(options, _fork))


def ask_store(
    options: argparse.Namespace,
    work: Callable[[Store, argparse.Namespace], Awaitable[Sequence[str]]],
) -> int:
    """Do *work* with the store that *options* name, and print its lines; return the exit code."""

    async def opened() -> Sequence[str]:
        async with open_store(options.store, create=False) as store:
            return await work(store, options)

    try:
        lines = trio.run(opened)
    except (HarnessError, ValueError, TypeError, OSError) as error:
        print(f"harness: {error}", file=sys.stderr)
        return code_of(error)
    try:
        print(*lines, sep="\n", end="\n" if lines else "", flush=True)
    except OSError as error:
        discard_rest(sys.stdout)
        print(f"harness: it is done, and could not be printed: {error}", file=sys.stderr)
        return ERROR
    return 0


async def _runs(store: Store, options: argparse.Namespace) -> Sequence[str]:
    found = await store.list_runs(options.tenant)
    if options.json:
        return [_as_json(each) for each in found]
    table = [("RUN", "STATE", "TURNS", "TOKENS", "CENTS", "WAITS FOR")]
    table += [_as_row(each) for each in found]
    widths = [max(len(row[place]) for row in table) for place in range(5)]
    lines: list[str] = []
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[5]]).rstrip())
    return lines


def _as_row(run: StoredRun) -> tuple[str, str, str, str, str, str]:
    state: str = run.status
    if run.owner is not None:
        state = "running"
    elif run.stop_reason is not None:
        state = run.stop_reason
    return (
        run.key.run_id,
        state,
        str(run.turns),
        str(run.usage.tokens),
        f"{run.usage.cost_cents:.2f}",
        _waits_for(run),
    )


def _waits_for(run: StoredRun) -> str:
    if run.owner is not None:
        return ""
    match run.status:
        case "ready":
            return "harness run --resume"
        case "waiting_for_reply":
            return " | ".join(shortened(each, 60) for each in run.questions) or "a reply"
        case "waiting_for_wake":
            return "its time"
        case "finished":
            return ""


def _as_json(run: StoredRun) -> str:
    return encode_text(
        {
            "run_id": run.key.run_id,
            "status": run.status,
            "stop_reason": run.stop_reason,
            "revision": run.revision,
            "turns": run.turns,
            "tokens": run.usage.tokens,
            "cost_cents": run.usage.cost_cents,
            "questions": list(run.questions),
            "owner": run.owner,
            "changed_at": run.changed_at.isoformat(),
        }
    )


async def _reply(store: Store, options: argparse.Namespace) -> Sequence[str]:
    key = key_of(options, options.run_id)
    checkpoint = await store.load_run(key)
    given = _input_for(checkpoint, options.text, options.call)
    after = await apply_stored_input(store, key, given, owner=owner_name())
    asks = [f"  still asks: {each}: {text}" for each, text in _questions(after)]
    return [f"{after.run_id}: {after.status}", *asks]


def _input_for(checkpoint: Checkpoint, text: str, call_id: str | None) -> CheckpointInput:
    """Return what *text* is to a run of this status."""
    if call_id is not None or checkpoint.status == "waiting_for_reply":
        return ReplyInput(call_id=call_id or _only_question(checkpoint), value=text)
    message = user_message(text)
    if checkpoint.status == "waiting_for_wake":
        return WakeInput(message=message)
    return MessageInput(message=message)


def _only_question(checkpoint: Checkpoint) -> str:
    asked = _questions(checkpoint)
    if len(asked) != 1:
        listed = "; ".join(f"{call_id}: {text}" for call_id, text in asked)
        raise CheckpointInputError(f"{len(asked)} calls ask ({listed}), expected --call with one")
    ((call_id, _),) = asked
    return call_id


def _questions(checkpoint: Checkpoint) -> Sequence[tuple[str, str]]:
    """Return the calls that ask, each with its question in a line."""
    pause = checkpoint.head.pause
    if pause is None:
        return ()
    return [(call_id, shortened(asked.question)) for call_id, asked in pause.questions.items()]


async def _fork(store: Store, options: argparse.Namespace) -> Sequence[str]:
    source = await store.load_run(key_of(options, options.run_id), revision=options.revision)
    limits = source.head.limits
    if options.max_turns is not None:
        limits = Limits(
            turns=check_count("--max-turns", options.max_turns),
            tool_calls=limits.tool_calls,
            tokens=limits.tokens,
            cost_cents=limits.cost_cents,
        )
    key = key_of(options, random_id("run"))
    await fork_stored(store, source, key, limits=limits, bindings=source.head.bindings)
    return [f"{key.run_id}: {source.status}, forked from {source.run_id} at {source.revision}"]
