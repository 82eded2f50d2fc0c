"""A reply from its chunks.

However a stream was cut into chunks, the same reply comes out: texts are joined, calls are
assembled from their pieces, and of what may be said several times the last word counts. That is
what real streams need. Usage comes as running totals. A finish reason comes twice with the same
value from some gateways, and from others with every chunk, where only the last one is the real
one; to keep the first would call those replies finished at their first token.

Whether the reply is any good is another question: see `_defects`.
"""

from __future__ import annotations

import attrs

from harness._messages import CallMessage, Message, assistant_message
from harness._model import Chunk
from harness._usage import Usage
from harness.completion._accumulator import GrowingCall, ToolCallAccumulator

__all__ = ["Assembler", "Completion"]


@attrs.frozen(kw_only=True)
class Completion:
    """A reply as it came, good or not."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[CallMessage, ...] = ()
    usage: Usage = Usage()
    finish_reason: str | None = None
    clean_end: bool = False
    """Whether the provider said that this is all: by a finish reason, or by an end event."""
    conflicts: int = 0
    """Pieces of calls that could not be told apart, see `ToolCallAccumulator`."""

    def message(self) -> Message:
        """Return the reply as an assistant message.

        The content is None where a call or a refusal stands instead of it, and a text otherwise.
        """
        instead = self.calls or self.refusal
        message = assistant_message(self.text or (None if instead else ""), self.calls)
        if self.refusal:
            message["refusal"] = self.refusal
        return message


@attrs.define(eq=False)
class Assembler:
    """Puts one reply together. `observe` each chunk, then read `completion`."""

    _text: list[str] = attrs.field(factory=list, init=False)
    _reasoning: list[str] = attrs.field(factory=list, init=False)
    _refusal: list[str] = attrs.field(factory=list, init=False)
    _calls: ToolCallAccumulator = attrs.field(factory=ToolCallAccumulator, init=False)
    _usage: Usage = attrs.field(default=Usage(), init=False)
    _finish_reason: str | None = attrs.field(default=None, init=False)
    _end: bool = attrs.field(default=False, init=False)

    @property
    def usage(self) -> Usage:
        """What the reply has cost as far as it said so."""
        return self._usage

    def observe(self, chunk: Chunk) -> list[tuple[GrowingCall, str]] | None:
        """Add *chunk*; return the calls that grew, as `ToolCallAccumulator.observe` does."""
        if chunk.text:
            self._text.append(chunk.text)
        if chunk.reasoning:
            self._reasoning.append(chunk.reasoning)
        if chunk.refusal:
            self._refusal.append(chunk.refusal)
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.finish_reason:
            self._finish_reason = chunk.finish_reason
        if chunk.end:
            self._end = True
        return self._calls.observe(chunk.calls) if chunk.calls else None

    def completion(self) -> Completion:
        """Return the reply as far as it has come."""
        return Completion(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            refusal="".join(self._refusal),
            calls=tuple(self._calls.assembled()),
            usage=self._usage,
            finish_reason=self._finish_reason,
            clean_end=self._end or self._finish_reason is not None,
            conflicts=self._calls.conflicts,
        )
