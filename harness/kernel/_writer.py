"""Appending to a transcript what the journal took.

A message is committed, then put in its place, with no checkpoint between: the transcript has
it if and only if the journal does. The pair runs in a shield that gives way at the settle
deadline, one point in time that is fixed when a stop first meets something to be written. With
no journal nothing can wait, so nothing is shielded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio

from harness._messages import Message
from harness._shield import run_shielded
from harness.kernel._ports import NO_JOURNAL, Journal

__all__ = ["Writer"]


@attrs.define(eq=False)
class Writer:
    """The one way into a leg's transcript for what the model and its calls said."""

    messages: list[Message]
    journal: Journal
    settle_timeout: float
    _deadline: float | None = attrs.field(default=None, init=False)

    async def add_assistant(self, message: Message, then: Callable[[], object]) -> None:
        """Commit and append a message of the model; *then* runs in the same step.

        A stop that arrives meanwhile is raised afterwards.
        """

        async def commit() -> None:
            await self.journal.accept_assistant(message)
            self.messages.append(message)
            then()

        await self.shielded(commit)

    async def put_result(self, place: int, message: Message, ordinal: int) -> None:
        """Commit a result and insert it at *place*; to be called under `shielded`."""
        await self.journal.accept_result(message, ordinal)
        self.messages.insert(place, message)

    async def shielded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run *work*, which only commits and appends; after a stop until the settle deadline."""
        if self.journal is NO_JOURNAL:
            await work()
        else:
            await run_shielded(work, give_up_at=self._settle_deadline)

    def _settle_deadline(self) -> float:
        if self._deadline is None:
            self._deadline = trio.current_time() + self.settle_timeout
        return self._deadline
