"""How many equal calls came before: what tells a call made twice from a call made again.

A model may want the same effect twice, and says so by calling twice. A worker that died has left
a call that is asked for again, and must not run twice. Both look the same by content. They differ
in what the transcript holds before them: a call made again is made from where the transcript was
last stored, so as many equal calls precede it as did the first time. That number is a part of the
receipt's key. It is counted from the transcript and from nothing else that could be lost with the
worker: not from a clock, and not from what this process remembers having done.

* Every call before the message that asks is counted. They all have their answers, whatever these
  are: a model that was told that a call was not run and makes it again makes a new call.
* So are the equal calls before it in its own batch, in request order. A turn that is made again
  may order its calls differently, but equal ones are interchangeable.
* So are those that compactions took out of the transcript, which the run counts by what the model
  wrote. Two ways of writing the same arguments, one of them compacted away, are not seen to be
  equal; that is a limit of it.

Two calls are equal if they are once they are normalized. A tool that is not loaded normalizes
nothing, and in another process it may have been loaded at another time, so the calls of a tool are
compared as they are *now*, when one of them is about to be run: normalized if that one is.

All of it is counted once. A transcript only grows between two compactions, so what was counted is
kept, and only what has been added since is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs

from harness._arguments import call_digest
from harness._messages import Message
from harness._toolset import Batch, Outcome, ToolCall
from harness.transcript import calls_in

__all__ = ["Occurrences"]


@attrs.define(eq=False)
class Occurrences:
    """Numbers the calls of one run. Give it the batches as they come; it notices a compaction."""

    _normalize: Callable[[ToolCall], ToolCall | Outcome]
    _read: int = attrs.field(default=0, init=False)
    """How many messages have been read."""
    _last: Message | None = attrs.field(default=None, init=False)
    """The last of them."""
    _forgotten: int = attrs.field(default=0, init=False)
    _batch: Batch | None = attrs.field(default=None, init=False)
    """The last one that was given."""
    _calls: dict[tuple[str, str], list[ToolCall]] = attrs.field(factory=dict, init=False)
    """By type and name, in order."""
    _tallies: dict[tuple[str, str, bool], _Tally] = attrs.field(factory=dict, init=False)
    """Also by whether they are compared normalized."""

    def number(self, call: ToolCall, batch: Batch) -> int:
        """Return how many calls equal to *call* came before it.

        It is looked at as the transcript has it, whatever a wrapper has made of it on the way.
        """
        if batch is not self._batch:
            self._read_on(batch)
            self._batch = batch
        asked = batch.calls[call.index]
        # A toolset that normalizes says so by the type of the call; see `NormalizedCall`.
        normal = self._normalize(asked) is not asked
        tool = asked.type, asked.name
        tally = self._tallies.get((*tool, normal))
        if tally is None:
            tally = self._tallies[*tool, normal] = _Tally(self._digest if normal else call_digest)
        if tally.batch is not batch:
            tally.add(self._calls.get(tool, []))
            tally.take(batch, tool)
        return tally.before[call.index] + batch.forgotten.get(call_digest(asked), 0)

    def _digest(self, call: ToolCall) -> str:
        normal = self._normalize(call)
        return call_digest(call if isinstance(normal, Outcome) else normal)

    def _read_on(self, batch: Batch) -> None:
        """Read the messages before the one that asks, as far as they have not been."""
        messages = batch.messages
        end = max(len(messages) - 1, 0)
        forgotten = sum(batch.forgotten.values())
        grown = end >= self._read and (not self._read or messages[self._read - 1] is self._last)
        if not grown or forgotten != self._forgotten:
            self._read, self._forgotten = 0, forgotten
            self._calls.clear()
            self._tallies.clear()
        if end > self._read:
            for call in calls_in(messages[self._read : end]):
                self._calls.setdefault((call.type, call.name), []).append(call)
            self._read, self._last = end, messages[end - 1]


@attrs.define(eq=False)
class _Tally:
    """The calls of one tool, counted by what makes two of them equal."""

    _digest: Callable[[ToolCall], str]
    _added: int = 0
    _counts: Counter[str] = attrs.field(factory=Counter)
    batch: Batch | None = None
    """The one that `before` is of."""
    before: dict[int, int] = attrs.field(factory=dict)
    """By index of a call of the batch: how many equal ones came before it."""

    def add(self, calls: list[ToolCall]) -> None:
        """Count what has been added to *calls*."""
        self._counts.update(map(self._digest, calls[self._added :]))
        self._added = len(calls)

    def take(self, batch: Batch, tool: tuple[str, str]) -> None:
        """Number the calls of *batch* that are of *tool*."""
        self.batch, self.before = batch, {}
        here: Counter[str] = Counter()
        for each in batch.calls:
            if (each.type, each.name) == tool:
                equal = self._digest(each)
                self.before[each.index] = self._counts[equal] + here[equal]
                here[equal] += 1
