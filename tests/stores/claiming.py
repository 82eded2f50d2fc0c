"""A worker that claims the same calls as others do, and tells which it has got."""

import sys

import attrs
import trio

from harness.stores import open_sqlite_store
from tests.stores.conformance import CALL


async def main(*args: str) -> None:
    path, owner, calls = args
    async with open_sqlite_store(path) as store:
        print("ready", flush=True)
        sys.stdin.readline()

        async def claim(number: int) -> None:
            key = attrs.evolve(CALL, occurrence=number)
            answer = await store.claim_receipt(key, effect="opaque", owner=owner, seconds=60)
            if answer.claim is not None:
                print(number, flush=True)
                await store.settle_receipt(answer.claim, "completed", owner)

        async with trio.open_nursery() as nursery:
            for number in range(int(calls)):
                nursery.start_soon(claim, number)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
