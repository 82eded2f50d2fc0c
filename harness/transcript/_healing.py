"""Mend a transcript, whoever wrote it, so that every reader takes it.

A stored transcript may come from a process that died between a call and its result, from another
framework, or from a database that somebody has edited. A provider refuses it as a whole, in this
turn and every later one, and the conversation is lost. `heal_messages` returns what every check
of this package takes, and says what it had to do.

It is one ordered table of repairs, each a pass over the whole transcript. First messages get the
shape of one, then calls and results are put together, then what is empty goes, then the two ends
are mended. Later repairs rely on earlier ones, and none undoes another's work, so once through is
enough.

Three things decide between repairs that would both do:

* Nothing is claimed that is not known. A call without a result is answered with *outcome
  unknown*, since a stored transcript cannot tell whether it ran.
* As little as possible is lost, and what is lost has a code of its own. A result that stands
  elsewhere is moved, not dropped and replaced; a text that the user has read stays, with a
  message after it.
* What is sound stays the same object where it stands. Providers keep what they have read of a
  prefix, so a system message in the middle becomes the user's rather than moving to the front,
  and an id that is made up depends on its own message only. A transcript that has grown heals to
  what it healed to before, and more.

One result serves both provider families, so that a conversation can change its provider. What a
single family would have taken is mended too.

Turned down: healing whatever a run is started with. A host that stores what the kernel leaves
has nothing to mend, and one that has should see the issues before a model sees the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import cast, get_args

import attrs

from harness._messages import Message, user_message
from harness.transcript._call_repairs import CALL_SHAPE_ROWS, PAIRING_ROWS
from harness.transcript._message_repairs import EMPTY_ROWS, SHAPE_ROWS
from harness.transcript._repairs import Draft, Entry, Issue, RepairRow, Tail

__all__ = ["REPAIRS", "Healed", "heal_messages"]

_SYSTEM = ("system", "developer")


@attrs.frozen(kw_only=True)
class Healed:
    """A transcript that every reader takes."""

    messages: tuple[Message, ...]
    """Those that were sound are the very objects that came in."""
    issues: tuple[Issue, ...]
    """What was mended, by where it stood; empty if nothing was."""


def heal_messages(
    messages: Sequence[object],
    *,
    leave_open: Sequence[str] = (),
    trailing: Tail = "continue",
    continue_text: str = "Please continue.",
    opening_text: str = "(The beginning of this conversation is missing.)",
) -> Healed:
    """Return *messages* mended, and what was mended; they themselves are not changed.

    Args:
        messages: Whatever is in the place of a transcript: nothing in it is trusted.
        leave_open: Ids of calls of the last assistant message that wait for an answer from
            outside, each as often as a call of that id waits. That message is not touched.
        trailing: What becomes of an assistant message without calls at the end: ``continue``
            appends a user message, ``drop`` removes it, ``keep`` leaves it there, and then only
            a provider that takes one may be sent the transcript.
        continue_text: What the appended message says.
        opening_text: What the user says before a conversation that the assistant began.

    Raises:
        ValueError: *trailing* is none of the three, or a text is blank.
    """
    if trailing not in get_args(Tail):
        raise ValueError(f"trailing is {trailing!r}, expected one of {get_args(Tail)}")
    for name, text in (("continue_text", continue_text), ("opening_text", opening_text)):
        if not text.strip():
            raise ValueError(f"{name} is {text!r}, expected a text that is not blank")
    draft = Draft(
        entries=tuple(Entry(index, cast(Message, each)) for index, each in enumerate(messages)),
        length=len(messages),
        leave_open=tuple(leave_open),
        trailing=trailing,
        continue_text=continue_text,
        opening_text=opening_text,
    )
    for row in REPAIRS:
        row.apply(draft)
    return Healed(
        messages=tuple(entry.message for entry in draft.entries),
        issues=tuple(sorted(draft.issues, key=attrgetter("index"))),
    )


def _make_late_system_the_users(draft: Draft) -> None:
    begun = False
    changes: dict[int, Message] = {}
    for place, entry in enumerate(draft.entries):
        is_system = entry.message["role"] in _SYSTEM
        begun = begun or not is_system
        if begun and is_system:
            draft.report("late_system", entry)
            changes[place] = {**entry.message, "role": "user"}
    draft.change(changes)


def _mend_tail(draft: Draft) -> None:
    if draft.trailing == "keep":
        return
    entries = list(draft.entries)
    while (
        entries
        and entries[-1].message["role"] == "assistant"
        and not entries[-1].message.get("tool_calls")
    ):
        draft.report("trailing_assistant", entries[-1])
        if draft.trailing == "drop":
            entries.pop()
        else:
            entries.append(Entry(entries[-1].index, user_message(draft.continue_text)))
    if len(entries) != len(draft.entries):
        draft.replace(entries)


def _mend_head(draft: Draft) -> None:
    entries = draft.entries
    roles = [entry.message["role"] for entry in entries]
    first = next((place for place, role in enumerate(roles) if role not in _SYSTEM), None)
    if first is None:
        added = Entry(draft.length, user_message(draft.continue_text))
        first = len(entries)
    elif roles[first] == "user":
        return
    else:
        added = Entry(entries[first].index, user_message(draft.opening_text))
    draft.report("missing_user", added)
    draft.replace((*entries[:first], added, *entries[first:]))


END_ROWS: tuple[RepairRow, ...] = (
    RepairRow(
        code="late_system",
        when="A system or developer message stands after one of another role.",
        repair="It becomes a user message where it stands; to move it would change all that a "
        "provider has cached.",
        loses="Its authority.",
        ends=("system_not_first",),
        apply=_make_late_system_the_users,
    ),
    RepairRow(
        code="trailing_assistant",
        when="The last message is an assistant message without calls, and it is not to be kept.",
        repair="A user message that asks to go on is appended; or it is removed, as are those "
        "before it that then stand last.",
        loses="Nothing; or what is removed.",
        ends=("trailing_assistant",),
        apply=_mend_tail,
    ),
    RepairRow(
        code="missing_user",
        when="The first message after the system messages is missing, or not the user's.",
        repair="A user message is put there.",
        loses="Nothing.",
        ends=("no_messages", "first_not_user"),
        apply=_mend_head,
    ),
)

REPAIRS: tuple[RepairRow, ...] = (
    SHAPE_ROWS[:2] + CALL_SHAPE_ROWS + SHAPE_ROWS[2:] + PAIRING_ROWS + EMPTY_ROWS + END_ROWS
)
"""In the order in which they are made."""
