from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness import (
    Chunk,
    Halt,
    ModelRequest,
    ModelTurn,
    StreamBudgets,
    TextSurface,
    TurnStream,
    Usage,
    assistant_message,
)
from harness.errors import CompletionDefectError, PlanError, RouteError, StreamStalled
from harness.events import ReasoningDelta
from harness.models import ModelTransport, Output, Route, RoutedModel
from harness.routing import (
    Availability,
    Available,
    CanonicalModelId,
    CircuitBreaker,
    ClassificationPorts,
    Hedge,
    Only,
    Ordered,
    ProviderId,
    Requirements,
    TransportFailure,
    Unavailable,
)
from harness.testing import Scene, Timed, cancel_everywhere, final_answer, scripted_model, streamed
from tests.completion.turns import Turn
from tests.models.routes import MODEL, STOP, Told, busy, down, refused, route, said, told_by

ANSWER = streamed(final_answer("Hello", usage=Usage(input=5, output=2)))


# -- falling back ------------------------------------------------------------------------------


@pytest.mark.rule("R-ROUTED-01")
async def test_the_next_provider_answers_when_the_first_is_down(
    autojump_clock: MockClock,
) -> None:
    told = await told_by(route([down()], [ANSWER]))
    assert told.error is None
    assert told.text == "Hello"
    assert told.tries == [("p0", "server_error"), ("p1", "served")]


@pytest.mark.rule("R-ROUTED-01")
async def test_the_fallback_model_answers_when_no_provider_could(
    autojump_clock: MockClock,
) -> None:
    told = await told_by(route([down()], [busy(60)], fallback=[ANSWER]))
    assert told.text == "Hello"
    assert [(each.provider, each.stage, each.candidate) for each in told.started] == [
        ("p0", 0, 0),
        ("p1", 0, 1),
        ("spare", 1, 0),
    ]
    assert trio.current_time() == 0  # nobody slept


@pytest.mark.rule("R-ROUTED-02", "R-EXEC-10")
async def test_a_defect_is_asked_for_again_at_the_same_endpoint(autojump_clock: MockClock) -> None:
    for empty in ([STOP], final_answer("")):
        told = await told_by(route([empty, empty, ANSWER], [ANSWER]))
        assert told.tries == [("p0", "defect"), ("p0", "defect"), ("p0", "served")]
        assert [each.retry for each in told.started] == [0, 1, 2]


@pytest.mark.rule("R-ROUTED-02")
async def test_a_defect_of_a_model_that_does_not_stream_has_cost_what_it_cost(
    autojump_clock: MockClock,
) -> None:
    told = await told_by(
        route([final_answer("", usage=Usage(input=3))], [ANSWER], max_defect_retries=0)
    )
    assert told.tries == [("p0", "defect"), ("p1", "served")]
    assert told.result is not None
    assert told.result.stats.usage == Usage(input=8, output=2)
    assert [each.usage.input for each in told.finished] == [3, 5]


@pytest.mark.rule("R-ROUTED-03", "R-STREAM-22", "R-STREAM-27", "R-WATCH-01")
@pytest.mark.parametrize(
    "death",
    [
        [said("Hel"), down(500)],
        [said("Hel"), OSError("reset")],
        [said("Hel"), Timed(31, said("lo")), STOP],
        [said("Hel"), Timed(1, busy(60))],
    ],
    ids=["error", "unknown error", "stall", "limit"],
)
async def test_text_of_a_try_that_died_is_repaired(
    autojump_clock: MockClock, death: list[Any]
) -> None:
    ports = ClassificationPorts(
        as_transport_failure=lambda error: (
            TransportFailure(kind="network") if isinstance(error, OSError) else None
        )
    )
    told = await told_by(route([death], [ANSWER], ports=ports))
    assert told.error is None
    if told.tries == [("p0", "served")]:
        assert told.text == "".join(
            each.text for each in death if isinstance(each, Chunk) and each.text
        )
        assert told.resets == []
    else:
        assert [name for name, _ in told.tries] == ["p0", "p1"]
        assert told.text == "Hello"
        assert told.resets == ["attempt_failed"]


