"""Checkpoints made of checkpoints."""

import copy
import re
from collections.abc import Callable
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given, settings

from harness import (
    JSON,
    Limits,
    Message,
    Pause,
    Reply,
    RunState,
    RunStats,
    Suspend,
    assistant_message,
    tool_message,
    user_message,
)
from harness.checkpoints import (
    INPUT_ROWS,
    Checkpoint,
    CheckpointInput,
    CheckpointRef,
    CheckpointStatus,
    InputKind,
    MessageInput,
    Position,
    ReplyInput,
    WakeInput,
    apply_checkpoint_input,
    check_checkpoint,
    checkpoint_of,
    create_checkpoint,
    dump_checkpoint,
    fork_checkpoint,
    state_of,
)
from harness.errors import CheckpointInputError, NotJSONError, RecordError, TranscriptError
from harness.kernel import RunUsage, Used
from harness.testing import tool_call
from tests.checkpoints.examples import (
    EXAMPLES,
    answered,
    checkpoints,
    finished,
    napping,
    ready,
    waiting,
)

# -- creating ------------------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-01")
def test_a_new_run_is_ready_and_has_spent_nothing() -> None:
    messages = [user_message("Go.")]
    limits = Limits(turns=3)
    made = create_checkpoint("run", messages, limits=limits, bindings={"pin": 1})
    assert (made.run_id, made.revision, made.status) == ("run", 0, "ready")
    assert made.messages == tuple(messages)
    head = made.head
    assert (head.parent, head.stop_reason, head.pause) == (None, None, None)
    assert (head.limits, head.bindings) == (limits, {"pin": 1})
    assert (head.position, head.stats) == (Position(), RunStats())
    assert create_checkpoint("run", "Go.", limits=limits, bindings={"pin": 1}) == made


def test_a_new_run_shares_nothing_with_what_it_was_made_of() -> None:
    messages, bindings = [user_message("Go.")], ["pin"]
    made = create_checkpoint("run", messages, bindings=bindings)  # type: ignore[arg-type]
    before = dump_checkpoint(made)
    messages[0]["content"] = "changed"
    bindings.append("changed")
    assert dump_checkpoint(made) == before


@pytest.mark.rule("R-CKPT-04")
@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user_message("Go."), assistant_message(None, [tool_call("a", id="c1")])],
        [user_message("Go."), tool_message("c1", "{}")],
        [3],
    ],
)
def test_a_transcript_that_is_not_settled_is_refused(messages: list[Message]) -> None:
    with pytest.raises(TranscriptError):
        create_checkpoint("run", messages)


@pytest.mark.parametrize("run_id", ["", None, 3])
def test_a_run_without_an_id_is_refused(run_id: Any) -> None:
    text = f"^run_id is {re.escape(repr(run_id))}, expected a text that is not empty$"
    with pytest.raises(ValueError, match=text):
        create_checkpoint(run_id, "Go.")
    with pytest.raises(ValueError, match=text):
        fork_checkpoint(ready(), run_id, limits=Limits(), bindings=None)


@pytest.mark.parametrize("limits", [None, 3, {"turns": 3}])
def test_limits_that_are_none_are_refused(limits: Any) -> None:
    text = f"^limits is {re.escape(repr(limits))}, expected Limits$"
    with pytest.raises(TypeError, match=text):
        create_checkpoint("run", "Go.", limits=limits)
    with pytest.raises(TypeError, match=text):
        fork_checkpoint(ready(), "fork", limits=limits, bindings=None)


def test_what_is_no_input_to_a_run_is_refused() -> None:
    with pytest.raises(ValueError, match="input is ' ', expected text$"):
        create_checkpoint("run", " ")
    with pytest.raises(TypeError, match="expected text, messages or a RunState$"):
        create_checkpoint("run", 3)  # type: ignore[arg-type]
    with pytest.raises(NotJSONError):
        create_checkpoint("run", [{"role": "user", "content": {"x"}}])  # type: ignore[typeddict-item]


# -- states --------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(checkpoints())
def test_a_state_and_its_checkpoint_are_the_same_run(checkpoint: Checkpoint) -> None:
    head = checkpoint.head
    state = state_of(checkpoint)
    again = checkpoint_of(
        state,
        limits=head.limits,
        stats=head.stats,
        bindings=head.bindings,
        stop_reason=head.stop_reason,
    )
    same = attrs.evolve(again.head, revision=head.revision, parent=head.parent)
    assert attrs.evolve(again, head=same) == checkpoint
    before = dump_checkpoint(checkpoint)
    state.messages[0]["content"] = "changed"
    state.forgotten["changed"] = 1
    state.below.runs += 1
    if state.pause is not None:
        state.pause.replies["changed"] = Reply(value=1)
        state.pause.suspends.clear()
    assert dump_checkpoint(checkpoint) == before


