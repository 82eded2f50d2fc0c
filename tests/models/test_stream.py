"""A turn's stream as an inner model sees it."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import cast

import attrs
import pytest

from harness import (
    Assembly,
    Attempt,
    ModelTurn,
    StreamBudgets,
    TurnStream,
    Usage,
    assistant_message,
)
from harness._model import ResetReason
from harness.events import Event, FlushDue
from harness.models import ForwardingStream

RETRY: ResetReason = "structured_output_retry"
FAILED: ResetReason = "attempt_failed"
TURN = ModelTurn(message=assistant_message("a"))
KEEP = Assembly(ids="keep")
SHORT, LONG = StreamBudgets(gap=1), StreamBudgets(gap=100)


@attrs.define(eq=False)
class Noting:
    """A turn's stream that notes what reaches it."""

    produced_output: bool = False
    assembly: Assembly = KEEP
    budgets: StreamBudgets = LONG
    noted: list[object] = attrs.field(factory=list)
    numbers: list[int | None] = attrs.field(factory=list)

    def number_attempt(self) -> int:
        return 7

    def attempt(
        self,
        reason: ResetReason | None = None,
        budgets: StreamBudgets | None = None,
        number: int | None = None,
    ) -> AbstractAsyncContextManager[Attempt]:
        self.noted.append((reason, budgets))
        self.numbers.append(number)
        return cast("AbstractAsyncContextManager[Attempt]", nullcontext())

    def progress(self, output_tokens: int) -> None:
        self.noted.append(output_tokens)

    def tell(self, event: Event) -> None:
        self.noted.append(event)

    def spend(self, usage: Usage) -> None:
        self.noted.append(usage)

    def drop(self, turn: ModelTurn, reason: ResetReason) -> None:
        self.noted.append((turn, reason))


@pytest.mark.rule("R-OUT-06")
@pytest.mark.parametrize("own", [None, SHORT])
@pytest.mark.parametrize("given", [None, LONG])
def test_every_attempt_gets_the_budgets_unless_it_has_its_own(
    own: StreamBudgets | None, given: StreamBudgets | None
) -> None:
    stream = Noting()
    view = ForwardingStream(stream, budgets=own)
    assert view.budgets == (own or LONG)
    for _ in range(2):
        view.attempt(budgets=given)
    assert stream.noted == [(None, given or own)] * 2


@pytest.mark.rule("R-OUT-06")
def test_of_two_views_the_inner_one_counts() -> None:
    stream = Noting()
    outer = ForwardingStream(stream, LONG)
    ForwardingStream(outer, SHORT).attempt()
    ForwardingStream(outer).attempt(FAILED)
    assert stream.noted == [(None, SHORT), (FAILED, LONG)]
    assert outer.opened == 2


def test_everything_else_is_the_streams_own() -> None:
    stream = Noting()
    view: TurnStream = ForwardingStream(stream)
    view.progress(3)
    view.tell(FlushDue())
    view.spend(Usage(output=1))
    view.drop(TURN, RETRY)
    assert stream.noted == [3, FlushDue(), Usage(output=1), (TURN, RETRY)]
    view.attempt(number=view.number_attempt())
    view.attempt()
    assert stream.numbers == [7, None]
    assert view.assembly is stream.assembly
    assert not view.produced_output
    stream.produced_output = True
    assert view.produced_output
