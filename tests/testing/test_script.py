import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._errors import NotJSONError
from harness._model import Chunk, Halt, ModelTurn
from harness._usage import Usage
from harness.completion import Assembler
from harness.testing import (
    ScriptError,
    ScriptItem,
    Timed,
    final_answer,
    streamed,
    timed,
    tool_call,
    tool_call_turn,
)
from harness.testing._script import Script, build_script, called_names, chunks_of


def _ids(script: Script) -> list[str]:
    turns = [played for _, played in script if isinstance(played, ModelTurn)]
    return [call["id"] for turn in turns for call in turn.message.get("tool_calls", [])]


def test_a_call_is_what_stands_in_a_message() -> None:
    assert tool_call("search", {"q": "ä"}, id="a") == {
        "id": "a",
        "type": "function",
        "function": {"name": "search", "arguments": '{"q":"ä"}'},
    }


def test_arguments_given_as_text_may_be_malformed() -> None:
    assert tool_call("search", "{").get("function") == {"name": "search", "arguments": "{"}
    assert tool_call("search")["function"]["arguments"] == "{}"


def test_arguments_that_are_no_json_are_refused() -> None:
    with pytest.raises(NotJSONError):
        tool_call("search", {"q": float("nan")})


def test_turns_say_how_they_finished() -> None:
    usage = Usage(input=3, output=2)
    asked = tool_call_turn([tool_call("a", id="x")], "Let me see.", usage=usage, reasoning="hm")
    assert (asked.finish_reason, asked.usage, asked.reasoning) == ("tool_calls", usage, "hm")
    assert asked.message["content"] == "Let me see."
    answered = final_answer("Done.")
    assert (answered.finish_reason, answered.message) == (
        "stop",
        {"role": "assistant", "content": "Done."},
    )


@pytest.mark.rule("R-KIT-03")
def test_unnamed_calls_are_numbered_over_the_whole_script() -> None:
    script = build_script(
        [
            tool_call_turn([tool_call("a"), tool_call("b", id="mine"), tool_call("c")]),
            final_answer("so far"),
            timed(1, tool_call_turn([tool_call("a")])),
        ]
    )
    assert _ids(script) == ["call_1", "mine", "call_2", "call_3"]


@pytest.mark.rule("R-KIT-03")
@pytest.mark.parametrize(
    "turns",
    [
        [tool_call_turn([tool_call("a", id="x"), tool_call("b", id="x")])],
        [tool_call_turn([tool_call("a", id="x")]), tool_call_turn([tool_call("a", id="x")])],
        [
            tool_call_turn([tool_call("a", id="x")]),
            streamed(tool_call_turn([tool_call("a", id="x")])),
        ],
        [
            tool_call_turn([tool_call("a", id="x")]),
            Halt(code="h", message="m", turn=tool_call_turn([tool_call("a", id="x")])),
        ],
    ],
    ids=["one turn", "two turns", "a streamed turn", "the turn of a halt"],
)
def test_a_call_id_that_stands_twice_is_refused(turns: list[ModelTurn]) -> None:
    with pytest.raises(ScriptError, match="call id 'x' stands twice, expected each id once"):
        build_script(turns)


@pytest.mark.rule("R-KIT-03")
def test_a_given_id_may_not_meet_a_numbered_one() -> None:
    with pytest.raises(ScriptError, match="call id 'call_1' stands twice"):
        build_script([tool_call_turn([tool_call("a"), tool_call("b", id="call_1")])])


def test_the_turns_given_are_left_as_they_were() -> None:
    turn = tool_call_turn([tool_call("a")])
    assert _ids(build_script([turn, turn])) == ["call_1", "call_2"]
    assert turn.message["tool_calls"][0]["id"] == ""


@pytest.mark.parametrize("item", ["Done.", None, {"role": "assistant"}, ["Done."], [[Chunk()]], 3])
def test_what_cannot_be_played_is_refused_when_the_script_is_built(item: object) -> None:
    with pytest.raises(TypeError, match="the script holds"):
        build_script([item])  # type: ignore[list-item]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "1"])
def test_a_wait_is_in_finite_seconds(seconds: object) -> None:
    with pytest.raises((TypeError, ValueError), match="seconds is"):
        Timed(seconds, final_answer("x"))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, -1, True, 1.5])
def test_pieces_have_a_size(size: object) -> None:
    with pytest.raises((TypeError, ValueError), match="size is"):
        streamed(final_answer("x"), size=size)  # type: ignore[arg-type]


def test_the_names_that_a_script_calls_are_known() -> None:
    turns: list[ScriptItem] = [
        tool_call_turn([tool_call("b"), tool_call("a"), tool_call("b")]),
        timed(1, streamed(tool_call_turn([tool_call("c")]))),
        [Chunk(text="x")],
        ValueError("x"),
    ]
    assert called_names(turns) == ("b", "a", "c")


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(
    text=st.none() | _TEXTS,
    reasoning=st.none() | _TEXTS,
    arguments=st.lists(_TEXTS, max_size=3),
    size=st.integers(1, 5),
)
def test_a_turn_in_pieces_is_put_together_as_it_was(
    text: str | None, reasoning: str | None, arguments: list[str], size: int
) -> None:
    calls = [tool_call("t", each, id=f"c{index}") for index, each in enumerate(arguments)]
    said = text if text or calls else "Nothing."
    turn = tool_call_turn(calls, said, usage=Usage(output=4), reasoning=reasoning)
    assembler = Assembler()
    for chunk in chunks_of(streamed(turn, size=size)):
        assembler.observe(chunk)
    completion = assembler.completion()
    assert completion.message() == turn.message
    assert (completion.reasoning or None) == turn.reasoning
    assert (completion.usage, completion.finish_reason) == (turn.usage, turn.finish_reason)
