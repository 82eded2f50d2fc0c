"""A deadline that several pieces of work share, for hosts that do more than one run.

It is a point on trio's clock and owns no timer, so there is nothing to dispose of.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import attrs
import trio

from harness._bounds import check_seconds
from harness._errors import RunTimeoutError

__all__ = ["RunDeadline", "classify_run_failure"]


@attrs.define(eq=False)
class RunDeadline:
    """So many seconds from now, under a name.

    Args:
        timeout: seconds, positive and finite.
        label: whose time it is; stands in the error.
    """

    timeout: float = attrs.field()
    label: str
    at: float = attrs.field(init=False)
    """The trio time."""

    @timeout.validator
    def _check_timeout(self, _: object, value: object) -> None:
        check_seconds("RunDeadline.timeout", value, zero=False)

    def __attrs_post_init__(self) -> None:
        self.at = trio.current_time() + self.timeout

    @property
    def timed_out(self) -> bool:
        """Whether the time has come; stays true."""
        return trio.current_time() >= self.at

    def raise_if_timed_out(self) -> None:
        """Return if there is time left. Is no checkpoint.

        Raises:
            RunTimeoutError: there is none.
        """
        if self.timed_out:
            raise RunTimeoutError(self.label)

    @contextmanager
    def scope(self) -> Iterator[trio.CancelScope]:
        """Bound a block. A cancellation from outside passes through.

        Raises:
            RunTimeoutError: the deadline ended the block.
        """
        with trio.CancelScope(deadline=self.at) as scope:
            yield scope
        if scope.cancelled_caught:
            raise RunTimeoutError(self.label)


def classify_run_failure(
    deadline: RunDeadline, error: BaseException
) -> Literal["timed_out", "failed"]:
    """Say whether *error* ended a run because of the time; any `RunTimeoutError` in it counts.

    The caller deals with its own cancellation first.
    """
    return "timed_out" if deadline.timed_out or _has_timeout(error) else "failed"


def _has_timeout(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_has_timeout(each) for each in error.exceptions)
    return isinstance(error, RunTimeoutError)
