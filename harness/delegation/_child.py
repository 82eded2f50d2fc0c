"""A child run inside the call that asked for it.

A child is a run like any other: its own transcript, limits and tools. What makes it a child is
where it runs. It is opened and awaited in the call's own task, so it cannot outlive the call, and
what stops the call stops the child. The call waits for other calls, so it takes no permit: two
levels that share a limiter would wait for each other.

What a child tells is passed on as it is told, in the same step: no task stands between, so nothing
is lost, and the order is that in which it happened, among siblings too. Each level puts the
agent's name before the path, and there is one wrapper, however deep.

Measuring, judging and beginning are one step as well. Nothing is awaited between the question
whether there is room for another child and its being counted, so two calls cannot both find the
last free place.

The call's effect is ``resumable``. If the process dies, the turn is made again, and its call runs
the child once more from the beginning: under the same run id, so that receipts around the child's
tools answer what had been done. A child that asked a question goes on where it stood instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Final

import attrs
import msgspec
import trio

from harness._chain import ChainRef
from harness._errors import RecordError, RunUseError
from harness._events import CallRejected, ChildEvent, Event, Failure
from harness._messages import system_message, user_message
from harness._toolset import CallContext, Outcome
from harness.delegation._admission import ChildAdmitted, ChildRefused, admit_child_run
from harness.delegation._delegate import Delegate
from harness.delegation._ending import outcome_of_child
from harness.delegation._lineage import child_run_id, descend_chain, root_chain
from harness.delegation._question import paused_child
from harness.kernel import (
    Budget,
    Emitter,
    RunOptions,
    RunState,
    RunStats,
    as_model,
    open_run,
)
from harness.tools import Tool, as_toolset, define_tool

__all__ = ["UNNAMED_ROOT", "as_tool"]

UNNAMED_ROOT: Final = "(root)"
"""Stands in a path for a run that was opened without a chain; no tool can have this name."""


class _Task(msgspec.Struct):
    task: Annotated[
        str,
        msgspec.Meta(
            pattern=r"\S",
            description="What to do. The agent knows nothing of this conversation but this text.",
        ),
    ]


def as_tool(delegate: Delegate) -> Tool:
    """Return a tool whose calls are runs of *delegate*: it takes a task, and answers the result.

    A call is a checkpoint. A cancellation ends the child and all below it before the call ends,
    their transcripts settled. A child that asks something has the call ask it.

    Raises:
        ToolDefinitionError: the name is none of a tool, or its tools are none.
        TypeError: its model is none.
    """
    as_model(delegate.model)
    as_toolset(delegate.tools)

    async def call(task: _Task, context: CallContext[object]) -> Outcome:
        return await _call(delegate, task.task, context)

    return define_tool(
        delegate.name,
        delegate.description,
        schema=_Task,
        execute=call,
        resumes=True,
        pool=None,
        effect="resumable",
        shielded=False,
    )


async def _call(delegate: Delegate, task: str, context: CallContext[object]) -> Outcome:
    run_id = child_run_id(delegate.name, context.batch, context.call)
    stats = RunStats()
    if context.reply is None:
        state = _first(delegate, task, run_id)
    else:
        try:
            paused = paused_child(context.reply.payload)
            if paused.agent != delegate.name:
                raise RecordError(f"it is a child of {paused.agent!r}, expected {delegate.name!r}")
        except RecordError as error:  # nothing was begun: the call has failed, and the run goes on
            return Outcome.failed(str(error), "system")
        state = paused.go_on(run_id, context.reply.value)
        stats.fold_leg(paused.checkpoint.head.stats)
    budget, chain = _caller(context)
    # From here to the run's beginning nothing is awaited: what was measured is so.
    verdict = _judge(delegate, chain, budget, state)
    if isinstance(verdict, ChildRefused):
        failure = Failure(kind="ChildRefused", code=verdict.code, message=verdict.text)
        context.tell(CallRejected(call_id=context.call.id, failure=failure))
        return Outcome.failed(verdict.text, verdict.kind)
    options = _options(delegate, context, budget, verdict.chain)
    async with open_run(delegate.model, state, **options) as child:
        await child.wait()
    stats.fold_leg(child.result.stats)
    result = attrs.evolve(child.result, stats=stats)
    return outcome_of_child(delegate.name, result, delegate.limits)


def _options(
    delegate: Delegate, context: CallContext[object], budget: Budget, chain: ChainRef
) -> RunOptions:
    """Return what a child is opened with."""
    seconds = math.inf if delegate.time_limit is None else delegate.time_limit
    options: RunOptions = {
        "tools": delegate.tools,
        "context": context.host,
        "limits": delegate.limits,
        "deadline": trio.current_time() + seconds,
        "budget": budget,
        "limiters": delegate.limiters,
        "events": _Forwarding(delegate.name, context.call.id, context.tell),
        "chain": chain,
    }
    if delegate.compactor is not None:
        options["compactor"] = delegate.compactor
    return options


def _first(delegate: Delegate, task: str, run_id: str) -> RunState:
    said = [] if delegate.instructions is None else [system_message(delegate.instructions)]
    return RunState(run_id=run_id, messages=[*said, user_message(task)])


def _caller(context: CallContext[object]) -> tuple[Budget, ChainRef]:
    """Return the ledger and the lineage of the run that calls."""
    budget, chain = context.budget, context.chain
    if not isinstance(budget, Budget):
        raise RunUseError(f"the call's budget is {budget!r}, expected the ledger of a run")
    if chain is None:
        return budget, root_chain(context.batch.run_id, UNNAMED_ROOT)
    if chain.run_id != context.batch.run_id:
        text = f"the chain of run {context.batch.run_id!r} is that of {chain.run_id!r}"
        raise RunUseError(f"{text}, expected its own")
    return budget, chain


def _judge(
    delegate: Delegate, chain: ChainRef, budget: Budget, state: RunState
) -> ChildAdmitted | ChildRefused:
    """Admit the child; one that goes on was admitted when it began."""
    if state.leg:
        return ChildAdmitted(chain=descend_chain(chain, state.run_id, delegate.name))
    return admit_child_run(
        chain,
        delegate.name,
        delegate.rule,
        run_id=state.run_id,
        live_children=budget.live_children,
        runs_in_tree=_root_of(budget, chain.depth).runs,
    )


def _root_of(budget: Budget, depth: int) -> Budget:
    """Return the ledger of the tree's root, *depth* levels up; ledgers above it are the host's."""
    for _ in range(depth):
        assert budget.parent is not None
        budget = budget.parent
    return budget


@attrs.define(eq=False)
class _Forwarding(Emitter):
    """Passes on what a child tells, at once, to the run whose call it is in."""

    _agent: str
    _call_id: str
    _tell: Callable[[Event], None]

    @property
    def has_readers(self) -> bool:
        """True: only the caller's run knows who reads."""
        return True

    def send_nowait(self, event: Event) -> None:
        """Tell *event* as the caller's own. Never waits."""
        path: tuple[str, ...] = (self._agent,)
        if isinstance(event, ChildEvent):
            path, event = (*path, *event.path), event.event
        self._tell(ChildEvent(path=path, call_id=self._call_id, event=event))
