"""A child that waits: its question becomes its parent's, and the child travels in the payload.

The call that the child runs in ends with the question, and nothing of the child stays behind: no
task, no memory. Where it stands is a checkpoint inside the question's payload, so it is stored
with the parent, forked with the parent and gone when the parent's question is withdrawn. There is
no second place to keep children in, and none that could disagree with the first. A grandchild's
question is, in the child's checkpoint, a question of the child: each level holds the one below.
All of it is one JSON value; as text in text, each level would escape the quotes of the one below,
and three levels would write eight characters for one.

Questions are passed on one at a time, in the order of the calls that ask, since a call has one
reply. A child that sleeps asks, too. It cannot sleep through its parent's wake: a wake ends the
call with a result, and a call that has its result cannot go on. Nor can it sleep where it is, for
the parent would hold a process open until tomorrow. So it asks to be woken, and any reply does.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, cast

import attrs
import msgspec

from harness._errors import RecordError
from harness._json import JSON, converted
from harness._toolset import Suspend
from harness.checkpoints import (
    Checkpoint,
    checkpoint_from_json,
    checkpoint_to_json,
    state_of,
)
from harness.kernel import Pause, RunState

__all__ = ["ChildQuestion", "PausedChild", "ask_for_child", "asked_by", "paused_child"]


class _Paused(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the payload of a child's question is."""

    type: Literal["child"]
    agent: str
    run_id: str
    call_id: str | None
    checkpoint: object


@attrs.frozen(kw_only=True)
class PausedChild:
    """A child as a question's payload has it."""

    agent: str
    call_id: str | None
    """Who of its calls asks; None if it only waits to be woken."""
    checkpoint: Checkpoint
    pause: Pause
    """Where in it the child waits."""

    def go_on(self, run_id: str, value: JSON) -> RunState:
        """Return where the child goes on as the run *run_id*, with *value* for a reply.

        Its id is that of its place in whatever run it now belongs to: the child of a fork is not
        that of the original, and their receipts must not meet.
        """
        state = state_of(self.checkpoint)
        state.run_id = run_id
        if self.call_id is not None:
            state.reply(self.call_id, value)
        return state


@attrs.frozen(kw_only=True)
class ChildQuestion:
    """Who asks, when a run's question is that of a child of it, however deep."""

    path: tuple[str, ...]
    """Names of the agents from the run's own child down to the one that asks."""
    run_id: str
    """Of the run that asks."""
    call_id: str | None
    """Its call that asks; None if it only waits to be woken."""
    payload: JSON = None
    """What the call that asks gave with its question."""
    at: datetime | None = None
    """When it wants to be woken, if that is what it waits for."""


def ask_for_child(agent: str, child: Checkpoint) -> Suspend:
    """Return the question of the child of *agent* that waits in *child*, as its parent's.

    Raises:
        ValueError: it waits for nothing.
    """
    pause = child.head.pause
    if pause is None:
        raise ValueError(f"run {child.run_id!r} waits for nothing, expected a question or a wake")
    call_id = next(iter(pause.questions), None)
    if call_id is not None:
        question = pause.suspends[call_id].question
    else:
        at = _wakes_at(pause)
        until = "" if at is None else f" until {at.isoformat()}"
        question = f"The agent {agent!r} sleeps{until}. Any reply wakes it."
    payload: dict[str, JSON] = {
        "type": "child",
        "agent": agent,
        "run_id": child.run_id,
        "call_id": call_id,
        "checkpoint": checkpoint_to_json(child),
    }
    return Suspend.answer(question, payload)


def paused_child(payload: JSON) -> PausedChild:
    """Return the child that `ask_for_child` put into *payload*.

    Raises:
        RecordError: it holds no child, or one that does not load.
    """
    stored = converted(payload, _Paused)
    child = checkpoint_from_json(cast(JSON, stored.checkpoint))
    pause = child.head.pause
    if pause is None or (stored.call_id is not None and stored.call_id not in pause.suspends):
        text = f"call {stored.call_id!r} of run {child.run_id!r} asks nothing"
        raise RecordError(text, path="$.call_id")
    return PausedChild(agent=stored.agent, call_id=stored.call_id, checkpoint=child, pause=pause)


def asked_by(suspend: Suspend) -> ChildQuestion | None:
    """Return who asks *suspend*, if that is a child of the run that it pauses; else None."""
    found: ChildQuestion | None = None
    path: tuple[str, ...] = ()
    payload = suspend.payload
    while True:
        try:
            child = paused_child(payload)
        except RecordError:
            return found
        path = (*path, child.agent)
        payload = None if child.call_id is None else child.pause.suspends[child.call_id].payload
        found = ChildQuestion(
            path=path,
            run_id=child.checkpoint.run_id,
            call_id=child.call_id,
            payload=payload,
            at=_wakes_at(child.pause) if child.call_id is None else None,
        )


def _wakes_at(pause: Pause) -> datetime | None:
    """Return the first of the times at which a run wants to be woken."""
    return min((each.at for each in pause.suspends.values() if each.at is not None), default=None)