@pytest.mark.rule("R-CKPT-04")
def test_a_state_in_the_middle_of_something_is_no_checkpoint() -> None:
    state = state_of(waiting())
    state.pause = None
    with pytest.raises(RecordError, match="has no result"):
        checkpoint_of(state)


# -- input: the whole table ----------------------------------------------------------------------

INPUTS: dict[InputKind, CheckpointInput] = {
    "reply": ReplyInput(call_id="pay", value={"ok": [True]}),
    "wake": WakeInput(),
    "message": MessageInput(message=user_message("More.")),
}
STATUSES: dict[CheckpointStatus, Callable[[], Checkpoint]] = {
    "ready": ready,
    "waiting_for_reply": waiting,
    "waiting_for_wake": napping,
    "finished": finished,
}
TAKEN = {
    ("ready", "message"),
    ("waiting_for_reply", "reply"),
    ("waiting_for_wake", "wake"),
    ("finished", "message"),
}
NEEDS = {
    "ready": "a message, or a run",
    "waiting_for_reply": "a reply to an open question",
    "waiting_for_wake": "a wake",
    "finished": "a message",
}


def test_the_table_has_a_row_for_every_status_and_names_every_input() -> None:
    assert [row.status for row in INPUT_ROWS] == list(get_args(CheckpointStatus)) == [*STATUSES]
    assert {(row.status, row.takes) for row in INPUT_ROWS} == TAKEN
    assert {row.status: row.needs for row in INPUT_ROWS} == NEEDS
    assert set(INPUTS) == set(get_args(InputKind))


@pytest.mark.rule("R-CKPT-11", "R-CKPT-12")
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("status", STATUSES)
def test_each_input_in_each_status(status: CheckpointStatus, kind: InputKind) -> None:
    before = STATUSES[status]()
    assert before.status == status
    kept = copy.deepcopy(before)
    if (status, kind) in TAKEN:
        after = apply_checkpoint_input(before, INPUTS[kind])
        assert (after.status, after.revision) == ("ready", before.revision + 1)
        assert (after.head.limits, after.head.stats) == (before.head.limits, before.head.stats)
        assert after.head.position == before.head.position
        assert after.head.bindings == before.head.bindings
        assert after.head.parent == before.head.parent
        assert after.head.stop_reason is None
        check_checkpoint(after)
    else:
        text = f"^a {kind} was given to run '{before.run_id}', which is {status}, expected "
        with pytest.raises(CheckpointInputError, match=text + NEEDS[status] + "$"):
            apply_checkpoint_input(before, INPUTS[kind])
    assert before == kept


@pytest.mark.rule("R-CKPT-11")
def test_what_comes_of_input_shares_nothing_with_what_was_before() -> None:
    before, value = waiting(), {"ok": [True]}
    after = apply_checkpoint_input(before, ReplyInput(call_id="pay", value=value))  # type: ignore[arg-type]
    kept = dump_checkpoint(after)
    value["ok"].append(False)
    before.messages[0]["content"] = "changed"
    assert before.head.pause is not None
    before.head.pause.suspends.clear()
    assert dump_checkpoint(after) == kept


def two_questions(*, admitted: bool = True) -> Checkpoint:
    asks = {"c1": Suspend.answer("One?"), "c2": Suspend.answer("Two?")}
    calls = [tool_call("a", id="c1"), tool_call("b", id="c2")]
    state = RunState(
        run_id="run",
        messages=[user_message("Go."), assistant_message(None, calls)],
        pause=Pause(open=("c1", "c2"), suspends=asks, admitted=admitted),
    )
    return checkpoint_of(state)


@pytest.mark.rule("R-CKPT-12")
@pytest.mark.parametrize("admitted", [True, False])
def test_a_run_is_ready_once_no_question_is_left(admitted: bool) -> None:
    asking = two_questions(admitted=admitted)
    one = apply_checkpoint_input(asking, ReplyInput(call_id="c2", value=2))
    assert (one.status, one.revision) == ("waiting_for_reply", 1)
    both = apply_checkpoint_input(one, ReplyInput(call_id="c1", value=None))
    assert (both.status, both.revision) == ("ready", 2)
    assert both.head.pause is not None
    assert both.head.pause.replies == {"c2": Reply(value=2), "c1": Reply(value=None)}


@pytest.mark.rule("R-CKPT-12")
@pytest.mark.parametrize("call_id", ["look", "nap", "unknown", ""])
def test_a_reply_names_an_open_question(call_id: str) -> None:
    with pytest.raises(CheckpointInputError, match="pay"):
        apply_checkpoint_input(waiting(), ReplyInput(call_id=call_id, value=1))


