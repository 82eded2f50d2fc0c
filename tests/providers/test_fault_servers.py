"""Servers that we did not write fail on purpose, and one of them passes a verdict on its client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

import attrs
import pytest
import trio

from harness import TextSurface, open_run, tool
from harness._errors import (
    CompletionDefectError,
    DefectKind,
    ErrorCategory,
    HarnessError,
    ProviderError,
    RouteError,
    StreamStalled,
)
from harness._messages import user_message
from harness._model import ModelRequest, ModelTurn, StreamBudgets
from harness.models import ModelTransport, RoutedModel
from harness.providers import ChatModel
from tests.models.routes import Told
from tests.providers.asking import Surface
from tests.providers.fault_servers import Behaviour, Llmock, aimock, llmock

# One process runs them all, and starts each server once.
pytestmark = [pytest.mark.fault_servers, pytest.mark.xdist_group("fault servers")]


@tool
async def weather(city: str, note: str = "") -> str:
    """Say what the weather is like in a city."""
    return f"It rains in {city}."


CALLS: Final[list[dict[str, object]]] = [
    {"name": "weather", "arguments": {"city": "Paris", "note": "a long one, to come in pieces"}},
    {"name": "weather", "arguments": {"city": "Rome"}},
]
CAPITAL: Final = "The capital of France is Paris."
STALL: Final = 1.0
"""Longer than what is allowed, by half; a busy machine has to answer within the other half."""
NO_SILENCE: Final = StreamBudgets(first_answer=STALL / 2, absolute=STALL / 2)
NO_GAP: Final = StreamBudgets(gap=STALL / 2)


@pytest.fixture(scope="module")
def server() -> Iterator[Llmock]:
    with llmock() as running:
        yield running


@attrs.frozen(kw_only=True)
class Fault:
    """What llmock is told to do, and what must come of it."""

    name: str
    does: tuple[Behaviour, ...]
    logged: str | None = None
    """What the server's log must say; None where it has no word for it."""
    streamed_only: bool = False
    text: str | None = None
    calls: tuple[tuple[str, object], ...] = ()
    """Name and arguments of each."""
    finish_reason: str = "stop"
    budgets: StreamBudgets = StreamBudgets()
    shown: str = ""
    """Of what failed: the text that had come."""
    category: ErrorCategory | None = None
    status: int | None = None
    retry_after: float | None = None
    defect: DefectKind | None = None


def fail(status: int, category: ErrorCategory, **fields: object) -> Fault:
    return Fault(
        name=f"status {status}",
        does=({"type": "fail", "status": status, **fields},),
        logged=f"scenario:{status}",
        category=category,
        status=status,
        retry_after=fields.get("retry_after"),  # type: ignore[arg-type]  # a number
    )


def broken(kind: str, after: int, **fields: object) -> Behaviour:
    return {"type": "stream_fault", "kind": kind, "after_chunks": after, **fields}


SAYS: Final[dict[str, object]] = {"type": "reply", "text": CAPITAL}
ASKS: Final = {"type": "reply", "tool_calls": CALLS}
ASKS_ONE: Final = {"type": "reply", "tool_calls": CALLS[:1]}

FAULTS: Final = (
    fail(429, "rate_limited", retry_after=2),
    fail(500, "server_error"),
    fail(502, "server_error"),
    fail(503, "server_error", retry_after=1),
    fail(504, "server_error", retry_after=1),
    fail(529, "server_error", retry_after=1),
    fail(401, "credential"),
    fail(404, "provider_bad_request"),
    fail(400, "client_error", code="context_length_exceeded"),
    fail(408, "server_error"),
    Fault(name="no fault", does=(SAYS,), text=CAPITAL),
    Fault(
        name="several calls",
        does=(ASKS,),
        calls=tuple((each["name"], each["arguments"]) for each in CALLS),  # type: ignore[misc]  # JSON
        finish_reason="tool_calls",
    ),
    Fault(
        name="cut by length",
        does=({"type": "reply", "text": CAPITAL, "finish_reason": "length"},),
        text=CAPITAL,
        finish_reason="length",
    ),
    Fault(name="says nothing", does=({"type": "reply", "text": ""},), defect="empty"),
    Fault(
        name="arguments that are no JSON",
        does=({"type": "tool_fault", "kind": "malformed_arguments"}, ASKS),
        defect="malformed_tool_call",
    ),
    Fault(
        name="a tool that nobody has",
        does=({"type": "tool_fault", "kind": "unknown_tool"}, ASKS_ONE),
        calls=(("llmock_unknown_tool", CALLS[0]["arguments"]),),
        finish_reason="tool_calls",
    ),
    Fault(
        name="silent from the start",
        does=({"type": "delay", "seconds": STALL}, SAYS),
        budgets=NO_SILENCE,
        category="stalled",
    ),
    Fault(
        name="slow to begin",
        does=({"type": "slow_first_token", "seconds": STALL}, SAYS),
        streamed_only=True,
        budgets=NO_SILENCE,
        category="stalled",
    ),
    Fault(
        name="stalls",
        does=(broken("stall", 3, stall_seconds=STALL), SAYS),
        logged="stream:stall@3",
        streamed_only=True,
        budgets=NO_GAP,
        shown="The capital ",
        category="stalled",
    ),
    Fault(
        name="disconnects",
        does=(broken("disconnect", 3), SAYS),
        logged="stream:disconnect@3",
        streamed_only=True,
        shown="The capital ",
        category="unreachable",
    ),
    Fault(
        name="disconnects in the arguments",
        does=(broken("disconnect", 3), ASKS),
        logged="stream:disconnect@3",
        streamed_only=True,
        category="unreachable",
    ),
    Fault(
        name="sends a chunk that is no JSON",
        does=(broken("malformed", 3), SAYS),
        logged="stream:malformed@3",
        streamed_only=True,
        shown="The capital ",
        category="server_error",
        status=200,
    ),
)  # fmt: skip

