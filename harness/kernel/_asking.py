"""One completion, from the question to what it cost.

A turn is counted when its completion came to an end, and only then. One that was cut or failed
gives its place in the budget back; the time it took counts all the same, and so does what an
unusable answer cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from harness._errors import CompletionDefectError, ModelContractError
from harness._events import ReasoningDelta, TurnFinished
from harness._json import JSON
from harness._messages import MessagesView
from harness._model import Assembly, Halt, Model, ModelRequest, ModelTurn, TextSurface
from harness._toolset import Toolset
from harness._usage import Usage
from harness.completion import OpenTurnStream, open_turn_stream
from harness.kernel._books import Books
from harness.kernel._ports import answered
from harness.kernel._turn import check_answer

__all__ = ["Asking", "TurnRecord"]


@attrs.define(eq=False)
class TurnRecord:
    """One turn in progress, and what its last event says of it."""

    turn_id: str
    counted: bool = False
    usage: Usage = attrs.field(factory=Usage)
    finish_reason: str | None = None
    model_time: float = 0.0

    def event(self) -> TurnFinished:
        """Return the turn's last event."""
        return TurnFinished(
            turn_id=self.turn_id,
            counted=self.counted,
            usage=self.usage,
            finish_reason=self.finish_reason,
            model_time=self.model_time,
        )


@attrs.frozen(eq=False)
class Asking:
    """Whom a leg asks for completions, and how replies are put together."""

    model: Model
    toolset: Toolset
    surface: TextSurface
    assembly: Assembly

    async def complete(self, books: Books, turn: TurnRecord) -> ModelTurn | Halt:
        """Return the next completion, and count it. Cancelled at once on a stop.

        Raises:
            ModelContractError: the model returned something that is no turn.
            CompletionDefectError: it returned a turn that cannot be used.
            Exception: what the model raised.
        """
        state = books.state
        request = ModelRequest(
            run_id=state.run_id,
            turn_id=turn.turn_id,
            turn=state.turn,
            messages=MessagesView(state.messages),
            tools=self._definitions(),
        )
        stream = open_turn_stream(
            turn.turn_id,
            tell=books.tell,
            spend=books.spend,
            surface=self.surface,
            assembly=self.assembly,
            tool_calls=state.tool_calls,
        )
        started = trio.current_time()
        returned: object = None
        finished: ModelTurn | None = None
        books.budget.take_turn()
        try:
            returned = await self.model.complete(request, stream)
            answer = self._judge(stream, returned)
            finished = answer.turn if isinstance(answer, Halt) else answer
        finally:
            turn.model_time = trio.current_time() - started
            books.stats.model_time += turn.model_time
            stream.finish(finished is not None, _turn_in(returned))
            if finished is None:
                books.budget.give_back_turn()
        if finished is not None:
            books.count_turn(finished)
            turn.counted, turn.usage = True, finished.usage
            turn.finish_reason = finished.finish_reason
            if finished.reasoning and not stream.opened:
                books.tell(ReasoningDelta(turn_id=turn.turn_id, attempt=0, text=finished.reasoning))
        return answer

    def _definitions(self) -> tuple[dict[str, JSON], ...]:
        definitions: object = self.toolset.definitions()
        if not isinstance(definitions, Sequence):
            raise TypeError(f"Toolset.definitions answered {definitions!r}, expected a sequence")
        return tuple(answered("Toolset.definitions", each, dict) for each in definitions)

    def _judge(self, stream: OpenTurnStream, answer: object) -> ModelTurn | Halt:
        """Return a usable answer; what an unusable one cost is counted all the same."""
        try:
            return check_answer(answer, self.assembly)
        except (CompletionDefectError, ModelContractError):
            turn = _turn_in(answer)
            if turn is not None and isinstance(turn.usage, Usage):
                stream.drop(turn, "attempt_failed")
            raise


def _turn_in(answer: object) -> ModelTurn | None:
    turn = answer.turn if isinstance(answer, Halt) else answer
    return turn if isinstance(turn, ModelTurn) else None
