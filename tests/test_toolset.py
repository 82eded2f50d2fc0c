import math
from collections.abc import Callable
from datetime import UTC, datetime

import attrs
import pytest
import trio

from harness._errors import NotJSONError
from harness._events import Event, Progress
from harness._json import JSON
from harness._messages import FAILURE_KINDS, INTERRUPTED_TEXT, NOT_RUN_TEXT, Message
from harness._toolset import (
    Admission,
    Batch,
    CallContext,
    CallPolicy,
    ForwardingToolset,
    Outcome,
    Reply,
    Suspend,
    ToolCall,
    Toolset,
    normalized,
)

CALL = ToolCall(id="a", name="look")
BATCH = Batch(run_id="r", turn_id="t", turn=0, calls=(CALL,), messages=())
LATER = datetime(2031, 5, 17, tzinfo=UTC)


@pytest.mark.rule("R-GEN-06")
@pytest.mark.parametrize("name", ["grace", "time_limit"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (True, TypeError),
        ("1", TypeError),
        (-1, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
    ],
)
def test_the_times_of_a_policy_are_finite_seconds(
    name: str, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error, match=rf"^CallPolicy\.{name} is {value!r}, expected "):
        CallPolicy(pool=None, **{name: value})  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.rule("R-GEN-06")
def test_a_time_limit_may_be_absent_and_not_nought() -> None:
    assert CallPolicy(pool=None).time_limit is None
    assert CallPolicy(pool=None, grace=0).grace == 0
    with pytest.raises(ValueError, match=r"^CallPolicy\.time_limit is 0, expected seconds"):
        CallPolicy(pool=None, time_limit=0)


@pytest.mark.rule("R-BATCH-15")
def test_a_call_without_a_shield_has_no_grace() -> None:
    assert CallPolicy(pool=None).shielded
    assert not CallPolicy(pool=None, shielded=False).shielded
    with pytest.raises(ValueError, match=r"^CallPolicy\.grace is 2, expected 0 without a shield$"):
        CallPolicy(pool=None, shielded=False, grace=2)
    with pytest.raises(TypeError, match=r"^CallPolicy\.shielded is 0, expected a bool$"):
        CallPolicy(pool=None, shielded=0)  # type: ignore[arg-type]  # wrong on purpose


def test_by_default_the_calls_of_a_tool_share_a_pool_and_nothing_is_granted() -> None:
    assert CallPolicy.default(CALL) == CallPolicy(
        pool="look", serial=False, grace=0.0, time_limit=None, effect="opaque"
    )
    other = ToolCall(id="a", name="look", type="custom")
    assert CallPolicy.default(other).pool == "type:custom"


def test_an_answer_is_asked_for_and_a_wake_has_its_time() -> None:
    asked = Suspend.answer("Really?", {"path": "/"})
    assert (asked.kind, asked.question, asked.payload, asked.at) == (
        "answer",
        "Really?",
        {"path": "/"},
        None,
    )
    woken = Suspend.wake(LATER, [1])
    assert (woken.kind, woken.payload, woken.at) == ("wake", [1], LATER)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Suspend(kind="wake"), "a time just for a wake"),
        (lambda: Suspend(kind="answer", at=LATER), "a time just for a wake"),
        (lambda: Suspend.wake(LATER.replace(tzinfo=None)), "a datetime with a time zone"),
    ],
)
def test_a_time_stands_just_in_a_wake_and_names_its_zone(
    make: Callable[[], Suspend], expected: str
) -> None:
    with pytest.raises(ValueError, match=rf"^Suspend\.at is .*, expected {expected}$"):
        make()


def test_an_outcome_is_one_of_four() -> None:
    assert Outcome.completed({"n": 1}) == Outcome(kind="completed", data={"n": 1})
    assert Outcome.failed("no", "not_found") == Outcome(
        kind="failed", error="no", failure_kind="not_found"
    )
    assert Outcome.failed("no").failure_kind is None
    assert Outcome.interrupted() == Outcome(
        kind="interrupted", error=INTERRUPTED_TEXT, failure_kind="interrupted"
    )
    assert Outcome.interrupted("cut", abandoned=True).abandoned
    assert Outcome.not_run() == Outcome(kind="not_run", error=NOT_RUN_TEXT, failure_kind="not_run")
    assert Outcome.not_run("refused").error == "refused"


def test_a_completed_outcome_carries_what_it_asks_of_the_run() -> None:
    asked = Suspend.answer("Really?")
    outcome = Outcome.completed(
        parts=[{"type": "image_url"}],
        activate_plugins=["m"],
        activate_skills=["s"],
        compact=True,
        suspend=asked,
    )
    assert outcome.parts == ({"type": "image_url"},)
    assert (outcome.activate_plugins, outcome.activate_skills) == (("m",), ("s",))
    assert (outcome.compact, outcome.suspend) == (True, asked)
    assert outcome.activates
    assert Outcome.completed(activate_skills=["s"]).activates
    assert not Outcome.completed().activates


