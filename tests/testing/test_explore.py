import pytest
import trio
from hypothesis import find, settings

from harness.testing import (
    FindingError,
    ScenarioFailedError,
    Scene,
    VacuousError,
    explore_schedules,
    nothing_started_after_stop,
    schedules,
)


class Order(list[int]):
    """What a scenario did, for the judges."""


async def _race(scene: Scene) -> None:
    order = scene.keep(Order())

    async def arrive(number: int) -> None:
        await trio.sleep(1)
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(arrive, number)


async def _alone(scene: Scene) -> None:
    await trio.sleep(1)


def first_come_first_served(scene: Scene) -> None:
    assert scene.kept(Order) == [0, 1, 2, 3]


def everybody_comes(scene: Scene) -> None:
    assert sorted(scene.kept(Order) or ()) == [0, 1, 2, 3]


@pytest.mark.rule("R-KIT-17")
def test_a_view_that_nothing_would_await_is_refused() -> None:
    async def view(scene: Scene) -> None:
        pass

    with pytest.raises(FindingError, match="view.* returned <coroutine .*, expected a check"):
        explore_schedules(_alone, seeds=[0], same=view)


@pytest.mark.rule("R-KIT-17")
def test_many_seeds_are_many_orders_and_each_is_judged() -> None:
    report = explore_schedules(_race, invariants=[everybody_comes, nothing_started_after_stop])
    assert report.schedules == 20
    assert report.orders > 10


@pytest.mark.rule("R-KIT-17")
def test_a_claim_that_holds_under_some_schedules_only_is_found() -> None:
    explore_schedules(_race, invariants=[first_come_first_served], seeds=[()])
    with pytest.raises(ScenarioFailedError) as caught:
        explore_schedules(_race, invariants=[first_come_first_served])
    assert caught.value.cut is None
    with pytest.raises(ScenarioFailedError):
        explore_schedules(_race, invariants=[first_come_first_served], seeds=[caught.value.seed])  # type: ignore[list-item]


@pytest.mark.rule("R-KIT-17")
def test_hypothesis_shrinks_the_schedule_that_breaks_a_claim() -> None:
    def breaks_the_claim(tape: tuple[int, ...]) -> bool:
        try:
            explore_schedules(_race, invariants=[first_come_first_served], seeds=[tape])
        except ScenarioFailedError:
            return True
        return False

    smallest = find(schedules(choices=8), breaks_the_claim, settings=settings(database=None))
    # Every choice but the last is the plain one: the oldest task goes first.
    assert [*smallest[:-1], smallest[-1]] == [*[0] * (len(smallest) - 1), 1]


@pytest.mark.rule("R-TRIO-21", "R-KIT-17")
def test_a_view_that_depends_on_the_order_is_found() -> None:
    def set_of(scene: Scene) -> object:
        return set(scene.kept(Order) or ())

    assert explore_schedules(_race, same=set_of).orders > 10
    with pytest.raises(
        ScenarioFailedError, match=r"(?s)seed \d led to another view .*\n-\[.*\n\+\["
    ):
        explore_schedules(_race, same=lambda scene: scene.kept(Order))


@pytest.mark.rule("R-KIT-16")
def test_schedules_that_are_all_the_same_show_nothing() -> None:
    with pytest.raises(VacuousError, match="1 courses under 20 schedules, expected at least 2"):
        explore_schedules(_alone)
    assert explore_schedules(_alone, seeds=[0]).orders == 1
    assert explore_schedules(_alone, minimum=1).orders == 1


@pytest.mark.rule("R-KIT-16")
def test_no_schedule_shows_nothing() -> None:
    with pytest.raises(VacuousError, match="0 courses under 0 schedules, expected at least 1"):
        explore_schedules(_race, seeds=())


@pytest.mark.parametrize("minimum", [0, True, 1.0])
def test_a_minimum_is_a_count(minimum: object) -> None:
    with pytest.raises((TypeError, ValueError), match="minimum is"):
        explore_schedules(_race, minimum=minimum)  # type: ignore[arg-type]
