import pytest
import trio

from harness.testing import DeadlockError, LeftoverError, Scene
from harness.testing._play import BEFORE_START, Playing, play


async def _wait_twice(scene: Scene) -> None:
    await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()


def _played(at: int | None = None, *, locate: bool = False) -> Playing:
    playing = Playing(seed=0, at=at, locate=locate)
    play(_wait_twice, playing)
    return playing


@pytest.mark.rule("R-KIT-12")
def test_uncut_every_moment_is_in_the_trace() -> None:
    playing = _played()
    assert playing.trace == [(moment, "scenario") for moment in ("park", "resume") * 2]
    assert (playing.scene.outcome, playing.scene.stopped) == ("completed", False)


@pytest.mark.rule("R-KIT-12")
@pytest.mark.parametrize("at", [BEFORE_START, 0, 1, 2, 3])
def test_a_playing_ends_its_trace_with_the_cut(at: int) -> None:
    playing = _played(at)
    assert len(playing.trace) == at + 1
    assert (playing.scene.outcome, playing.scene.stopped) == ("cancelled", True)


def test_places_are_noted_only_when_asked_for() -> None:
    assert _played().places == []
    places = _played(2, locate=True).places
    assert [place.split(", ")[0] for place in places] == [
        "park scenario",
        "resume scenario",
        "park scenario",
    ]
    assert "_wait_twice" in places[0]


def test_tasks_of_one_name_are_told_apart_by_number() -> None:
    async def three(scene: Scene) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(trio.lowlevel.checkpoint)

    playing = Playing(seed=(), at=None)
    play(three, playing)
    names = list(dict.fromkeys(name for _, name in playing.trace))
    assert names == ["scenario", *(f"trio.lowlevel.checkpoint#{n}" for n in (1, 2, 3))]


def test_tasks_that_are_not_the_scenarios_are_not_counted() -> None:
    async def beside(scene: Scene) -> None:
        done = trio.Event()

        async def elsewhere() -> None:
            for _ in range(5):
                await trio.lowlevel.checkpoint()
            done.set()

        trio.lowlevel.spawn_system_task(elsewhere)
        await done.wait()

    playing = Playing(seed=0, at=None)
    play(beside, playing)
    assert {name for _, name in playing.trace} == {"scenario"}
    assert len(playing.trace) == 2


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)])
def test_what_the_scenario_raises_is_in_the_scene(error: BaseException) -> None:
    async def fail(scene: Scene) -> None:
        raise error

    playing = Playing(seed=0, at=None)
    play(fail, playing)
    assert playing.scene.outcome == "raised"
    assert playing.scene.error is error


def test_what_hangs_or_leaves_something_behind_is_raised() -> None:
    async def hang(scene: Scene) -> None:
        await trio.sleep_forever()

    async def leave(scene: Scene) -> None:
        trio.lowlevel.spawn_system_task(trio.sleep_forever)

    with pytest.raises(DeadlockError):
        play(hang, Playing(seed=0, at=None))
    with pytest.raises(LeftoverError):
        play(leave, Playing(seed=0, at=None))


def test_an_act_that_raises_is_raised_when_the_run_is_over() -> None:
    error = RuntimeError("the act is broken")

    async def scenario(scene: Scene) -> None:
        def act() -> None:
            raise error

        scene.on_cut(act)
        await trio.sleep(1)

    with pytest.raises(RuntimeError) as caught:
        play(scenario, Playing(seed=0, at=0))
    assert caught.value is error
