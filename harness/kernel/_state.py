"""The state of a run, and the result of one of its legs.

`RunState` is the one mutable record: it is changed in place while a leg runs, so that others
can watch the totals, and it is what the next leg starts from. Everything else that a leg hands
out is frozen.
"""

from __future__ import annotations

import attrs
import msgspec

from harness._errors import ReplyError, RunUseError
from harness._events import StopReason
from harness._json import JSON, ROOM, check_json
from harness._messages import Message
from harness._model import Halt
from harness._toolset import Reply, Suspend
from harness._usage import Usage
from harness.kernel._limits import Used
from harness.kernel._stats import RunStats
from harness.transcript import unanswered_call_ids

__all__ = ["Pause", "RunResult", "RunState", "RunUsage"]


class RunUsage(Usage, frozen=True, kw_only=True, gc=False):
    """Totals of a run, and the size of its last turn."""

    last_prompt: int = 0
    last_output: int = 0
    fresh: bool = False
    """Whether the last figures describe the transcript as it is: a compaction ends that."""

    def after_turn(self, usage: Usage) -> RunUsage:
        """Return the totals with one more turn."""
        return msgspec.structs.replace(
            self.after_spend(usage), last_prompt=usage.input, last_output=usage.output, fresh=True
        )

    def stale(self) -> RunUsage:
        """Return the totals after the transcript was replaced."""
        return msgspec.structs.replace(self, fresh=False)

    def after_spend(self, usage: Usage) -> RunUsage:
        """Return the totals with spend that is no turn."""
        total = self + usage
        return msgspec.structs.replace(
            self,
            input=total.input,
            cached_input=total.cached_input,
            output=total.output,
            cost_cents=total.cost_cents,
        )


@attrs.define(kw_only=True)
class Pause:
    """Where a run waits: in the middle of a batch, or after one."""

    open: tuple[str, ...] = ()
    """Calls without a result; none for a run that only waits to be woken."""
    suspends: dict[str, Suspend] = attrs.field(factory=dict)
    """Who asked for the pause, by call id."""
    replies: dict[str, Reply] = attrs.field(factory=dict)
    """Answers so far, by call id."""
    memo: JSON = None
    """What the toolset's admission left for itself."""
    admitted: bool = True
    """False while the batch's admission is still asking, so nothing of it has started."""

    @property
    def questions(self) -> dict[str, Suspend]:
        """What was asked and has no reply yet, by call id, in the order of the calls."""
        return {
            call_id: suspend
            for call_id, suspend in self.suspends.items()
            if suspend.kind == "answer" and call_id not in self.replies
        }


@attrs.define(kw_only=True, getstate_setstate=False)
class RunState:
    """A run: its transcript, its totals, and where it waits."""

    run_id: str
    leg: int = 0
    """Legs started so far."""
    messages: list[Message] = attrs.field(factory=list)
    turn: int = 0
    """Turns finished so far, over all legs."""
    usage: RunUsage = attrs.field(factory=RunUsage)
    tool_calls: int = 0
    """Calls that the model asked for."""
    calls_taken: int = 0
    """Those of them that were within the limits; what later legs count against."""
    below: Used = attrs.field(factory=Used)
    """What the runs below it have used; what later legs count against, too."""
    pause: Pause | None = None
    compactions: int = 0
    """How often the transcript was replaced by a shorter one."""
    forgotten: dict[str, int] = attrs.field(factory=dict)
    """Answered calls that are no longer in the transcript, counted by `call_digest`.

    A receipt is told apart from its like by how many equal calls came before it.
    """
    _in_use: bool = attrs.field(default=False, init=False, eq=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        # A copy is a state of its own: no leg runs on it.
        names = (field.name for field in attrs.fields(RunState))
        return {name: getattr(self, name) for name in names if name != "_in_use"}

    def __setstate__(self, values: dict[str, object]) -> None:
        self._in_use = False
        for name, value in values.items():
            setattr(self, name, value)

    def begin_leg(self) -> None:
        """Count a leg that starts on this state; the kernel calls it.

        Raises:
            RunUseError: another leg is running on it.
        """
        if self._in_use:
            raise RunUseError(f"run {self.run_id!r} has a leg running, expected one that waits")
        self._in_use = True
        self.leg += 1

    def end_leg(self) -> None:
        """Set the state free for the next leg; the kernel calls it."""
        self._in_use = False

    def reply(self, call_id: str, value: JSON) -> None:
        """Record the answer to an open call; the next leg carries it in.

        Raises:
            ReplyError: the call asks nothing, or has its answer already.
            NotJSONError: *value* is not JSON, and the answer is stored with the run.
        """
        questions = {} if self.pause is None else self.pause.questions
        if call_id not in questions or self.pause is None:
            raise ReplyError(call_id, open_calls=tuple(questions))
        check_json(value, room=ROOM)
        self.pause.replies[call_id] = Reply(value=value)

    def unanswered_call_ids(self) -> tuple[str, ...]:
        """Return the calls that have no result and are not open either: a journal refused."""
        opened = () if self.pause is None else self.pause.open
        return tuple(each for each in unanswered_call_ids(self.messages) if each not in opened)


@attrs.frozen(kw_only=True)
class RunResult:
    """How a leg ended."""

    run_id: str
    stop_reason: StopReason
    state: RunState
    stats: RunStats
    """This leg's share."""
    text: str | None = None
    """Text of the leg's last assistant message."""
    parsed: object = None
    """Structured output of the leg's last turn."""
    reason: str | None = None
    """What `Run.abort` was given, if the leg was aborted."""
    halt: Halt | None = None
    error: BaseException | None = None
    """What the run failed with; it is raised when the block is left."""
    undelivered: tuple[Message, ...] = ()
    """Posted messages that met no further turn."""
