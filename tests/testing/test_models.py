from collections.abc import Sequence
from itertools import count

import pytest
import trio

import harness
from harness import Chunk, Halt, ModelRequest, ModelTurn, user_message
from harness.completion import open_turn_stream
from harness.events import Event, TextDelta
from harness.testing import (
    ScriptedModel,
    ScriptExhausted,
    ScriptItem,
    final_answer,
    run_harness,
    scripted_model,
    streamed,
    timed,
    tool_call,
    tool_call_turn,
)


class Asker:
    """Asks a model for one turn after another, and keeps what the turns told."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.messages = [user_message("Go.")]
        self._turns = count()

    async def ask(self, model: ScriptedModel) -> ModelTurn | Halt:
        turn = next(self._turns)
        stream = open_turn_stream(
            f"t{turn}",
            tell=self.told.append,
            spend=lambda usage: None,
            surface=harness.TextSurface(),
            assembly=harness.Assembly(),
            tool_calls=0,
            now=trio.current_time,
        )
        return await model.complete(
            ModelRequest(run_id="r", turn_id=f"t{turn}", turn=turn, messages=self.messages), stream
        )


@pytest.mark.rule("R-KIT-01")
async def test_turns_are_played_in_order_to_the_end_of_a_run() -> None:
    kit = run_harness(
        [
            tool_call_turn([tool_call("search", {"q": "rooms"}), tool_call("book")]),
            tool_call_turn([tool_call("book")]),
            final_answer("Booked."),
        ]
    )
    result = await kit.run()
    assert (result.stop_reason, result.stats.turns, result.text) == ("done", 3, "Booked.")
    assert kit.script.remaining == 0
    assert kit.ran == ["call_1", "call_2", "call_3"]


@pytest.mark.rule("R-KIT-02")
async def test_a_script_that_runs_out_names_the_turn() -> None:
    kit = run_harness([tool_call_turn([tool_call("search")])])
    with pytest.raises(
        ScriptExhausted, match="^turn 1 was asked for, expected no more than 1 turns$"
    ):
        await kit.run()


@pytest.mark.rule("R-KIT-02")
async def test_an_empty_script_runs_out_at_once() -> None:
    model = scripted_model([])
    for _ in range(2):
        with pytest.raises(ScriptExhausted) as caught:
            await Asker().ask(model)
        assert (caught.value.turn, caught.value.turns) == (0, 0)
    assert model.requests == []


@pytest.mark.rule("R-KIT-01")
async def test_what_was_asked_is_kept_as_it_was_then() -> None:
    kit = run_harness([tool_call_turn([tool_call("search")]), final_answer("Done.")])
    await kit.run("Find it.")
    first, second = kit.script.requests
    assert [message["role"] for message in first.messages] == ["user"]
    assert [message["role"] for message in second.messages] == ["user", "assistant", "tool"]
    assert (first.turn, second.turn) == (0, 1)
    assert [tool["function"] for tool in second.tools] != []


@pytest.mark.rule("R-KIT-01")
async def test_what_becomes_of_the_messages_later_changes_no_request() -> None:
    model, asker = scripted_model([final_answer("x")]), Asker()
    await asker.ask(model)
    asker.messages[:] = []
    assert [message["content"] for message in model.requests[0].messages] == ["Go."]


@pytest.mark.rule("R-KIT-01")
async def test_a_halt_and_an_exception_are_turns_too() -> None:
    error = OSError("no route")
    halt = Halt(code="policy", message="not today")
    model, asker = scripted_model([halt, error]), Asker()
    assert await asker.ask(model) is halt
    with pytest.raises(OSError, match="no route") as caught:
        await asker.ask(model)
    assert caught.value is error


@pytest.mark.rule("R-KIT-01")
@pytest.mark.parametrize(
    "turn",
    [
        streamed(final_answer("Hello there."), size=5),
        [
            Chunk(text="Hello"),
            Chunk(text=" ther"),
            Chunk(text="e."),
            Chunk(finish_reason="stop"),
            Chunk(end=True),
        ],
    ],
    ids=["a turn in pieces", "chunks"],
)
async def test_a_streamed_turn_is_told_while_it_arrives(turn: ScriptItem) -> None:
    model, asker = scripted_model([turn]), Asker()
    answer = await asker.ask(model)
    assert isinstance(answer, ModelTurn)
    assert answer.message["content"] == "Hello there."
    texts = [event.text for event in asker.told if isinstance(event, TextDelta)]
    assert texts == ["Hello", " ther", "e."]


async def test_an_exception_among_chunks_breaks_the_stream() -> None:
    model, asker = scripted_model([[Chunk(text="Hel"), ConnectionError("reset")]]), Asker()
    with pytest.raises(ConnectionError, match="reset"):
        await asker.ask(model)
    assert [event.text for event in asker.told if isinstance(event, TextDelta)] == ["Hel"]


@pytest.mark.rule("R-KIT-07")
@pytest.mark.parametrize(
    ("turn", "seconds"),
    [
        (timed(3, final_answer("x")), 3),
        (timed(2.5, streamed(final_answer("x"))), 2.5),
        (
            timed(
                1,
                [timed(2, Chunk(text="x")), timed(4, Chunk(finish_reason="stop")), Chunk(end=True)],
            ),
            7,
        ),
        (timed(5, Halt(code="h", message="m")), 5),
        (final_answer("x"), 0),
    ],
)
async def test_a_turn_takes_the_time_it_is_given(
    autojump_clock: trio.testing.MockClock, turn: ScriptItem, seconds: float
) -> None:
    started = trio.current_time()
    await Asker().ask(scripted_model([turn]))
    assert trio.current_time() - started == seconds


@pytest.mark.parametrize(
    "turns", [[final_answer("x")], [streamed(final_answer("x"))], [ValueError("x")]]
)
async def test_every_completion_is_a_checkpoint(turns: Sequence[ScriptItem]) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await Asker().ask(scripted_model(turns))
    assert scope.cancelled_caught


async def test_a_played_turn_belongs_to_the_run_alone() -> None:
    turn = tool_call_turn([tool_call("search", id="a")])
    first, second = scripted_model([turn]), scripted_model([turn])
    asker = Asker()
    one, other = await asker.ask(first), await asker.ask(second)
    assert isinstance(one, ModelTurn)
    assert isinstance(other, ModelTurn)
    one.message["content"] = "changed"
    assert turn.message["content"] is other.message["content"] is None