TRUNCATED: Final = (
    Fault(
        name="just ends",
        does=(broken("truncate", 3), SAYS),
        logged="stream:truncate@3",
        streamed_only=True,
        shown="The capital ",
        defect="unfinished",
    ),
    Fault(
        name="just ends in the arguments",
        does=(broken("truncate", 3), ASKS),
        logged="stream:truncate@3",
        streamed_only=True,
        defect="unfinished",
    ),
)
"""To leave these at their error is what the verdict calls accepting half an answer."""


def each_way(faults: tuple[Fault, ...]) -> list[object]:
    return [
        pytest.param(fault, stream, id=f"{fault.name}, {'streamed' if stream else 'whole'}")
        for fault in faults
        for stream in (True, False)
        if stream or not fault.streamed_only
    ]


async def ask(
    origin: str,
    surface: Surface,
    text: str = "Where?",
    *,
    stream: bool,
    budgets: StreamBudgets = StreamBudgets(),
) -> ModelTurn:
    request = ModelRequest(
        run_id="r",
        turn_id="t",
        turn=0,
        messages=[user_message(text)],
        tools=[weather.definition],
    )
    model = ChatModel("m", base_url=f"{origin}/v1", stream=stream, budgets=budgets)
    async with model:
        return await model.complete(request, surface.stream())


def check_turn(fault: Fault, turn: ModelTurn, surface: Surface) -> None:
    assert turn.message.get("content") == fault.text
    assert surface.text() == (fault.text or "")
    assert turn.finish_reason == fault.finish_reason
    assert turn.usage.input > 0
    made = [each["function"] for each in turn.message.get("tool_calls", [])]
    assert tuple((each["name"], json.loads(each["arguments"])) for each in made) == fault.calls


def check_error(fault: Fault, error: ProviderError, surface: Surface) -> None:
    assert error.category == (fault.category or "defect")
    assert error.status_code == fault.status
    assert error.retry_after == fault.retry_after
    assert isinstance(error, StreamStalled) == (fault.category == "stalled")
    if fault.defect is not None:
        assert isinstance(error, CompletionDefectError)
        assert error.defect == fault.defect
    assert surface.text() == fault.shown


@pytest.mark.rule("R-PROV-28")
@pytest.mark.parametrize(("fault", "stream"), each_way(FAULTS))
async def test_a_scripted_fault_ends_in_the_right_reply_or_the_right_error(
    fault: Fault, stream: bool, server: Llmock
) -> None:
    server.plan(*fault.does)
    surface = Surface()
    if fault.category is None and fault.defect is None:
        check_turn(fault, await ask(server.origin, surface, stream=stream), surface)
    else:
        with pytest.raises(ProviderError) as caught:
            await ask(server.origin, surface, stream=stream, budgets=fault.budgets)
        check_error(fault, caught.value, surface)
    (record,) = server.served()
    assert (record["fault"], record["stream"]) == (fault.logged, stream)
    assert server.failures() == []


