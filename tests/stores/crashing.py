"""A worker on a file that commits and claims until it is killed."""

import sys

import trio

from harness.stores import open_sqlite_store
from tests.stores.killed import commit_until_killed


async def main(*args: str) -> None:
    path, run_id = args
    async with open_sqlite_store(path) as store:
        await commit_until_killed(store, run_id)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
