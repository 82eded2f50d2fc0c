import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.completion._progress import PROGRESS_INTERVAL, ProgressGate


@pytest.mark.rule("R-LOOP-17")
def test_ten_thousand_reports_in_a_second_become_six() -> None:
    gate = ProgressGate()
    told = [gate.report(count, now=100 + count / 10_000) for count in range(1, 10_001)]
    told.append(gate.last())
    counts = [count for count in told if count is not None]
    assert len(counts) <= 6
    assert counts[0] == 1
    assert counts[-1] == 10_000


@pytest.mark.rule("R-LOOP-17")
def test_what_was_told_is_not_told_again_at_the_end() -> None:
    gate = ProgressGate()
    assert gate.last() is None
    assert gate.report(3, now=0.0) == 3
    assert gate.last() is None
    assert gate.report(4, now=0.1) is None
    assert gate.report(5, now=0.25) == 5
    assert gate.last() is None


@pytest.mark.rule("R-LOOP-17")
@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 9)), max_size=40))
def test_reports_are_far_apart_and_end_with_the_newest(
    reports: list[tuple[float, int]],
) -> None:
    gate, now, told = ProgressGate(), 0.0, []
    for step, count in reports:
        now += step
        found = gate.report(count, now)
        if found is not None:
            assert found == count
            told.append((now, found))
    for (before, _), (after, _) in itertools.pairwise(told):
        assert after >= before + PROGRESS_INTERVAL
    newest = gate.last()
    shown = [count for _, count in told] + ([] if newest is None else [newest])
    assert shown[-1:] == [count for _, count in reports][-1:]
    assert gate.last() is None
