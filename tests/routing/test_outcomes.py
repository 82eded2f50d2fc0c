"""What tries and routes end with: values that are checked where they are made."""

import math

import attrs
import pytest

from harness.routing import AttemptFailure, AttemptSuccess, Hedge
from tests.routing.routes import failure


@pytest.mark.rule("R-HEDGE-01", "R-HEDGE-02")
@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"after": -1.0}, ValueError, "^after is -1.0, expected seconds that are not negative$"),
        ({"after": math.nan}, ValueError, "^after is nan, "),
        ({"after": math.inf}, ValueError, "^after is inf, "),
        ({"after": True}, TypeError, "^after is True, "),
        ({"after": 1.0, "most": 1}, ValueError, "^most is 1, expected at least 2$"),
        ({"after": 1.0, "most": 2.0}, TypeError, "^most is 2.0, expected an int$"),
    ],
)
def test_a_hedge_out_of_its_bounds_is_refused(
    fields: dict[str, int], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Hedge(**fields)


@pytest.mark.rule("R-EXEC-02")
def test_a_failure_is_checked_where_it_is_made() -> None:
    with pytest.raises(TypeError, match="^AttemptFailure.error is 'no', expected an AttemptError"):
        AttemptFailure("no")  # type: ignore[arg-type]  # what is being tested
    with pytest.raises(TypeError, match="^AttemptFailure.produced_output is 1, expected a bool"):
        AttemptFailure(failure("defect"), produced_output=1)  # type: ignore[arg-type]  # as above


def test_successes_and_failures_are_values() -> None:
    assert AttemptSuccess([1]) == AttemptSuccess([1])
    error = failure("defect")
    assert AttemptFailure(error) == AttemptFailure(error, produced_output=False)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        AttemptFailure(error).produced_output = True  # type: ignore[misc]  # what is being tested