@pytest.mark.rule("R-CKPT-12")
def test_a_question_is_answered_once() -> None:
    one = apply_checkpoint_input(two_questions(), ReplyInput(call_id="c2", value=2))
    with pytest.raises(CheckpointInputError, match="c1"):
        apply_checkpoint_input(one, ReplyInput(call_id="c2", value=3))


@pytest.mark.rule("R-CKPT-12")
def test_a_message_joins_the_transcript() -> None:
    message = user_message("More.")
    for before in (ready(), finished(), answered()):
        after = apply_checkpoint_input(before, MessageInput(message=message))
        assert after.messages == (*before.messages, message)
        assert after.messages[-1] is not message
    woken = apply_checkpoint_input(napping(), WakeInput(message=message))
    assert woken.messages == (*napping().messages, message)
    assert woken.head.pause is None


@pytest.mark.rule("R-CKPT-12")
@pytest.mark.parametrize(
    ("message", "said"),
    [
        (assistant_message("I say so."), "it is no user's"),
        (tool_message("c1", "{}"), "it is no user's"),
        ({"role": "user"}, "the message cannot join: "),
        (3, "the message cannot join: "),
    ],
)
def test_only_a_users_message_joins(message: Any, said: str) -> None:
    for given_ in (MessageInput(message=message), WakeInput(message=message)):
        before = napping() if isinstance(given_, WakeInput) else ready()
        with pytest.raises(CheckpointInputError, match=said):
            apply_checkpoint_input(before, given_)


def test_input_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(NotJSONError):
        apply_checkpoint_input(waiting(), ReplyInput(call_id="pay", value={1, 2}))  # type: ignore[arg-type]
    deep: JSON = 1
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(NotJSONError, match="nested too deeply"):
        apply_checkpoint_input(waiting(), ReplyInput(call_id="pay", value=deep))
    odd: Any = {**user_message("x"), "x-other": object}
    with pytest.raises(CheckpointInputError, match="something that is not strict JSON$"):
        apply_checkpoint_input(ready(), MessageInput(message=odd))
    with pytest.raises(TypeError, match="^the input is 'yes', expected a reply, a wake or a mes"):
        apply_checkpoint_input(waiting(), "yes")  # type: ignore[arg-type]


# -- forks ---------------------------------------------------------------------------------------


@pytest.mark.rule("R-CKPT-15")
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_fork_stands_where_its_source_does_and_has_spent_nothing(name: str) -> None:
    source, limits = EXAMPLES[name](), Limits(turns=2, tokens=9)
    fork = fork_checkpoint(source, "fork", limits=limits, bindings={"room": 2})
    assert (fork.run_id, fork.revision) == ("fork", 0)
    assert fork.head.parent == CheckpointRef(run_id=source.run_id, revision=source.revision)
    assert fork.messages == source.messages
    assert (fork.status, fork.head.stop_reason) == (source.status, source.head.stop_reason)
    assert fork.head.pause == source.head.pause
    assert (fork.head.limits, fork.head.bindings) == (limits, {"room": 2})
    assert fork.head.stats == RunStats()
    at, was = fork.head.position, source.head.position
    assert (at.leg, at.turn, at.tool_calls, at.calls_taken, at.below) == (0, 0, 0, 0, Used())
    assert at.usage == RunUsage(
        last_prompt=was.usage.last_prompt,
        last_output=was.usage.last_output,
        fresh=was.usage.fresh,
    )
    assert (at.compactions, at.forgotten) == (was.compactions, was.forgotten)
    check_checkpoint(fork)


@pytest.mark.rule("R-CKPT-18")
def test_a_fork_shares_nothing_with_its_source() -> None:
    source, bindings = waiting(), ["room"]
    fork = fork_checkpoint(source, "fork", limits=Limits(), bindings=bindings)  # type: ignore[arg-type]
    before = dump_checkpoint(source)
    bindings.append("changed")
    assert fork.head.bindings == ["room"]
    fork.messages[0]["content"] = "changed"
    fork.messages[0]["x-other"]["kept"].append(3)  # type: ignore[typeddict-item]
    assert fork.head.pause is not None
    fork.head.pause.suspends.clear()
    fork.head.position.forgotten.clear()
    fork.head.stats.per_tool["x"] = RunStats()  # type: ignore[assignment]
    assert dump_checkpoint(source) == before


@pytest.mark.rule("R-CKPT-17")
def test_a_fork_has_an_id_and_bindings_of_its_own() -> None:
    with pytest.raises(ValueError, match="^the fork's run_id is 'run-1', expected one of its own$"):
        fork_checkpoint(ready(), "run-1", limits=Limits(), bindings=None)
    with pytest.raises(TypeError, match="bindings"):
        fork_checkpoint(ready(), "fork", limits=Limits())  # type: ignore[call-arg]
    with pytest.raises(NotJSONError):
        fork_checkpoint(ready(), "fork", limits=Limits(), bindings=object())  # type: ignore[arg-type]
