"""A worker that commits and claims as fast as it can, or pays, and is to be killed."""

import sys
from collections.abc import Callable

import psycopg
import trio

import harness
from harness._toolset import CallContext
from harness.receipts import ReceiptToolset, with_receipts
from harness.stores import PostgresStore, open_postgres_store
from harness.testing import final_answer, scripted_model, tool_call, tool_call_turn
from tests.stores.killed import commit_until_killed


def paying(store: PostgresStore, url: str, *, then: Callable[[str], object]) -> ReceiptToolset:
    """Return a tool whose effect and receipt are committed together; *then* is told how far."""

    @harness.tool(effect="opaque")
    def pay(amount: int, context: CallContext[object]) -> dict[str, int]:
        assert context.receipt is not None
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO payments VALUES (%s)", [amount])
            store.settle_receipt_within(connection, context.receipt, {"paid": amount})
            then("settled")
        then("committed")
        return {"paid": amount}

    return with_receipts([pay], store, tenant="tenant", run_id="run", seconds=2.0)


async def run_to_its_end(tools: ReceiptToolset) -> str:
    """Run a model that pays, and return what it was told."""
    turns = [tool_call_turn([tool_call("pay", {"amount": 900})]), final_answer("Paid.")]
    async with harness.open_run(scripted_model(turns), "Pay.", tools=tools) as run:
        await run.wait()
    return str(run.state.messages[2]["content"])


def tell_and_wait(word: str) -> None:
    print(word, flush=True)
    sys.stdin.readline()


async def main(*args: str) -> None:
    url, what = args
    async with open_postgres_store(url, connections=2) as store:
        if what == "pay":
            await run_to_its_end(paying(store, url, then=tell_and_wait))
        else:
            await commit_until_killed(store, what)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
