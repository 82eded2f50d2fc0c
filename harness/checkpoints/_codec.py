"""A checkpoint as text: versioned, strict on the way in, and one text on the way out.

The text is one JSON object: the head's fields, ``version``, and ``messages``. Stores keep the head
and the messages apart, so a commit writes only what it adds.

A version is a shape. Whoever changes what a field means, or renames, adds or removes one, raises
`CHECKPOINT_VERSION` and writes the step from the version before into `UPGRADES`. A step works on
plain JSON, since the classes of an old version no longer exist, and old records go through every
step from theirs on. A newer record than we know is refused: to read it as if it were ours is how
a rollback loses data.

What loads must make sense as well: the transcript is settled but for the calls that the pause has
open, and the status is what the pause says. Whatever loads can be run.

Rejected: sorted keys, as in the text that digests are made of. A run that was stored is the same to
the last byte of what its provider is sent, and its questions stand in the order of their calls;
that text also writes ``1.0`` as ``1``, and an integer beyond 21 digits as a float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, cast

from harness._errors import CheckpointVersionError, NotJSONError, RecordError
from harness._json import JSON, check_json, decode, encode
from harness._messages import Message
from harness.checkpoints._converter import from_json, to_json
from harness.checkpoints._record import Checkpoint, CheckpointHead, CheckpointStatus
from harness.kernel import Pause
from harness.transcript import calls_of, check_settled

__all__ = [
    "CHECKPOINT_VERSION",
    "UPGRADES",
    "Upgrade",
    "check_checkpoint",
    "checkpoint_from_json",
    "checkpoint_to_json",
    "dump_checkpoint",
    "dump_head",
    "load_checkpoint",
    "load_head",
    "status_of_pause",
]

CHECKPOINT_VERSION: Final = 1

Record: TypeAlias = dict[str, JSON]
Upgrade: TypeAlias = Callable[[Record], Record]

UPGRADES: Final[Mapping[int, Upgrade]] = {}
"""From each older version to the next one. A head, too, has to pass: it has no ``messages``."""


def dump_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return *checkpoint* as JSON: without spaces, its fields in one order, all else in its own.

    Raises:
        NotJSONError: a message, or something that the host gave, holds what JSON cannot carry.
    """
    return encode(checkpoint_to_json(checkpoint))


def load_checkpoint(text: bytes | str) -> Checkpoint:
    """Return the checkpoint that `dump_checkpoint` wrote, now or in an older version.

    Raises:
        CheckpointVersionError: it is of a version that is not known here.
        RecordError: it is no checkpoint; the error has the path of the field.
    """
    return checkpoint_from_json(_decoded(text))


def checkpoint_to_json(checkpoint: Checkpoint) -> JSON:
    """Return *checkpoint* as a JSON value, to be put into another one; see `dump_checkpoint`."""
    messages = [cast("dict[str, JSON]", dict(each)) for each in checkpoint.messages]
    return {**_head_record(checkpoint.head), "messages": cast(JSON, messages)}


def checkpoint_from_json(value: JSON) -> Checkpoint:
    """Return the checkpoint that `checkpoint_to_json` made; raises as `load_checkpoint`."""
    record = _upgraded(value)
    messages = record.pop("messages", None)
    if not isinstance(messages, list):
        raise RecordError("it is no list of messages", path="$.messages")
    try:
        check_json(messages)
    except NotJSONError as error:
        raise RecordError(error.reason, path="$.messages") from None
    head = from_json(record, CheckpointHead)
    checkpoint = Checkpoint(head=head, messages=tuple(cast("list[Message]", messages)))
    check_checkpoint(checkpoint)
    return checkpoint


def dump_head(head: CheckpointHead) -> bytes:
    """Return *head* as JSON, for a store that keeps messages apart; raises as `dump_checkpoint`."""
    return encode(_head_record(head))


