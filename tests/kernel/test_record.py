"""A run's state as JSON."""

import json
from datetime import UTC, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import (
    JSON,
    Pause,
    Reply,
    RunState,
    Suspend,
    assistant_message,
    dump_state,
    load_state,
    tool_message,
    user_message,
)
from harness.errors import RecordError
from harness.kernel import RunUsage
from harness.testing import tool_call
from tests.strategies import json_values

suspends = st.one_of(
    st.builds(Suspend.answer, st.text(), json_values),
    st.builds(
        Suspend.wake,
        st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])),
        json_values,
    ),
)
pauses = st.builds(
    Pause,
    open=st.just(("c1",)),
    suspends=st.dictionaries(st.sampled_from(["c1", "c2"]), suspends),
    replies=st.dictionaries(st.sampled_from(["c1"]), st.builds(Reply, value=json_values)),
    memo=json_values,
    admitted=st.booleans(),
).filter(lambda pause: not pause.admitted or pause.replies.keys() <= pause.suspends.keys())
counts = st.integers(0, 2**40)


def paused_state(**changes: Any) -> RunState:
    calls = [tool_call("ask", id="c1"), tool_call("do", id="c2")]
    fields: dict[str, Any] = {
        "run_id": "run_1",
        "messages": [
            {**user_message("Go."), "unknown": {"kept": [1]}},
            assistant_message(None, calls),
            tool_message("c2", '{"success":true,"data":null}'),
        ],
        "turn": 1,
        "pause": Pause(open=("c1",), suspends={"c1": Suspend.answer("Really?")}),
    }
    return RunState(**{**fields, **changes})


@pytest.mark.rule("R-STATE-01", "R-GEN-05")
@given(
    pause=pauses,
    usage=st.builds(
        RunUsage,
        input=counts,
        cached_input=counts,
        output=counts,
        cost_cents=st.floats(0, 1e9),
        last_prompt=counts,
        last_output=counts,
        fresh=st.booleans(),
    ),
    extra=json_values,
)
def test_a_state_comes_back_as_it_was(pause: Pause, usage: RunUsage, extra: JSON) -> None:
    state = paused_state(pause=pause, usage=usage, leg=3, tool_calls=2)
    state.messages[0]["x-harness"] = {"extra": extra}
    assert load_state(dump_state(state)) == state


FAULTS = [
    (lambda record: record.pop("turn"), "missing required field `turn`"),
    (lambda record: record.update(more=1), "unknown field `more`"),
    (lambda record: record.update(leg="x"), "$.leg"),
    (lambda record: record["usage"].update(input=-1), "Usage.input is -1"),
    (lambda record: record["pause"]["suspends"][0].update(kind="x"), "$.pause.suspends[0].kind"),
    (lambda record: record["pause"]["suspends"][0].update(at="noon"), "$.pause.suspends[0].at"),
    (lambda record: record.update(version=2), "its version is 2, expected 1"),
    (lambda record: record["messages"].pop(), "$.messages"),
    (lambda record: record.update(messages=[1]), "$.messages[0]"),
    (lambda record: record.update(messages=[]), "$.messages"),
    (lambda record: record.update(turn=-5), "$.turn"),
    (lambda record: record.update(leg=-1), "$.leg"),
    (lambda record: record["pause"]["suspends"][0].update(call_id="x"), "$.pause.suspends"),
    (
        lambda record: record["pause"].update(replies=[{"call_id": "c2", "value": 1}]),
        "call 'c2' asked nothing",
    ),
]


@pytest.mark.rule("R-STATE-02")
@pytest.mark.parametrize(("break_it", "said"), FAULTS)
def test_a_record_with_a_fault_is_refused_with_its_path(break_it: Any, said: str) -> None:
    record = json.loads(dump_state(paused_state()))
    break_it(record)
    with pytest.raises(RecordError) as caught:
        load_state(json.dumps(record))
    assert said.lower() in str(caught.value).lower()


@pytest.mark.rule("R-STATE-02")
@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 1}', "\x00", "[" * 5_000])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        load_state(text)


@pytest.mark.rule("R-STATE-02")
def test_parts_of_a_pause_that_do_not_fit_are_refused_with_their_path() -> None:
    record = json.loads(dump_state(paused_state()))
    record["pause"]["replies"] = [{"call_id": "c2", "value": 1}]
    with pytest.raises(RecordError) as caught:
        load_state(json.dumps(record))
    assert caught.value.path == "$.pause.replies"
    assert caught.value.reason == "call 'c2' asked nothing"
