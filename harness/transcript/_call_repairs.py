"""Repairs of calls and of the results that answer them."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import cast

from harness._arguments import Unparseable, parse_arguments
from harness._json import JSON, encode_text
from harness._messages import (
    INTERRUPTED_TEXT,
    CallMessage,
    Message,
    failure_envelope,
    tool_message,
)
from harness.transcript._lines import CallLine, Line
from harness.transcript._message_repairs import says_nothing
from harness.transcript._pairing import Asked
from harness.transcript._poison import without_kept, without_poison
from harness.transcript._repairs import Draft, Entry, RepairRow, each_message

__all__ = ["CALL_SHAPE_ROWS", "PAIRING_ROWS"]

_NO_NAME = "unnamed"
_ID_LENGTH = 40
_HASH_LENGTH = 8
_BASE_LENGTH = 30
"""Of an id that gets a number, which leaves room for any."""
_PLAIN = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")


# -- their shape ---------------------------------------------------------------------------------


def _shape_calls(message: Message) -> Message:
    if message["role"] != "assistant" or "tool_calls" not in message:
        return message
    found: object = message["tool_calls"]
    calls = found if isinstance(found, list) else []
    shaped = [_shape_call(call) for call in calls if isinstance(call, dict)]
    if not shaped:
        return cast(Message, {key: value for key, value in message.items() if key != "tool_calls"})
    if len(shaped) != len(calls):
        message = without_kept(message)  # it is kept by position, and the positions change
    elif all(new is old for new, old in zip(shaped, calls, strict=True)):
        return message
    return cast(Message, {**message, "tool_calls": shaped})


def _shape_call(call: dict[str, JSON]) -> dict[str, JSON]:
    kind = call.get("type")
    if isinstance(kind, str) and kind != "function":
        return call
    inner = call.get("function")
    function = inner if isinstance(inner, dict) else {}
    source = function or call  # some write name and arguments into the call itself
    name, arguments = source.get("name"), source.get("arguments")
    shaped: dict[str, JSON] = {
        "name": name if isinstance(name, str) and name else _NO_NAME,
        "arguments": _arguments_text(arguments),
    }
    if kind == "function" and shaped.items() <= function.items():
        return call
    return {**call, "type": "function", "function": {**function, **shaped}}


def _arguments_text(arguments: JSON) -> str:
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else encode_text(arguments)


def _give_ids(draft: Draft) -> None:
    changes: dict[int, Message] = {}
    nameless: deque[str] = deque()  # calls without an id may be answered just as namelessly
    taken: set[str] = set()
    """By calls so far: an id that is made up must not draw the result of another call."""
    for place, entry in enumerate(draft.entries):
        message = entry.message
        if message["role"] == "tool":
            id: object = message.get("tool_call_id")
            text = _id_text(id) or (nameless.popleft() if nameless else "")
            if text and text != id:
                draft.report("missing_call_id", entry)
                changes[place] = cast(Message, {**message, "tool_call_id": text})
            continue
        nameless.clear()
        if message["role"] != "assistant":
            continue
        calls = message.get("tool_calls", ())
        taken.update(_texts(each.get("id") for each in calls))
        taken.update(_texts(_ids_of_results(draft.entries, place + 1)))
        named = [_named(call, entry.index, position, taken) for position, call in enumerate(calls)]
        taken.update(each["id"] for each in named)
        for old, new in zip(calls, named, strict=True):
            if new is not old:
                draft.report("missing_call_id", entry)
            if not _id_text(old.get("id")):
                nameless.append(new["id"])
        if any(new is not old for new, old in zip(named, calls, strict=True)):
            changes[place] = cast(Message, {**message, "tool_calls": named})
    draft.change(changes)


def _named(call: CallMessage, index: int, position: int, taken: Container[str]) -> CallMessage:
    """Return *call* with an id: its own, or one made of its place that is not *taken*."""
    id: object = call.get("id")
    text = _id_text(id)
    if isinstance(id, str) and text:
        return call
    if not text or text in taken:
        text = f"call_{index}_{position}"
    while text in taken:
        text += "_"
    return cast(CallMessage, {**call, "id": text})


def _texts(ids: Iterable[object]) -> Iterator[str]:
    """Yield those of *ids* that are texts and not empty."""
    return (each for each in ids if isinstance(each, str) and each)


def _ids_of_results(entries: Sequence[Entry], place: int) -> Iterator[object]:
    """Yield the ids of the results that stand in *entries* from *place* on."""
    for entry in itertools.islice(entries, place, None):
        if entry.message["role"] != "tool":
            return
        yield entry.message.get("tool_call_id")


def _id_text(id: object) -> str:
    """Return *id* if it is a text, a whole number as one, and else an empty text."""
    if isinstance(id, int) and not isinstance(id, bool):
        return str(id)
    return id if isinstance(id, str) else ""


# -- which result answers which call -------------------------------------------------------------


def _remove_orphans(draft: Draft) -> None:
    orphans = {
        result.line.index: result.line.result_for or None
        for result in draft.pairing().results
        if result.asked is None
    }
    if not orphans:
        return
    for place, call_id in orphans.items():
        draft.report("orphan_result", draft.entries[place], call_id)
    draft.replace(entry for place, entry in enumerate(draft.entries) if place not in orphans)


def _move_results(draft: Draft) -> None:
    answers: dict[int, dict[int, Line]] = {}
    moved = False
    reached: dict[int, int] = {}
    for result in draft.pairing().results:
        asked = _asked(result.asked)
        answers.setdefault(asked.line.index, {})[result.position] = result.line
        in_order = result.position >= reached.get(asked.line.index, 0)
        if result.place == "in place" and in_order:
            reached[asked.line.index] = result.position
        else:
            moved = True
            draft.report(
                "misplaced_result", draft.entries[result.line.index], result.line.result_for
            )
    if not moved:
        return
    entries: list[Entry] = []
    for place, entry in enumerate(draft.entries):
        if entry.message["role"] != "tool":
            entries.append(entry)
            mine = answers.get(place, {})
            entries += (draft.entries[mine[position].index] for position in sorted(mine))
    draft.replace(entries)


def _asked(asked: Asked | None) -> Asked:
    assert asked is not None, "orphans are gone by now"
    return asked


def _answer_calls(draft: Draft) -> None:
    """Answer what waits. All results stand in place and in order by now."""
    added: dict[int, list[Entry]] = {}
    last = _last_assistant(draft)
    for asked in draft.pairing().asked:
        may_wait = Counter(draft.leave_open if asked.line.index == last else ())
        entry = draft.entries[asked.line.index]
        after = asked.line.index
        for call, answered in zip(asked.line.calls, asked.answered, strict=True):
            if answered:
                after += 1
            elif may_wait[call.id] > 0:
                may_wait[call.id] -= 1
            else:
                envelope = failure_envelope(INTERRUPTED_TEXT, "interrupted")
                answer = Entry(entry.index, tool_message(call.id, envelope))
                added.setdefault(after, []).append(answer)
                draft.report("dangling_call", entry, call.id)
    if added:
        draft.replace(
            each
            for place, entry in enumerate(draft.entries)
            for each in (entry, *added.get(place, ()))
        )


def _last_assistant(draft: Draft) -> int | None:
    """Return the place of the one message whose calls may be open; an empty one is none."""
    for place, entry in reversed(tuple(enumerate(draft.entries))):
        if entry.message["role"] == "assistant" and not says_nothing(entry.message):
            return place
    return None


# -- what a provider refuses in a call -----------------------------------------------------------


def _rename_ids(draft: Draft) -> None:
    changes: dict[int, Message] = {}
    for asked in draft.answered():
        ids = [call.id for call in asked.line.calls]
        fresh = _fresh_ids(ids)
        if fresh == ids:
            continue
        place = asked.line.index
        entry = draft.entries[place]
        calls = entry.message["tool_calls"]
        changes[place] = cast(
            Message,
            {**entry.message, "tool_calls": list(map(_with_id, calls, fresh))},
        )
        for after, (old, new) in enumerate(zip(ids, fresh, strict=True), start=place + 1):
            if old != new:
                draft.report("refused_call_id", entry, old)
                answer = draft.entries[after].message
                changes[after] = cast(Message, {**answer, "tool_call_id": new})
    draft.change(changes)


def _with_id(call: CallMessage, id: str) -> CallMessage:
    return call if call["id"] == id else cast(CallMessage, {**call, "id": id})


def _fresh_ids(ids: Sequence[str]) -> list[str]:
    """Return *ids* as both families take them; what they take already stays."""
    plain = [_plain_id(id) for id in ids]
    taken = set(plain)
    seen: set[str] = set()
    numbers: Counter[str] = Counter()
    fresh: list[str] = []
    for id in plain:
        new = id
        if id in seen:
            base = id[:_BASE_LENGTH]
            while new in taken:
                numbers[base] += 1
                new = f"{base}_{numbers[base] + 1}"
            taken.add(new)
        seen.add(new)
        fresh.append(new)
    return fresh


def _plain_id(id: str) -> str:
    """Return an id that depends on *id* alone, so that it is the same whenever it is healed."""
    if len(id) <= _ID_LENGTH and _PLAIN.fullmatch(id):
        return id
    start = _NOT_PLAIN.sub("_", id[: _ID_LENGTH - _HASH_LENGTH - 1])
    return f"{start}_{hashlib.sha256(id.encode()).hexdigest()[:_HASH_LENGTH]}"


def _clean_calls(draft: Draft) -> None:
    changes: dict[int, Message] = {}
    for asked in draft.answered():
        bad = [call.id for call in asked.line.calls if _is_poisoned(call)]
        entry = draft.entries[asked.line.index]
        for id in bad:
            draft.report("poisoned_call", entry, id)
        if bad:
            changes[asked.line.index] = without_poison(entry.message)
    draft.change(changes)


def _is_poisoned(call: CallLine) -> bool:
    if call.type != "function":
        return False
    parsed = parse_arguments(call.arguments)
    return isinstance(parsed, Unparseable) or not _PLAIN.fullmatch(call.name)


CALL_SHAPE_ROWS: tuple[RepairRow, ...] = (
    RepairRow(
        code="malformed_calls",
        when="The calls of a message are no list of calls, or the list is empty, or a call has "
        "no type, no name or no arguments.",
        repair="A call is a function call without arguments unless it says more; one without a "
        "name is called ``unnamed``. What is no dictionary is removed, and an empty list with it.",
        loses="What is no dictionary, and with it the results that answered it.",
        ends=("malformed_message", "empty_tool_calls"),
        apply=each_message("malformed_calls", _shape_calls),
    ),
    RepairRow(
        code="missing_call_id",
        when="A call or a result has an id that is no text, or none.",
        repair="A whole number becomes its text. Another call gets an id made of its place; "
        "results that name no call, directly after calls without ids, are theirs in order.",
        loses="Nothing.",
        ends=("malformed_message", "result_without_id"),
        apply=_give_ids,
    ),
)
"""In order; when they are through, every message has the shape of one."""

PAIRING_ROWS: tuple[RepairRow, ...] = (
    RepairRow(
        code="orphan_result",
        when="A result names no call, one that nothing before it asks for, or one that is "
        "answered already.",
        repair="It is removed.",
        loses="The result.",
        ends=("result_without_id", "unmatched_result", "repeated_result"),
        apply=_remove_orphans,
    ),
    RepairRow(
        code="misplaced_result",
        when="Something besides results stands between a call and its result, or results do not "
        "stand in call order.",
        repair="The result is moved to its place.",
        loses="When it came.",
        ends=("misplaced_result", "result_out_of_order"),
        apply=_move_results,
    ),
    RepairRow(
        code="dangling_call",
        when="A call has no result, and is not left open.",
        repair="It gets one of kind ``interrupted``, which says that the outcome is not known.",
        loses="Nothing.",
        ends=("unanswered_call",),
        apply=_answer_calls,
    ),
    RepairRow(
        code="refused_call_id",
        when="A call id is refused by a provider: it is used twice in one message, has more than "
        "40 characters, or one besides letters, digits, ``_`` and ``-``.",
        repair="The call and its result get another one, which depends on nothing but the ids of "
        "that message.",
        loses="The id as it was.",
        ends=("repeated_call_id", "long_call_id", "call_id_characters"),
        apply=_rename_ids,
    ),
    RepairRow(
        code="poisoned_call",
        when="The arguments of a call are no JSON object, or its name has a character that no "
        "name may have.",
        repair="As :func:`~harness.transcript.without_poison` does it.",
        loses="Nothing: the texts as the model wrote them are kept in the message.",
        ends=("call_name_characters", "arguments_not_object"),
        apply=_clean_calls,
    ),
)
"""In order: a result has to be in its place before what lacks one is seen."""
