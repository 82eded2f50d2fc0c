"""A model that answers in a form, or is asked again.

A reply that is not in the form is dropped, and the model is asked again with its own reply and what
is wrong with it. Neither enters the transcript: the run's next turns have no use for them. What was
shown of the dropped reply is taken back, by the reason that the next attempt is opened with; on a
surface that takes nothing back there is no second try, or its reader would see two answers.

This is a loop around the model, whatever is in there. A route of several providers tries each of
them, counts their failures and falls back for one reply as ever, and never hears of forms: a reply
in the wrong form is no failure of an endpoint.

Some replies are no answer yet. One that asks for tools is returned as it is, whatever it says
beside that: the answer is still to come, and a request that repeated its calls without their
results would be refused. So is a refusal, which no second try should wear down, and a reply that
says nothing, which is a defect and judged as one by the run.
"""

from __future__ import annotations

from typing import Final

import attrs

from harness._bounds import check_count
from harness._errors import StructuredOutputError
from harness._messages import Message, assistant_message, user_message
from harness._model import Halt, ModelLike, ModelRequest, ModelTurn, TurnStream
from harness._usage import Usage
from harness.kernel import as_model
from harness.models._output import Output

__all__ = ["MAX_OUTPUT_RETRIES", "StructuredModel"]

MAX_OUTPUT_RETRIES: Final = 2
"""How often a model is asked again for a reply in the right form, if nobody says otherwise."""


class StructuredModel:
    """A `Model` that asks another for *output*; `RunResult.parsed` is then its value.

    Args:
        model: who is asked; a route of several providers, for example.
        output: the form.
        retries: how often it is asked again, per turn.

    Raises:
        TypeError, ValueError: *model* is no model, *output* no `Output`, *retries* no count.
    """

    def __init__(
        self, model: ModelLike, output: Output[object], *, retries: int = MAX_OUTPUT_RETRIES
    ) -> None:
        if not isinstance(output, Output):
            raise TypeError(f"output is {output!r}, expected an Output")
        self._model = as_model(model)
        self._output = output
        self._retries = check_count("retries", retries)

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        """Return a reply with its value as ``parsed``, or one that is no answer as it is.

        A checkpoint if the model is one; a cancellation goes to the model. What dropped replies
        cost is spent without a turn.

        Raises:
            StructuredOutputError: the last reply is not in the form, or one before it cannot be
                taken back.
            Exception: what the model raises.
        """
        asked = attrs.evolve(request, response_format=self._output.response_format)
        left = self._retries
        while True:
            answer = await self._model.complete(asked, stream)
            text = _text_to_read(answer)
            if not isinstance(answer, ModelTurn) or text is None:
                return answer
            try:
                return attrs.evolve(answer, parsed=self._output.parse(text))
            except StructuredOutputError as error:
                final = not left or stream.produced_output
                stream.drop(answer, "structured_output_retry")
                if final:
                    raise
                asked = _asked_again(asked, text, error)
            left -= 1

    def __repr__(self) -> str:
        return f"<StructuredModel for {self._output!r}>"


def _text_to_read(answer: object) -> str | None:
    """Return the text of an answer; None if it is none yet, or what only the run can judge."""
    if not isinstance(answer, ModelTurn):
        return None
    message: object = answer.message
    usage: object = answer.usage
    if not isinstance(message, dict) or not isinstance(usage, Usage) or message.get("tool_calls"):
        return None
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    parts = [part for part in parts if isinstance(part, dict)]
    if message.get("refusal") or any(part.get("type") == "refusal" for part in parts):
        return None
    text = "".join(str(part.get("text") or "") for part in parts)
    return text if text.strip() else None


def _asked_again(asked: ModelRequest, text: str, error: StructuredOutputError) -> ModelRequest:
    """Return the request with the reply and what is wrong with it."""
    more: tuple[Message, ...] = (assistant_message(text), user_message(str(error)))
    return attrs.evolve(asked, messages=(*asked.messages, *more))