@pytest.mark.rule("R-ROUTED-03", "R-STREAM-27", "R-EXEC-13")
async def test_what_cannot_be_taken_back_is_not_replayed(autojump_clock: MockClock) -> None:
    model = route([[said("Hel"), down(500)]], [ANSWER])
    told = await told_by(model, surface=TextSurface(retractable=False))
    assert told.text == "Hel"
    assert told.tries == [("p0", "server_error")]
    assert isinstance(told.error, RouteError)
    assert told.finished[0].produced_output


@pytest.mark.rule("R-STREAM-20")
async def test_a_cap_on_resets_caps_the_tries_that_follow_text(autojump_clock: MockClock) -> None:
    dies = [said("x"), down(500)]
    told = await told_by(route([dies], [dies], [dies]), surface=TextSurface(max_resets=1))
    assert told.tries == [("p0", "server_error"), ("p1", "server_error")]
    assert told.resets == ["attempt_failed"]


@pytest.mark.rule("R-ROUTED-03", "R-STREAM-22")
async def test_a_reply_of_calls_alone_takes_the_narration_of_a_dead_try_back(
    autojump_clock: MockClock,
) -> None:
    halt = Halt(code="c", message="m")
    told = await told_by(route([[said("Let me"), down()]], [halt]))
    assert told.text == "Let me"  # a halt is no success of the turn's text
    good = ModelTurn(message=assistant_message("Done."))
    told = await told_by(route([[said("Let me"), down()]], [good]))
    assert told.text == ""
    assert told.resets == ["attempt_failed"]
    assert told.result is not None
    assert told.result.text == "Done."


# -- what it raises ----------------------------------------------------------------------------


@pytest.mark.rule("R-ROUTED-04")
async def test_a_route_that_served_nothing_says_what_failed_last(
    autojump_clock: MockClock,
) -> None:
    error = busy(7)
    told = await told_by(route([down()], [error]))
    assert isinstance(told.error, RouteError)
    assert told.error.__cause__ is error
    assert (told.error.reason, told.error.category) == ("failed", "rate_limited")
    assert (told.error.status_code, told.error.retry_after) == (429, 7)
    assert [line.split(" after")[0] for line in told.error.tried] == [
        "p0: server_error",
        "p1: rate_limited",
    ]
    assert str(told.error).startswith(
        "no endpoint of the route to openai/gpt-x served, p1 was the last and failed: slow down"
    )


@pytest.mark.rule("R-ROUTED-04", "R-EXEC-12")
async def test_a_request_that_is_wrong_anywhere_is_not_repeated(autojump_clock: MockClock) -> None:
    told = await told_by(route([refused()], [ANSWER]))
    assert isinstance(told.error, RouteError)
    assert told.error.category == "client_error"
    assert told.tries == [("p0", "client_error")]


@pytest.mark.rule("R-ROUTED-05", "R-CLASS-05")
async def test_a_bug_leaves_as_itself_and_stops_the_route(autojump_clock: MockClock) -> None:
    bug = ZeroDivisionError("a bug")
    told = await told_by(route([bug], [ANSWER]))
    assert told.error is bug
    assert [(each.tried.provider, each.outcome) for each in told.finished] == [("p0", "failed")]
    assert told.finished[0].failure is not None
    assert told.finished[0].failure.kind == "ZeroDivisionError"


@pytest.mark.rule("R-ROUTED-04", "R-EXEC-08")
async def test_a_route_with_nothing_to_try_says_why(autojump_clock: MockClock) -> None:
    transport = ModelTransport(
        "p0", {MODEL: scripted_model([])}, availability=lambda: Unavailable("in maintenance")
    )
    told = await told_by(RoutedModel(MODEL, [transport]))
    assert isinstance(told.error, RouteError)
    assert told.error.reason == "empty_plan"
    assert "p0: in maintenance" in str(told.error)


