"""Between two turns: the only places where anybody may join in.

The transcript is settled at each of them, so input that is appended here can never fall between
a call and its result. What is asked, in this order: the supervisor, posted messages, a nudge;
then, if another turn follows, the compactor; last the boundary, which sees everything decided.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

import attrs
import trio

from harness._arguments import call_digest
from harness._errors import (
    InvalidCompactionError,
    MissingPortError,
    MisuseError,
    TranscriptError,
)
from harness._events import (
    CompactionFinished,
    CompactionStarted,
    FlushDue,
    Posted,
    Settled,
    StopReason,
)
from harness._messages import Message, MessagesView
from harness._usage import Usage
from harness.kernel._answers import OpenBatch
from harness.kernel._books import Books
from harness.kernel._ports import (
    Boundary,
    Compaction,
    Compactor,
    Decision,
    SettledTurn,
    StepDecision,
    Supervisor,
    answered,
)
from harness.kernel._state import RunState
from harness.kernel._stop import Fact, StopSignal, first_reason
from harness.kernel._turn import text_of
from harness.transcript import calls_in, check_settled, joining_fault

__all__ = ["Between", "Post"]


@attrs.frozen
class Post:
    """A message that waits for the next point at which it may join."""

    message: Message
    user_id: str | None


@attrs.define(eq=False)
class Between:
    """The settled points of a leg: who is asked there, and what they may do."""

    _books: Books
    _stop: StopSignal
    _supervisor: Supervisor
    _boundary: Boundary
    _compactor: Compactor
    posts: deque[Post] = attrs.field(factory=deque, init=False)
    """Messages that have not joined yet."""

    async def before_turn(self) -> StopReason | None:
        """Say why no turn may begin, if none may; otherwise let in what was posted."""
        asked = self._stop.soft or answered(
            "Supervisor.should_stop", await self._supervisor.should_stop(), bool
        )
        await trio.lowlevel.checkpoint_if_cancelled()
        reason = first_reason("stop_asked" if asked else None, self._books.budget.lack())
        if reason is not None and not asked:
            await self._at_boundary("finished", would_end=False, ends=reason)
        if reason is None:
            self._deliver_posts()
        return reason

    async def after_batch(self, batch: OpenBatch) -> StopReason | None:
        """Pause if the batch asks for it, or go on to the next turn."""
        opened, wakes = batch.open_calls, batch.waits_to_wake
        self._books.tell(Settled(would_end=False, open_calls=opened))
        stop = False
        if not opened:
            decision = await self._ask_supervisor(self._step("continue", would_end=False))
            self._deliver("Supervisor.settled", decision.messages)
            stop = decision.stop
            await trio.lowlevel.checkpoint_if_cancelled()
        reason = first_reason(
            "open_calls" if opened else None,
            "stop_asked" if stop else None,
            "wakes" if wakes else None,
        )
        if opened or wakes:
            self._books.state.pause = batch.pause()
            await self._at_boundary("waiting", would_end=False, ends=reason)
        if reason is not None:
            return reason
        return await self._go_on(would_end=False, compact=batch.wants_compaction)

    async def would_end(self) -> StopReason | None:
        """The model asked for nothing: end, unless somebody has more for it."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._books.tell(Settled(would_end=True))
        step = self._step("finished", would_end=True)
        decision = await self._ask_supervisor(step)
        more = self._deliver("Supervisor.settled", decision.messages)
        await trio.lowlevel.checkpoint_if_cancelled()
        if decision.stop:
            return first_reason("stop_asked")
        if not more and self._books.budget.lack() is None:
            more = self._deliver_posts()
            if not more and not self._stop.soft:
                more = self._deliver("Supervisor.nudge", await self._supervisor.nudge(step))
                await trio.lowlevel.checkpoint_if_cancelled()
        if more:
            return await self._go_on(would_end=True, compact=False)
        reason = first_reason("finished")
        await self._at_boundary("finished", would_end=True, ends=reason)
        return reason

    async def ended(self, fact: Fact) -> StopReason | None:
        """End at a settled point where nobody is asked whether to go on."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._books.tell(Settled(would_end=False))
        reason = first_reason(fact)
        await self._at_boundary("finished", would_end=False, ends=reason)
        return reason

    async def _go_on(self, *, would_end: bool, compact: bool) -> StopReason | None:
        """Shrink the transcript if need be, and offer a boundary, if a turn is left."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._books.tell(FlushDue())
        if self._books.budget.lack() is not None:
            return None
        state = self._books.state
        if compact or (state.usage.fresh and self._needs_compaction(state)):
            await self._compact()
            await trio.lowlevel.checkpoint_if_cancelled()
        verdict = await self._at_boundary("continue", would_end=would_end)
        return first_reason("checkpoint" if verdict == "checkpoint" else None)

    # -- the transcript -----------------------------------------------------------------------

    def _deliver_posts(self) -> bool:
        """Append what was posted; True if there was anything."""
        delivered = bool(self.posts)
        while self.posts:
            post = self.posts.popleft()
            self._books.state.messages.append(post.message)
            self._books.tell(Posted(text=text_of(post.message), user_id=post.user_id))
        return delivered

    def _deliver(self, port: str, messages: object) -> bool:
        """Append what *port* handed in; True if anything was accepted.

        A result is refused: no call is open at any point where input may join. So is what
        would leave the transcript unsettled, such as a message with calls of its own.
        """
        if not isinstance(messages, Sequence):
            raise TypeError(f"{port} answered {messages!r}, expected messages")
        delivered = False
        for message in messages:
            if isinstance(message, dict) and message.get("role") == "tool":
                text = f"a result for {message.get('tool_call_id')!r} was delivered, expected input"
                self._books.report(MisuseError("input.unmatched-result", text))
                continue
            fault = joining_fault(message) or ("it has calls" if message.get("tool_calls") else "")
            if fault:
                raise TranscriptError([f"{port} answered a message that cannot join: {fault}"])
            self._books.state.messages.append(message)
            delivered = True
        return delivered

    def _needs_compaction(self, state: RunState) -> bool:
        return answered("Compactor.needed", self._compactor.needed(state), bool)

    async def _compact(self) -> None:
        books = self._books
        books.tell(CompactionStarted())
        started = trio.current_time()
        applied, usage = False, Usage()
        try:
            messages = MessagesView(books.state.messages)
            compaction = await self._compactor.compact(messages)
            if compaction is not None:
                answered("Compactor.compact", compaction, Compaction)
                usage = compaction.usage
                books.spend(usage)
                self._replace_messages(compaction.messages)
                applied = True
        except MissingPortError as missing:
            books.report(missing)
        finally:
            books.stats.model_time += trio.current_time() - started
            books.tell(CompactionFinished(applied=applied, usage=usage))

    def _replace_messages(self, messages: Iterable[Message]) -> None:
        state, shorter = self._books.state, list(messages)
        refusals = [each.text for each in check_settled(shorter)]
        if refusals or not shorter:
            raise InvalidCompactionError(refusals or ["there are no messages, expected some"])
        gone = Counter(map(call_digest, calls_in(state.messages)))
        gone.subtract(map(call_digest, calls_in(shorter)))
        for call, count in gone.items():
            if count > 0:
                state.forgotten[call] = state.forgotten.get(call, 0) + count
        state.messages[:] = shorter
        state.compactions += 1
        state.usage = state.usage.stale()

    # -- asking -------------------------------------------------------------------------------

    async def _ask_supervisor(self, step: SettledTurn) -> StepDecision:
        decision = await self._supervisor.settled(step)
        return answered("Supervisor.settled", decision, StepDecision)

    async def _at_boundary(
        self, decision: Decision, *, would_end: bool, ends: StopReason | None = None
    ) -> str:
        step = attrs.evolve(self._step(decision, would_end=would_end), stop_reason=ends)
        verdict = await self._boundary(step)
        if verdict not in ("continue", "checkpoint"):
            raise TypeError(
                f"the boundary answered {verdict!r}, expected 'continue' or 'checkpoint'"
            )
        return verdict

    def _step(self, decision: Decision, *, would_end: bool) -> SettledTurn:
        pause = self._books.state.pause
        return SettledTurn(
            turn=self._books.source.turn,
            decision=decision,
            would_end=would_end,
            state=self._books.state,
            stats=self._books.stats,
            open=() if pause is None else pause.open,
        )
