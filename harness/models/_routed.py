"""A route of several endpoints, as one model.

For each completion a plan is made, since what can be had may have changed, and executed: each try
is one call of an endpoint's model, and the attempts that it opens are attempts of the run's own
turn. So when a try fails and the next one writes, the text on the surface is repaired by what the
turn's stream does anyway; the route adds nothing to it, and a host nothing at all.

What the route brings back is the turn of the endpoint that served. What failed on the way is told
by events, has cost what it has cost, and is known to the breaker. If nothing served, the last
failure says what to do about it: a `RouteError` carries its terms. An exception that no transport
knows is a bug, and leaves as the object that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any

import attrs

from harness._bounds import check_count
from harness._errors import ProviderError, RouteError, error_text
from harness._model import Halt, Model, ModelRequest, ModelTurn, StreamBudgets, TurnStream
from harness.models._output import Output
from harness.models._structured import MAX_OUTPUT_RETRIES, StructuredModel
from harness.models._transport import Transport
from harness.models._trying import Trying
from harness.routing import (
    MAX_DEFECT_RETRIES,
    AttemptError,
    AttemptFailure,
    AttemptRecord,
    AttemptSuccess,
    CanonicalModelId,
    CircuitBreaker,
    ClassificationPorts,
    Hedge,
    Only,
    Ordered,
    PlannedRoute,
    Policy,
    ProviderId,
    Requirements,
    RouteFailed,
    RouteServed,
    Try,
    build_route_plan,
    execute_route_plan,
)

__all__ = ["Route", "RoutedModel"]


def _kind(*kinds: type) -> Callable[[object, attrs.Attribute[Any], object], None]:
    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"{field.name} is {value!r}, expected {names}")

    return check


def _optional_model_id(name: str | None) -> CanonicalModelId | None:
    return None if name is None else CanonicalModelId(name)


@attrs.frozen
class Route:
    """What is asked for, and who may serve it.

    Raises:
        TypeError, ValueError: an id is not what it should be; the error names it.
    """

    model: CanonicalModelId = attrs.field(converter=CanonicalModelId)
    """The model, by its canonical id (``openai/gpt-5``)."""
    fallback: CanonicalModelId | None = attrs.field(
        default=None, kw_only=True, converter=_optional_model_id
    )
    """The model that is asked when no provider could serve the first one."""
    policy: Policy | Callable[[CanonicalModelId], Policy] | None = attrs.field(
        default=None, kw_only=True
    )
    """Which providers, in which order; one policy, or one for each model. None is every transport,
    in the order in which they were given."""
    requirements: Requirements = attrs.field(
        default=Requirements(), kw_only=True, validator=_kind(Requirements)
    )
    """What an endpoint must be able to do."""

    @policy.validator
    def _check_policy(self, _: object, policy: object) -> None:
        if policy is not None and not isinstance(policy, Ordered | Only) and not callable(policy):
            raise TypeError(f"policy is {policy!r}, expected a policy or a function of a model id")


def _as_transports(transports: Iterable[Transport]) -> tuple[Transport, ...]:
    return tuple(transports)


def _as_route(route: Route | str) -> Route:
    return route if isinstance(route, Route) else Route(route)


@attrs.frozen(eq=False, repr=False)
class RoutedModel:
    """A `Model` made of several endpoints: it falls back, retries and hedges as it is told.

    ::

        model = RoutedModel(
            Route("openai/gpt-5", fallback="meta/llama-4"),
            [
                ModelTransport("openai", {"openai/gpt-5": ChatModel("gpt-5", …)}),
                ModelTransport("azure", {"openai/gpt-5": ChatModel("my-gpt-5", …)}),
                ModelTransport("groq", {"meta/llama-4": ChatModel("llama-4", …)}),
            ],
        )

    One serves any number of runs at once; its breaker is what they share. The models behind it are
    opened and closed by the host.

    Raises:
        TypeError, ValueError: an argument is not what it should be; the error names it.
    """

    route: Route = attrs.field(converter=_as_route)
    """What is asked for; a canonical id alone will do."""
    transports: tuple[Transport, ...] = attrs.field(converter=_as_transports)
    """The providers; each id once."""
    breaker: CircuitBreaker = attrs.field(
        factory=CircuitBreaker, kw_only=True, validator=_kind(CircuitBreaker)
    )
    """Keeps calls away from endpoints in trouble; several routes may share one."""
    budgets: StreamBudgets | None = attrs.field(
        default=None, kw_only=True, validator=_kind(StreamBudgets, NoneType)
    )
    """How long an endpoint may keep an attempt waiting that it opened without budgets."""
    max_defect_retries: int = attrs.field(default=MAX_DEFECT_RETRIES, kw_only=True)
    """How often an endpoint is asked again after an unusable reply."""
    hedge: Hedge | None = attrs.field(default=None, kw_only=True, validator=_kind(Hedge, NoneType))
    """When a further endpoint is tried beside a silent one; None is never."""
    ports: ClassificationPorts = attrs.field(
        default=ClassificationPorts(), kw_only=True, validator=_kind(ClassificationPorts)
    )
    """What the host knows about the errors of its transports."""
    output: Output[object] | None = attrs.field(
        default=None, kw_only=True, validator=_kind(Output, NoneType)
    )
    """The form of an answer: see `StructuredModel`."""
    max_output_retries: int = attrs.field(default=MAX_OUTPUT_RETRIES, kw_only=True)
    """How often the route is asked again for a reply in that form."""
    _asked: Model = attrs.field(init=False)

    @transports.validator
    def _check_transports(self, _: object, transports: tuple[Transport, ...]) -> None:
        seen = set[str]()
        for each in transports:
            for name in ("get_availability", "resolve_candidate", "endpoint"):
                if not callable(getattr(each, name, None)):
                    raise TypeError(f"a transport is {each!r}, expected it to have {name}")
            if each.id in seen:
                raise ValueError(f"two transports have the id {each.id!r}, expected each once")
            seen.add(each.id)

    @max_defect_retries.validator
    @max_output_retries.validator
    def _check_retries(self, field: attrs.Attribute[int], value: object) -> None:
        check_count(field.name, value)

    def __attrs_post_init__(self) -> None:
        asked: Model = _Planning(self)
        if self.output is not None:
            asked = StructuredModel(asked, self.output, retries=self.max_output_retries)
        object.__setattr__(self, "_asked", asked)

    def __repr__(self) -> str:
        providers = ", ".join(each.id for each in self.transports)
        return f"<RoutedModel {self.route.model} over {providers}>"

    def plan(self) -> PlannedRoute:
        """Return the plan as it would be made now, with what was left out of it and why.

        Raises:
            PlanError: a transport or a policy answered what it may not.
        """
        return build_route_plan(
            self.route.model,
            transports=self.transports,
            policy_for=self._policy,
            fallback_model=self.route.fallback,
            requirements=self.route.requirements,
        )

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        """Return the completion of the first endpoint that serves.

        A checkpoint. A cancellation ends every try at once, and the connections of those that are
        models of ours are closed. Each try is told by an `AttemptStarted` and an `AttemptFinished`.

        Raises:
            RouteError: no endpoint served; the last failure is its cause.
            StructuredOutputError: the last reply is not in the form that was asked for.
            PlanError: a transport or a policy answered what it may not.
            Exception: what an endpoint raised that no transport knows: a bug.
        """
        return await self._asked.complete(request, stream)

    def _policy(self, model: CanonicalModelId) -> Policy:
        policy = self.route.policy
        if policy is None:
            return Ordered(ProviderId(each.id) for each in self.transports)
        return policy(model) if callable(policy) else policy


@attrs.frozen(eq=False)
class _Planning:
    """Makes the plan of each completion and executes it."""

    _model: RoutedModel

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        model = self._model
        planned = model.plan()
        endpoints = {each.id: each for each in model.transports}
        trying = Trying(request, stream, model.budgets, model.ports)

        async def attempt(trial: Try) -> AttemptSuccess[ModelTurn | Halt] | AttemptFailure:
            transport = endpoints[trial.candidate.provider_id]
            return await trying.ask(trial, transport.endpoint(trial.candidate))

        result: RouteServed[ModelTurn | Halt] | RouteFailed | None = None
        try:
            result = await execute_route_plan(
                planned.plan,
                model.breaker,
                attempt,
                max_defect_retries=model.max_defect_retries,
                hedge=model.hedge,
            )
        finally:
            if result is None:
                trying.spend_unreturned()
        if isinstance(result, RouteServed):
            return result.value
        error = result.error
        if error is None:
            raise _nothing_tried(planned, result)
        if error.kind in ("internal", "abort") and error.cause is not None:
            raise error.cause
        raise _route_error(planned, result, error) from error.cause


def _nothing_tried(planned: PlannedRoute, failed: RouteFailed) -> RouteError:
    model = planned.plan.stages[0].canonical_model_id
    if failed.reason == "circuits_open":
        seen = f"every circuit of the route to {model} is open, expected one that lets a call pass"
    else:
        skipped = "; ".join(f"{each.provider_id}: {each.reason}" for each in planned.skips)
        seen = f"the route to {model} has no endpoint ({skipped or 'no provider'}), expected one"
    return RouteError(
        failed.reason, seen, tried=_lines(failed.trace), retry_after=failed.retry_after
    )


def _route_error(planned: PlannedRoute, failed: RouteFailed, error: AttemptError) -> RouteError:
    model = planned.plan.stages[0].canonical_model_id
    cause = error.cause
    return RouteError(
        failed.reason,
        f"no endpoint of the route to {model} served, {error.target.provider_id} was the last and "
        f"failed: {error_text(cause) if cause else error.category}",
        tried=_lines(failed.trace),
        kind=error.kind,
        category=error.category,
        phase=cause.phase if isinstance(cause, ProviderError) else "request",
        status_code=error.status_code,
        retry_after=error.retry_after,
    )


def _lines(trace: Iterable[AttemptRecord]) -> list[str]:
    return [
        f"{each.provider_id}: {each.category or each.outcome} after {each.duration:.3g} s"
        for each in trace
    ]
