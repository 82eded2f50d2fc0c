from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness._cli._scenes import (
    Claim,
    Endpoint,
    Played,
    Stage,
    play_abort,
    play_deadline,
    play_whole,
    transcript_claim,
    transcript_lines,
)
from harness._events import Event, RunFinished, TextDelta
from harness._messages import Message, assistant_message, tool_message, user_message
from harness._model import Chunk
from harness.testing import (
    ScriptedModel,
    ScriptItem,
    Timed,
    counting_tool,
    failing_tool,
    final_answer,
    scripted_model,
    tool_call,
    tool_call_turn,
)
from harness.tools import Tool

CALL = tool_call_turn([tool_call("look")])
IN_THE_MIDDLE = (
    "the deadline of 3.50 s ended the run in the middle of the answer,"
    " and it was settled 0.0 ms later"
)
VALID = "its transcript is settled, and either kind of provider would take it"


def answer(pieces: int) -> list[Timed[Chunk]]:
    """An answer that comes in so many pieces, one a second."""
    words = [Timed(1.0, Chunk(text=f"word{number} ")) for number in range(pieces)]
    return [*words, Timed(0.0, Chunk(finish_reason="stop", end=True))]


@attrs.define
class Slot:
    """A watch that sees what the test says, and nothing after *idle_after* seconds."""

    working: bool = True
    idle_after: float = 0.25
    asking: float = 0.0
    """Seconds that an answer of the server takes."""
    at_work = "the slot was busy"
    at_rest = "idle"

    async def busy(self) -> bool:
        await trio.sleep(self.asking)
        return self.working

    async def wait_idle(self) -> None:
        await trio.sleep(self.idle_after)


@attrs.define
class Audience:
    """Keeps what it is shown."""

    events: list[Event] = attrs.field(factory=list)
    lines: list[str] = attrs.field(factory=list)

    def event(self, event: Event) -> None:
        self.events.append(event)

    @property
    def ends(self) -> list[str]:
        return [each.stop_reason for each in self.events if isinstance(each, RunFinished)]


def stage(
    script: Sequence[ScriptItem],
    *,
    tool: Tool | None = None,
    slot: Slot | None = None,
    audience: Audience | None = None,
) -> tuple[Stage, ScriptedModel, Audience]:
    model = scripted_model(script)
    seen = audience or Audience()
    made = Stage(
        endpoint=Endpoint(model=model, watch=slot or Slot(), about="a script"),
        tools=[tool or counting_tool("look")],
        show=seen,
        say=seen.lines.append,
    )
    return made, model, seen


def unseen(played: Played) -> list[str]:
    return [claim.text for claim in played.claims if not claim.seen]


# -- the whole run -----------------------------------------------------------------------------


async def test_a_whole_run_is_seen_to_call_a_tool_and_to_stream_its_answer(
    autojump_clock: MockClock,
) -> None:
    made, model, audience = stage([CALL, answer(3)])
    played = await play_whole(made)
    assert unseen(played) == []
    assert [claim.text for claim in played.claims] == [
        "a tool was called and ran to its end",
        "the answer came piece by piece, and the run was done",
        VALID,
    ]
    assert (played.sight.first_text, played.sight.last_text, played.sight.pieces) == (1, 3, 3)
    assert audience.ends == ["done"]
    assert [request.tool_choice for request in model.requests] == ["required", "none"]


async def test_a_run_without_a_call_is_no_evidence_of_one(autojump_clock: MockClock) -> None:
    made, _, _ = stage([answer(3)])
    assert unseen(await play_whole(made)) == ["a tool was called and ran to its end"]


async def test_a_tool_that_fails_did_not_run_to_its_end(autojump_clock: MockClock) -> None:
    made, _, _ = stage([CALL, answer(3)], tool=failing_tool(ValueError("no"), "look"))
    assert unseen(await play_whole(made)) == ["a tool was called and ran to its end"]


async def test_an_answer_in_one_piece_is_no_evidence_of_streaming(
    autojump_clock: MockClock,
) -> None:
    made, _, _ = stage([CALL, answer(1)])
    assert unseen(await play_whole(made)) == [
        "the answer came piece by piece, and the run was done"
    ]


async def test_a_run_that_never_ends_is_given_up(autojump_clock: MockClock) -> None:
    made, _, audience = stage([CALL, answer(300)])
    begun = trio.current_time()
    assert unseen(await play_whole(made)) == [
        "the answer came piece by piece, and the run was done"
    ]
    assert trio.current_time() - begun == 60
    assert audience.ends == ["deadline"]


async def test_a_run_that_fails_is_an_error(autojump_clock: MockClock) -> None:
    made, _, _ = stage([CALL, ConnectionError("gone")])
    with pytest.raises(ConnectionError, match=r"^gone$"):
        await play_whole(made)


# -- the abort ---------------------------------------------------------------------------------


async def test_an_abort_is_seen_to_settle_the_run_and_to_free_the_slot(
    autojump_clock: MockClock,
) -> None:
    made, _, audience = stage([CALL, answer(20)])
    played = await play_abort(made)
    assert [claim.text for claim in played.claims] == [
        "the abort fell into the answer, and the run was settled 0.0 ms later",
        "the slot was busy at the abort, and idle 250.0 ms after it",
        VALID,
    ]
    assert unseen(played) == []
    assert audience.ends == ["aborted"]
    assert sum(isinstance(each, TextDelta) for each in audience.events) == 5


