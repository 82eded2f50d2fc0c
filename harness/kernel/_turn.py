"""One completion: ask the model, and judge what it returned before anything of it counts.

A model is foreign code, and some do not stream, so what it returns is looked at here whatever
the way it came: it must be a turn or a halt, with an assistant message whose calls can each be
answered. A message with a defect ends the run before it is appended; no call of it is run.

What is let through can be appended: it has the shape that a transcript is checked for when its
next leg starts. Where models write one thing in several ways (no calls as null or as an empty
list, a function call without its type), it is brought into that shape instead of being refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import attrs

from harness._errors import CompletionDefectError, ModelContractError
from harness._messages import Message
from harness._model import Assembly, Halt, Model, ModelLike, ModelRequest, ModelTurn, TurnStream
from harness._usage import Usage
from harness.completion import detect_message_defect, is_empty_reply
from harness.transcript import message_fault, without_kept, without_poison

__all__ = ["as_model", "check_answer", "text_of"]


@attrs.frozen
class _FunctionModel:
    """A plain async function as a model."""

    function: Callable[[ModelRequest, TurnStream], Awaitable[ModelTurn | Halt]]

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        answer: object = self.function(request, stream)
        if not isinstance(answer, Awaitable):
            raise ModelContractError(f"the model returned {answer!r}, expected an async function")
        return cast("ModelTurn | Halt", await answer)


def as_model(model: ModelLike) -> Model:
    """Return *model*, or a model around it if it is a plain async function.

    Raises:
        TypeError: it is neither.
    """
    complete = getattr(model, "complete", None)
    if callable(complete):
        return model  # type: ignore[return-value]  # it has the method, by the line above
    if callable(model):
        return _FunctionModel(model)
    raise TypeError(f"model is {model!r}, expected a Model or an async function")


def check_answer(answer: object, assembly: Assembly) -> ModelTurn | Halt:
    """Return *answer* if it is a usable completion, its message fit for a transcript.

    An empty reply that the assembly accepts comes back with ``accept=False``: it ends the turn,
    and no provider would take it in a transcript.

    Raises:
        ModelContractError: it is no turn and no halt, or its turn or message is malformed.
        CompletionDefectError: its message has a defect.
    """
    if isinstance(answer, Halt):
        turn = None if answer.turn is None else _check_turn(answer.turn, assembly)
        return attrs.evolve(answer, turn=turn)
    return _check_turn(answer, assembly)


def _check_turn(turn: object, assembly: Assembly) -> ModelTurn:
    if not isinstance(turn, ModelTurn):
        raise ModelContractError(f"the model returned {turn!r}, expected a ModelTurn or a Halt")
    _check_fields(turn)
    message = without_kept(_read_message(turn.message))
    calls = message.get("tool_calls")
    if turn.accept or calls:
        defect = detect_message_defect(message, turn.finish_reason, assembly)
        if defect is not None:
            raise CompletionDefectError(defect.kind, defect.detail)
    if calls:
        message = without_poison(message)
        _check_shape(message)
    accept = turn.accept and not is_empty_reply(message)
    if message is turn.message and accept == turn.accept:
        return turn
    return attrs.evolve(turn, message=message, accept=accept)


def _check_fields(turn: ModelTurn) -> None:
    usage: object = turn.usage
    if not isinstance(usage, Usage):
        raise ModelContractError(f"the turn's usage is {usage!r}, expected a Usage")
    texts: dict[str, object] = {"finish_reason": turn.finish_reason, "reasoning": turn.reasoning}
    for name, value in texts.items():
        if not isinstance(value, str | None):
            raise ModelContractError(f"the turn's {name} is {value!r}, expected a text or None")


def _read_message(message: object) -> Message:
    """Return a turn's message, if its calls can be looked at and the rest is as it should be."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        raise ModelContractError(f"the turn's message is {message!r}, expected an assistant's")
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    _check_shape(rest)
    calls = message.get("tool_calls")
    if calls is None or calls == []:
        return cast(Message, message if len(rest) == len(message) else rest)
    if not isinstance(calls, list) or not all(isinstance(each, dict) for each in calls):
        raise ModelContractError(f"the turn's tool_calls are {calls!r}, expected a list of calls")
    if all("type" in each for each in calls):
        return cast(Message, message)
    return cast(
        Message, {**message, "tool_calls": [{"type": "function", **each} for each in calls]}
    )


def _check_shape(message: object) -> None:
    fault = message_fault(message)
    if fault:
        raise ModelContractError(f"the turn's message is malformed: {fault}")


def text_of(message: Message) -> str:
    """Return a message's text, of its text parts if it has parts; blank text is none."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [each.get("text") for each in content if each.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    return content if content and not content.isspace() else ""
