"""Two bills, a worker that dies while it pays the second, and a person who looks."""

import os
import subprocess
import sys
from pathlib import Path

import trio

import harness
from harness.events import ReceiptAmbiguous
from harness.receipts import with_receipts
from harness.stores import open_sqlite_store
from harness.testing import final_answer, scripted_model, tool_call, tool_call_turn

BANK = Path("bank.txt")  # stands in for a bank: what has been written cannot be taken back
BILLS: list[dict[str, harness.JSON]] = [
    {"to": "landlord", "amount": 900},
    {"to": "power company", "amount": 60},
]


@harness.tool(effect="opaque", serial=True)
def pay(to: str, amount: int) -> dict[str, int]:
    """Pay somebody."""
    with BANK.open("a", encoding="utf-8") as bank:
        bank.write(f"{amount} to the {to}\n")
    if to == "power company" and "dies" in sys.argv:
        os._exit(9)
    return {"paid": amount}


async def work() -> None:
    """Pay the bills, from the start: no worker before has stored how far it got."""
    model = scripted_model(
        [tool_call_turn([tool_call("pay", bill) for bill in BILLS]), final_answer("That is all.")]
    )
    async with open_sqlite_store("work.db") as store:
        tools = with_receipts([pay], store, tenant="acme", run_id="june", seconds=1.0)
        async with harness.open_run(model, "Pay the bills of June.", tools=tools) as run:
            async for event in run.events:
                if isinstance(event, ReceiptAmbiguous):
                    print(f"somebody must look at {event.receipt}")
        for message in run.state.messages[2:]:
            print(f"{message['role']}: {message['content']}")


async def settle_what_is_in_doubt() -> None:
    """Do what a person does who has asked the bank; `harness receipts` does it too."""
    async with open_sqlite_store("work.db") as store:
        for receipt in await store.list_receipts("acme", status="ambiguous"):
            print(f"attempt {receipt.attempt} at {receipt.key.tool!r} has been paid, says the bank")
            await store.settle_receipt_by_hand(receipt.key, "completed", {"paid": 60})


def process(*arguments: str) -> None:
    """Run this file as a worker."""
    sys.stdout.flush()
    ended = subprocess.run([sys.executable, __file__, "work", *arguments], check=False)
    print(f"-- the worker ended with {ended.returncode}")


if "work" in sys.argv:
    trio.run(work)
else:
    process("dies")
    process()
    trio.run(settle_what_is_in_doubt)
    process()
    print(f"the bank has: {', '.join(BANK.read_text('utf-8').splitlines())}")
