"""What a boundary commits."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import trio

from harness import Message, RunState, RunStats, SettledTurn, assistant_message, user_message
from harness.checkpoints import (
    Checkpoint,
    Commit,
    MessageInput,
    Restored,
    apply_checkpoint_input,
    create_checkpoint,
    run_from_checkpoint,
    state_of,
)
from harness.checkpoints._commits import Commits
from harness.testing import final_answer, run_harness
from tests.checkpoints.examples import answered


class _Read(list[Message]):
    """A transcript that counts what is read of it."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.reads += len(found) if isinstance(place, slice) else 1
        return found

    def __iter__(self) -> Any:
        raise AssertionError("the whole transcript was read")


def settled(state: RunState) -> SettledTurn:
    return SettledTurn(
        turn=0, decision="continue", would_end=False, state=state, stats=RunStats(turns=1)
    )


@pytest.mark.rule("R-CKPT-26")
async def test_a_commit_reads_what_is_new_and_nothing_else() -> None:
    kept: list[Commit] = []

    async def store(commit: Commit) -> Literal["continue"]:
        await trio.lowlevel.checkpoint()
        kept.append(commit)
        return "continue"

    checkpoint = create_checkpoint("run", [user_message(str(each)) for each in range(5_000)])
    commits = Commits.since(checkpoint, store, lambda: None)
    state = state_of(checkpoint)
    state.messages = _Read(state.messages)
    for _ in range(10):
        state.messages.append(assistant_message("One more."))
        await commits.boundary(settled(state))
    assert state.messages.reads == 10
    assert [(each.keep, len(each.tail)) for each in kept] == [(5_000 + n, 1) for n in range(10)]


@pytest.mark.rule("R-CKPT-21")
async def test_what_was_not_stored_is_committed_by_the_next_try() -> None:
    kept: list[Commit] = []

    async def store(commit: Commit) -> Literal["continue"]:
        await trio.lowlevel.checkpoint()
        kept.append(commit)
        if len(kept) == 1:
            raise OSError("full")
        return "continue"

    checkpoint = create_checkpoint("run", "Go.")
    commits = Commits.since(checkpoint, store, lambda: None)
    state = state_of(checkpoint)
    state.messages.append(assistant_message("One."))
    with pytest.raises(OSError, match="full"):
        await commits.boundary(settled(state))
    assert commits.checkpoint() == checkpoint
    await commits.boundary(settled(state))
    assert kept[0] == kept[1]
    assert commits.checkpoint() == checkpoint.after(kept[1])


@pytest.mark.rule("R-CKPT-08")
async def test_what_was_committed_shares_nothing_with_the_live_run() -> None:
    kept: list[Commit] = []

    async def store(commit: Commit) -> Literal["continue"]:
        await trio.lowlevel.checkpoint()
        kept.append(commit)
        return "continue"

    bindings: dict[str, Any] = {"room": [1]}
    checkpoint = answered()
    commits = Commits.since(checkpoint, store, lambda: bindings)
    state = state_of(checkpoint)
    await commits.boundary(settled(state))
    before = copy.deepcopy(kept[0])
    bindings["room"].append(2)
    state.messages[1]["content"] = "changed"
    assert state.pause is not None
    state.pause.replies.clear()
    state.below.runs += 1
    state.forgotten.clear()
    assert kept[0] == before


@pytest.mark.rule("R-CKPT-12")
async def test_a_message_for_a_run_with_an_answered_call_stands_behind_its_batch(
    autojump_clock: trio.testing.MockClock,
) -> None:
    kit = run_harness([final_answer("Paid.")])
    checkpoint = apply_checkpoint_input(answered(), MessageInput(message=user_message("Soon!")))
    kept = [checkpoint]

    @asynccontextmanager
    async def restore(_: Checkpoint) -> AsyncIterator[Restored]:
        yield Restored(model=kit.model, options=kit.ports, capture_bindings=lambda: None)

    async def store(commit: Commit) -> Literal["continue"]:
        await trio.lowlevel.checkpoint()
        kept.append(kept[-1].after(commit))
        return "continue"

    ended = await run_from_checkpoint(checkpoint, restore, store)
    roles = [each["role"] for each in ended.checkpoint.messages]
    assert ended.result is not None
    assert kept[-1] == ended.checkpoint
    assert list(ended.checkpoint.messages) == ended.result.state.messages
    assert roles[:6] == ["user", "assistant", "tool", "tool", "tool", "user"]
