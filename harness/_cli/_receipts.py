"""``harness receipts``: which effects are in doubt, and what a person found out about one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from harness._cli._runs import ask_store
from harness._cli._show import shortened
from harness._cli._store import Store, add_store_arguments
from harness._errors import NotJSONError
from harness._json import JSON, decode, encode_text
from harness.receipts import Receipt, receipt_key_from, receipt_key_string

__all__ = ["add_receipts_parser"]


def add_receipts_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "receipts", help="list calls whose effect is in doubt, and settle one by hand"
    )
    parser.add_argument("run_id", metavar="RUN_ID", nargs="?", help="only those of this run")
    parser.add_argument("--all", action="store_true", help="those that are in no doubt, too")
    parser.add_argument(
        "--settle",
        nargs=2,
        metavar=("RECEIPT", "HOW"),
        help="a receipt as it is listed, and 'completed' (it had happened) or 'failed' (not)",
    )
    parser.add_argument("--result", help="JSON: what the call returned, if it had happened")
    add_store_arguments(parser, required=True)
    parser.set_defaults(command=lambda options: ask_store(options, _receipts))


async def _receipts(store: Store, options: argparse.Namespace) -> Sequence[str]:
    if options.settle is not None:
        return [await _settle(store, options)]
    if options.result is not None:
        raise ValueError(f"--result is {options.result!r}, expected it with --settle")
    found = await store.list_receipts(options.tenant, run_id=options.run_id)
    return [_line(each) for each in found if options.all or each.in_doubt]


def _line(receipt: Receipt) -> str:
    state = "running" if receipt.lease_live and receipt.status == "running" else receipt.status
    doubt = "in doubt" if receipt.in_doubt else state
    when = receipt.changed_at.isoformat(timespec="seconds")
    return f"{doubt}  {when}  attempt {receipt.attempt}  {receipt_key_string(receipt.key)}"


async def _settle(store: Store, options: argparse.Namespace) -> str:
    text, how = options.settle
    if how not in ("completed", "failed"):
        raise ValueError(f"--settle has {how!r}, expected 'completed' or 'failed'")
    if how == "failed" and options.result is not None:
        raise ValueError("--result is given, expected none for what has not happened")
    try:
        key = receipt_key_from(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--settle has {text!r}, expected a receipt as it is listed") from error
    if key.tenant != options.tenant:
        raise ValueError(f"the receipt is of {key.tenant!r}, expected --tenant {options.tenant!r}")
    result = None if options.result is None else _read_result(options.result)
    await store.settle_receipt_by_hand(key, how, result)
    return f"{how}: {shortened(encode_text(result)) if how == 'completed' else 'may be run again'}"


def _read_result(text: str) -> JSON:
    try:
        return decode(text)
    except NotJSONError as error:
        raise ValueError(f"--result is {text!r}, expected JSON: {error.reason}") from error
