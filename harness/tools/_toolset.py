"""A list of tools, as the toolset of a run.

It resolves names and passes each call on. A name that it does not know is answered, not raised:
a transcript may tell of tools that have since been retired, and models make names up. It asks
nobody for approval and has nothing to activate; wrappers do these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from harness._errors import MissingPortError, ToolDefinitionError, loses_track
from harness._json import JSON
from harness._messages import Message
from harness._toolset import Admission, Batch, CallContext, CallPolicy, Outcome, ToolCall, Toolset
from harness.tools._definition import HostT, Tool
from harness.tools._faults import listed
from harness.tools._normalize import normalize_call
from harness.tools._results import render_outcome, unsupported_type

__all__ = ["ToolList", "as_toolset"]

_NAME = 100
"""How much of a name that a model made up is repeated to it."""


class ToolList:
    """Some tools, each under its own name, in their order."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for each in tools:
            if not isinstance(each, Tool):
                raise ToolDefinitionError(
                    getattr(each, "__name__", repr(each)), f"it is {each!r}, expected a Tool"
                )
            if each.name in self._tools:
                raise ToolDefinitionError(each.name, "two tools have this name, expected one")
            self._tools[each.name] = each
        self._definitions = tuple(each.definition for each in self._tools.values())

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in order."""
        return tuple(self._tools.values())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {list(self._tools)}>"

    def definitions(self) -> tuple[dict[str, JSON], ...]:
        """Return each tool's definition; the same objects every time."""
        return self._definitions

    def policy(self, call: ToolCall) -> CallPolicy:
        """Return the tool's policy; for a name that is not here, that of an undeclared call."""
        known = self._tools.get(call.name) if call.type == "function" else None
        return CallPolicy.default(call) if known is None else known.policy

    async def admit(self, batch: Batch) -> Admission:
        """Let every call run. No checkpoint."""
        return Admission()

    def normalize(self, call: ToolCall) -> ToolCall | Outcome:
        """Return *call* with its arguments as its tool normalizes them, or why it cannot be.

        `execute` does this to every call that was not normalized here before. Who needs to see
        the arguments first passes on to `execute` what this returns.
        """
        known = self._tools.get(call.name) if call.type == "function" else None
        return call if known is None else normalize_call(call, known.normalize)

    async def execute(self, call: ToolCall, context: CallContext[HostT]) -> Outcome:
        """Run the tool that *call* names, or fail with ``not_found``; see `Tool.execute`.

        Its arguments are normalized first, if its tool does that and they were not yet.

        A call that asked a question and now has its reply completes with the reply's value; its
        function is not called again, unless the tool `resumes`.
        """
        known = self._tools.get(call.name)
        if context.reply is not None and not (known is not None and known.resumes):
            return Outcome.completed(context.reply.value)
        if call.type != "function":
            return unsupported_type(call.type)
        if known is None:
            name = call.name if len(call.name) <= _NAME else f"{call.name[:_NAME]}…"
            return Outcome.failed(
                f"no tool is called {name!r}, expected {listed(tuple(self._tools))}", "not_found"
            )
        normal = self.normalize(call)
        if isinstance(normal, Outcome):
            return normal
        return await known.execute(normal.arguments, context)

    async def activate(self, outcome: Outcome) -> None:
        """Say that there is nothing to activate.

        Raises:
            MissingPortError: always.
        """
        raise MissingPortError("activate")

    def render(self, call: ToolCall, outcome: Outcome) -> Message:
        """Return the envelope as a tool message."""
        return render_outcome(call, outcome)

    def fatal(self, error: BaseException) -> bool:
        """Whether *error* is one of a store: what was done is then not known, and a model that is
        told of a failure would do it again. No other error of a tool ends the run.
        """
        return loses_track(error)


def as_toolset(tools: Toolset | Iterable[Tool]) -> Toolset:
    """Return *tools* if it is a toolset, or the toolset of the tools in it.

    Raises:
        ToolDefinitionError: something in it is no tool, or two have one name.
    """
    if callable(getattr(tools, "definitions", None)):
        return cast("Toolset", tools)
    if isinstance(tools, Tool) or not isinstance(tools, Iterable):
        name = getattr(tools, "name", repr(tools))
        raise ToolDefinitionError(name, f"it is {tools!r}, expected a list of tools or a toolset")
    return ToolList(tools)
