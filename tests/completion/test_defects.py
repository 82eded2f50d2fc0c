import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._errors import CompletionDefectError, DefectKind
from harness._messages import CallMessage, Message, assistant_message
from harness._model import Assembly
from harness.completion import (
    Completion,
    Defect,
    detect_completion_defect,
    detect_message_defect,
    expects_json_output,
    json_parses,
    structured_output_parses,
)
from harness.completion._defects import ROWS
from tests.completion.streams import ODD_SHAPES, OddShape, assembled

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "contract" / "completion.rst"


def made(
    id: str = "a",
    name: str = "f",
    arguments: str = "{}",
    type: str = "function",
) -> CallMessage:
    return {"id": id, "type": type, "function": {"name": name, "arguments": arguments}}


def replied(*calls: CallMessage, text: str = "", reason: str | None = "stop") -> Completion:
    return Completion(text=text, calls=calls, finish_reason=reason, clean_end=reason is not None)


def kind_of(completion: Completion, assembly: Assembly | None = None) -> DefectKind | None:
    found = detect_completion_defect(completion, assembly or Assembly())
    return None if found is None else found.kind


# -- each rule ---------------------------------------------------------------------------------


@pytest.mark.rule("R-DEF-01")
def test_a_normal_answer_has_no_defect() -> None:
    assert detect_completion_defect(replied(text="Hi"), Assembly()) is None
    assert detect_completion_defect(replied(made()), Assembly()) is None


@pytest.mark.rule("R-DEF-01")
def test_a_defect_says_what_was_seen() -> None:
    found = detect_completion_defect(replied(made(name="")), Assembly())
    assert found == Defect(
        kind="malformed_tool_call", detail="call 'a' has the name '', expected a text"
    )
    assert str(CompletionDefectError(found.kind, found.detail)) == (
        "the completion is malformed_tool_call: call 'a' has the name '', expected a text"
    )


@pytest.mark.rule("R-DEF-02")
def test_a_reply_that_says_nothing_is_empty() -> None:
    assert kind_of(replied(text="  \n")) == "empty"
    assert kind_of(replied()) == "empty"
    assert kind_of(Completion(refusal="No", finish_reason="stop")) is None
    assert kind_of(replied(made())) is None
    assert kind_of(replied(text=" "), Assembly(empty="accept")) is None


@pytest.mark.rule("R-DEF-03")
@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([made(id="")], id="no id"),
        pytest.param([made(name="")], id="no name"),
        pytest.param([made(), made(name="g")], id="an id used twice"),
        pytest.param([made(arguments="{")], id="no JSON"),
        pytest.param([made(), made(id="b", arguments='{"n": NaN}')], id="no strict JSON"),
    ],
)
def test_a_call_that_cannot_be_carried_out_as_written_is_malformed(
    calls: Sequence[CallMessage],
) -> None:
    assert kind_of(replied(*calls)) == "malformed_tool_call"


@pytest.mark.rule("R-DEF-03")
@pytest.mark.parametrize("arguments", ["[]", "null", "3", '"x"', "{}", '{"a": [1]}'])
def test_arguments_that_are_json_of_any_kind_are_no_defect(arguments: str) -> None:
    assert kind_of(replied(made(arguments=arguments))) is None


@pytest.mark.rule("R-DEF-03")
def test_a_host_may_keep_repeated_ids() -> None:
    twice = replied(made(), made(name="g"))
    assert kind_of(twice, Assembly(ids="keep")) is None
    assert kind_of(replied(made(id=""), made(id="")), Assembly(ids="keep")) is not None


@pytest.mark.rule("R-DEF-03")
def test_only_function_calls_have_names_and_arguments_to_judge() -> None:
    assert kind_of(replied(made(type="custom", name="", arguments="free text"))) is None
    assert kind_of(replied(made(type="custom", id=""))) == "malformed_tool_call"


@pytest.mark.rule("R-DEF-04")
def test_a_reply_cut_by_length_with_nothing_usable_is_truncated() -> None:
    assert kind_of(replied(text="Once upon a", reason="length")) is None
    assert kind_of(replied(text=" ", reason="length")) == "truncated"
    assert kind_of(replied(text=" ", reason="length"), Assembly(empty="accept")) == "truncated"
    assert kind_of(replied(made(), reason="length")) is None
    assert kind_of(replied(made(arguments='{"city": "P'), reason="length")) == "truncated"
    half = replied(made(), made(id="b", arguments="{"), text="I look.", reason="length")
    assert kind_of(half) == "truncated"


@pytest.mark.rule("R-DEF-05")
def test_a_stream_without_a_finish_reason_is_unfinished_where_one_is_required() -> None:
    ended = Completion(text="Hi", clean_end=True)
    assert kind_of(ended) is None
    assert kind_of(ended, Assembly(require_finish_reason=True)) == "unfinished"
    assert kind_of(replied(text="Hi"), Assembly(require_finish_reason=True)) is None


