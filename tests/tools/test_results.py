import datetime as dt
import enum
import math
from dataclasses import dataclass
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._json import JSON, decode
from harness._messages import (
    FAILURE_KINDS,
    INTERRUPTED_TEXT,
    NOT_RUN_TEXT,
    FailureKind,
    failure_envelope,
    success_envelope,
)
from harness._toolset import Outcome, Suspend
from harness.tools import render_outcome, tool_result_message
from harness.tools._results import as_builtins, outcome_of
from tests.tools.annotations import any_json
from tests.tools.contexts import ask


class Struct(msgspec.Struct):
    x: int


@attrs.frozen
class Attrs:
    inner: Struct


@dataclass
class Data:
    x: int


class Colour(enum.Enum):
    RED = "red"


NOW = dt.datetime(2030, 1, 2, tzinfo=dt.UTC)


def content(outcome: Outcome) -> str:
    message = tool_result_message("call_1", outcome)
    assert (message["role"], message["tool_call_id"]) == ("tool", "call_1")
    text = message["content"]
    assert isinstance(text, str)
    return text


@pytest.mark.rule("R-TOOL-24")
@given(any_json)
def test_a_json_value_is_the_data_of_a_success_as_the_same_object(value: JSON) -> None:
    outcome = outcome_of(value)
    assert outcome == Outcome.completed(value)
    assert outcome.data is value


@pytest.mark.rule("R-TOOL-24")
@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Struct(1), {"x": 1}),
        (Attrs(Struct(1)), {"inner": {"x": 1}}),
        ([Data(1)], [{"x": 1}]),
        ({"at": NOW, 1: Colour.RED}, {"1": "red", "at": "2030-01-02T00:00:00Z"}),
        ((1, (2,)), [1, [2]]),
        ({"z": (1,), "a": math.inf}, {"z": [1], "a": math.inf}),
        (b"x", "eA=="),
        ({"z": set("qwertz"), "a": 1}, {"z": sorted("qwertz"), "a": 1}),
    ],
)
def test_other_values_become_json_where_they_can(value: object, data: object) -> None:
    assert outcome_of(value) == Outcome.completed(data)
    assert content(outcome_of(value)) == success_envelope(data)  # in the same order
    assert outcome_of(Outcome.completed(value, compact=True)) == Outcome.completed(
        data, compact=True
    )


@pytest.mark.rule("R-TOOL-24")
def test_an_outcome_is_kept_as_it_is() -> None:
    for outcome in (Outcome.completed({"x": 1}), Outcome.failed("no", "authz"), Outcome.not_run()):
        assert outcome_of(outcome) is outcome


@pytest.mark.rule("R-TOOL-20")
@pytest.mark.parametrize(
    "suspend", [Suspend.answer("Really?", {"x": [1]}), Suspend.wake(NOW, "payload")]
)
def test_a_suspend_is_a_success_that_pauses(suspend: Suspend) -> None:
    assert outcome_of(suspend) == Outcome(kind="completed", suspend=suspend)


@pytest.mark.rule("R-TOOL-20")
def test_a_wake_needs_an_aware_time() -> None:
    with pytest.raises(ValueError, match=r"expected a datetime with a time zone$"):
        Suspend.wake(dt.datetime(2030, 1, 2))  # noqa: DTZ001 - the point


@pytest.mark.rule("R-TOOL-14")
def test_an_envelope_has_just_the_keys_of_its_case() -> None:
    assert content(Outcome.completed({"x": 1})) == '{"success":true,"data":{"x":1}}'
    assert content(Outcome.completed()) == '{"success":true,"data":null}'
    assert content(Outcome.failed("no")) == '{"success":false,"error":"no"}'
    assert (
        content(Outcome.failed("no", "external"))
        == '{"success":false,"kind":"external","error":"no"}'
    )


@pytest.mark.rule("R-TOOL-15")
def test_an_envelope_is_compact_and_keeps_its_letters() -> None:
    data = {"z": "Größe 🐙", "a": [math.nan, math.inf, -math.inf, 0.5, (1,)]}
    assert content(outcome_of(data)) == (
        '{"success":true,"data":{"z":"Größe 🐙","a":[null,null,null,0.5,[1]]}}'
    )


class Cyclic:
    pass


def _cycle() -> object:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.rule("R-TOOL-16")
@pytest.mark.parametrize(
    "value",
    [Cyclic(), {"x": Cyclic()}, [lambda: 1], {("a",): 1}, "\ud800", {"x": "\udfff"}, _cycle()],
)
def test_data_that_json_cannot_carry_is_still_a_success(value: object) -> None:
    for outcome in (outcome_of(value), Outcome.completed(value)):
        told: Any = decode(content(outcome))
        assert told == {
            "success": True,
            "data": f"The call succeeded; its result ({type(value).__name__}) is not JSON.",
        }


@pytest.mark.rule("R-TOOL-17", "R-FENCE-07")
def test_content_parts_follow_the_envelope_untouched() -> None:
    image: dict[str, JSON] = {"type": "image_url", "image_url": {"url": "data:,"}, "x": [None]}
    message = tool_result_message("call_1", Outcome.completed(1, parts=[image]))
    assert message["content"] == [
        {"type": "text", "text": '{"success":true,"data":1}'},
        {"type": "image_url", "image_url": {"url": "data:,"}, "x": [None]},
    ]


@pytest.mark.rule("R-TOOL-18")
def test_failure_kinds_are_a_closed_set() -> None:
    assert set(FAILURE_KINDS) == {
        *("validation", "authz", "not_found", "conflict", "external", "system"),
        *("not_run", "interrupted"),
    }
    for kind in FAILURE_KINDS:
        assert decode(content(Outcome.failed("no", kind))) == {
            "success": False,
            "kind": kind,
            "error": "no",
        }
    with pytest.raises(ValueError, match=r"^failure_kind is 'other', expected one of \("):
        Outcome.failed("no", "other")  # type: ignore[arg-type]


@pytest.mark.rule("R-TOOL-19")
def test_a_refused_call_is_told_from_a_failed_one_by_its_kind() -> None:
    same = NOT_RUN_TEXT
    refused: Any = decode(content(Outcome.not_run()))
    failed: Any = decode(content(Outcome.failed(same)))
    assert refused == {**failed, "kind": "not_run"}
    cut: Any = decode(content(Outcome.interrupted()))
    assert cut == {"success": False, "kind": "interrupted", "error": INTERRUPTED_TEXT}


@pytest.mark.rule("R-TOOL-13")
@given(st.text(), st.sampled_from([None, *FAILURE_KINDS]))
def test_a_returned_failure_and_a_synthesised_one_differ_at_most_in_kind(
    text: str, kind: FailureKind | None
) -> None:
    returned: Any = decode(content(Outcome.failed(text, kind)))
    raised: Any = decode(failure_envelope(text))
    assert returned.pop("kind", None) == kind
    assert returned == raised


def test_rendering_answers_the_call() -> None:
    outcome = Outcome.completed(1)
    assert render_outcome(ask(), outcome) == tool_result_message("call_1", outcome)


@given(any_json)
def test_what_is_json_already_stays_the_same_object(value: JSON) -> None:
    assert as_builtins(value) is value
