"""Routes whose endpoints do as they are told, and what was seen of the tries at them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs
import trio

from harness.errors import AttemptSuperseded, ErrorCategory, ErrorKind
from harness.routing import (
    AttemptError,
    AttemptFailure,
    AttemptSuccess,
    AttemptTarget,
    CircuitBreaker,
    RouteFailed,
    RoutePlan,
    RouteServed,
    RouteStage,
    Try,
)
from tests.routing.endpoints import FIRST, LARGE, SMALL, endpoint

KINDS: Final[Mapping[str, tuple[ErrorKind, ErrorCategory]]] = {
    "server_error": ("http", "server_error"),
    "rate_limited": ("http", "rate_limited"),
    "credential": ("http", "credential"),
    "provider_bad_request": ("http", "provider_bad_request"),
    "client_error": ("http", "client_error"),
    "unreachable": ("network", "unreachable"),
    "stalled": ("stall", "stalled"),
    "defect": ("defect", "defect"),
    "aborted": ("abort", "aborted"),
    "bug": ("internal", "client_error"),
}
"""Every failure there is, by a name."""

HERE: Final = AttemptTarget.of(endpoint(), cursor=FIRST, duration=0.0)


def failure(
    name: str, *, retry_after: float | None = None, target: AttemptTarget = HERE
) -> AttemptError:
    kind, category = KINDS[name]
    return AttemptError(kind=kind, category=category, retry_after=retry_after, target=target)


def plan_of(first: str, second: str = "") -> RoutePlan:
    """Return a plan of two models; each letter is a provider."""
    stages = [RouteStage(canonical_model_id=LARGE, candidates=[endpoint(each) for each in first])]
    if second:
        others = [endpoint(each, SMALL) for each in second]
        stages.append(RouteStage(canonical_model_id=SMALL, candidates=others))
    return RoutePlan(stages=stages)


Ending: TypeAlias = str | BaseException
"""``ok``, the name of a failure, or what is raised."""
WhenCut: TypeAlias = Literal["pass", "superseded", "aborted", "serve", "output"]


@attrs.frozen(kw_only=True)
class Step:
    """What one try does."""

    silent: float = 0.0
    """Seconds until it answers, or ends without an answer."""
    talks: float | None = None
    """Seconds from its answer to its end; None is no answer."""
    ends: Ending = "ok"
    produced_output: bool = False
    retry_after: float | None = None
    when_cut: WhenCut = "pass"
    """What it does with its cancellation: lets it pass, or returns or raises something else."""


@attrs.define(eq=False)
class Player:
    """An attempt function that plays prepared steps, each provider its own, the last one over."""

    steps: Mapping[str, Sequence[Step]]
    tries: list[Try] = attrs.field(factory=list)
    starts: list[float] = attrs.field(factory=list)
    ends: dict[int, float] = attrs.field(factory=dict)
    """When each try was left, by ordinal."""
    answers: list[tuple[int, bool]] = attrs.field(factory=list)
    """What each try that answered was told: whether it has won."""
    finished: list[str] = attrs.field(factory=list)
    """The providers of the tries that ended by themselves, in this order."""
    output: bool = False
    """Whether a try has reported output that cannot be taken back."""
    on_start: Callable[[Try], None] = lambda _: None

    @property
    def cursors(self) -> list[tuple[int, int, int, int]]:
        return [attrs.astuple(each.cursor) for each in self.tries]

    @property
    def asked(self) -> str:
        """The providers in the order of their tries."""
        return "".join(each.candidate.provider_id for each in self.tries)

    async def __call__(self, attempt: Try) -> AttemptSuccess[str] | AttemptFailure:
        self.on_start(attempt)
        provider = str(attempt.candidate.provider_id)
        before = self.asked.count(provider)
        self.tries.append(attempt)
        self.starts.append(trio.current_time())
        steps = self.steps[provider]
        step = steps[min(before, len(steps) - 1)]
        try:
            result = await self._play(attempt, step)
            self.finished.append(provider)
            return result
        except trio.Cancelled:
            if not attempt.superseded:
                raise  # somebody else's stop, which no good citizen turns into anything
            if step.when_cut == "superseded":
                raise AttemptSuperseded(attempt.cursor.ordinal, by=0) from None  # noqa: ASYNC104
            if step.when_cut == "aborted":
                return AttemptFailure(  # noqa: ASYNC104
                    failure("aborted", target=attempt.target())
                )
            if step.when_cut == "output":
                self.output = True
                return AttemptFailure(  # noqa: ASYNC104
                    failure("aborted", target=attempt.target()), produced_output=True
                )
            if step.when_cut == "serve":
                return AttemptSuccess("too late")  # noqa: ASYNC104
            raise
        finally:
            self.ends[attempt.cursor.ordinal] = trio.current_time()

    async def _play(self, attempt: Try, step: Step) -> AttemptSuccess[str] | AttemptFailure:
        if step.silent:
            await trio.sleep(step.silent)
        if step.talks is not None:
            self.answers.append((attempt.cursor.ordinal, attempt.answered()))
            if step.talks:
                await trio.sleep(step.talks)
        if isinstance(step.ends, BaseException):
            raise step.ends
        if step.ends == "ok":
            return AttemptSuccess(f"from {attempt.candidate.provider_id}")
        self.output = self.output or step.produced_output
        error = failure(step.ends, retry_after=step.retry_after, target=attempt.target())
        return AttemptFailure(error, produced_output=step.produced_output)


def outcomes(result: RouteServed[str] | RouteFailed) -> str:
    """Return the trace on one line, for example ``a:failed b:served``."""
    return " ".join(f"{each.provider_id}:{each.outcome}" for each in result.trace)


def script(**steps: Ending | Step | Iterable[Ending | Step]) -> Player:
    """Return a player; an ending stands for a step that ends so at once."""

    def step(given: Ending | Step) -> Step:
        return given if isinstance(given, Step) else Step(ends=given)

    def several(given: Ending | Step | Iterable[Ending | Step]) -> list[Step]:
        if isinstance(given, str | BaseException | Step):
            return [step(given)]
        return [step(each) for each in given]

    return Player({provider: several(given) for provider, given in steps.items()})


def open_circuit(breaker: CircuitBreaker, *providers: str) -> None:
    for provider in providers:
        breaker.record_failure(endpoint(provider), failure("credential"), now=trio.current_time())


async def half_open(*providers: str) -> CircuitBreaker:
    """Return a breaker with these circuits half-open."""
    breaker = CircuitBreaker()
    open_circuit(breaker, *providers)
    await trio.sleep(30)
    return breaker


def states(breaker: CircuitBreaker) -> dict[str, tuple[str, int]]:
    """Return state and failures of each circuit in trouble."""
    return {
        str(each.key.provider_id): (each.state, each.failures)
        for each in breaker.snapshot(now=trio.current_time())
    }