@pytest.mark.rule("R-DEF-05")
def test_a_stream_with_calls_is_unfinished_without_a_clean_end_in_any_case() -> None:
    for assembly in (Assembly(), Assembly(ids="keep", empty="accept")):
        assert kind_of(Completion(calls=(made(),)), assembly) == "unfinished"
        assert kind_of(Completion(calls=(made(),), clean_end=True), assembly) is None


@pytest.mark.rule("R-DEF-06")
def test_an_empty_argument_text_is_a_call_without_arguments() -> None:
    assert kind_of(replied(made(arguments=""), reason="tool_calls")) is None
    assert kind_of(replied(made(arguments=" \n"))) is None
    assert kind_of(replied(made(arguments=""), reason="length")) == "truncated"


@pytest.mark.rule("R-ACC-06")
def test_calls_that_cannot_be_told_apart_are_malformed_whatever_the_host_accepts() -> None:
    mixed = Completion(calls=(made(),), conflicts=2, finish_reason="stop", clean_end=True)
    assert kind_of(mixed) == "malformed_tool_call"
    assert kind_of(mixed, Assembly(ids="keep", empty="accept")) == "malformed_tool_call"


# -- the whole table ---------------------------------------------------------------------------

CALLS: Final[dict[str, tuple[CallMessage, ...]]] = {
    "none": (),
    "good": (made(), made(id="b")),
    "no id": (made(), made(id="")),
    "no name": (made(name=""),),
    "twice": (made(), made()),
    "broken": (made(), made(id="b", arguments="{")),
    "array": (made(arguments="[]"),),
    "no arguments": (made(arguments=""),),
    "custom": (made(type="custom", name="", arguments="{"),),
}


def judged_by_hand(calls: str, reply: Completion, assembly: Assembly) -> DefectKind | None:
    """The rules once more, one `if` each."""
    length = reply.finish_reason == "length"
    if calls != "none" and not reply.clean_end:
        return "unfinished"
    if assembly.require_finish_reason and reply.finish_reason is None:
        return "unfinished"
    if length and calls in {"broken", "no arguments"}:
        return "truncated"
    nothing = calls == "none" and reply.refusal == "" and reply.text in {"", "  \n"}
    if nothing and length:
        return "truncated"
    if reply.conflicts or calls in {"no id", "no name", "broken"}:
        return "malformed_tool_call"
    if calls == "twice" and assembly.ids == "strict":
        return "malformed_tool_call"
    return "empty" if nothing and assembly.empty == "refuse" else None


@pytest.mark.rule("R-DEF-01", "R-DEF-02", "R-DEF-03", "R-DEF-04", "R-DEF-05", "R-DEF-06")
def test_every_reply_is_judged_as_the_rules_say() -> None:
    seen: set[DefectKind | None] = set()
    product = itertools.product(
        CALLS, ("", "  \n", "Hi"), ("", "No"), (None, "stop", "length"), (False, True), (0, 1)
    )
    for calls, text, refusal, reason, end, conflicts in product:
        reply = Completion(
            text=text,
            refusal=refusal,
            calls=CALLS[calls],
            finish_reason=reason,
            clean_end=end or reason is not None,
            conflicts=conflicts,
        )
        for ids, empty, require in itertools.product(
            ("strict", "keep"), ("refuse", "accept"), (False, True)
        ):
            assembly = Assembly(
                ids=cast("Literal['strict', 'keep']", ids),
                empty=cast("Literal['refuse', 'accept']", empty),
                require_finish_reason=require,
            )
            expected = judged_by_hand(calls, reply, assembly)
            assert kind_of(reply, assembly) == expected, (reply, assembly)
            seen.add(expected)
    assert seen == {None, "empty", "malformed_tool_call", "truncated", "unfinished"}


def test_the_reference_lists_the_rows_in_their_order() -> None:
    lines = [line.strip() for line in PAGE.read_text("utf-8").splitlines()]
    start = lines.index(".. list-table:: Defects")
    cells = [line.removeprefix("* ") for line in lines[start:] if line.startswith(("* - ", "- "))]
    listed = [cell.removeprefix("- ") for cell in cells][3:]
    expected = [
        cell for row in ROWS for cell in (f"``{row.kind}``", row.when, f":rule:`{row.rule}`")
    ]
    assert listed == expected


# -- the shapes that servers send --------------------------------------------------------------


@pytest.mark.rule("R-ASM-06")
@pytest.mark.parametrize("shape", ODD_SHAPES, ids=lambda shape: shape.name)
def test_an_odd_stream_gives_the_right_reply_or_a_defect(shape: OddShape) -> None:
    completion = assembled(shape.chunks)
    defect = detect_completion_defect(completion, Assembly())
    if isinstance(shape.expected, str):
        assert defect is not None
        assert defect.kind == shape.expected
        return
    assert defect is None
    calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in completion.calls]
    assert calls == shape.expected
    assert {call["type"] for call in completion.calls} <= {"function"}
    assert completion.text == shape.text


