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

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    return encode(_record(checkpoint))


def load_checkpoint(text: bytes | str) -> Checkpoint:
    """Return the checkpoint that `dump_checkpoint` wrote, now or in an older version.

    Raises:
        CheckpointVersionError: it is of a version that is not known here.
        RecordError: it is no checkpoint; the error has the path of the field.
    """
    return _checkpoint(_decoded(text))


def checkpoint_to_json(checkpoint: Checkpoint) -> JSON:
    """Return *checkpoint* as a JSON value that shares nothing with it, to be put into another."""
    return copy.deepcopy(_record(checkpoint))


def checkpoint_from_json(value: JSON) -> Checkpoint:
    """Return the checkpoint that `checkpoint_to_json` made, which shares nothing with *value*.

    Raises:
        CheckpointVersionError, RecordError: as `load_checkpoint`.
    """
    try:
        check_json(value)
    except NotJSONError as error:
        raise RecordError(str(error)) from None
    return _checkpoint(copy.deepcopy(value))


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
    if pause.questions:
        return "waiting_for_reply"
    return "ready" if pause.open else "waiting_for_wake"


def _check_pause(pause: Pause, messages: Sequence[Message]) -> None:
    """Refuse a pause that does not fit the batch that it is in."""
    asking = next((each for each in reversed(messages) if each.get("tool_calls")), None)
    calls = [] if asking is None else [call.id for call in calls_of(asking)]
    asks = [call_id for call_id, each in pause.suspends.items() if each.kind == "answer"]
    if not (pause.suspends or pause.replies):
        raise RecordError("it waits for nothing", path="$.pause")
    _check_ids(pause.suspends, calls, "$.pause.suspends", "is not of the last batch")
    _check_ids(pause.replies, asks if pause.admitted else calls, "$.pause.replies", "asked nothing")
    # Of a batch that was admitted, what is open and asks nothing would be taken for answered, and
    # would be run. Of one that was not, nothing has begun.
    expected = asks if pause.admitted else calls
    if Counter(pause.open) != Counter(expected):
        text = f"it is {list(pause.open)}, expected {expected}"
        raise RecordError(text, path="$.pause.open")
    if not pause.admitted and len(asks) < len(pause.suspends):
        raise RecordError("a call wants to be woken, and none has begun", path="$.pause.suspends")


def _check_ids(ids: Iterable[str], known: Collection[str], path: str, fault: str) -> None:
    for call_id in ids:
        if call_id not in known:
            raise RecordError(f"call {call_id!r} {fault}", path=path)


def _record(checkpoint: Checkpoint) -> Record:
    messages = cast("list[JSON]", list(checkpoint.messages))
    return {**_head_record(checkpoint.head), "messages": messages}


def _checkpoint(value: JSON) -> Checkpoint:
    """Return the checkpoint that *value* stands for, which keeps the messages in it."""
    record = _upgraded(value)
    messages = record.pop("messages", None)
    if not isinstance(messages, list):
        raise RecordError("it is no list of messages", path="$.messages")
    head = from_json(record, CheckpointHead)
    checkpoint = Checkpoint(head=head, messages=tuple(cast("list[Message]", messages)))
    check_checkpoint(checkpoint)
    return checkpoint


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
    for older in range(version, newest):
        try:
            record = UPGRADES[older](record)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"it is no record of version {older}: {error!r}") from None
    return record
