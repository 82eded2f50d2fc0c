"""Transcripts that are refused, each for one reason, and how they look repaired."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

__all__ = ["EXAMPLES", "Example"]

Given: TypeAlias = Sequence[object]


@attrs.frozen(kw_only=True)
class Example:
    """One bad transcript."""

    code: str
    """Of the one row that refuses it."""
    bad: Given
    repaired: Given
    index: int
    """Of the message that is refused."""
    call_id: str | None = None
    open_calls: tuple[str, ...] = ()


SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "What is new?"}
MORE = {"role": "user", "content": "Go on."}
ANSWER = {"role": "assistant", "content": "Nothing."}
LONG_ID = "call_" + "0" * 36


def call(id: str, arguments: object = "{}", **changes: object) -> dict[str, object]:
    function = {"name": changes.pop("name", "look"), "arguments": arguments}
    return {"id": id, "type": "function", "function": function, **changes}


def asks(*calls: object, **keys: object) -> dict[str, object]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **keys}


def result(id: object, **keys: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": id, "content": '{"success":true}', **keys}


def without(message: Mapping[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in message.items() if name != key}


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


ASKED = [USER, asks(call("a"), call("b"))]
SETTLED = [*ASKED, result("a"), result("b")]

MALFORMED = [
    Example(code="malformed_message", bad=[USER, message], repaired=[USER, repaired], index=1)
    for message, repaired in [
        ("What is new?", USER),
        (None, USER),
        ([USER], USER),
        ({"content": "no role"}, USER),
        ({"role": 1, "content": "no role"}, USER),
        ({**USER, "content": 7}, {**USER, "content": "7"}),
        ({**USER, "content": {"type": "text"}}, USER),
        ({**USER, "content": ["text"]}, {**USER, "content": [{"type": "text", "text": "text"}]}),
        ({**USER, "content": [{"text": "untyped"}]}, USER),
        ({**USER, "content": [{"type": "text"}]}, USER),
        ({**USER, "score": float("nan")}, {**USER, "score": None}),
        ({**USER, "seen": {1, 2}}, {**USER, "seen": [1, 2]}),
        ({**USER, "content": "half a pair: \ud83d"}, USER),
        ({**USER, "deep": nested(200)}, {**USER, "deep": nested(199)}),
    ]
]
MALFORMED += [
    Example(
        code="malformed_message",
        bad=[USER, message, MORE],
        repaired=[USER, {**ANSWER, "refusal": None}, MORE],
        index=1,
    )
    for message in [
        {**ANSWER, "refusal": ["no"]},
        asks(None),
        {**ANSWER, "tool_calls": None},
        {**ANSWER, "tool_calls": {"id": "a"}},
        asks(without(call("a"), "id")),
        asks(call("")),
        asks(without(call("a"), "type")),
        asks(call("a", type=None)),
        asks(without(call("a"), "function")),
        asks(call("a", name="")),
        asks(call("a", name=None)),
        asks(call("a", {"already": "decoded"})),
        asks(call("a", None)),
        asks({"id": "", "type": "custom"}),
    ]
]

EMPTY = [
    Example(
        code="empty_assistant", bad=[USER, message, MORE], repaired=[USER, ANSWER, MORE], index=1
    )
    for message in [
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": " \n"},
        {"role": "assistant", "content": []},
        {"role": "assistant"},
        {"role": "assistant", "content": None, "refusal": " "},
    ]
]

NO_CONTENT_CASES: list[tuple[Given, Given, int]] = [
    ([{**USER, "content": None}], [USER], 0),
    ([USER, {**USER, "content": []}], [USER, MORE], 1),
    ([USER, {"role": "user"}], [USER, MORE], 1),
    ([{"role": "system"}, USER], [SYSTEM, USER], 0),
    ([{"role": "developer", "content": None}, USER], [USER], 0),
    ([*ASKED, result("a", content=None), result("b")], SETTLED, 2),
]

NO_CONTENT = [
    Example(code="no_content", bad=bad, repaired=repaired, index=index)
    for bad, repaired, index in NO_CONTENT_CASES
]

BLANK_CASES: list[tuple[Given, Given, int]] = [
    ([{**USER, "content": ""}], [USER], 0),
    ([USER, {**USER, "content": " \t"}], [USER, MORE], 1),
    ([{**SYSTEM, "content": ""}, USER], [SYSTEM, USER], 0),
    ([{"role": "developer", "content": " "}, USER], [USER], 0),
    (
        [{**USER, "content": [{"type": "text", "text": ""}, {"type": "image_url"}]}],
        [{**USER, "content": [{"type": "image_url"}]}],
        0,
    ),
    (
        [USER, asks(call("a"), content=[{"type": "text", "text": " "}]), result("a")],
        [USER, asks(call("a"), content=" "), result("a")],
        1,
    ),
    (
        [USER, asks(call("a")), result("a", content=[{"type": "text", "text": ""}])],
        [USER, asks(call("a")), result("a", content="")],
        2,
    ),
]

BLANK = [
    Example(code="blank_text", bad=bad, repaired=repaired, index=index)
    for bad, repaired, index in BLANK_CASES
]

POISONED = [
    Example(
        code="arguments_not_object",
        bad=[USER, asks(call("a", arguments)), result("a")],
        repaired=[USER, asks(call("a")), result("a")],
        index=1,
        call_id="a",
    )
    for arguments in [
        '{"path": "/et',
        "[1]",
        "null",
        "7",
        '"{}"',
        "{} {}",
        '{"n": NaN}',
        "{'a': 1}",
    ]
]

EXAMPLES: tuple[Example, ...] = (
    *MALFORMED,
    Example(
        code="unknown_role",
        bad=[USER, {"role": "bystander", "content": "Hm."}],
        repaired=[USER, MORE],
        index=1,
    ),
    Example(
        code="unknown_role",
        bad=[USER, {"role": "function", "name": "look", "content": "{}"}],
        repaired=[USER, MORE],
        index=1,
    ),
    Example(code="no_messages", bad=[], repaired=[USER], index=0),
    Example(code="first_not_user", bad=[SYSTEM], repaired=[SYSTEM, USER], index=1),
    Example(code="first_not_user", bad=[ANSWER, USER], repaired=[USER], index=0),
    Example(
        code="first_not_user",
        bad=[SYSTEM, asks(call("a")), result("a")],
        repaired=[SYSTEM, USER, asks(call("a")), result("a")],
        index=1,
    ),
    Example(code="system_not_first", bad=[USER, SYSTEM], repaired=[SYSTEM, USER], index=1),
    Example(
        code="system_not_first",
        bad=[SYSTEM, USER, {"role": "developer", "content": "Be briefer."}, MORE],
        repaired=[SYSTEM, {"role": "developer", "content": "Be briefer."}, USER, MORE],
        index=2,
    ),
    *NO_CONTENT,
    *EMPTY,
    *BLANK,
    Example(code="trailing_assistant", bad=[USER, ANSWER], repaired=[USER, ANSWER, MORE], index=1),
    Example(
        code="empty_tool_calls",
        bad=[USER, {**ANSWER, "tool_calls": []}, MORE],
        repaired=[USER, ANSWER, MORE],
        index=1,
    ),
    Example(
        code="repeated_call_id",
        bad=[USER, asks(call("a"), call("a"), call("b")), result("a"), result("a"), result("b")],
        repaired=SETTLED,
        index=1,
        call_id="a",
    ),
    Example(
        code="long_call_id",
        bad=[USER, asks(call(LONG_ID)), result(LONG_ID)],
        repaired=[USER, asks(call(LONG_ID[:40])), result(LONG_ID[:40])],
        index=1,
        call_id=LONG_ID,
    ),
    Example(
        code="call_id_characters",
        bad=[USER, asks(call("functions.look:0")), result("functions.look:0")],
        repaired=[USER, asks(call("functions_look-0")), result("functions_look-0")],
        index=1,
        call_id="functions.look:0",
    ),
    Example(
        code="call_name_characters",
        bad=[USER, asks(call("a", name="look up")), result("a")],
        repaired=[USER, asks(call("a", name="look_up-2")), result("a")],
        index=1,
        call_id="a",
    ),
    *POISONED,
    Example(
        code="unanswered_call", bad=[*ASKED, result("a")], repaired=SETTLED, index=1, call_id="b"
    ),
    Example(
        code="unanswered_call",
        bad=[USER, asks(call("a"))],
        repaired=[USER, asks(call("a")), result("a")],
        index=1,
        call_id="a",
    ),
    Example(
        code="unanswered_call",
        bad=[*ASKED, result("b"), MORE],
        repaired=[*SETTLED, MORE],
        index=1,
        call_id="a",
    ),
    Example(
        code="unanswered_call",
        bad=[USER, asks(call("a")), asks(call("a")), result("a")],
        repaired=[USER, asks(call("a")), result("a"), asks(call("a")), result("a")],
        index=1,
        call_id="a",
    ),
    Example(
        code="result_without_id",
        bad=[*SETTLED, without(result("a"), "tool_call_id")],
        repaired=SETTLED,
        index=4,
    ),
    Example(code="result_without_id", bad=[*SETTLED, result("")], repaired=SETTLED, index=4),
    Example(code="result_without_id", bad=[*SETTLED, result(None)], repaired=SETTLED, index=4),
    Example(
        code="unmatched_result",
        bad=[*SETTLED, result("c")],
        repaired=SETTLED,
        index=4,
        call_id="c",
    ),
    Example(
        code="unmatched_result",
        bad=[USER, result("a"), ANSWER, MORE],
        repaired=[USER, ANSWER, MORE],
        index=1,
        call_id="a",
    ),
    Example(
        code="repeated_result",
        bad=[*SETTLED, result("a")],
        repaired=SETTLED,
        index=4,
        call_id="a",
    ),
    Example(
        code="repeated_result",
        bad=[*SETTLED, ANSWER, MORE, result("b")],
        repaired=[*SETTLED, ANSWER, MORE],
        index=6,
        call_id="b",
    ),
    Example(
        code="misplaced_result",
        bad=[*ASKED, result("a"), MORE, result("b")],
        repaired=[*SETTLED, MORE],
        index=4,
        call_id="b",
    ),
    Example(
        code="misplaced_result",
        bad=[USER, asks(call("a")), asks(call("b")), result("b"), result("a")],
        repaired=[USER, asks(call("a")), result("a"), asks(call("b")), result("b")],
        index=4,
        call_id="a",
    ),
    Example(
        code="result_out_of_order",
        bad=[*ASKED, result("b"), result("a")],
        repaired=SETTLED,
        index=3,
        call_id="a",
    ),
    Example(
        code="not_open",
        bad=SETTLED,
        repaired=[*ASKED, result("a")],
        index=1,
        call_id="b",
        open_calls=("b",),
    ),
    Example(
        code="not_open",
        bad=[*ASKED, result("a")],
        repaired=ASKED,
        index=1,
        call_id="a",
        open_calls=("b", "a"),
    ),
    Example(
        code="not_open",
        bad=[*SETTLED, ANSWER],
        repaired=[*SETTLED, asks(call("a"))],
        index=4,
        call_id="a",
        open_calls=("a",),
    ),
    Example(
        code="not_open",
        bad=[USER],
        repaired=[USER, asks(call("a"))],
        index=0,
        call_id="a",
        open_calls=("a",),
    ),
)
