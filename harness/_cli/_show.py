"""Events as a person reads them: the answer as it comes, a line per call, and how it ended."""

from __future__ import annotations

from typing import Protocol, TextIO

import attrs

from harness._events import (
    AssistantMessage,
    AttemptFinished,
    AttemptStarted,
    CallRejected,
    Event,
    Failure,
    RunFinished,
    TextDelta,
    TextReset,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    Tried,
    encode_event,
)

__all__ = ["JsonLines", "Lines", "Show", "Styles"]


class Show(Protocol):
    """Something that shows events."""

    def event(self, event: Event) -> None:
        """Show one event."""
        ...


@attrs.frozen(kw_only=True)
class Styles:
    """Terminal styles; empty when the output is no terminal."""

    dim: str = ""
    good: str = ""
    bad: str = ""
    strong: str = ""
    plain: str = ""

    @classmethod
    def of(cls, output: TextIO) -> Styles:
        """Return the styles that *output* can show."""
        if not output.isatty():
            return cls()
        return cls(
            dim="\x1b[2m", good="\x1b[32m", bad="\x1b[31m", strong="\x1b[1m", plain="\x1b[0m"
        )


@attrs.define(eq=False)
class JsonLines:
    """One event a line, as `encode_event` writes it."""

    _output: TextIO

    def event(self, event: Event) -> None:
        self._output.write(encode_event(event).decode() + "\n")
        self._output.flush()


@attrs.define(eq=False)
class Lines:
    """Text and lines for a terminal or a pipe."""

    _output: TextIO
    _styles: Styles = attrs.field(
        default=attrs.Factory(lambda self: Styles.of(self._output), takes_self=True)
    )
    _in_text: bool = attrs.field(default=False, init=False)
    """The last thing written was text without a line end."""
    _told: set[str] = attrs.field(factory=set, init=False)
    """Turns whose text was shown as it came."""
    _arguments: dict[str, str] = attrs.field(factory=dict, init=False)

    def event(self, event: Event) -> None:
        match event:
            case TextDelta(turn_id=turn_id, text=text):
                self._told.add(turn_id)
                self._text(text)
            case TextReset():
                self._line("(the text above is void; the model starts again)", self._styles.dim)
            case AssistantMessage(turn_id=turn_id, text=text) if turn_id not in self._told:
                self._text(text)
            case ToolCallDelta(call_id=call_id, arguments=arguments):
                self._arguments[call_id] = self._arguments.get(call_id, "") + arguments
            case ToolStarted(call_id=call_id, name=name):
                arguments = self._arguments.get(call_id, "")
                self._line(f"· {name} {shortened(arguments)}".rstrip(), self._styles.dim)
            case ToolFinished():
                self._tool_finished(event)
            case AttemptStarted(tried=tried) if tried.attempt:
                self._line(f"→ {_beginning(tried)}", self._styles.dim)
            case AttemptFinished(tried=tried, failure=failure) if failure is not None:
                self._line(f"✗ {_where(tried)}: {_why(failure)}", self._styles.bad)
            case AttemptFinished(tried=tried, outcome="superseded"):
                self._line(f"· {_where(tried)} was slower and is given up", self._styles.dim)
            case CallRejected(call_id=call_id, failure=failure):
                where = "" if call_id is None else f" {call_id}"
                self._line(f"! rejected{where}: {shortened(failure.message)}", self._styles.bad)
            case RunFinished():
                self._finished(event)
            case _:
                pass  # everything else is progress that a person does not read

    def _tool_finished(self, event: ToolFinished) -> None:
        good = event.outcome == "completed"
        mark, style = ("✓", self._styles.good) if good else ("✗", self._styles.bad)
        what = event.outcome if event.failure_kind in (None, event.outcome) else event.failure_kind
        thread = ", its thread still runs" if event.abandoned else ""
        self._line(f"{mark} {event.name} {what} ({event.duration:.2f} s{thread})", style)

    def _finished(self, event: RunFinished) -> None:
        usage = event.usage
        figures = [
            f"{event.turns} turns",
            f"{event.tool_calls} calls",
            f"{usage.input} + {usage.output} tokens",
        ]
        if usage.cost_cents:
            figures.append(f"{usage.cost_cents:.2f} cents")
        self._line(f"{event.stop_reason}: {', '.join(figures)}", self._styles.strong)
        if event.failure is not None:
            self._line(f"{event.failure.kind}: {event.failure.message}", self._styles.bad)

    def _text(self, text: str) -> None:
        text = harmless(text)
        self._output.write(text)
        self._output.flush()
        self._in_text = not text.endswith("\n")

    def _line(self, text: str, style: str) -> None:
        if self._in_text:
            self._output.write("\n")
            self._in_text = False
        end = self._styles.plain if style else ""
        self._output.write(f"{style}{text}{end}\n")
        self._output.flush()


def _where(tried: Tried) -> str:
    return f"{harmless(tried.provider_model)} at {tried.provider}"


def _beginning(tried: Tried) -> str:
    if tried.hedge:
        return f"trying {_where(tried)} beside it"
    return f"trying {_where(tried)} {'again' if tried.retry else 'instead'}"


def _why(failure: Failure) -> str:
    status = "" if failure.status_code is None else f" ({failure.status_code})"
    return f"{failure.category or failure.kind}{status}: {shortened(failure.message)}"


def harmless(text: str) -> str:
    """Return *text* without control characters: what a model says may not steer a terminal."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for each in text
    )


def shortened(text: str, limit: int = 100) -> str:
    """Return *text* in one line of at most *limit* characters."""
    line = harmless(" ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
