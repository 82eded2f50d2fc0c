"""Checkpoints of every status, as values, as stored files, and drawn at random."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from harness import (
    Limits,
    Message,
    Pause,
    Reply,
    RunState,
    RunStats,
    Suspend,
    Usage,
    assistant_message,
    tool_message,
    user_message,
)
from harness.checkpoints import (
    Checkpoint,
    CheckpointRef,
    checkpoint_of,
    create_checkpoint,
    fork_checkpoint,
)
from harness.kernel import RunUsage, ToolStats, Used
from harness.testing import tool_call
from tests.strategies import json_values, texts

VERSIONS: Final = Path(__file__).parent / "versions"
NIGHT: Final = datetime(2030, 1, 1, 22, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))


def asking_messages() -> list[Message]:
    """A batch of three whose first call is open."""
    first: dict[str, Any] = {**user_message("Pay the plumber."), "x-other": {"kept": [1, 2.0]}}
    return [
        first,  # type: ignore[list-item]  # with a key that nobody knows
        assistant_message("Yes.", [tool_call(name, id=name) for name in ("pay", "nap", "look")]),
        tool_message("nap", '{"success":true,"data":null}'),
        tool_message("look", '{"success":true,"data":"found"}'),
    ]


def ready() -> Checkpoint:
    """A run that has not begun."""
    return create_checkpoint("run-1", "Hello.", bindings={"model": "m-1", "seed": 2.0})


def waiting() -> Checkpoint:
    """A run with something in every field."""
    pause = Pause(
        open=("pay",),
        suspends={"pay": Suspend.answer("Pay 30?", {"amount": 30}), "nap": Suspend.wake(NIGHT)},
        memo={"asked": [1, None]},
    )
    usage = RunUsage(
        input=900, cached_input=100, output=40, cost_cents=1.25, last_prompt=500, last_output=8,
        fresh=True,
    )  # fmt: skip
    below = Used(turns=2, tool_calls=3, usage=Usage(input=50, cost_cents=0.5), runs=1)
    state = RunState(
        below=below,
        run_id="run-2", messages=asking_messages(), leg=2, turn=3, usage=usage, tool_calls=9,
        calls_taken=7, pause=pause, compactions=1, forgotten={"1f": 2},
    )  # fmt: skip
    stats = RunStats(
        turns=3, tool_calls=6, usage=Usage(input=900, output=40, cost_cents=1.25), model_time=4.5,
        tool_time=2.0, per_tool={"look": ToolStats(calls=2, failures=1, time=0.5)}, abandoned=1,
    )  # fmt: skip
    limits = Limits(turns=None, tool_calls=20, tokens=100_000, cost_cents=50.0)
    waits = checkpoint_of(state, limits=limits, stats=stats, bindings=["m-1", {"path": "rooms/1"}])
    return attrs.evolve(waits, head=attrs.evolve(waits.head, revision=4))


def napping() -> Checkpoint:
    """A run that waits for its time."""
    messages = asking_messages()
    messages.insert(2, tool_message("pay", '{"success":true,"data":null}'))
    pause = Pause(suspends={"nap": Suspend.wake(NIGHT)})
    state = RunState(run_id="run-3", messages=messages, turn=1, pause=pause)
    return checkpoint_of(state)


def answered() -> Checkpoint:
    """A run whose question has its answer, and whose call is still to be run."""
    before = waiting()
    assert before.head.pause is not None
    pause = attrs.evolve(before.head.pause, replies={"pay": Reply(value={"ok": True})})
    return attrs.evolve(before, head=attrs.evolve(before.head, status="ready", pause=pause))


def finished() -> Checkpoint:
    """A run that has come to its end."""
    state = RunState(run_id="run-4", messages=[user_message("Hi."), assistant_message("Hello.")])
    return checkpoint_of(state, limits=Limits(turns=1), stop_reason="turn_limit")


def forked() -> Checkpoint:
    """A fork of the one that waits."""
    return fork_checkpoint(waiting(), "run-5", limits=Limits(turns=3), bindings={"copy": "rooms/2"})


EXAMPLES: Final = {
    "ready": ready,
    "waiting": waiting,
    "napping": napping,
    "answered": answered,
    "finished": finished,
    "forked": forked,
}


def stored_files() -> list[Path]:
    """The stored checkpoints of every version there has been."""
    return sorted(VERSIONS.glob("*/*.json"))


# -- drawn ---------------------------------------------------------------------------------------

_counts = st.integers(0, 2**60)
_amounts = st.floats(0, 1e12)
_ids = texts.filter(bool)
_asks = st.builds(Suspend.answer, texts, json_values)
_wakes = st.builds(
    Suspend.wake, st.datetimes(timezones=st.sampled_from([UTC, NIGHT.tzinfo])), json_values
)
_replies = st.builds(Reply, value=json_values)


@st.composite
def _pauses(draw: st.DrawFn) -> Pause | None:
    """A pause of the two calls ``c1`` and ``c2``, or none."""
    memo = draw(json_values)
    match draw(st.sampled_from(["none", "asked first", "asked", "wake"])):
        case "none":
            return None
        case "asked first":  # by the admission, so nothing has started
            some = st.dictionaries(st.sampled_from(["c1", "c2"]), _asks, min_size=1)
            replies = st.dictionaries(st.sampled_from(["c1", "c2"]), _replies)
            return Pause(
                open=("c1", "c2"), suspends=draw(some), replies=draw(replies), memo=memo,
                admitted=False,
            )  # fmt: skip
        case "asked":
            suspends = {"c1": draw(_asks), **draw(st.dictionaries(st.just("c2"), _wakes))}
            replies = st.dictionaries(st.just("c1"), _replies)
            return Pause(open=("c1",), suspends=suspends, replies=draw(replies), memo=memo)
        case _:
            return Pause(suspends={"c2": draw(_wakes)}, memo=memo)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    """Any checkpoint that a run can come to, with any figures."""
    pause = draw(_pauses())
    opened = () if pause is None else pause.open
    first: dict[str, Any] = {**user_message("Go."), "x-other": draw(json_values)}
    messages: list[Any] = [
        first,
        assistant_message(None, [tool_call("a", id="c1"), tool_call("b", id="c2")]),
    ]
    messages += [tool_message(id, draw(texts)) for id in ("c1", "c2") if id not in opened]
    usage = st.builds(
        RunUsage, input=_counts, cached_input=_counts, output=_counts, cost_cents=_amounts,
        last_prompt=_counts, last_output=_counts, fresh=st.booleans(),
    )  # fmt: skip
    taken, more = draw(_counts), draw(_counts)
    below = st.builds(Used, _counts, _counts, st.builds(Usage, output=_counts), _counts)
    state = RunState(
        below=draw(below),
        run_id=draw(_ids), leg=draw(_counts), turn=draw(_counts), usage=draw(usage),
        messages=messages, tool_calls=taken + more, calls_taken=taken, pause=pause,
        compactions=draw(_counts), forgotten=draw(st.dictionaries(texts, _counts, max_size=2)),
    )  # fmt: skip
    per_tool = st.dictionaries(texts, st.builds(ToolStats, _counts, _counts, _amounts), max_size=2)
    stats = st.builds(
        RunStats, _counts, _counts, st.builds(Usage, input=_counts, cost_cents=_amounts), _amounts,
        _amounts, per_tool, _counts,
    )  # fmt: skip
    none = st.none()
    limits = st.builds(
        Limits, turns=none | _counts, tool_calls=none | _counts, tokens=none | _counts,
        cost_cents=none | _amounts,
    )  # fmt: skip
    made = checkpoint_of(
        state, limits=draw(limits), stats=draw(stats), bindings=draw(json_values),
        stop_reason=None if pause is not None else draw(st.sampled_from([None, "done", "budget"])),
    )  # fmt: skip
    parents = st.builds(CheckpointRef, run_id=_ids, revision=_counts)
    parent = draw(none | parents.filter(lambda each: each.run_id != state.run_id))
    return attrs.evolve(made, head=attrs.evolve(made.head, revision=draw(_counts), parent=parent))