@pytest.mark.rule("R-PROV-28", "R-PROV-07")
@pytest.mark.parametrize(("fault", "stream"), each_way(TRUNCATED))
async def test_half_an_answer_is_an_error_and_can_be_asked_for_again(
    fault: Fault, stream: bool, server: Llmock
) -> None:
    server.plan(*fault.does, SAYS)
    surface, again = Surface(), Surface()
    with pytest.raises(ProviderError) as caught:
        await ask(server.origin, surface, stream=stream)
    check_error(fault, caught.value, surface)
    assert len(server.failures()) == 1  # it would be one, were nobody told
    turn = await ask(server.origin, again, stream=stream)
    assert turn.message["content"] == again.text() == CAPITAL
    assert [record["fault"] for record in server.served()] == [fault.logged, None]
    assert server.pending() == server.failures() == []


# -- a route over two of its providers ---------------------------------------------------------

AT_FIRST: Final[dict[str, object]] = {"match": {"provider": "openai"}}
AT_SECOND: Final[dict[str, object]] = {"match": {"provider": "groq"}}
ALWAYS: Final = SAYS | {"times": None}
ONE_WAY: Final = frozenset({"client_error"})
"""Where it ends, as it would anywhere else."""


async def run_over(
    origin: str, surface: TextSurface, text: str, *, stream: bool, budgets: StreamBudgets
) -> Told:
    """Run an agent over a fresh route: first OpenAI's format at one path, then at Groq's."""
    async with (
        ChatModel("m", base_url=f"{origin}/v1", stream=stream) as first,
        ChatModel("m", base_url=f"{origin}/groq/openai/v1", stream=stream) as second,
    ):
        transports = [
            ModelTransport("openai", {"some/model": first}),
            ModelTransport("groq", {"some/model": second}),
        ]
        model = RoutedModel("some/model", transports, budgets=budgets)
        told, run = Told(), None
        deadline = trio.current_time() + 20
        try:
            async with open_run(
                model, text, tools=[weather], text=surface, deadline=deadline
            ) as run:
                told.events += [event async for event in run.events]
        except HarnessError as error:
            told.error = error
        told.result = None if run is None else run.result
        return told


def check_run(fault: Fault, told: Told, surface: TextSurface) -> None:
    failed = fault.category is not None or fault.defect is not None
    if fault.category in ONE_WAY or (fault.shown and not surface.retractable):
        assert isinstance(told.error, RouteError)
        assert told.error.category == (fault.category or "defect")
        assert told.text == fault.shown
        assert told.resets == []
        return
    assert told.error is None
    assert told.result is not None
    assert told.text == told.result.text == CAPITAL
    assert told.resets == (["attempt_failed"] if fault.shown else [])
    served = "openai" if fault.defect or not failed else "groq"
    assert told.tries[-1] == (served, "served")


@pytest.mark.rule("R-PROV-28")
@pytest.mark.parametrize("surface", [TextSurface(), TextSurface(retractable=False)], ids=repr)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_route_comes_to_the_right_text_or_the_right_error_whatever_fails(
    surface: TextSurface, stream: bool, server: Llmock
) -> None:
    """All faults one after the other, so that the verdict is on the whole of it."""

    async def run(fault: Fault, question: str) -> Told:
        return await run_over(
            server.origin, surface, question, stream=stream, budgets=fault.budgets
        )

    faults = [each for each in FAULTS + TRUNCATED if stream or not each.streamed_only]
    server.plan()
    for number, fault in enumerate(faults):
        shown = attrs.evolve(fault, shown=fault.shown if stream else "")
        behaviours = [{**each, **AT_FIRST} for each in fault.does]
        server.add(*behaviours, ALWAYS | AT_FIRST, ALWAYS | AT_SECOND)
        question = f"Question {number}"
        told = await run(fault, question)
        check_run(shown, told, surface)
        if isinstance(told.error, RouteError) and told.error.kind == "defect":
            # Half an answer that cannot be taken back: a host that is told of it asks again.
            told = await run(fault, question)
            assert told.text == CAPITAL
        assert all(each["times"] is None for each in server.drop_pending())
    log = [record["fault"] for record in server.served() if record["fault"]]
    assert log == [fault.logged for fault in faults if fault.logged]
    assert len(log) >= 10
    assert server.failures() == []


@pytest.mark.rule("R-PROV-12", "R-PROV-28")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_host_that_waits_for_as_long_as_the_error_says_is_served(
    stream: bool, server: Llmock
) -> None:
    server.plan({"type": "fail", "status": 429, "retry_after": 0.3}, SAYS)
    with pytest.raises(ProviderError) as caught:
        await ask(server.origin, Surface(), stream=stream)
    assert caught.value.retry_after == 0.3
    await trio.sleep(caught.value.retry_after)
    turn = await ask(server.origin, Surface(), stream=stream)
    assert turn.message["content"] == CAPITAL
    assert [record["status"] for record in server.served()] == [429, 200]
    assert server.failures() == []


