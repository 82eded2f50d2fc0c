"""``python -m tests.torture``: kill workers for as long as you like, and see what came of it."""

from __future__ import annotations

import argparse
import functools
import random
import sys
from pathlib import Path

import trio

from harness._json import encode_text
from tests.torture.driver import Torture, torture
from tests.torture.place import open_place
from tests.torture.report import as_json, as_lines


def main() -> int:
    """Run a torture, print its figures, and return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long workers are killed")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--seed", type=int, default=None, help="what is drawn; at random if absent")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--json", type=Path, default=None, help="a file for the figures")
    parser.add_argument("--keep", type=Path, default=None, help="a folder for the trails")
    chosen = parser.parse_args()
    plan = Torture(
        store=chosen.store,
        seconds=60 * chosen.minutes,
        seed=random.randrange(1 << 32) if chosen.seed is None else chosen.seed,
        workers=chosen.workers,
        keep=chosen.keep,
    )
    print(f"seed {plan.seed}", flush=True)
    with open_place(plan.store, megabytes=64 + int(plan.seconds)) as place:
        print("faults of the store:", *(fault.blow for fault in place.faults), flush=True)
        verdict = trio.run(functools.partial(torture, plan, place))
    print(*as_lines(verdict), sep="\n")
    text = encode_text(as_json(verdict))
    print(text)
    if chosen.json is not None:
        chosen.json.write_text(text, "utf-8")
    return 1 if verdict.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