@pytest.mark.rule("R-ROUTED-04", "R-EXEC-08", "R-BRK-09")
async def test_a_route_whose_circuits_are_open_says_for_how_long(
    autojump_clock: MockClock,
) -> None:
    breaker = CircuitBreaker(failures=1, cooldown=30)
    model = route([busy(90), ANSWER], breaker=breaker)
    assert isinstance((await told_by(model)).error, RouteError)
    await trio.sleep(10)
    told = await told_by(model)
    assert isinstance(told.error, RouteError)
    assert (told.error.reason, told.error.retry_after) == ("circuits_open", 80)
    assert told.tries == []
    await trio.sleep(80)
    assert (await told_by(model)).text == "Hello"


# -- what it tells -----------------------------------------------------------------------------


@pytest.mark.rule("R-ROUTED-06")
async def test_every_try_is_told_at_both_ends(autojump_clock: MockClock) -> None:
    thinking = (Chunk(reasoning="Hm", usage=Usage(input=4)), Timed(2, down(529)))
    told = await told_by(route([thinking], [ANSWER]))
    first, second = told.started
    assert (first.attempt, first.provider, first.model, first.hedge) == (0, "p0", MODEL, False)
    assert second.attempt == 1
    lost, served = told.finished
    assert (lost.tried, lost.outcome) == (first, "failed")
    assert (lost.duration, lost.usage, lost.produced_output) == (2.0, Usage(input=4), False)
    assert lost.failure is not None
    assert (lost.failure.kind, lost.failure.message) == ("ProviderError", "status 529")
    assert (lost.failure.category, lost.failure.status_code) == ("server_error", 529)
    assert served.tried == second
    assert (served.outcome, served.usage, served.failure) == (
        "served",
        Usage(input=5, output=2),
        None,
    )
    thought = next(event for event in told.events if isinstance(event, ReasoningDelta))
    assert thought.attempt == first.attempt
    assert {each.turn_id for each in told.started} == {thought.turn_id}
    kinds = [type(event).__name__ for event in told.events]
    assert kinds.index("AttemptStarted") > kinds.index("TurnStarted")
    assert kinds.index("TurnFinished") > len(kinds) - 1 - kinds[::-1].index("AttemptFinished")
    assert told.result is not None
    assert told.result.stats.usage == Usage(input=9, output=2)


@pytest.mark.rule("R-ROUTED-06")
def test_every_try_is_told_at_both_ends_at_every_cut() -> None:
    async def scenario(scene: Scene) -> None:
        slow = [Timed(5, said("b")), Timed(1, STOP)]
        model = route([[said("a"), Timed(1, down())]], [slow], [slow], hedge=Hedge(after=2))
        stream = Recording()

        @scene.afterwards
        def check() -> None:
            told = Told(events=stream.told)
            assert sorted(each.attempt for each in told.started) == sorted(
                each.tried.attempt for each in told.finished
            )
            assert len({each.attempt for each in told.started}) == len(told.started)
            assert (told.text == "b") >= (scene.outcome == "completed")

        await stream.complete(model)

    report = cancel_everywhere(scenario, minimum=20, seeds=(0, 1))
    assert report.cancelled > 0


class Recording:
    """A turn's stream outside a run."""

    def __init__(self, surface: TextSurface | None = None) -> None:
        self.turn = Turn(surface)
        self.told = self.turn.told

    async def complete(self, model: RoutedModel) -> ModelTurn | Halt:
        request = ModelRequest(run_id="r", turn_id="t1", turn=0, messages=[])
        return await model.complete(request, self.turn.stream)