async def test_the_settled_transcript_is_shown(autojump_clock: MockClock) -> None:
    made, _, audience = stage([CALL, answer(20)])
    await play_abort(made)
    assert [line.split()[0] for line in audience.lines] == ["system", "user", "assistant", "tool"]
    assert audience.lines[2] == "assistant  look({})"


async def test_a_slot_that_was_idle_anyway_is_no_evidence(autojump_clock: MockClock) -> None:
    made, _, _ = stage([CALL, answer(20)], slot=Slot(working=False))
    assert unseen(await play_abort(made)) == ["the slot was busy at the abort, and idle after it"]


async def test_a_slot_that_stays_busy_is_seen_after_a_bounded_wait(
    autojump_clock: MockClock,
) -> None:
    made, _, _ = stage([CALL, answer(20)], slot=Slot(idle_after=1000.0))
    begun = trio.current_time()
    assert unseen(await play_abort(made)) == ["the slot was busy at the abort, and idle after it"]
    assert trio.current_time() - begun == 10  # five pieces, and five seconds of patience


async def test_an_answer_that_was_over_before_the_abort_is_tried_again(
    autojump_clock: MockClock,
) -> None:
    made, model, audience = stage([CALL, answer(3), tool_call_turn([tool_call("look")]), answer(9)])
    assert unseen(await play_abort(made)) == []
    assert audience.ends == ["done", "aborted"]
    assert model.remaining == 0
    assert "the answer was over before the abort: once more" in audience.lines


async def test_an_abort_that_never_found_its_moment_is_not_claimed(
    autojump_clock: MockClock,
) -> None:
    made, model, audience = stage([CALL, answer(3), *again(2)])
    assert unseen(await play_abort(made)) == [
        "the abort fell into the answer, and the run was settled",
        "the slot was busy at the abort, and idle after it",
    ]
    assert (audience.ends, model.remaining) == (["done"] * 3, 0)


async def test_an_answer_that_ended_while_the_server_was_asked_was_not_aborted(
    autojump_clock: MockClock,
) -> None:
    made, _, audience = stage([CALL, answer(6), *again(2, pieces=6)], slot=Slot(asking=10.0))
    assert unseen(await play_abort(made)) == [
        "the abort fell into the answer, and the run was settled",
        "the slot was busy at the abort, and idle after it",
    ]
    assert audience.ends == ["done"] * 3


def again(times: int, *, pieces: int = 3) -> list[ScriptItem]:
    """Further runs with the same short answer."""
    one: list[ScriptItem] = []
    for _ in range(times):
        one += [tool_call_turn([tool_call("look")]), answer(pieces)]
    return one


# -- the deadline ------------------------------------------------------------------------------


async def test_a_deadline_is_seen_to_end_the_run_in_its_answer(autojump_clock: MockClock) -> None:
    made, _, audience = stage([CALL, answer(20)])
    played = await play_deadline(made, 3.5)
    assert [claim.text for claim in played.claims] == [
        IN_THE_MIDDLE,
        VALID,
    ]
    assert unseen(played) == []
    assert audience.ends == ["deadline"]


async def test_a_deadline_before_the_first_text_is_told_as_that(autojump_clock: MockClock) -> None:
    made, _, _ = stage([CALL, answer(20)])
    played = await play_deadline(made, 0.5)
    assert "before the answer had begun" in played.claims[0].text
    assert unseen(played) == []


async def test_a_run_that_beats_its_deadline_is_tried_with_less(autojump_clock: MockClock) -> None:
    made, _, audience = stage([CALL, answer(3), *again(1)])
    played = await play_deadline(made, 5.0)
    assert unseen(played) == []
    assert audience.ends == ["done", "deadline"]
    assert audience.lines == ["the run was done before its deadline: once more, with 2.50 s"]


async def test_a_deadline_that_never_came_is_not_claimed(autojump_clock: MockClock) -> None:
    made, _, audience = stage([CALL, answer(3), *again(2)])
    assert unseen(await play_deadline(made, 1000.0)) == ["the deadline ended the run"]
    assert audience.ends == ["done"] * 3


# -- transcripts -------------------------------------------------------------------------------


def asked() -> list[Message]:
    call = tool_call("look", {"at": "it"}, id="c1")
    return [user_message("Well?"), assistant_message("Let me see.", [call])]


def test_an_unanswered_call_is_no_valid_transcript() -> None:
    claim = transcript_claim(asked())
    assert not claim.seen
    assert claim.text.startswith("its transcript is valid; but message ")


def test_an_answered_call_is_one() -> None:
    assert transcript_claim([*asked(), tool_message("c1", "{}")]) == Claim(VALID, True)
    assert transcript_claim([user_message("Well?"), final_answer("So.").message]).seen


def test_a_transcript_is_shown_a_message_a_line() -> None:
    long = tool_message("c1", "word " * 100)
    assert transcript_lines([*asked(), long]) == [
        "user       Well?",
        'assistant  Let me see. look({"at":"it"})',
        "tool       " + ("word " * 16)[:79] + "…",
    ]