def test_a_failure_kind_is_one_of_a_closed_set() -> None:
    for kind in FAILURE_KINDS:
        assert Outcome.failed("no", kind).failure_kind == kind
    with pytest.raises(ValueError, match=r"^failure_kind is 'sad', expected one of \('validation'"):
        Outcome.failed("no", "sad")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.rule("R-GEN-04")
@pytest.mark.parametrize(
    "value",
    [
        CALL,
        BATCH,
        CallPolicy(pool=None),
        Suspend.answer("Really?"),
        Outcome.completed(),
        Reply(value=1),
        Admission(),
    ],
)
def test_a_record_cannot_be_changed(value: attrs.AttrsInstance) -> None:
    for field in attrs.fields(type(value)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, field.name, getattr(value, field.name))


async def test_a_context_passes_on_what_the_call_says() -> None:
    told: list[Event] = []
    released: list[str] = []

    def keep() -> Callable[[], None]:
        return lambda: released.append("released")

    context = CallContext(
        call=CALL,
        batch=BATCH,
        stopping=trio.Event(),
        host="host",
        tell=told.append,
        keep_permit=keep,
    )
    event = Progress(output_tokens=1, tool_calls=0)
    context.tell(event)
    assert told == [event]
    release = context.keep_permit()
    assert released == []
    release()
    assert released == ["released"]
    assert (context.host, context.reply, context.budget, context.chain) == (
        "host",
        None,
        None,
        None,
    )
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        context.host = "other"  # type: ignore[misc]  # that is the point


@pytest.mark.rule("R-GEN-06")
@pytest.mark.parametrize(
    ("field", "value"), [("pool", 3), ("pool", True), ("effect", "some"), ("effect", None)]
)
def test_a_policy_names_a_pool_and_a_known_effect(field: str, value: object) -> None:
    fields: dict[str, object] = {"pool": "x", field: value}
    with pytest.raises((TypeError, ValueError), match=rf"^CallPolicy\.{field} is "):
        CallPolicy(**fields)  # type: ignore[arg-type]  # what the test is about


async def test_a_forwarding_toolset_passes_every_question_on() -> None:
    class Inner(ForwardingToolset):
        """Answers each question with what was asked."""

        def __init__(self) -> None:
            self.asked: list[tuple[object, ...]] = []

        def __repr__(self) -> str:
            return "<Inner>"

        def definitions(self) -> tuple[dict[str, JSON], ...]:
            return ({"name": "look"},)

        def policy(self, call: ToolCall) -> CallPolicy:
            return CallPolicy(pool="theirs")

        async def admit(self, batch: Batch) -> Admission:
            return Admission(memo=batch.run_id)

        async def execute(self, call: ToolCall, context: CallContext[object]) -> Outcome:
            return Outcome.completed([call.id, context.host])

        def normalize(self, call: ToolCall) -> Outcome:
            return Outcome.failed(call.id)

        async def activate(self, outcome: Outcome) -> None:
            self.asked.append(("activate", outcome))

        def render(self, call: ToolCall, outcome: Outcome) -> Message:
            return {"role": "tool", "tool_call_id": call.id, "content": outcome.error}

        def fatal(self, error: BaseException) -> bool:
            return isinstance(error, KeyError)

    inner = Inner()
    outer: Toolset = ForwardingToolset(inner)
    context = CallContext(
        call=CALL,
        batch=BATCH,
        stopping=trio.Event(),
        host="host",
        tell=lambda event: None,
        keep_permit=lambda: lambda: None,
    )
    assert outer.definitions() == ({"name": "look"},)
    assert outer.policy(CALL).pool == "theirs"
    assert (await outer.admit(BATCH)).memo == "r"
    assert (await outer.execute(CALL, context)).data == ["a", context.host]
    assert normalized(outer, CALL) == Outcome.failed("a")
    await outer.activate(Outcome.completed(activate_plugins=["p"]))
    assert inner.asked == [("activate", Outcome.completed(activate_plugins=["p"]))]
    assert outer.render(CALL, Outcome.failed("no"))["content"] == "no"
    assert outer.fatal(KeyError())
    assert not outer.fatal(ValueError())
    assert repr(outer) == "<ForwardingToolset of <Inner>>"


@pytest.mark.rule("R-STORE-14")
def test_what_is_stored_with_a_run_leaves_room_for_what_it_is_stored_in() -> None:
    payload: JSON = 0
    for _ in range(151):
        payload = [payload]
    with pytest.raises(NotJSONError, match="nested too deeply"):
        Suspend.answer("?", payload)
    with pytest.raises(NotJSONError, match="nested too deeply"):
        Admission(memo=payload)
    assert Suspend.answer("?", payload[0] if isinstance(payload, list) else None).payload
