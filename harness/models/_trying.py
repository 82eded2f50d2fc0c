"""One try at an endpoint: what it is asked, what is told of it, and what came of it.

An endpoint is a model like any other and knows nothing of routes. It gets the turn's own stream in
a view that adds two things. Its first attempt has the number that the try is told of by, so that
all events of a try can be put together. And the first piece of an answer is reported to the route
in the same step in which the attempt takes the surface: from then on the others are given up.

A model that does not stream answers when it returns. What it returns is judged here as a run would
judge it, so that a defect is retried like one of a stream; one that was streamed has been judged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

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

    async def ask(
        self, trial: Try, endpoint: ModelLike
    ) -> AttemptSuccess[ModelTurn | Halt] | AttemptFailure:
        """Ask *endpoint* once, and tell of it."""
        view = _TryStream(self._stream, self._budgets, trial=trial)
        tried = self._tried(view)
        self._stream.tell(AttemptStarted(tried=tried))
        outcome: AttemptOutcome = "cancelled"
        failure: AttemptError | None = None
        try:
            answer = await self._complete(endpoint, view)
            outcome = "served"
            return AttemptSuccess(answer)
        except Exception as error:  # noqa: BLE001  # classified: a value that decides what follows
            failure = classify_attempt_error(error, trial.target(), self._ports)
            outcome = "failed"
            return AttemptFailure(failure, produced_output=self._stream.produced_output)
        finally:
            self._stream.tell(
                AttemptFinished(
                    tried=tried,
                    outcome="superseded" if trial.superseded else outcome,
                    duration=trial.target().duration,
                    produced_output=self._stream.produced_output,
                    usage=view.usage,
                    failure=None if failure is None else _told(failure),
                )
            )

    async def _complete(self, endpoint: ModelLike, view: _TryStream) -> ModelTurn | Halt:
        """Return what *endpoint* answers, if it can be used and no other try has answered."""
        answer = await as_model(endpoint).complete(self._request, view)
        turn = answer.turn if isinstance(answer, Halt) else answer
        if isinstance(turn, ModelTurn):
            view.usage = turn.usage
        if not view.opened:
            try:
                answer = check_answer(answer, self._stream.assembly)
                if not view.trial.answered():
                    raise AttemptSuperseded(view.number)
            except (AttemptSuperseded, CompletionDefectError):
                self._stream.spend(view.usage)
                raise
        return answer

    def _tried(self, view: _TryStream) -> Tried:
        candidate, cursor = view.trial.candidate, view.trial.cursor
        return Tried(
            turn_id=self._request.turn_id,
            attempt=view.number,
            provider=candidate.provider_id,
            model=candidate.canonical_model_id,
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
    usage: Usage = attrs.field(factory=Usage, init=False)
    """What the try has cost, as far as its provider said so."""

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
        async with opening as attempt:
            yield _TriedAttempt(attempt, self)


@attrs.define(eq=False)
class _TriedAttempt:
    """An attempt of an endpoint; the route hears when its answer begins."""

    _attempt: Attempt
    _view: _TryStream
    _won: bool | None = attrs.field(default=None, init=False)
    """None until an answer began."""

    @property
    def number(self) -> int:
        return self._attempt.number

    def send_nowait(self, chunk: Chunk) -> None:
        if self._won is None and chunk_kind(chunk) == "answer":
            self._won = self._view.trial.answered()
        if self._won is not False:
            self._attempt.send_nowait(chunk)
            self._view.usage = chunk.usage or self._view.usage

    def turn(self) -> ModelTurn:
        return self._attempt.turn()

    def mark_produced_output(self) -> None:
        self._attempt.mark_produced_output()
