"""The line to a store: what was sent arrives, and what came of it is in the trail."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from harness._durable import ReceiptKey, RunKey
from harness._errors import LeaseLostError
from harness.checkpoints import create_checkpoint
from harness.stores import MemoryStore
from tests.torture.line import Line
from tests.torture.trail import Doubted, Record, Refused, Took, Trail, Wrote, read_trails

RUN = RunKey(tenant="t", run_id="run-1")
CALL = ReceiptKey(tenant="t", run_id="run-1", tool="pay", args_hash="hash")


class Ticking:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def line(tmp_path: Path, clock: Ticking) -> Line:
    return Line(MemoryStore(clock=clock), Trail(tmp_path, "w"), random.Random(0), 5.0)


def trail(folder: Path) -> list[Record]:
    return read_trails(folder)


async def test_what_was_sent_arrives_although_its_worker_was_cancelled(
    line: Line, tmp_path: Path, autojump_clock: MockClock
) -> None:
    await line.create_run(RUN, create_checkpoint(RUN.run_id, "Do it."))
    with trio.CancelScope() as scope:
        scope.cancel()
        await line.acquire_run(RUN, owner="w", seconds=10)
    assert [type(each) for each in trail(tmp_path)] == [Took]


async def test_a_commit_of_the_overtaken_is_noted_as_refused(
    line: Line, tmp_path: Path, clock: Ticking, autojump_clock: MockClock
) -> None:
    first = create_checkpoint(RUN.run_id, "Do it.")
    await line.create_run(RUN, first)
    lease = await line.acquire_run(RUN, owner="w", seconds=10)
    clock.now += 20
    await line.acquire_run(RUN, owner="other", seconds=10)
    with pytest.raises(LeaseLostError):
        await line.commit_run(lease, first.commit_to(first))
    assert await line.renew_run(lease) is False
    *taken, commit, renewal = trail(tmp_path)
    assert [each.number for each in taken if isinstance(each, Took)] == [1, 2]
    assert isinstance(commit, Refused)
    assert isinstance(renewal, Refused)
    assert (commit.verb, commit.number, renewal.verb) == ("commit", 1, "renew_run")


async def test_a_claim_is_noted_under_its_run_and_a_settlement_under_its_attempt(
    line: Line, tmp_path: Path, autojump_clock: MockClock
) -> None:
    await line.create_run(RUN, create_checkpoint(RUN.run_id, "Do it."))
    lease = await line.acquire_run(RUN, owner="w", seconds=10)
    claimed = await line.claim_receipt(CALL, effect="opaque", owner="c", seconds=10, run=lease)
    assert claimed.claim is not None
    assert await line.settle_receipt(claimed.claim, "completed", {})
    _, took, claim, settled = trail(tmp_path)
    assert isinstance(took, Took)
    assert isinstance(claim, Wrote)
    assert isinstance(settled, Wrote)
    assert (took.number, took.receipt) == (1, True)
    assert (claim.verb, claim.name, claim.number) == ("claim", RUN.run_id, lease.fence)
    assert (settled.verb, settled.name, settled.settlement) == ("settle", took.name, "completed")
    assert claim.asked <= claim.at <= settled.asked <= settled.at


async def test_a_doubt_is_noted(
    line: Line, tmp_path: Path, clock: Ticking, autojump_clock: MockClock
) -> None:
    for owner in ("c1", "c2"):
        await line.claim_receipt(CALL, effect="opaque", owner=owner, seconds=10)
        clock.now += 20
    assert [type(each) for each in trail(tmp_path)] == [Took, Doubted]
