import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._model import Chunk
from harness._usage import Usage
from harness.completion import Completion
from tests.completion.streams import (
    ODD_SHAPES,
    OddShape,
    assembled,
    call,
    merged,
    other_cuts,
    replies,
    said,
)


@pytest.mark.rule("R-ASM-01")
@given(replies())
def test_the_reply_does_not_depend_on_the_order_of_its_parts(
    reply: tuple[Completion, list[Chunk]],
) -> None:
    completion, stream = reply
    assert assembled(stream) == completion


@pytest.mark.rule("R-ASM-01")
@given(reply=replies(), choices=st.data())
def test_any_cut_of_a_stream_gives_the_same_reply(
    reply: tuple[Completion, list[Chunk]], choices: st.DataObject
) -> None:
    completion, stream = reply
    assert assembled(choices.draw(other_cuts(stream))) == completion


@pytest.mark.rule("R-ASM-01")
@given(shape=st.sampled_from(ODD_SHAPES), choices=st.data())
def test_any_cut_of_an_odd_stream_gives_the_same_reply(
    shape: OddShape, choices: st.DataObject
) -> None:
    cut = choices.draw(other_cuts(shape.chunks))
    expected, found = assembled(shape.chunks), assembled(cut)
    # Of a conflict only that there was one is sure: a piece in two parts conflicts twice.
    assert bool(found.conflicts) == bool(expected.conflicts)
    if not expected.conflicts:
        assert found == expected


@pytest.mark.rule("R-ASM-01")
def test_one_chunk_with_everything_is_a_stream_too() -> None:
    chunk = Chunk(text="Hi", reasoning="Hm", refusal="No", finish_reason="stop", end=True)
    chunk = merged(chunk, merged(call("{}", id="a", name="f"), Chunk(usage=Usage(input=1))))
    found = assembled([chunk])
    assert (found.text, found.reasoning, found.refusal) == ("Hi", "Hm", "No")
    assert found.calls[0]["id"] == "a"
    assert found.usage == Usage(input=1)


@pytest.mark.rule("R-ASM-02")
def test_the_last_usage_counts_and_none_is_zero() -> None:
    assert assembled([said("Hi")]).usage == Usage()
    chunks = [
        Chunk(usage=Usage(input=9)),
        said("Hi"),
        Chunk(usage=Usage(input=9, output=4)),
        said("!"),
    ]
    assert assembled(chunks).usage == Usage(input=9, output=4)


@pytest.mark.rule("R-ASM-03")
@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ([], None),
        ([None, None], None),
        (["stop", None], "stop"),
        (["stop", "stop"], "stop"),
        (["stop", "length"], "length"),
        (["tool_calls", ""], "tool_calls"),
    ],
)
def test_the_last_finish_reason_counts(reasons: list[str | None], expected: str | None) -> None:
    found = assembled([Chunk(text="x", finish_reason=reason) for reason in reasons])
    assert found.finish_reason == expected


@pytest.mark.rule("R-ASM-04")
def test_a_finish_reason_and_an_end_event_are_clean_ends_and_silence_is_none() -> None:
    assert not assembled([said("Hi")]).clean_end
    assert assembled([said("Hi"), Chunk(end=True), Chunk()]).clean_end
    assert assembled([said("Hi"), Chunk(finish_reason="stop"), Chunk()]).clean_end


@pytest.mark.rule("R-ASM-05")
def test_a_message_has_null_content_only_where_something_stands_instead_of_it() -> None:
    calls = assembled([call("{}", id="a", name="f")]).calls
    cases: list[tuple[Completion, dict[str, object]]] = [
        (Completion(text="Hi"), {"content": "Hi"}),
        (Completion(), {"content": ""}),
        (Completion(refusal="No"), {"content": None, "refusal": "No"}),
        (Completion(text="Hi", refusal="No"), {"content": "Hi", "refusal": "No"}),
        (Completion(calls=calls), {"content": None, "tool_calls": list(calls)}),
        (Completion(text="\n", calls=calls), {"content": "\n", "tool_calls": list(calls)}),
    ]
    for completion, expected in cases:
        assert completion.message() == {"role": "assistant", **expected}


def test_a_reply_can_be_read_while_it_grows() -> None:
    assert assembled([said("He")]).text == "He"
    assert assembled([said("He"), said("llo")]).text == "Hello"