@pytest.mark.rule("R-ROUTED-03")
async def test_an_endpoint_can_say_that_it_cannot_be_replayed(autojump_clock: MockClock) -> None:
    async def paid(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        async with stream.attempt() as attempt:
            assert attempt.number == 0
            attempt.mark_produced_output()
            raise down()
        raise AssertionError

    told = await told_by(route(paid, [ANSWER]))
    assert told.tries == [("p0", "server_error")]
    assert told.finished[0].produced_output


# -- budgets -----------------------------------------------------------------------------------


@pytest.mark.rule("R-ROUTED-07", "R-WATCH-18")
async def test_budgets_bound_the_endpoints_that_bring_none(autojump_clock: MockClock) -> None:
    silent = [Timed(60, said("late")), STOP]
    budgets = StreamBudgets(first_answer=5)
    told = await told_by(route([silent], [ANSWER], budgets=budgets))
    assert told.tries == [("p0", "stalled"), ("p1", "served")]
    assert trio.current_time() == 5

    async def patient(request: ModelRequest, stream: TurnStream) -> ModelTurn:
        async with stream.attempt(budgets=StreamBudgets(first_answer=100)) as attempt:
            await trio.sleep(60)
            attempt.send_nowait(said("late"))
        return attempt.turn()

    told = await told_by(route(patient, [ANSWER], budgets=budgets))
    assert told.text == "late"


@pytest.mark.rule("R-ROUTED-07")
async def test_a_stall_is_a_failure_that_the_circuit_hears_of(autojump_clock: MockClock) -> None:
    breaker = CircuitBreaker(failures=1)
    silent = [Timed(1e6, said("never"))]
    told = await told_by(route([silent], breaker=breaker))
    assert isinstance(told.error, RouteError)
    assert isinstance(told.error.__cause__, StreamStalled)
    assert len(breaker.snapshot(now=trio.current_time())) == 1


# -- routes ------------------------------------------------------------------------------------


@pytest.mark.rule("R-ROUTED-08")
async def test_a_route_is_planned_anew_for_each_completion(autojump_clock: MockClock) -> None:
    there = [False]
    first = ModelTransport(
        "p0",
        {MODEL: scripted_model([ANSWER])},
        availability=lambda: _availability(there[0]),
    )
    model = RoutedModel(MODEL, [first, ModelTransport("p1", {MODEL: scripted_model([ANSWER])})])
    assert (await told_by(model)).tries == [("p1", "served")]
    there[0] = True
    assert (await told_by(model)).tries == [("p0", "served")]


def _availability(there: bool) -> Availability:
    return Available() if there else Unavailable("not yet")


@pytest.mark.rule("R-ROUTED-08", "R-ROUTE-16", "R-ROUTE-19")
async def test_the_policy_says_who_is_tried(autojump_clock: MockClock) -> None:
    def transports() -> list[ModelTransport]:
        return [
            ModelTransport("a", {MODEL: scripted_model([down()])}),
            ModelTransport("b", {MODEL: scripted_model([down()])}),
        ]

    a, b = ProviderId("a"), ProviderId("b")
    for policy, expected in (
        (None, ["a", "b"]),
        (Ordered([b, a]), ["b", "a"]),
        (Only(b), ["b"]),
        (lambda model: Only(a), ["a"]),
    ):
        told = await told_by(RoutedModel(Route(MODEL, policy=policy), transports()))
        assert [name for name, _ in told.tries] == expected


@pytest.mark.rule("R-ROUTED-08")
def test_a_plan_can_be_looked_at() -> None:
    model = RoutedModel(
        Route(MODEL, requirements=Requirements(capabilities={"vision"})),
        [
            ModelTransport("a", {MODEL: scripted_model([])}),
            ModelTransport("b", {MODEL: scripted_model([])}, capabilities=["vision", "audio"]),
            ModelTransport("c", {"meta/llama-x": scripted_model([])}),
        ],
    )
    planned = model.plan()
    assert [each.provider_id for each in planned.plan.stages[0].candidates] == ["b"]
    assert [(each.provider_id, each.code) for each in planned.skips] == [
        ("a", "missing_capability")
    ]
    assert repr(model) == "<RoutedModel openai/gpt-x over a, b, c>"


@pytest.mark.rule("R-ROUTED-09")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RoutedModel("gpt", []), "gpt"),
        (lambda: Route(MODEL, fallback="llama"), "llama"),
        (lambda: RoutedModel(MODEL, [object()]), "a transport is <object"),  # type: ignore[list-item]
        (lambda: RoutedModel(MODEL, [ModelTransport("a", {}), ModelTransport("a", {})]), "'a'"),
        (lambda: ModelTransport("A b", {}), "A b"),
        (lambda: ModelTransport("a", {"gpt": scripted_model([])}), "gpt"),
        (lambda: ModelTransport("a", {MODEL: 3}), "3"),  # type: ignore[dict-item]
        (lambda: ModelTransport("a", []), r"\[\]"),  # type: ignore[arg-type]
        (
            lambda: ModelTransport("a", {MODEL: scripted_model([])}, credential_source=""),
            "credential_source",
        ),
        (lambda: ModelTransport("a", {}, capabilities="vision"), "the capabilities are 'vision'"),
        (lambda: route(max_defect_retries=-1), "max_defect_retries is -1"),
        (lambda: route(max_output_retries=True), "max_output_retries is True"),
        (lambda: route(budgets=3), "budgets is 3"),
        (lambda: route(breaker=3), "breaker is 3"),  # type: ignore[arg-type]
        (lambda: route(hedge=3), "hedge is 3"),  # type: ignore[arg-type]
        (lambda: route(ports=3), "ports is 3"),
        (lambda: route(output=3), "output is 3"),
        (lambda: Route(MODEL, policy="openai"), "policy is 'openai'"),  # type: ignore[arg-type]
        (lambda: Route(MODEL, requirements=3), "requirements is 3"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_route_is_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


async def test_a_policy_that_answers_what_it_may_not_is_an_error(
    autojump_clock: MockClock,
) -> None:
    model = RoutedModel(Route(MODEL, policy=lambda model: None), [])  # type: ignore[arg-type,return-value]
    assert isinstance((await told_by(model)).error, PlanError)


async def test_a_route_can_be_an_endpoint_of_a_route(autojump_clock: MockClock) -> None:
    inner = route([[said("a"), down()]], [[said("b"), down()]])
    told = await told_by(route(inner, [ANSWER]))
    assert told.text == "Hello"
    assert [name for name, _ in told.tries] == ["p0", "p1", "p0", "p1"]
    assert len({each.attempt for each in told.started}) == 4
    assert told.resets == ["attempt_failed"] * 2


# -- outputs -----------------------------------------------------------------------------------


@attrs.frozen
class City:
    name: str


@pytest.mark.rule("R-ROUTED-10", "R-DEF-10", "R-STREAM-22", "R-EXEC-18")
async def test_a_reply_in_the_wrong_form_is_asked_for_again_over_the_whole_route(
    autojump_clock: MockClock,
) -> None:
    wrong = streamed(final_answer("Paris", usage=Usage(input=1)))
    right = streamed(final_answer('{"name": "Paris"}', usage=Usage(input=10)))
    model = route([wrong, down()], [right], output=Output(City))
    told = await told_by(model)
    assert told.error is None
    assert told.tries == [("p0", "served"), ("p0", "server_error"), ("p1", "served")]
    assert told.text == '{"name": "Paris"}'
    assert told.resets == ["structured_output_retry"]
    assert told.result is not None
    assert told.result.parsed == City(name="Paris")
    assert told.result.stats.usage == Usage(input=11)
    assert len({each.attempt for each in told.started}) == 3


@pytest.mark.rule("R-ROUTED-02")
async def test_an_unusable_reply_of_the_last_endpoint_is_the_route_s_error(
    autojump_clock: MockClock,
) -> None:
    told = await told_by(route([[STOP], [STOP], [STOP]]))
    assert isinstance(told.error, RouteError)
    assert isinstance(told.error.__cause__, CompletionDefectError)


def test_an_id_is_what_it_says() -> None:
    assert Route(MODEL).model == CanonicalModelId(MODEL)
