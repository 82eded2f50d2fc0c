"""One try at an endpoint: what it is asked, what is told of it, and what came of it.

An endpoint is a model like any other and knows nothing of routes. It gets the turn's own stream in
a view that adds two things. Its first attempt has the number that the try is told of by, so that
all events of a try can be put together. And the route is told before an attempt takes the surface:
with the first piece of its answer, in the same step, or, if it had none, when its block has ended.
So the route and the turn's stream agree on who has won. In the short while in which only the stream
knows, a loser says by its `AttemptSuperseded` what the route has not heard yet.

A model that does not stream answers when it returns. What it returns is judged here as a run would
judge it, so that a defect is retried like one of a stream; one that was streamed has been judged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import cast

import attrs

from harness._errors import AttemptSuperseded, CompletionDefectError
from harness._events import AttemptFinished, AttemptOutcome, AttemptStarted, Failure, Tried
from harness._model import (
    Attempt,
    Chunk,
    Halt,
    ModelLike,
    ModelRequest,
    ModelTurn,
    ResetReason,
    StreamBudgets,
    TurnStream,
)
from harness._shield import only_cancelled
from harness._usage import Usage
from harness.completion import chunk_kind
from harness.kernel import as_model, check_answer
from harness.models._stream import ForwardingStream
from harness.routing import (
    AttemptError,
    AttemptFailure,
    AttemptSuccess,
    ClassificationPorts,
    Try,
    classify_attempt_error,
)

__all__ = ["Trying"]


@attrs.define(eq=False)
class Trying:
    """The tries of one completion at the endpoints of a route."""

    _request: ModelRequest
    _stream: TurnStream
    _budgets: StreamBudgets | None
    _ports: ClassificationPorts
    _unstreamed: Usage = attrs.field(factory=Usage, init=False)
    """What the reply that served has cost, if it was not streamed."""

    async def ask(
        self, trial: Try, endpoint: ModelLike
    ) -> AttemptSuccess[ModelTurn | Halt] | AttemptFailure:
        """Ask *endpoint* once, and tell of it."""
        view = _TryStream(self._stream, self._budgets, trial=trial)
        tried = self._tried(view)
        self._stream.tell(AttemptStarted(tried=tried))
        outcome: AttemptOutcome = "failed"
        failure: AttemptError | None = None
        try:
            answer = await self._complete(endpoint, view)
            outcome = "served"
            return AttemptSuccess(answer)
        except Exception as error:  # noqa: BLE001  # classified: a value that decides what follows
            failure = classify_attempt_error(error, trial.target(), self._ports)
            view.drop_replies()
            return AttemptFailure(failure, produced_output=self._stream.produced_output)
        except BaseException as error:
            if only_cancelled(error):
                outcome = "cancelled"
            raise
        finally:
            self._stream.tell(
                AttemptFinished(
                    tried=tried,
                    outcome="superseded" if trial.superseded else outcome,
                    duration=trial.target().duration,
                    produced_output=self._stream.produced_output,
                    usage=view.usage,
                    failure=None if failure is None or trial.superseded else _told(failure),
                )
            )

    def spend_unreturned(self) -> None:
        """Count what a reply cost that a try came back with, and the route did not."""
        self._stream.spend(self._unstreamed)

    async def _complete(self, endpoint: ModelLike, view: _TryStream) -> ModelTurn | Halt:
        """Return what *endpoint* answers, if it can be used and no other try has answered."""
        answer: object = await as_model(endpoint).complete(self._request, view)
        turn = answer.turn if isinstance(answer, Halt) else answer
        if isinstance(turn, ModelTurn) and view.take(turn):
            return cast("ModelTurn | Halt", answer)
        usage = turn.usage if isinstance(turn, ModelTurn) else Usage()
        try:
            judged = check_answer(answer, self._stream.assembly)
            if not view.trial.answered():
                raise AttemptSuperseded(view.number)
        except (AttemptSuperseded, CompletionDefectError):
            self._stream.spend(usage)
            raise
        self._unstreamed = usage
        return judged

    def _tried(self, view: _TryStream) -> Tried:
        candidate, cursor = view.trial.candidate, view.trial.cursor
        return Tried(
            turn_id=self._request.turn_id,
            attempt=view.number,
            provider=str(candidate.provider_id),
            model=str(candidate.canonical_model_id),
            provider_model=candidate.provider_invocation_model,
            stage=cursor.stage,
            candidate=cursor.candidate,
            retry=cursor.retry,
            hedge=view.trial.hedge,
        )


def _told(failure: AttemptError) -> Failure:
    """Return *failure* as it is told: what was raised, and what it counts as."""
    assert failure.cause is not None
    told = Failure.of(failure.cause)
    return Failure(
        kind=told.kind,
        code=told.code,
        message=told.message,
        category=failure.category,
        status_code=failure.status_code,
    )


@attrs.define(eq=False)
class _TryStream(ForwardingStream):
    """The turn's stream, as the endpoint of one try sees it."""

    trial: Try = attrs.field(kw_only=True)
    number: int = attrs.field(
        init=False, default=attrs.Factory(lambda self: self.number_attempt(), takes_self=True)
    )
    """By which the try is told of; its first attempt has it too."""
    _spent: Usage = attrs.field(factory=Usage, init=False)
    _replies: list[ModelTurn] = attrs.field(factory=list, init=False)
    """Usable replies of its attempts, as long as they are not dropped."""

    @property
    def usage(self) -> Usage:
        """What the try has cost, as far as its provider said so."""
        return sum((each.usage for each in self._replies), self._spent)

    def take(self, turn: ModelTurn) -> bool:
        """Whether *turn* is the reply of an attempt; from now on its usage is what it says."""
        for place, reply in enumerate(self._replies):
            if reply.message is turn.message:
                self._replies[place] = turn
                return True
        self._spent += turn.usage
        return False

    def drop_replies(self) -> None:
        """Drop what the attempts have replied: the endpoint has failed all the same."""
        for reply in tuple(self._replies):
            self.drop(reply, "attempt_failed")

    def spend(self, usage: Usage) -> None:
        self._spent += usage
        super().spend(usage)

    def drop(self, turn: ModelTurn, reason: ResetReason) -> None:
        self._spent += turn.usage
        self._replies = [each for each in self._replies if each.message is not turn.message]
        super().drop(turn, reason)

    def attempt(
        self,
        reason: ResetReason | None = None,
        budgets: StreamBudgets | None = None,
        number: int | None = None,
    ) -> AbstractAsyncContextManager[Attempt]:
        if number is None and not self.opened:
            number = self.number
        return self._open(super().attempt(reason, budgets, number))

    @asynccontextmanager
    async def _open(
        self, opening: AbstractAsyncContextManager[Attempt]
    ) -> AsyncIterator[_TriedAttempt]:
        tried: _TriedAttempt | None = None
        turn: ModelTurn | None = None
        try:
            async with opening as attempt:
                tried = _TriedAttempt(attempt, self.trial)
                yield tried
            with suppress(CompletionDefectError):  # it is raised where the endpoint asks for it
                turn = attempt.turn()
        finally:
            if turn is None and tried is not None:
                self._spent += tried.usage
        if turn is not None:
            self._replies.append(turn)
            self.trial.answered()


@attrs.define(eq=False)
class _TriedAttempt:
    """An attempt of an endpoint; the route hears when its answer begins."""

    _attempt: Attempt
    _trial: Try
    usage: Usage = attrs.field(factory=Usage, init=False)
    """What it has cost, as far as its provider said so."""
    _won: bool | None = attrs.field(default=None, init=False)
    """None until an answer began."""

    @property
    def number(self) -> int:
        return self._attempt.number

    @property
    def given_up(self) -> bool:
        return self._attempt.given_up

    def send_nowait(self, chunk: Chunk) -> None:
        if self._won is None and chunk_kind(chunk) == "answer" and not self.given_up:
            self._won = self._trial.answered()
        if self._won is False:
            chunk = Chunk(usage=chunk.usage)
        self._attempt.send_nowait(chunk)
        self.usage = chunk.usage or self.usage

    def turn(self) -> ModelTurn:
        return self._attempt.turn()

    def mark_produced_output(self) -> None:
        self._won = self._trial.answered()  # an effect is as good as an answer
        self._attempt.mark_produced_output()
