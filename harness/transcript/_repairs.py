"""What a repair is made of, and the transcript that repairs work on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import attrs

from harness._messages import Message
from harness.transcript._lines import read_lines
from harness.transcript._pairing import Asked, Pairing, pair

__all__ = ["Draft", "Entry", "Issue", "IssueCode", "RepairRow", "Tail", "each_message"]

Tail: TypeAlias = Literal["continue", "drop", "keep"]
"""What becomes of an assistant message at the end."""

IssueCode: TypeAlias = Literal[
    "malformed_message",
    "unknown_role",
    "malformed_calls",
    "missing_call_id",
    "empty_part",
    "empty_result",
    "orphan_result",
    "misplaced_result",
    "dangling_call",
    "refused_call_id",
    "poisoned_call",
    "orphan_reasoning",
    "empty_assistant",
    "empty_message",
    "late_system",
    "trailing_assistant",
    "missing_user",
]


@attrs.frozen(kw_only=True)
class Issue:
    """One thing that was mended. Holds no word of a message but a call id."""

    code: IssueCode
    """The row in `REPAIRS`."""
    index: int
    """Of the message as it came in; the number of messages if one was missing at the end."""
    call_id: str | None = None
    """As it was before the repair."""


@attrs.frozen
class Entry:
    """A message on its way."""

    index: int
    """Where it stood; of a message that was added, where what it was added for stood."""
    message: Message
    """Anything at all before the first row of the table is through."""


@attrs.define(eq=False)
class Draft:
    """A transcript under repair."""

    _entries: tuple[Entry, ...]
    length: int
    """Of the transcript as it came in."""
    leave_open: tuple[str, ...]
    trailing: Tail
    continue_text: str
    opening_text: str
    issues: list[Issue] = attrs.field(factory=list)
    _pairing: Pairing | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The messages as they are now."""
        return self._entries

    def replace(self, entries: Iterable[Entry]) -> None:
        """Take *entries* for what there was."""
        self._entries = tuple(entries)
        self._pairing = None

    def change(self, changes: Mapping[int, Message]) -> None:
        """Put the messages of *changes* where they belong by place."""
        if changes:
            self.replace(
                Entry(entry.index, changes.get(place, entry.message))
                for place, entry in enumerate(self._entries)
            )

    def pairing(self) -> Pairing:
        """Return which results answer which calls; the index of a line is that of its entry."""
        if self._pairing is None:
            self._pairing = pair(read_lines([entry.message for entry in self._entries]))
        return self._pairing

    def answered(self) -> Iterator[Asked]:
        """Yield the messages whose calls are all answered: one that is open is not touched."""
        return (asked for asked in self.pairing().asked if all(asked.answered))

    def report(self, code: IssueCode, entry: Entry, call_id: str | None = None) -> None:
        """Note that something was mended."""
        self.issues.append(Issue(code=code, index=entry.index, call_id=call_id))


@attrs.frozen(kw_only=True)
class RepairRow:
    """One kind of repair."""

    code: IssueCode
    when: str
    repair: str
    loses: str
    """What cannot be had back from the healed transcript."""
    ends: tuple[str, ...]
    """The refusals that cannot be met after it."""
    apply: Callable[[Draft], None]
    """Mend all of a draft, in linear time."""


def each_message(
    code: IssueCode, mend: Callable[[Message], Message | None]
) -> Callable[[Draft], None]:
    """Return the repair that puts each message through *mend*.

    *mend* returns the message itself if there is nothing to do, and None to remove it.
    """

    def apply(draft: Draft) -> None:
        kept: list[Entry] = []
        found = False
        for entry in draft.entries:
            mended = mend(entry.message)
            if mended is not None and mended is entry.message:
                kept.append(entry)
                continue
            found = True
            draft.report(code, entry)
            if mended is not None:
                kept.append(Entry(entry.index, mended))
        if found:
            draft.replace(kept)

    return apply
