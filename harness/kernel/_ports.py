"""What a run asks of its host, besides a model and tools. All of it is optional.

Each port is a small protocol whose methods have bodies: derive from it and override what you
need. A port is awaited because its answer is needed; what is only told goes through events.
On a stop a port is cancelled at once, except the journal, which may finish what it is writing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar

import attrs

from harness._errors import MissingPortError
from harness._events import StopReason
from harness._messages import Message
from harness._usage import Usage
from harness.kernel._state import RunState
from harness.kernel._stats import RunStats

__all__ = [
    "NO_COMPACTOR",
    "NO_JOURNAL",
    "NO_SUPERVISOR",
    "Boundary",
    "Compaction",
    "Compactor",
    "Decision",
    "Journal",
    "SettledTurn",
    "StepDecision",
    "Supervisor",
    "answered",
    "go_on",
]

T = TypeVar("T")

Decision: TypeAlias = Literal["continue", "waiting", "finished"]


@attrs.frozen(kw_only=True)
class SettledTurn:
    """A point at which the transcript is settled."""

    turn: int
    """Number of the turn that was settled, from 0."""
    decision: Decision
    """What the run is about to do."""
    would_end: bool
    """The model asked for no tools."""
    state: RunState
    """Live; read it, do not change it."""
    stats: RunStats
    open: tuple[str, ...] = ()
    """Calls that wait for an answer from outside."""
    stop_reason: StopReason | None = None
    """What the leg is about to end with; None if it goes on."""


@attrs.frozen(kw_only=True)
class StepDecision:
    """What a supervisor wants at a settled point."""

    messages: Sequence[Message] = ()
    """Input to append; another turn follows."""
    stop: bool = False
    """End the run as ``aborted``, with the messages kept."""


@attrs.frozen(kw_only=True)
class Compaction:
    """A shorter transcript, and what making it cost."""

    messages: Sequence[Message]
    usage: Usage = Usage()


class Journal(Protocol):
    """The host's log: a message is in the transcript if and only if the journal took it.

    Raising refuses the message and ends the run with that error. On a stop a running call has
    until the settle deadline to finish.
    """

    async def accept_assistant(self, message: Message) -> None:
        """Commit a message of the model, before it is appended."""
        return

    async def accept_result(self, message: Message, ordinal: int) -> None:
        """Commit an answer; *ordinal* counts the answers of its batch from 0, with no gap."""
        return


class Supervisor(Protocol):
    """Who may stop a run between turns, give it input, or push it on."""

    async def should_stop(self) -> bool:
        """Asked before each turn; True ends the run ``aborted``."""
        return False

    async def settled(self, step: SettledTurn) -> StepDecision:
        """Asked once per turn, when its transcript is settled and no call is open."""
        return StepDecision()

    async def nudge(self, step: SettledTurn) -> Sequence[Message]:
        """Asked when the run would end; messages make it go on."""
        return ()


class Compactor(Protocol):
    """Who shrinks a transcript that has grown too long."""

    def needed(self, state: RunState) -> bool:
        """Whether to compact now; asked after a turn, while the last token counts are fresh."""
        return False

    async def compact(self, messages: Sequence[Message]) -> Compaction | None:
        """Return the shorter transcript; None declines."""
        raise MissingPortError("compactor")


Boundary: TypeAlias = Callable[[SettledTurn], Awaitable[Literal["continue", "checkpoint"]]]
"""Awaited at each settled boundary, after everything else was decided there."""


async def go_on(  # noqa: ASYNC124  # a boundary is awaited, and this one has nothing to wait for
    step: SettledTurn,
) -> Literal["continue", "checkpoint"]:
    """The boundary of a run that has none."""
    return "continue"


def answered(port: str, answer: object, expected: type[T]) -> T:
    """Return what *port* answered, if it is what a port of its kind may answer.

    Raises:
        TypeError: it is not, so the host has a mistake that must not pass for an answer.
    """
    if not isinstance(answer, expected):
        raise TypeError(f"{port} answered {answer!r}, expected a {expected.__name__}")
    return answer


class _NoJournal(Journal):
    """Accepts everything, at once."""


class _NoSupervisor(Supervisor):
    """Never stops a run, and has nothing to say."""


class _NoCompactor(Compactor):
    """Nothing is ever too long; a tool that asks all the same is told that nobody is there."""


NO_JOURNAL: Journal = _NoJournal()
NO_SUPERVISOR: Supervisor = _NoSupervisor()
NO_COMPACTOR: Compactor = _NoCompactor()
