"""The three runs of the demo, and what was seen of them.

A demo that prints what ought to happen proves nothing. Every sentence of this one that claims
something is a `Claim`, made of what was observed: by the run's events, on trio's clock, or by the
server that answers. A claim that was not seen is printed as such, and the demo fails.

Where the abort and the deadline fall depends on how fast the machine is, so they are aimed: the
abort at a count of pieces of text, the deadline at the pace of the run before. A run that was
faster still is no evidence, and is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs
import trio

from harness._cli._show import Show, shortened
from harness._events import Event, RunFinished, TextDelta, ToolFinished
from harness._messages import Message, system_message, user_message
from harness._model import Halt, Model, ModelRequest, ModelTurn, TurnStream
from harness.kernel import Run, open_run
from harness.tools import Tool
from harness.transcript import check_anthropic, check_openai, check_settled

__all__ = [
    "Claim",
    "Endpoint",
    "Played",
    "Sight",
    "Stage",
    "ToolFirst",
    "Watch",
    "play_abort",
    "play_deadline",
    "play_whole",
    "transcript_claim",
    "transcript_lines",
]

PATIENCE = 60.0
"""Seconds for a run that is expected to end by itself."""
ABORT_AT = 5
"""Which piece of text the abort follows."""
TRIES = 3
IDLE_WITHIN = 5.0
"""Seconds that the server gets to notice that nobody listens any more."""
MESSAGES = (
    system_message("Answer in two sentences, from the text you are given."),
    user_message("Why does bread rise?"),
)


class Watch(Protocol):
    """Sees from outside of a run whether its request is being worked on."""

    @property
    def at_work(self) -> str:
        """What is seen while a request is worked on; a clause."""
        ...

    @property
    def at_rest(self) -> str:
        """What it is seen to be afterwards; a word."""
        ...

    async def busy(self) -> bool:
        """Whether a request is being worked on now."""
        ...

    async def wait_idle(self) -> None:
        """Return once none is."""
        ...


@attrs.frozen(kw_only=True)
class Endpoint:
    """A model, and what watches it."""

    model: Model
    watch: Watch
    about: str
    """A line that says what it is."""


@attrs.frozen(kw_only=True)
class Stage:
    """What the runs are made of, and where they are shown."""

    endpoint: Endpoint
    tools: Sequence[Tool]
    show: Show
    say: Callable[[str], None]
    """Prints a line beside what `show` prints."""


@attrs.frozen
class Claim:
    """A sentence about a run, and whether it was seen to be true."""

    text: str
    seen: bool


@attrs.frozen
class ToolFirst:
    """Makes a model call a tool on a run's first turn, and answer on the second.

    A model of this size would rarely think of a tool by itself.
    """

    _model: Model

    async def complete(self, request: ModelRequest, stream: TurnStream) -> ModelTurn | Halt:
        """Return the model's completion of the request, with our tool choice in it."""
        choice = "required" if request.turn == 0 else "none"
        return await self._model.complete(attrs.evolve(request, tool_choice=choice), stream)


@attrs.define
class Sight:
    """What the events of one run have told so far; times in seconds from its start."""

    begun: float = attrs.field(factory=trio.current_time)
    pieces: int = 0
    """Pieces of text."""
    first_text: float = 0.0
    last_text: float = 0.0
    tools: int = 0
    """Calls that ran to their end."""
    finished: float = 0.0

    def note(self, event: Event) -> None:
        """Count *event*."""
        since = event.at - self.begun
        match event:
            case TextDelta():
                self.first_text = since if self.pieces == 0 else self.first_text
                self.last_text = since
                self.pieces += 1
            case ToolFinished(outcome="completed"):
                self.tools += 1
            case RunFinished():
                self.finished = since


@attrs.frozen
class Played:
    """A run that was shown."""

    claims: tuple[Claim, ...]
    sight: Sight


async def play_whole(stage: Stage) -> Played:
    """Show a run from its start to its end. A checkpoint."""
    sight = Sight()
    async with _open(stage, sight.begun + PATIENCE) as run:
        async for event in run.events:
            stage.show.event(event)
            sight.note(event)
    done = run.result.stop_reason == "done"
    claims = (
        Claim("a tool was called and ran to its end", sight.tools > 0),
        Claim("the answer came piece by piece, and the run was done", done and sight.pieces > 1),
        transcript_claim(run.state.messages),
    )
    return Played(claims, sight)


async def play_abort(stage: Stage) -> Played:
    """Show a run that is aborted in the middle of its answer. A checkpoint."""
    played, early = await _abort_once(stage)
    for _ in range(TRIES - 1):
        if not early:
            break
        stage.say("the answer was over before the abort: once more")
        played, early = await _abort_once(stage)
    return played