def load_head(text: bytes | str) -> CheckpointHead:
    """Return the head that `dump_head` wrote; raises as `load_checkpoint`."""
    return from_json(_upgraded(_decoded(text)), CheckpointHead)


def check_checkpoint(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose parts do not fit together.

    Raises:
        RecordError: with the path of the part.
    """
    head, messages = checkpoint.head, checkpoint.messages
    _check_head(head)
    if not messages:
        raise RecordError("there are no messages, expected at least one", path="$.messages")
    refusals = check_settled(messages, head.open_call_ids)
    if refusals:
        first = refusals[0]
        raise RecordError(first.text, path=f"$.messages[{first.index}]")
    if head.pause is not None:
        _check_pause(head.pause, messages)


def _check_head(head: CheckpointHead) -> None:
    if not head.run_id:
        raise RecordError("it is '', expected a text that is not empty", path="$.run_id")
    if head.parent is not None and head.parent.run_id == head.run_id:
        raise RecordError("it is the run itself, expected another one", path="$.parent.run_id")
    at = head.position
    if at.calls_taken > at.tool_calls:
        text = f"it is {at.calls_taken}, expected at most the {at.tool_calls} that were asked for"
        raise RecordError(text, path="$.position.calls_taken")
    expected = status_of_pause(head.pause)
    if expected is None and head.status not in ("ready", "finished"):
        raise RecordError(f"it is {head.status!r}, and nothing is paused", path="$.status")
    if expected is not None and head.status != expected:
        raise RecordError(f"it is {head.status!r}, expected {expected!r}", path="$.status")
    if (head.stop_reason is None) != (head.status != "finished"):
        text = f"it is {head.stop_reason!r}, expected a reason just for a finished run"
        raise RecordError(text, path="$.stop_reason")


def status_of_pause(pause: Pause | None) -> CheckpointStatus | None:
    """Return what a run with this pause waits for; None if it has none."""
    if pause is None:
        return None
    asked = [call_id for call_id, each in pause.suspends.items() if each.kind == "answer"]
    if any(call_id not in pause.replies for call_id in asked):
        return "waiting_for_reply"
    return "ready" if pause.open else "waiting_for_wake"


def _check_pause(pause: Pause, messages: Sequence[Message]) -> None:
    asking = next((each for each in reversed(messages) if each.get("tool_calls")), None)
    known = {call.id for call in calls_of(asking)} if asking is not None else set()
    for call_id, suspend in pause.suspends.items():
        if call_id not in known:
            text = f"call {call_id!r} is not of the last batch"
            raise RecordError(text, path="$.pause.suspends")
        if (suspend.kind == "answer") != (call_id in pause.open):
            text = f"call {call_id!r} asks, expected it among the open ones, and no wake there"
            raise RecordError(text, path="$.pause.open")
    for call_id in pause.open:
        if pause.admitted and call_id not in pause.suspends:
            raise RecordError(f"call {call_id!r} is open and asks nothing", path="$.pause.open")
    for call_id in pause.replies:
        if pause.admitted and call_id not in pause.suspends:
            raise RecordError(f"call {call_id!r} asked nothing", path="$.pause.replies")
    if not (pause.suspends or pause.replies):
        raise RecordError("it waits for nothing", path="$.pause")


def _head_record(head: CheckpointHead) -> Record:
    return {"version": CHECKPOINT_VERSION, **cast(Record, to_json(head))}


def _decoded(text: bytes | str) -> JSON:
    try:
        return decode(text)
    except NotJSONError as error:
        raise RecordError(error.reason) from None


def _upgraded(value: JSON) -> Record:
    """Return *value* in the shape of the current version, and without its version."""
    if not isinstance(value, dict):
        raise RecordError("it is no object")
    record = dict(value)
    version = record.pop("version", None)
    newest = CHECKPOINT_VERSION
    if type(version) is not int or not 1 <= version <= newest:
        raise CheckpointVersionError(version, newest=newest)
    for each in range(version, newest):
        record = UPGRADES[each](record)
    return record
