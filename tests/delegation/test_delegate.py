"""What an agent is made of."""

import math
from typing import cast

import pytest

from harness import Limits
from harness.delegation import ChainRule, Delegate
from tests.delegation.trees import Plays


@pytest.mark.rule("R-CHILD-13")
def test_an_agent_needs_a_name_a_description_and_a_model() -> None:
    made = Delegate(name="clerk", description="Pays.", model=Plays([]))
    assert (made.limits, made.rule, made.time_limit) == (Limits(), ChainRule(), None)
    assert (made.tools, made.instructions, made.limiters, made.compactor) == ((), None, None, None)


@pytest.mark.rule("R-CHILD-13", "R-GEN-06")
@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, True, "3"])
def test_a_time_limit_is_a_finite_time(seconds: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^Delegate\.time_limit is .*, expected "):
        Delegate(name="clerk", description="", model=Plays([]), time_limit=cast(float, seconds))