# -- a second opinion --------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Fixture(Fault):
    """What aimock answers to a message that says the name."""

    does: tuple[Behaviour, ...] = ()
    answer: Mapping[str, object]
    how: Mapping[str, object] = attrs.field(factory=dict)
    reasoning: str | None = None

    def rule(self) -> dict[str, object]:
        return {"match": {"userMessage": self.name}, "response": self.answer, **self.how}


def aimock_call(number: int, arguments: object = None) -> dict[str, object]:
    wanted = CALLS[number]["arguments"] if arguments is None else arguments
    return {"id": f"call_{number}", "name": "weather", "arguments": wanted}


SEVEN: Final = {"content": "one two three four five six seven"}
PARTS: Final = {"chunkSize": 8, "latency": 40}

FIXTURES: Final = (
    Fixture(name="plain", answer={"content": CAPITAL}, text=CAPITAL),
    Fixture(
        name="thinking",
        answer={"reasoning": "Let me think.", "content": CAPITAL},
        text=CAPITAL,
        reasoning="Let me think.",
    ),
    Fixture(
        name="calling",
        answer={"toolCalls": [aimock_call(0), aimock_call(1)]},
        calls=tuple((each["name"], each["arguments"]) for each in CALLS),  # type: ignore[misc]  # JSON
        finish_reason="tool_calls",
    ),
    Fixture(
        name="talking between calls",
        answer={
            "blocks": [
                {"type": "toolCall", **aimock_call(0)},
                {"type": "text", "text": "Now Rome."},
                {"type": "toolCall", **aimock_call(1)},
            ]
        },
        text="Now Rome.",
        calls=tuple((each["name"], each["arguments"]) for each in CALLS),  # type: ignore[misc]  # JSON
        finish_reason="tool_calls",
    ),
    Fixture(
        name="half arguments",
        answer={"toolCalls": [aimock_call(0, '{"city": "Par')]},
        defect="malformed_tool_call",
    ),
    Fixture(
        name="busy",
        answer={"error": {"message": "slow down"}, "status": 429, "retryAfter": 2},
        category="rate_limited",
        status=429,
        retry_after=2,
    ),
    Fixture(
        name="broken",
        answer={"error": {"message": "no"}, "status": 500},
        category="server_error",
        status=500,
    ),
    Fixture(
        name="nonsense",
        answer={"content": CAPITAL},
        how={"chaos": {"malformedRate": 1}},
        category="server_error",
        status=200,
    ),
    Fixture(
        name="hanging up at once",
        answer={"content": CAPITAL},
        how={"chaos": {"disconnectRate": 1}},
        category="unreachable",
    ),
    Fixture(
        name="hanging up after a time",
        answer=SEVEN,
        how=PARTS | {"disconnectAfterMs": 100},
        streamed_only=True,
        shown=SEVEN["content"],
        category="unreachable",
    ),
    Fixture(
        name="hanging up after some chunks",
        answer=SEVEN,
        how=PARTS | {"truncateAfterChunks": 3},
        streamed_only=True,
        shown=SEVEN["content"],
        category="unreachable",
    ),
    Fixture(
        name="slow to begin",
        answer=SEVEN,
        how={"streamingProfile": {"ttft": 1000 * STALL, "tps": 50}},
        streamed_only=True,
        budgets=NO_SILENCE,
        category="stalled",
    ),
)


@pytest.fixture(scope="module")
def second_opinion(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    rules = [each.rule() for each in FIXTURES]
    with aimock(rules, tmp_path_factory.mktemp("aimock")) as origin:
        yield origin


@pytest.mark.rule("R-PROV-28")
@pytest.mark.parametrize(("fixture", "stream"), each_way(FIXTURES))
async def test_another_server_s_fault_ends_in_the_right_reply_or_the_right_error(
    fixture: Fixture, stream: bool, second_opinion: str
) -> None:
    surface = Surface()
    if fixture.category is None and fixture.defect is None:
        turn = await ask(second_opinion, surface, fixture.name, stream=stream)
        check_turn(fixture, turn, surface)
        assert turn.reasoning == fixture.reasoning
    else:
        with pytest.raises(ProviderError) as caught:
            await ask(second_opinion, surface, fixture.name, stream=stream, budgets=fixture.budgets)
        # How much of it comes through is a matter of time.
        assert fixture.shown.startswith(surface.text())
        check_error(attrs.evolve(fixture, shown=surface.text()), caught.value, surface)
