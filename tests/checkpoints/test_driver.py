"""Running from a checkpoint: what is committed when, and what is not."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import attrs
import pytest
import trio

from harness import (
    JSON,
    Budget,
    Emitter,
    Limits,
    Run,
    RunStats,
    Suspend,
    assistant_message,
    user_message,
)
from harness.checkpoints import (
    Checkpoint,
    Commit,
    LegOptions,
    MessageInput,
    ReplyInput,
    Restored,
    apply_checkpoint_input,
    create_checkpoint,
    fork_checkpoint,
    open_from_checkpoint,
    run_from_checkpoint,
)
from harness.errors import NotJSONError, RecordError, RunUseError
from harness.kernel import RunOptions
from harness.kernel._ports import go_on
from harness.testing import (
    RunHarness,
    ScriptItem,
    assert_transcript_settled,
    final_answer,
    run_harness,
    slow_tool,
    timed,
    tool_call,
    tool_call_turn,
)
from tests.checkpoints.examples import EXAMPLES, waiting

THREE_TURNS: tuple[ScriptItem, ...] = (
    timed(1, tool_call_turn([tool_call("look")])),
    timed(1, tool_call_turn([tool_call("look"), tool_call("look")])),
    timed(1, final_answer("Found.")),
)


USUAL = Limits()


@attrs.define
class Host:
    """A host that keeps what is committed, and notes in which order it was asked for what."""

    kit: RunHarness
    checkpoint: Checkpoint
    stop_at: int | None = None
    """The revision at which it answers ``checkpoint``."""
    log: list[str] = attrs.field(factory=list)
    commits: list[Commit] = attrs.field(factory=list)
    bindings: Callable[[], JSON] = attrs.field(default=lambda: None)
    verdict: str = "continue"

    @asynccontextmanager
    async def restore(self, checkpoint: Checkpoint) -> AsyncIterator[Restored]:
        self.log.append(f"restore {checkpoint.revision}")
        try:
            yield Restored(
                model=self.kit.model, options=self.kit.ports, capture_bindings=self.bindings
            )
        finally:
            self.log.append("close")

    async def commit(self, commit: Commit) -> Literal["continue", "checkpoint"]:
        self.log.append(f"commit after {len(self.kit.script.requests)}")
        await trio.sleep(1)
        self.checkpoint = self.checkpoint.after(commit)
        self.commits.append(commit)
        self.log.append("committed")
        if self.checkpoint.revision == self.stop_at:
            return "checkpoint"
        return self.verdict  # type: ignore[return-value]  # some tests answer what is no verdict


def hosted(
    turns: Sequence[ScriptItem] = THREE_TURNS,
    *,
    limits: Limits = USUAL,
    ports: RunOptions | None = None,
    **options: Any,
) -> Host:
    kit = run_harness(turns, **(ports or {"tools": [slow_tool(2, "look")]}))
    del kit.ports["events"]
    return Host(kit, create_checkpoint("run", "Go.", limits=limits), **options)


# -- commits -------------------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-06", "R-CKPT-07", "R-CKPT-23")
async def test_each_settled_point_is_committed_before_the_run_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = hosted()
    ended = await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    one = [f"commit after {turn}" for turn in (1, 2, 3)]
    assert host.log == [
        "restore 0", one[0], "committed", one[1], "committed", one[2], "committed", "close"
    ]  # fmt: skip
    assert ended.stop_reason == "done"
    assert ended.checkpoint == host.checkpoint
    assert ended.result is not None
    assert list(ended.checkpoint.messages) == ended.result.state.messages
    assert (ended.checkpoint.status, ended.checkpoint.head.stop_reason) == ("finished", "done")
    assert [each.head.revision for each in host.commits] == [1, 2, 3]


@pytest.mark.rule("R-CKPT-06")
@pytest.mark.parametrize("left_out", ["checkpoint", "restore", "commit"])
async def test_checkpoint_restore_and_commit_are_all_required(left_out: str) -> None:
    host = hosted()
    given = {"checkpoint": host.checkpoint, "restore": host.restore, "commit": host.commit}
    del given[left_out]
    run: Any = run_from_checkpoint
    with pytest.raises(TypeError, match=f"missing 1 required positional argument: '{left_out}'"):
        await run(**given)


@pytest.mark.rule("R-CKPT-26")
async def test_a_commit_holds_what_its_turn_added_and_no_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns = [tool_call_turn([tool_call("look")]) for _ in range(40)]
    host = hosted([*turns, final_answer("Found.")], limits=Limits(turns=100))
    await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    assert [len(each.tail) for each in host.commits] == [2] * 40 + [1]
    assert [each.keep for each in host.commits] == [1 + 2 * turn for turn in range(41)]


@pytest.mark.rule("R-CKPT-26")
async def test_a_late_answer_is_committed_with_what_stands_behind_its_question(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tools = [slow_tool(1, "ask", result=Suspend.answer("Really?")), slow_tool(1, "look")]
    calls = [tool_call("ask", id="a"), tool_call("look")]
    host = hosted([tool_call_turn(calls), final_answer("So be it.")], ports={"tools": tools})
    await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    host.checkpoint = apply_checkpoint_input(host.checkpoint, ReplyInput(call_id="a", value="yes"))
    ended = await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    assert [(each.keep, len(each.tail)) for each in host.commits] == [(1, 2), (2, 2), (4, 1)]
    assert ended.checkpoint == host.checkpoint


@pytest.mark.rule("R-CKPT-08")
async def test_bindings_are_captured_anew_for_each_commit_and_copied(
    autojump_clock: trio.testing.MockClock,
) -> None:
    seen: list[JSON] = []

    def capture() -> JSON:
        seen.append(len(seen))
        return seen

    host = hosted(bindings=capture)
    ended = await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    seen.append("changed afterwards")
    assert [each.head.bindings for each in host.commits] == [[0], [0, 1], [0, 1, 2]]
    assert ended.checkpoint.head.bindings == [0, 1, 2]


@pytest.mark.rule("R-CKPT-03", "R-CKPT-24")
async def test_what_restore_opens_is_open_for_as_long_as_the_leg(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = hosted()
    async with open_from_checkpoint(host.checkpoint, host.restore, host.commit) as run:
        await trio.sleep(1.5)
        assert host.log == ["restore 0"]
        assert run.state.messages[-1]["role"] == "assistant"
    # Leaving the block aborted the leg first, then closed what it works with.
    assert run.result.stop_reason == "aborted"
    assert host.log == ["restore 0", "close"]


@pytest.mark.rule("R-CKPT-03")
async def test_a_restore_that_refuses_leaves_nothing_running_and_commits_nothing() -> None:
    host = hosted()
    refusal = LookupError("room 7 is gone")

    @asynccontextmanager
    async def restore(checkpoint: Checkpoint) -> AsyncIterator[Restored]:
        if checkpoint.revision == 0:
            raise refusal
        yield Restored(model=host.kit.model, capture_bindings=dict)

    with pytest.raises(LookupError) as caught:
        await run_from_checkpoint(host.checkpoint, restore, host.commit)
    assert caught.value is refusal
    assert (host.kit.script.requests, host.commits) == ([], [])


async def test_a_restore_that_fails_on_its_way_out_is_heard(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = hosted()

    @asynccontextmanager
    async def restore(checkpoint: Checkpoint) -> AsyncIterator[Restored]:
        async with host.restore(checkpoint) as restored:
            yield restored
        raise OSError("could not be closed")

    with pytest.raises(OSError, match="could not be closed"):
        await run_from_checkpoint(host.checkpoint, restore, host.commit)
    assert host.checkpoint.status == "finished"


# -- what is not run, and what is not committed --------------------------------------------------


@pytest.mark.rule("R-CKPT-10", "R-CKPT-25")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("waiting", "waiting_for_reply"),
        ("forked", "waiting_for_reply"),
        ("napping", "resuming_later"),
        ("finished", "turn_limit"),
    ],
)
async def test_one_that_waits_or_is_finished_asks_nobody_anything(name: str, reason: str) -> None:
    host = hosted()
    before = EXAMPLES[name]()
    ended = await run_from_checkpoint(before, host.restore, host.commit)
    assert (ended.stop_reason, ended.checkpoint, ended.result) == (reason, before, None)
    assert (ended.stats, ended.total) == (RunStats(), before.head.stats)
    with pytest.raises(RunUseError, match=f"^run '{before.run_id}' is {before.status}, expected"):
        async with open_from_checkpoint(before, host.restore, host.commit):
            pass
    assert (host.log, host.kit.script.requests) == ([], [])


@pytest.mark.rule("R-CKPT-04")
async def test_a_checkpoint_whose_parts_do_not_fit_is_not_run() -> None:
    host = hosted()
    odd = attrs.evolve(waiting(), head=attrs.evolve(waiting().head, status="ready"))
    with pytest.raises(RecordError, match=r"\$\.status"):
        await run_from_checkpoint(odd, host.restore, host.commit)
    assert host.log == []


@pytest.mark.rule("R-CKPT-21")
@pytest.mark.parametrize("seconds", [0.5, 1.5, 3.5, 5.5])
@pytest.mark.parametrize("how", ["abort", "deadline", "cancel", "soft", "body", "leave"])
async def test_what_is_cut_short_commits_nothing_more(
    how: str, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    host = hosted()
    began = trio.current_time()
    leg: LegOptions = {"deadline": began + seconds} if how == "deadline" else {}
    run: Run | None = None
    committed = -1
    with trio.CancelScope() as scope:
        try:
            opened = open_from_checkpoint(host.checkpoint, host.restore, host.commit, **leg)
            async with opened as run:
                await trio.sleep_until(began + seconds)
                committed = len(host.commits)
                match how:
                    case "abort":
                        run.abort()
                    case "soft":
                        run.request_stop()
                    case "cancel":
                        scope.cancel("stop")
                    case "body":
                        raise KeyError("the body's")
                    case _:
                        pass
                if how != "leave":
                    await run.wait()
        except KeyError:
            assert how == "body"
    assert run is not None
    assert_transcript_settled(run.state.messages)
    if how == "soft":
        assert run.result.stop_reason == "aborted"
        assert len(host.commits) in (committed, committed + 1)  # the turn in progress may end
    else:
        assert len(host.commits) == committed
    assert host.checkpoint.status == "ready"
    # What stands is settled, and goes on.
    ended = await run_from_checkpoint(host.checkpoint, hosted().restore, host.commit)
    assert ended.stop_reason == "done"


@pytest.mark.rule("R-CKPT-19", "R-CKPT-21")
async def test_a_commit_that_is_cut_is_none(autojump_clock: trio.testing.MockClock) -> None:
    host = hosted()
    before, deadline = host.checkpoint, trio.current_time() + 3.5  # in the midst of the first
    ended = await run_from_checkpoint(before, host.restore, host.commit, deadline=deadline)
    assert host.log == ["restore 0", "commit after 1", "close"]
    assert (ended.stop_reason, ended.checkpoint) == ("deadline", before)
    # What the leg has used it has used all the same.
    assert (ended.stats.turns, ended.total.turns, before.head.stats.turns) == (1, 1, 0)


@pytest.mark.rule("R-CKPT-21")
async def test_a_model_that_fails_leaves_the_last_commit_as_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = hosted([THREE_TURNS[0], ValueError("no more")])
    with pytest.raises(ValueError, match="no more"):
        await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    assert [each.head.revision for each in host.commits] == [1]
    assert host.checkpoint.status == "ready"


@pytest.mark.rule("R-CKPT-21", "R-CKPT-07")
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_commit_that_fails_ends_the_run_with_its_error(
    at: int, autojump_clock: trio.testing.MockClock
) -> None:
    host = hosted()
    broken = OSError("no space left")

    async def commit(each: Commit) -> Literal["continue", "checkpoint"]:
        if each.head.revision == at:
            raise broken
        return await host.commit(each)

    with pytest.raises(OSError, match="no space left") as caught:
        await run_from_checkpoint(host.checkpoint, host.restore, commit)
    assert caught.value is broken
    assert len(host.kit.script.requests) == at
    assert host.checkpoint.revision == at - 1
    assert host.log[-1] == "close"


def no_json() -> JSON:
    return {"room": object()}  # type: ignore[dict-item]  # as an untyped host might


def broken() -> JSON:
    raise LookupError("room 7 is gone")


@pytest.mark.rule("R-CKPT-03")
@pytest.mark.parametrize(("capture", "error"), [(no_json, NotJSONError), (broken, LookupError)])
async def test_bindings_that_cannot_be_captured_end_the_run_uncommitted(
    capture: Callable[[], JSON], error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    host = hosted(bindings=capture)
    with pytest.raises(error):
        await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    assert (host.commits, len(host.kit.script.requests)) == ([], 1)


async def test_a_verdict_that_is_none_ends_the_run_and_was_committed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = hosted(verdict="stop")
    with pytest.raises(TypeError, match="^the boundary answered 'stop', expected 'continue' or"):
        await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    assert host.checkpoint.revision == 1


CLASHES: list[tuple[RunOptions, LegOptions, str]] = [
    ({"limits": Limits(turns=1)}, {}, "limits"),
    ({"boundary": go_on}, {}, "boundary"),
    ({"deadline": 5.0}, {"deadline": 6.0}, "deadline"),
    ({"events": Emitter()}, {"events": None}, "events"),
    ({"budget": None}, {"budget": Budget(Limits())}, "budget"),
]


@pytest.mark.rule("R-CKPT-06")
@pytest.mark.parametrize(("options", "leg", "name"), CLASHES)
async def test_an_option_is_given_in_one_place(
    options: RunOptions, leg: LegOptions, name: str
) -> None:
    host = hosted()
    host.kit.ports.update(options)
    with pytest.raises(TypeError, match=f"^'{name}' is among the restored options, expected it"):
        await run_from_checkpoint(host.checkpoint, host.restore, host.commit, **leg)
    assert host.log == ["restore 0", "close"]


# -- going on ------------------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-09", "R-CKPT-19")
async def test_a_run_that_is_checkpointed_ends_there_and_goes_on_from_there(
    autojump_clock: trio.testing.MockClock,
) -> None:
    whole = hosted()
    uncut = await run_from_checkpoint(whole.checkpoint, whole.restore, whole.commit)
    host = hosted(stop_at=1)
    first = await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    assert (first.stop_reason, first.checkpoint.status) == ("checkpointed", "ready")
    second = await run_from_checkpoint(first.checkpoint, host.restore, host.commit)
    assert (second.stop_reason, second.checkpoint.messages) == ("done", uncut.checkpoint.messages)
    assert (first.stats.turns, second.stats.turns) == (1, 2)
    assert (first.total, second.total) == (first.stats, uncut.stats)
    assert second.checkpoint.head.stats == uncut.stats


@pytest.mark.rule("R-CKPT-13")
async def test_a_resumed_run_has_used_what_it_had_used(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = hosted(limits=Limits(turns=2), stop_at=1)
    first = await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    second = await run_from_checkpoint(first.checkpoint, host.restore, host.commit)
    assert (second.stop_reason, second.stats.turns, second.total.turns) == ("turn_limit", 1, 2)
    assert second.checkpoint.head.stop_reason == "turn_limit"


@pytest.mark.rule("R-CKPT-14", "R-CKPT-16")
async def test_new_input_brings_no_room_and_a_fork_does(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = hosted(limits=Limits(turns=2))
    spent = await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    assert spent.stop_reason == "turn_limit"
    more = MessageInput(message=user_message("Go on."))

    host.checkpoint = apply_checkpoint_input(spent.checkpoint, more)
    again = await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    assert (again.stop_reason, again.stats.turns) == ("turn_limit", 0)
    assert (again.checkpoint.status, len(host.kit.script.requests)) == ("finished", 2)

    forked = fork_checkpoint(spent.checkpoint, "fork", limits=Limits(turns=1), bindings=None)
    asleep = await run_from_checkpoint(forked, host.restore, host.commit)
    assert (asleep.result, asleep.stop_reason) == (None, "turn_limit")
    host.checkpoint = apply_checkpoint_input(forked, more)
    ended = await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
    assert (ended.stop_reason, ended.total.turns) == ("done", 1)
    assert ended.checkpoint.messages[-1] == assistant_message("Found.")


@pytest.mark.rule("R-CKPT-16", "R-CKPT-18")
async def test_a_fork_that_waits_takes_its_reply_and_leaves_the_source_waiting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ask = slow_tool(1, "ask", result=Suspend.answer("Which?"))
    turns = [
        tool_call_turn([tool_call("ask", id="a"), tool_call("ask", id="b")]),
        final_answer("First."),
        final_answer("Second."),
    ]
    host = hosted(turns, ports={"tools": [ask]})
    waits = (await run_from_checkpoint(host.checkpoint, host.restore, host.commit)).checkpoint
    forked = fork_checkpoint(waits, "fork", limits=Limits(turns=1), bindings=None)
    ends = []
    for source, value in ((forked, "left"), (waits, "right")):
        host.checkpoint = source
        for call_id in ("b", "a"):
            assert host.checkpoint.status == "waiting_for_reply"
            reply = ReplyInput(call_id=call_id, value=value)
            host.checkpoint = apply_checkpoint_input(host.checkpoint, reply)
        ended = await run_from_checkpoint(host.checkpoint, host.restore, host.commit)
        assert ended.stop_reason == "done"
        ends.append([str(each.get("content")) for each in ended.checkpoint.messages[2:]])
    assert ["left" in text for text in ends[0]] == [True, True, False]
    assert ["right" in text for text in ends[1]] == [True, True, False]
    assert (ends[0][-1], ends[1][-1]) == ("First.", "Second.")


@pytest.mark.rule("R-CKPT-16")
async def test_turns_of_a_fork_have_ids_of_their_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ask = slow_tool(1, "ask", result=Suspend.answer("Which?"))
    turns = [
        tool_call_turn([tool_call("ask", id="a")]),
        tool_call_turn([tool_call("ask", id="b")]),
        final_answer("So be it."),
    ]
    host = hosted(turns, ports={"tools": [ask]})
    waits = (await run_from_checkpoint(host.checkpoint, host.restore, host.commit)).checkpoint
    host.checkpoint = fork_checkpoint(waits, "fork", limits=Limits(), bindings=None)
    ids: list[str] = []
    for call_id in ("a", "b"):
        reply = ReplyInput(call_id=call_id, value="left")
        host.checkpoint = apply_checkpoint_input(host.checkpoint, reply)
        async with open_from_checkpoint(host.checkpoint, host.restore, host.commit) as run:
            await run.wait()
            while True:
                try:
                    event = run.events.receive_nowait()
                except trio.EndOfChannel:
                    break
                if type(event).__name__ == "TurnStarted":
                    ids.append(event.turn_id)  # type: ignore[union-attr]  # by its name
    # The turn in which the source had asked is no turn of the fork's.
    assert ids == ["fork:1:-1", "fork:1:0", "fork:2:0", "fork:2:1"]
    assert host.checkpoint.head.position.turn == 2


async def test_nothing_of_a_checkpoint_is_changed_by_running_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = hosted()
    before = create_checkpoint("run", "Go.")
    ended = await run_from_checkpoint(before, host.restore, host.commit)
    assert before == create_checkpoint("run", "Go.")
    assert ended.result is not None
    ended.result.state.messages.clear()
    ended.stats.turns = ended.total.turns = 99
    assert ended.checkpoint == host.checkpoint
    assert ended.checkpoint.head.stats.turns == 3
