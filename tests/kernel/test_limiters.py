"""Permits of pools."""

import math

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from harness import Limiters
from harness.testing import Scene, cancel_everywhere, run_virtual


@pytest.mark.rule("R-GEN-06", "R-BATCH-01")
@pytest.mark.parametrize("value", [True, math.nan, math.inf, -1, 0, 1.5])
def test_every_number_of_permits_is_checked(value: int) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^Limiters\.default is "):
        Limiters(value)
    with pytest.raises((TypeError, ValueError), match=r"^Limiters\.total is "):
        Limiters(total=value)
    with pytest.raises((TypeError, ValueError), match=r"^Limiters\.pools\['a'\] is "):
        Limiters(pools={"a": value})


@pytest.mark.rule("R-BATCH-01", "R-BATCH-14")
@given(
    claims=st.lists(
        st.tuples(st.sampled_from(["a", "b", None]), st.floats(0, 2), st.floats(0, 2)), max_size=15
    ),
    default=st.integers(1, 3),
    total=st.none() | st.integers(1, 3),
)
def test_no_limit_is_ever_passed_and_nothing_is_left(
    claims: list[tuple[str | None, float, float]], default: int, total: int | None
) -> None:
    async def main() -> None:
        limiters = Limiters(default, total=total)
        held: dict[str | None, int] = {"a": 0, "b": 0, None: 0}

        async def hold(pool: str | None, delay: float, seconds: float) -> None:
            await trio.sleep(delay)
            permit = limiters.permit(pool)
            with trio.move_on_after(3):
                await permit.take()
                held[pool] += 1
                assert max(held["a"], held["b"]) <= default
                assert held["a"] + held["b"] <= (total or 99)
                try:
                    await trio.sleep(seconds)
                finally:
                    held[pool] -= 1
                    permit.release()

        async with trio.open_nursery() as nursery:
            for claim in claims:
                nursery.start_soon(hold, *claim)
        assert limiters.borrowed == 0
        assert limiters._pools == {}

    run_virtual(main)


@pytest.mark.rule("R-BATCH-01", "R-PROM-01")
def test_a_claim_can_be_cancelled_everywhere_and_takes_nothing_then() -> None:
    async def scenario(scene: Scene) -> None:
        limiters = Limiters(1, total=1)

        @scene.afterwards
        def none_held() -> None:
            assert limiters.borrowed == 0
            assert limiters._pools == {}

        async def hold() -> None:
            permit = limiters.permit("a")
            await permit.take()
            try:
                await trio.sleep(1)
            finally:
                permit.release()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            nursery.start_soon(hold)

    assert cancel_everywhere(scenario, seeds=range(3), minimum=14).cancelled


@pytest.mark.rule("R-BATCH-01")
async def test_a_permit_is_free_or_it_is_not(autojump_clock: MockClock) -> None:
    limiters = Limiters(1, total=5)
    first, second, other = (limiters.permit(pool) for pool in ("a", "a", "b"))
    assert first.take_nowait()
    assert not second.take_nowait()
    assert other.take_nowait()
    assert limiters.borrowed == 2
    assert repr(limiters) == "<Limiters default=1 total=5 borrowed=2>"
    first.release()
    other.release()
    assert limiters.borrowed == 0