@pytest.mark.rule("R-ASM-06")
@pytest.mark.parametrize("shape", ODD_SHAPES, ids=lambda shape: shape.name)
def test_an_odd_stream_that_is_cut_runs_no_call(shape: OddShape) -> None:
    terminal = [bool(chunk.finish_reason or chunk.end) for chunk in shape.chunks]
    first = terminal.index(True) if True in terminal else len(terminal)
    for length in range(first + 1):
        completion = assembled(shape.chunks[:length])
        if completion.calls and not completion.clean_end:
            assert kind_of(completion) == "unfinished"


# -- finished messages -------------------------------------------------------------------------


@pytest.mark.rule("R-DEF-11")
@pytest.mark.parametrize(
    ("message", "reason", "expected"),
    [
        (assistant_message("Hi"), "stop", None),
        (assistant_message("Hi"), None, None),
        (assistant_message(None, [made()]), None, None),
        (assistant_message(None), "stop", "empty"),
        (assistant_message(" "), "length", "truncated"),
        (assistant_message("Hi", [made(), made()]), "stop", "malformed_tool_call"),
        (assistant_message("Hi", [made(arguments="{")]), "length", "truncated"),
        ({"role": "assistant", "content": None, "refusal": "No"}, "stop", None),
        ({"role": "assistant", "content": [{"type": "text", "text": " "}]}, "stop", "empty"),
        ({"role": "assistant", "content": [{"type": "text", "text": None}]}, "stop", "empty"),
        ({"role": "assistant", "content": []}, "stop", "empty"),
        ({"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}, "stop", None),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No"}]}, "stop", None),
        ({"role": "assistant", "content": [{"type": "image", "url": "x"}]}, "stop", None),
    ],
)
def test_a_finished_message_is_judged_by_the_same_rows(
    message: Message, reason: str | None, expected: DefectKind | None
) -> None:
    found = detect_message_defect(message, reason, Assembly(require_finish_reason=True))
    assert (None if found is None else found.kind) == expected


@pytest.mark.rule("R-DEF-11")
@pytest.mark.parametrize(
    ("calls", "sound"),
    [
        ([{"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}], True),
        ([{"id": "a", "function": {"name": "f"}}], True),
        ([{"id": "a", "type": "function", "function": {"name": "f", "arguments": [1]}}], False),
        ([{"id": "a", "type": "function", "function": {"name": None}}], False),
        ([{"id": "a", "type": "function", "function": None}], False),
        ([{"id": ["a"], "type": "function", "function": {"name": "f"}}], False),
        ([{"type": "function"}], False),
    ],
)
def test_a_message_that_a_host_made_by_hand_is_judged_and_never_crashes(
    calls: list[object], sound: bool
) -> None:
    message = cast("Message", {"role": "assistant", "content": None, "tool_calls": calls})
    found = detect_message_defect(message, "stop", Assembly())
    assert found is None if sound else found is not None


# -- structured output -------------------------------------------------------------------------


@pytest.mark.rule("R-DEF-07")
@pytest.mark.parametrize(
    ("response_format", "expected"),
    [
        (None, False),
        ({"type": "text"}, False),
        ({"type": "json_object"}, True),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, True),
        ({"type": "grammar"}, False),
        ({}, False),
    ],
)
def test_two_formats_promise_json(
    response_format: dict[str, object] | None, expected: bool
) -> None:
    expects = cast("Callable[[object], bool]", expects_json_output)
    assert expects(response_format) is expected


@pytest.mark.rule("R-DEF-08")
@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        (replied(text="{}"), True),
        (replied(text="[1, 2]"), True),
        (replied(text="{"), False),
        (replied(text=""), False),
        (replied(text="NaN"), False),
        (replied(text='{"n": 1e400}'), False),
        (Completion(refusal="No"), True),
        (Completion(text="{", refusal="No"), True),
        (replied(made()), True),
        (replied(made(), text=" \n"), True),
        (replied(made(), text="{"), False),
    ],
)
def test_a_completion_keeps_its_promise_of_json(completion: Completion, expected: bool) -> None:
    assert structured_output_parses(completion, {"type": "json_object"}) is expected
    assert structured_output_parses(completion, {"type": "text"})
    assert structured_output_parses(completion, None)


@pytest.mark.rule("R-DEF-08")
@given(st.text() | st.sampled_from(["{}", "[" * 1000, "1" * 5000, '"\\ud800"', "Infinity"]))
def test_asking_whether_a_text_is_json_never_raises(text: str) -> None:
    assert json_parses(text) in {True, False}


@pytest.mark.rule("R-DEF-08")
@pytest.mark.parametrize("text", ["[" * 1000, "1" * 5000, '"\\ud800"', "Infinity", "1e400"])
def test_what_strict_json_lacks_does_not_parse(text: str) -> None:
    assert not json_parses(text)
