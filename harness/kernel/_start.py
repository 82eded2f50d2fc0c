"""What a leg starts from: text, messages, or the state of a run that goes on."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeAlias, cast

from harness._errors import TranscriptError
from harness._ids import IdSource, random_id
from harness._json import check_json
from harness._messages import Message, user_message
from harness.kernel._state import RunState
from harness.transcript import check_settled, without_poison

__all__ = ["RunInput", "state_from"]

RunInput: TypeAlias = str | Sequence[Message] | RunState
"""Text, messages (copied), or a state whose next leg is to be started."""


def state_from(start: RunInput, ids: IdSource = random_id) -> RunState:
    """Return the state that a leg starts on.

    Raises:
        TypeError: *start* is neither text nor messages nor a state.
        ValueError: *start* is blank text.
        NotJSONError: a message holds what JSON cannot carry.
        TranscriptError: the messages are none, or not settled.
    """
    state = start if isinstance(start, RunState) else _new_state(_messages_of(start), ids)
    if not state.messages:
        raise TranscriptError(["there are no messages, expected at least one"])
    opened = () if state.pause is None else state.pause.open
    refusals = check_settled(state.messages, opened)
    if refusals:
        raise TranscriptError([each.text for each in refusals])
    return state


def _messages_of(start: object) -> list[object]:
    """Return what *start* holds; whether that is messages is still to be seen."""
    if isinstance(start, str):
        if not start.strip():
            raise ValueError(f"input is {start!r}, expected text")
        return [user_message(start)]
    if not isinstance(start, Sequence) or isinstance(start, bytes):
        raise TypeError(f"input is {start!r}, expected text, messages or a RunState")
    return list(start)


def _new_state(messages: list[object], ids: IdSource) -> RunState:
    check_json(messages)
    copied = [copy.deepcopy(each) for each in messages]
    clean = [
        without_poison(cast(Message, each)) if isinstance(each, dict) else each for each in copied
    ]
    return RunState(run_id=ids("run"), messages=cast("list[Message]", clean))
