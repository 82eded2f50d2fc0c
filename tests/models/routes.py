"""Routes of scripted endpoints, and what a run over one told."""

from typing import Any

import attrs
import trio

from harness import Chunk, ModelLike, RunResult, TextSurface, open_run
from harness._errors import ProviderError
from harness.events import AttemptFinished, AttemptStarted, Event, TextReset, Tried
from harness.models import ModelTransport, Route, RoutedModel
from harness.routing import CircuitBreaker, Hedge
from harness.testing import scripted_model
from tests.completion.turns import text_shown

__all__ = ["MODEL", "STOP", "Told", "busy", "down", "refused", "route", "said", "told_by"]

MODEL = "openai/gpt-x"
STOP = Chunk(finish_reason="stop", end=True)


def said(text: str) -> Chunk:
    return Chunk(text=text)


def down(status: int = 503) -> ProviderError:
    """What a provider that has failed raises."""
    return ProviderError(
        f"status {status}",
        kind="http",
        category="server_error",
        phase="headers",
        status_code=status,
    )


def busy(seconds: float) -> ProviderError:
    return ProviderError(
        "slow down",
        kind="http",
        category="rate_limited",
        phase="headers",
        status_code=429,
        retry_after=seconds,
    )


def refused() -> ProviderError:
    return ProviderError(
        "bad request", kind="http", category="client_error", phase="headers", status_code=400
    )


def route(
    *endpoints: "list[Any] | ModelLike",
    fallback: "list[Any] | None" = None,
    breaker: CircuitBreaker | None = None,
    hedge: Hedge | None = None,
    **options: Any,
) -> RoutedModel:
    """Return a route over providers ``p0``, ``p1`` …, each with the script of its own."""
    transports = [
        ModelTransport(f"p{n}", {MODEL: scripted_model(each) if isinstance(each, list) else each})
        for n, each in enumerate(endpoints)
    ]
    if fallback is not None:
        transports.append(ModelTransport("spare", {"meta/llama-x": scripted_model(fallback)}))
    return RoutedModel(
        Route(MODEL, fallback=None if fallback is None else "meta/llama-x"),
        transports,
        breaker=breaker or CircuitBreaker(),
        hedge=hedge,
        **options,
    )


def _end(event: AttemptFinished) -> str:
    if event.outcome != "failed":
        return event.outcome
    assert event.failure is not None
    return str(event.failure.category)


@attrs.define
class Told:
    """What a run has told, and how it ended."""

    events: list[Event] = attrs.field(factory=list)
    error: Exception | None = None
    result: RunResult | None = None

    @property
    def text(self) -> str:
        """What a reader of the text sees at the end."""
        return text_shown(self.events)

    @property
    def resets(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, TextReset)]

    @property
    def tries(self) -> list[tuple[str, str]]:
        """The provider and the outcome of each try that ended, in order."""
        return [
            (event.tried.provider, _end(event))
            for event in self.events
            if isinstance(event, AttemptFinished)
        ]

    @property
    def started(self) -> list[Tried]:
        return [event.tried for event in self.events if isinstance(event, AttemptStarted)]

    @property
    def finished(self) -> list[AttemptFinished]:
        return [event for event in self.events if isinstance(event, AttemptFinished)]


async def told_by(
    model: ModelLike, *, surface: TextSurface | None = None, deadline: float = 10_000
) -> Told:
    """Run *model* and return what it told."""
    told = Told()
    run = None
    try:
        async with open_run(
            model,
            "Hi",
            text=surface or TextSurface(),
            deadline=trio.current_time() + deadline,
        ) as run:
            told.events += [event async for event in run.events]
    except Exception as error:  # noqa: BLE001  # how it ended is what the tests look at
        told.error = error
    if run is not None:
        told.result = run.result
    return told
