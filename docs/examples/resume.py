"""A room that is booked by three workers, one of which dies; then another end of the story."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

import harness
import harness.checkpoints as saved
from harness.stores import open_sqlite_store
from harness.testing import final_answer, tool_call, tool_call_turn


@harness.tool
def book(room: int) -> harness.Suspend:
    """Book a room, once somebody has said yes."""
    return harness.Suspend.answer(f"Book room {room} for 90?")


async def model(request: harness.ModelRequest, stream: harness.TurnStream) -> harness.ModelTurn:
    results = [str(each["content"]) for each in request.messages if each["role"] == "tool"]
    if not results:
        return tool_call_turn([tool_call("book", {"room": 7}, id="book")])
    if "dies" in sys.argv:
        os._exit(9)
    return final_answer("It is booked." if "yes" in results[0] else "Nothing is booked.")


@asynccontextmanager
async def restore(at: saved.Checkpoint, lease: saved.RunLease) -> AsyncIterator[saved.Restored]:
    print(f"{at.run_id} goes on from revision {at.revision}", flush=True)
    yield saved.Restored(model=model, options={"tools": [book]}, capture_bindings=dict)


async def work(run_id: str) -> None:
    """Run the next leg, in a process of its own."""
    async with open_sqlite_store("trips.db") as store:
        key, owner = saved.RunKey(tenant="acme", run_id=run_id), f"worker {os.getpid()}"
        ended = await saved.run_stored(store, key, restore, owner=owner, seconds=0.5)
        said = ended.checkpoint.messages[-1]["content"] or "nothing yet"
        print(f"{run_id}: {ended.stop_reason}, {said}")


async def main() -> None:
    trip, other = (saved.RunKey(tenant="acme", run_id=name) for name in ("trip", "other"))
    yes, no = (saved.ReplyInput(call_id="book", value=text) for text in ("yes", "no"))
    async with open_sqlite_store("trips.db") as store:
        await store.create_run(trip, saved.create_checkpoint("trip", "Book me a room."))
        await trio.run_process([sys.executable, __file__, "trip"])
        print(*(f"open: {each.questions}" for each in await store.list_runs("acme")), flush=True)
        await saved.apply_stored_input(store, trip, yes, owner="clerk")
        await trio.run_process([sys.executable, __file__, "trip", "dies"], check=False)
        await trio.sleep(0.5)  # so long the lease of the dead lasts
        await trio.run_process([sys.executable, __file__, "trip"])
        # Back to where it asked, in a run of its own, and answered otherwise.
        asked = await store.load_run(trip, revision=1)
        await saved.fork_stored(store, asked, other, limits=harness.Limits(turns=3), bindings={})
        await saved.apply_stored_input(store, other, no, owner="clerk")
        await trio.run_process([sys.executable, __file__, "other"])


trio.run(work, sys.argv[1]) if sys.argv[1:] else trio.run(main)
