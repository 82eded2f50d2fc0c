"""Short ways to write the script of a run, and to read what became of its calls."""

from collections.abc import Iterable

from harness import JSON, Message, ModelTurn, RunState
from harness._json import decode
from harness.events import CallRejected, Event, ToolStarted
from harness.testing import final_answer, tool_call, tool_call_turn

__all__ = ["DONE", "answers", "kinds", "named", "rejected", "started"]

DONE = final_answer("Done.")


def named(*names: str, text: str | None = None) -> ModelTurn:
    """Return a turn that calls these tools; each call's id is its tool's name and its place."""
    calls = [tool_call(name, id=f"{name}-{place}") for place, name in enumerate(names)]
    return tool_call_turn(calls, text)


def answers(messages: Iterable[Message]) -> dict[str, dict[str, JSON]]:
    """Return the envelope of each result, by call id, in the order of the results."""
    found: dict[str, dict[str, JSON]] = {}
    for message in messages:
        if message["role"] == "tool":
            content = message["content"]
            assert isinstance(content, str)
            envelope = decode(content)
            assert isinstance(envelope, dict)
            found[message["tool_call_id"]] = envelope
    return found


def kinds(messages: Iterable[Message]) -> dict[str, str]:
    """Return how each call was answered: completed, failed, interrupted or not_run."""
    return {call: _kind(envelope) for call, envelope in answers(messages).items()}


def _kind(envelope: dict[str, JSON]) -> str:
    kind = envelope.get("kind")
    if envelope["success"]:
        return "completed"
    return str(kind) if kind in ("not_run", "interrupted") else "failed"


def rejected(events: Iterable[Event]) -> list[tuple[str | None, str]]:
    """Return which call each report of a rejection names, and the kind of its failure."""
    reports = [event for event in events if isinstance(event, CallRejected)]
    return [(report.call_id, report.failure.kind) for report in reports]


def started(events: Iterable[Event]) -> list[tuple[str, float]]:
    """Return which calls started, and when, in that order."""
    return [(event.call_id, event.at) for event in events if isinstance(event, ToolStarted)]


def one_batch(*names: str) -> list[ModelTurn]:
    """A turn that calls *names*, with numbered ids, and an answer."""
    return [tool_call_turn([tool_call(name) for name in names]), final_answer("Done.")]


def results(state: RunState) -> list[str]:
    """What each answer says of its call: ok, error, or the failure's kind."""
    said = []
    for each in state.messages:
        if each["role"] == "tool":
            text = str(each["content"])
            kinds = [kind for kind in ("not_run", "interrupted") if f'"kind":"{kind}"' in text]
            said.append(kinds[0] if kinds else "ok" if '"success":true' in text else "error")
    return said
