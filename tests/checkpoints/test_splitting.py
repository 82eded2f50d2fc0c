"""A run that is split anywhere is the run that was not split."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.testing import run_virtual
from tests.checkpoints.splits import PLAIN, Plan, plans, play_in_pieces, play_whole


@pytest.mark.rule("R-CKPT-09", "R-CKPT-13", "R-CKPT-23")
@settings(max_examples=60)
@given(plans)
def test_a_run_split_at_every_boundary_is_the_unsplit_run(plan: Plan) -> None:
    assert run_virtual(play_in_pieces, plan, None) == run_virtual(play_whole, plan)


@pytest.mark.rule("R-CKPT-09")
@settings(max_examples=60)
@given(plans, st.sets(st.integers(1, 12)))
def test_a_run_split_at_any_boundaries_is_the_unsplit_run(plan: Plan, splits: set[int]) -> None:
    assert run_virtual(play_in_pieces, plan, splits) == run_virtual(play_whole, plan)


@pytest.mark.rule("R-CKPT-07")
def test_every_boundary_of_the_kernel_is_a_commit() -> None:
    whole, pieces = run_virtual(play_whole, PLAIN), run_virtual(play_in_pieces, PLAIN, set())
    assert pieces.boundaries == whole.boundaries == 9
    assert pieces == whole