async def play_deadline(stage: Stage, seconds: float) -> Played:
    """Show a run whose deadline comes after *seconds*, or less if it is too fast. A checkpoint."""
    played, early = await _deadline_once(stage, seconds)
    for _ in range(TRIES - 1):
        if not early:
            break
        seconds /= 2
        stage.say(f"the run was done before its deadline: once more, with {seconds:.2f} s")
        played, early = await _deadline_once(stage, seconds)
    return played


async def _abort_once(stage: Stage) -> tuple[Played, bool]:
    """Return what was seen, and whether the run ended before it could be aborted."""
    sight = Sight()
    cut: _Cut | None = None
    async with _open(stage, sight.begun + PATIENCE) as run:
        async for event in run.events:
            stage.show.event(event)
            sight.note(event)
            if sight.pieces == ABORT_AT and cut is None:
                cut = await _cut(stage, run)
    reason, messages = run.result.stop_reason, run.state.messages
    if reason != "aborted":
        cut = None  # it came too late, whatever was seen then
    for line in transcript_lines(messages):
        stage.say(line)
    claims = (
        _settled(cut),
        _freed(stage.endpoint.watch, cut),
        transcript_claim(messages),
    )
    return Played(claims, sight), reason == "done"


@attrs.frozen(kw_only=True)
class _Cut:
    """An abort as it was seen; times in seconds from it."""

    busy: bool
    """The server was working on the request at that moment."""
    settled: float
    idle: float | None
    """None: not within `IDLE_WITHIN`."""


async def _cut(stage: Stage, run: Run) -> _Cut:
    busy = await stage.endpoint.watch.busy()
    begun = trio.current_time()
    run.abort("the demo shows a stop")
    await run.wait()
    settled = trio.current_time() - begun
    with trio.move_on_after(IDLE_WITHIN) as waiting:
        await stage.endpoint.watch.wait_idle()
    idle = None if waiting.cancelled_caught else trio.current_time() - begun
    return _Cut(busy=busy, settled=settled, idle=idle)


def _settled(cut: _Cut | None) -> Claim:
    text = "the abort fell into the answer, and the run was settled"
    if cut is None:
        return Claim(text, False)
    return Claim(f"{text} {_ms(cut.settled)} later", True)


def _freed(watch: Watch, cut: _Cut | None) -> Claim:
    text = f"{watch.at_work} at the abort, and {watch.at_rest}"
    if cut is None or not cut.busy or cut.idle is None:
        return Claim(f"{text} after it", False)
    return Claim(f"{text} {_ms(cut.idle)} after it", True)


async def _deadline_once(stage: Stage, seconds: float) -> tuple[Played, bool]:
    """Return what was seen, and whether the run ended before its deadline."""
    sight = Sight()
    async with _open(stage, sight.begun + seconds) as run:
        async for event in run.events:
            stage.show.event(event)
            sight.note(event)
    reason = run.result.stop_reason
    where = "in the middle of the answer" if sight.pieces else "before the answer had begun"
    late = _ms(sight.finished - seconds)
    text = f"the deadline of {seconds:.2f} s ended the run {where}, and it was settled {late} later"
    claims = (
        Claim(text if reason == "deadline" else "the deadline ended the run", reason == "deadline"),
        transcript_claim(run.state.messages),
    )
    return Played(claims, sight), reason == "done"


def _open(stage: Stage, deadline: float) -> AbstractAsyncContextManager[Run]:
    return open_run(ToolFirst(stage.endpoint.model), MESSAGES, tools=stage.tools, deadline=deadline)


def transcript_claim(messages: Sequence[Message]) -> Claim:
    """Whether *messages* are settled, and may be sent on to either kind of provider.

    A transcript is sent on with a new message of the user, and that is how it is checked.
    """
    going_on = [*messages, user_message("And why does it stop?")]
    refusals = [*check_settled(messages), *check_openai(going_on), *check_anthropic(going_on)]
    if refusals:
        return Claim(f"its transcript is valid; but {refusals[0].text}", False)
    return Claim("its transcript is settled, and either kind of provider would take it", True)


def transcript_lines(messages: Sequence[Message]) -> list[str]:
    """One line for each message."""
    return [f"{message['role']:<10} {shortened(_said(message), 80)}" for message in messages]


def _said(message: Message) -> str:
    calls = [call["function"] for call in message.get("tool_calls", ())]
    called = [f"{call['name']}({call['arguments']})" for call in calls]
    content = message.get("content")
    return " ".join([*([content] if isinstance(content, str) and content else []), *called])


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
