import enum
import math
from datetime import UTC, datetime, timedelta, timezone

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._errors import RecordError
from harness._json import JSON, decode, encode
from harness._messages import FAILURE_KINDS
from harness._toolset import Outcome, Suspend, ToolCall
from harness.receipts._result import (
    outcome_of_result,
    result_of_outcome,
    settlement_of,
    with_plain_data,
)
from harness.tools import render_outcome
from tests.strategies import anything, json_values, texts

CALL = ToolCall(id="call_1", name="pay")

suspends = st.builds(Suspend.answer, texts, json_values) | st.builds(
    Suspend.wake,
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))])),
    json_values,
)
parts = st.lists(st.dictionaries(texts, json_values, max_size=2), max_size=2)
names = st.lists(texts, max_size=2)
successes = st.builds(
    Outcome.completed,
    json_values | st.just({"x-harness": 1}) | st.dictionaries(st.just("x-harness"), json_values),
    parts=parts | st.just([]),
    activate_plugins=names | st.just([]),
    activate_skills=names | st.just([]),
    compact=st.booleans(),
    suspend=st.none() | suspends,
)
failures = st.builds(
    Outcome.failed, st.text(max_size=9) | st.just("\ud800"), st.sampled_from([*FAILURE_KINDS, None])
)
outcomes = successes | failures | st.just(Outcome.not_run()) | st.just(Outcome.interrupted())


def stored(outcome: Outcome) -> Outcome:
    """Return what comes back of *outcome*, through the bytes that a store keeps."""
    return outcome_of_result(decode(encode(result_of_outcome(outcome))))


@given(outcomes)
def test_what_was_stored_comes_back(outcome: Outcome) -> None:
    back = stored(outcome)
    assert attrs.evolve(back, error="", data=None) == attrs.evolve(outcome, error="", data=None)
    # Canonical: a float that is whole is an integer to JSON.
    assert encode(back.data) == encode(outcome.data)


@given(outcomes)
def test_a_replay_renders_the_same_bytes(outcome: Outcome) -> None:
    assert encode(render_outcome(CALL, stored(outcome))) == encode(render_outcome(CALL, outcome))


class Colour(enum.Enum):
    RED = "red"


@given(anything | st.sampled_from([object, Colour.RED, (1, [math.nan]), {"a": (math.inf,)}]))
def test_data_that_is_no_json_is_kept_as_its_answer_shows_it(data: object) -> None:
    outcome = Outcome.completed(data)
    plain = with_plain_data(outcome)
    shown = encode(render_outcome(CALL, outcome))
    assert encode(render_outcome(CALL, plain)) == shown
    assert encode(render_outcome(CALL, stored(plain))) == shown


@given(json_values)
def test_plain_data_is_stored_as_itself(data: JSON) -> None:
    outcome = Outcome.completed(data)
    assert with_plain_data(outcome) is outcome
    marked = isinstance(data, dict) and "x-harness" in data
    assert (result_of_outcome(outcome) == data) is not marked


@pytest.mark.parametrize("data", [{"x-harness": {"kind": "failed"}}, {"x-harness": 1, "b": 2}])
def test_data_that_looks_like_a_record_comes_back_as_data(data: JSON) -> None:
    assert stored(Outcome.completed(data)) == Outcome.completed(data)


@pytest.mark.parametrize("result", [None, 1, "text", [], {}, {"kind": "failed"}])
def test_what_a_person_wrote_is_the_data_of_a_success(result: JSON) -> None:
    assert outcome_of_result(result) == Outcome.completed(result)


def test_parts_that_no_message_can_hold_are_not_kept() -> None:
    outcome = Outcome.completed(1, parts=[{"type": "text", "text": object()}])  # type: ignore[dict-item]  # what is being tested
    assert stored(outcome) == Outcome.completed(1)


def test_a_name_that_is_no_text_cannot_be_stored() -> None:
    with pytest.raises(TypeError):
        result_of_outcome(Outcome.completed(activate_plugins=[object()]))  # type: ignore[list-item]  # what is being tested


@pytest.mark.parametrize(
    ("record", "match"),
    [
        (None, r"at \$\[\.\.\.\]: Expected `object`, got `null`"),
        ({}, "missing required field `kind`"),
        ({"kind": "done"}, "Invalid enum value 'done'"),
        ({"kind": "completed", "more": 1}, "unknown field `more`"),
        ({"kind": "failed", "error": 1}, "Expected `str`, got `int`"),
        ({"kind": "failed", "failure_kind": "bad"}, "Invalid enum value 'bad'"),
        ({"kind": "completed", "suspend": {"kind": "wake"}}, "expected a time just for a wake"),
        (
            {"kind": "completed", "suspend": {"kind": "wake", "at": "2030-01-01T00:00:00"}},
            "expected a datetime with a time zone",
        ),
    ],
)
def test_a_record_that_does_not_load_is_refused(record: JSON, match: str) -> None:
    with pytest.raises(RecordError, match=match):
        outcome_of_result({"x-harness": record})


def test_a_record_beside_something_else_is_refused() -> None:
    with pytest.raises(RecordError):
        outcome_of_result({"x-harness": {"kind": "completed"}, "also": 1})


WAKE = Suspend.wake(datetime(2030, 1, 1, tzinfo=UTC))


@pytest.mark.rule("R-RCPT-15")
@pytest.mark.parametrize(
    ("outcome", "settlement"),
    [
        (Outcome.completed(1), "completed"),
        (Outcome.completed(suspend=WAKE), "completed"),
        (Outcome.completed(suspend=Suspend.answer("Sure?")), "failed"),
        (Outcome.failed("no"), "failed"),
        (Outcome.failed("no", "external"), "failed"),
        (Outcome.failed("no", "interrupted"), None),
        (Outcome.not_run(), "failed"),
        (Outcome.interrupted(), None),
        (Outcome.interrupted(abandoned=True), None),
        (Outcome(kind="failed", suspend=WAKE), "failed"),
    ],
)
def test_what_a_tool_returned_settles_its_attempt_unless_it_does_not_know(
    outcome: Outcome, settlement: str | None
) -> None:
    assert settlement_of(outcome) == settlement
