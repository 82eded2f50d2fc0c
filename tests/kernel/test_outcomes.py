"""What leaves a tool, and what it is taken for."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import product
from typing import get_args

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from harness._messages import INTERRUPTED_TEXT
from harness.kernel import OUTCOME_ROWS
from harness.kernel._outcomes import (
    Left,
    judge_outcome,
    time_limit_text,
    what_was_raised,
)

LEFT: tuple[Left, ...] = get_args(Left)
PRODUCT = tuple(product(LEFT, (False, True)))

KIND = {
    ("exception", False): "failed",
    ("exception", True): "failed",
    ("fatal", False): "interrupted",
    ("fatal", True): "interrupted",
    ("cancellation", False): "failed",
    ("cancellation", True): "interrupted",
    ("exit", False): "interrupted",
    ("exit", True): "interrupted",
    ("cut", False): "interrupted",
    ("cut", True): "interrupted",
}


def trio_cancellation() -> BaseException:
    """Return a cancellation that trio made."""
    caught: list[BaseException] = []

    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as cancelled:
                caught.append(cancelled)
                raise

    trio.run(main)
    return caught[0]


# -- the table ---------------------------------------------------------------------------------


@pytest.mark.rule("R-OUTCOME-01")
def test_every_way_to_leave_has_one_row_with_and_without_a_stop() -> None:
    assert sorted((row.left, row.stopped) for row in OUTCOME_ROWS) == sorted(PRODUCT)


@pytest.mark.rule("R-OUTCOME-01")
@pytest.mark.parametrize(("left", "stopped"), PRODUCT)
def test_each_row_gives_the_outcome_it_says(left: Left, stopped: bool) -> None:
    error = ValueError("the reason") if left in ("exception", "fatal") else None
    outcome, row = judge_outcome(left, stopped=stopped, error=error, time_limit=2.5)
    assert (row.left, row.stopped) == (left, stopped)
    assert outcome.kind == KIND[left, stopped]
    assert (outcome.kind == "interrupted") == (outcome.failure_kind == "interrupted")
    assert outcome.error
    assert outcome.suspend is None
    assert not any((outcome.activates, outcome.compact, outcome.abandoned))


@pytest.mark.rule("R-OUTCOME-01")
@pytest.mark.parametrize(("left", "stopped"), PRODUCT)
def test_only_a_fatal_error_and_an_exit_end_the_run(left: Left, stopped: bool) -> None:
    _, row = judge_outcome(left, stopped=stopped, error=ValueError())
    assert row.ends_run == (left in ("fatal", "exit"))


@pytest.mark.rule("R-OUTCOME-01")
def test_nothing_that_left_a_tool_counts_as_done_or_as_never_begun() -> None:
    assert {row.kind for row in OUTCOME_ROWS} == {"failed", "interrupted"}


@pytest.mark.parametrize("stopped", [False, True])
def test_an_error_is_told_in_its_own_words_and_without_a_kind(stopped: bool) -> None:
    outcome, _ = judge_outcome("exception", stopped=stopped, error=ValueError("no such file"))
    assert (outcome.error, outcome.failure_kind) == ("no such file", None)


def test_a_call_past_its_own_limit_is_told_the_limit_and_a_stopped_one_is_not() -> None:
    past, _ = judge_outcome("cut", stopped=False, time_limit=2.5)
    stopped, _ = judge_outcome("cut", stopped=True, time_limit=2.5)
    assert past.error == time_limit_text(2.5)
    assert "2.5 s" in past.error
    assert stopped.error == INTERRUPTED_TEXT


def test_a_time_limit_that_is_not_known_is_told_without_a_number() -> None:
    assert not any(character.isdigit() for character in time_limit_text(None))


def test_a_stray_cancellation_fails_the_call_as_a_fault_of_the_system() -> None:
    outcome, _ = judge_outcome("cancellation", stopped=False)
    assert outcome.failure_kind == "system"


@pytest.mark.parametrize(("left", "stopped"), PRODUCT)
def test_only_an_interrupted_call_can_have_left_its_thread_behind(
    left: Left, stopped: bool
) -> None:
    outcome, _ = judge_outcome(left, stopped=stopped, error=ValueError(), abandoned=True)
    assert outcome.abandoned == (outcome.kind == "interrupted")


# -- what was raised ---------------------------------------------------------------------------

SINGLE: dict[Left, tuple[Callable[[], BaseException], ...]] = {
    "exception": (ValueError, lambda: OSError("gone"), TimeoutError, StopAsyncIteration),
    "exit": (KeyboardInterrupt, SystemExit, GeneratorExit, BaseException),
    "cancellation": (trio_cancellation, asyncio.CancelledError),
}


@pytest.mark.parametrize(
    ("kind", "make"), [(kind, make) for kind, makers in SINGLE.items() for make in makers]
)
def test_a_single_error_is_an_exception_an_exit_or_a_cancellation(
    kind: Left, make: Callable[[], BaseException]
) -> None:
    assert what_was_raised(make()) == kind


raised: st.SearchStrategy[BaseException] = st.recursive(
    st.sampled_from([ValueError(), KeyboardInterrupt(), SystemExit(), asyncio.CancelledError()]),
    lambda inner: st.lists(inner, min_size=1, max_size=4).map(
        lambda members: BaseExceptionGroup("several", members)
    ),
    max_leaves=8,
)


def leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


@pytest.mark.rule("R-OUTCOME-02")
@given(raised)
def test_a_group_is_the_gravest_of_its_leaves_however_deep(error: BaseException) -> None:
    found = list(leaves(error))
    if any(isinstance(each, KeyboardInterrupt | SystemExit) for each in found):
        assert what_was_raised(error) == "exit"
    elif any(isinstance(each, Exception) for each in found):
        assert what_was_raised(error) == "exception"
    else:
        assert what_was_raised(error) == "cancellation"


def test_a_cancellation_of_trios_beside_an_error_does_not_count() -> None:
    group = BaseExceptionGroup("both", [trio_cancellation(), ValueError("the cause")])
    assert what_was_raised(group) == "exception"


# -- the text of an error ----------------------------------------------------------------------


def told(error: Exception) -> str:
    """Return what a model is told of *error*."""
    outcome, _ = judge_outcome("exception", stopped=False, error=error)
    return outcome.error


class _SilentError(Exception):
    def __str__(self) -> str:
        return ""


class _RaisingError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class _NoTextError(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]  # noqa: PLE0307  # as foreign code does


class _RecursiveError(Exception):
    def __str__(self) -> str:
        return str(self)


@pytest.mark.parametrize(
    "hostile", [_SilentError, _RaisingError, _NoTextError, _RecursiveError, ValueError]
)
@pytest.mark.rule("R-LOOP-23")
def test_an_error_without_a_usable_text_is_told_by_its_class(hostile: type[Exception]) -> None:
    assert told(hostile()) == hostile.__name__


@pytest.mark.rule("R-LOOP-23")
@given(st.integers(0, 4_100))
def test_the_text_of_an_error_is_cut_at_2000_characters(length: int) -> None:
    text = "".join(chr(97 + place % 26) for place in range(length))
    assert told(ValueError(text)) == (text[:2_000] or "ValueError")


@pytest.mark.rule("R-LOOP-23")
def test_the_text_of_an_error_can_be_told_whatever_it_holds() -> None:
    assert told(ValueError("half of a pair: \ud800")) == "half of a pair: ?"


def test_an_interrupt_while_a_text_is_made_is_not_swallowed() -> None:
    class InterruptingError(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told(InterruptingError())
