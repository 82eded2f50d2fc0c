"""Appending what the journal took: together or not at all, and for how long after a stop."""

import pytest
import trio
from trio.testing import MockClock, assert_no_checkpoints

from harness import Journal, Message, assistant_message, tool_message
from harness.kernel._ports import NO_JOURNAL
from harness.kernel._writer import Writer
from harness.testing import Scene, cancel_everywhere

SAID = assistant_message("Yes.")
ANSWERS = [tool_message(f"call_{number}", "{}") for number in range(3)]


class _Log(Journal):
    """Takes *seconds* for each message, and notes it once it has it."""

    def __init__(self, seconds: float = 0.0, *, refuse: Message | None = None) -> None:
        self.seconds = seconds
        self.refuse = refuse
        self.taken: list[Message] = []
        self.ordinals: list[int] = []

    async def accept_assistant(self, message: Message) -> None:
        await trio.sleep(self.seconds)
        if message is self.refuse:
            raise OSError("the log is full")
        self.taken.append(message)

    async def accept_result(self, message: Message, ordinal: int) -> None:
        await self.accept_assistant(message)
        self.ordinals.append(ordinal)


def nothing() -> None:
    pass


async def test_a_message_is_committed_then_appended_and_then_what_goes_with_it() -> None:
    log = _Log()
    writer = Writer([], log, 10.0)
    seen: list[tuple[int, int]] = []
    await writer.add_assistant(SAID, lambda: seen.append((len(log.taken), len(writer.messages))))
    assert seen == [(1, 1)]
    assert writer.messages == log.taken == [SAID]


async def test_nothing_comes_between_the_commit_and_the_append() -> None:
    class Watched(Journal):
        async def accept_assistant(self, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            trio.lowlevel.current_trio_token().run_sync_soon(lambda: late.append(len(messages)))

    late: list[int] = []
    messages: list[Message] = []
    await Writer(messages, Watched(), 10.0).add_assistant(SAID, nothing)
    await trio.testing.wait_all_tasks_blocked()
    assert late == [1]


async def test_what_the_journal_refuses_is_not_appended() -> None:
    writer = Writer([], _Log(refuse=SAID), 10.0)
    called: list[str] = []
    with pytest.raises(OSError, match=r"^the log is full$"):
        await writer.add_assistant(SAID, lambda: called.append("then"))
    assert (writer.messages, called) == ([], [])


async def test_a_result_goes_to_its_place_with_its_ordinal() -> None:
    log = _Log()
    writer = Writer([SAID, ANSWERS[1]], log, 10.0)
    await writer.put_result(1, ANSWERS[0], 1)
    await writer.put_result(3, ANSWERS[2], 2)
    assert writer.messages == [SAID, *ANSWERS]
    assert log.ordinals == [1, 2]


async def test_a_result_that_the_journal_refuses_is_not_in_the_transcript() -> None:
    writer = Writer([SAID], _Log(refuse=ANSWERS[0]), 10.0)
    with pytest.raises(OSError, match="full"):
        await writer.put_result(1, ANSWERS[0], 0)
    assert writer.messages == [SAID]


# -- a stop meanwhile --------------------------------------------------------------------------


@pytest.mark.rule("R-LOOP-37")
async def test_a_commit_in_progress_ends_and_the_stop_is_raised_after_it(
    autojump_clock: MockClock,
) -> None:
    writer = Writer([], _Log(5), 10.0)
    with trio.move_on_after(1) as scope:
        await writer.add_assistant(SAID, nothing)
    assert scope.cancelled_caught
    assert (writer.messages, trio.current_time()) == ([SAID], 5.0)


@pytest.mark.rule("R-LOOP-37")
async def test_a_commit_that_does_not_end_is_given_up_at_the_settle_deadline(
    autojump_clock: MockClock,
) -> None:
    log = _Log(60)
    writer = Writer([], log, 10.0)
    with trio.move_on_after(1) as scope:
        await writer.add_assistant(SAID, nothing)
    assert scope.cancelled_caught
    assert (writer.messages, log.taken, trio.current_time()) == ([], [], 11.0)


async def test_the_settle_deadline_is_one_for_all_that_is_still_to_be_written(
    autojump_clock: MockClock,
) -> None:
    log = _Log(4)
    writer = Writer([], log, 10.0)

    async def rest() -> None:
        for place, answer in enumerate(ANSWERS, 1):
            await writer.put_result(place, answer, place - 1)

    with trio.move_on_after(3) as scope:
        try:
            await writer.add_assistant(SAID, nothing)
        finally:
            await writer.shielded(rest)  # noqa: ASYNC102  # it has its own shield, with a deadline
    assert scope.cancelled_caught
    # The stop came at 3, so all ends at 13: one message at 4, two results, and half a third.
    assert trio.current_time() == 13.0
    assert writer.messages == log.taken == [SAID, *ANSWERS[:2]]


async def test_a_settle_timeout_of_nothing_gives_up_at_once(autojump_clock: MockClock) -> None:
    writer = Writer([], _Log(5), 0.0)
    with trio.move_on_after(1) as scope:
        await writer.add_assistant(SAID, nothing)
    assert scope.cancelled_caught
    assert (writer.messages, trio.current_time()) == ([], 1.0)


async def test_what_the_journal_raises_after_a_stop_is_raised(autojump_clock: MockClock) -> None:
    writer = Writer([], _Log(5, refuse=SAID), 10.0)
    with trio.move_on_after(1), pytest.raises(OSError, match="full"):
        await writer.add_assistant(SAID, nothing)
    assert writer.messages == []


async def test_without_a_journal_appending_is_no_checkpoint_and_a_stop_changes_nothing() -> None:
    writer = Writer([], NO_JOURNAL, 10.0)

    async def both() -> None:
        await writer.add_assistant(SAID, nothing)
        await writer.put_result(1, ANSWERS[0], 0)

    with trio.CancelScope() as scope:
        scope.cancel()
        with assert_no_checkpoints():
            await both()
    assert writer.messages == [SAID, ANSWERS[0]]


class _Slow(Journal):
    """A log that has a message from the moment in which it returns, and may be cut before.

    It ends in a few steps with no time between them, so that a stop can come in the very step
    after which it returns.
    """

    def __init__(self) -> None:
        self.taken: list[Message] = []

    async def accept_assistant(self, message: Message) -> None:
        await trio.sleep(1)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        self.taken.append(message)

    async def accept_result(self, message: Message, ordinal: int) -> None:
        await self.accept_assistant(message)


@pytest.mark.rule("R-LOOP-37")
@pytest.mark.parametrize("settle_timeout", [0.0, 0.5, 2.5, 10.0])
def test_wherever_it_is_stopped_the_transcript_has_what_the_journal_has(
    settle_timeout: float,
) -> None:
    async def scenario(scene: Scene) -> None:
        log = _Slow()
        writer = Writer([], log, settle_timeout)

        @scene.afterwards
        def check() -> None:
            assert writer.messages == log.taken

        async def rest() -> None:
            for place, answer in enumerate(ANSWERS, 1):
                await writer.put_result(place, answer, place - 1)

        await writer.add_assistant(SAID, nothing)
        await writer.shielded(rest)

    report = cancel_everywhere(scenario, minimum=20)
    assert report.cancelled
