import pytest

from harness.testing import Scene
from harness.testing._scene import SceneOutcome


def test_a_kept_object_is_found_by_its_class_and_its_base() -> None:
    scene = Scene()
    scene.keep([1])
    error = scene.keep(KeyError("x"))
    assert scene.kept(KeyError) is error
    assert scene.kept(LookupError) is error


def test_a_second_object_of_one_class_is_refused() -> None:
    scene = Scene()
    scene.keep([1])
    with pytest.raises(ValueError, match="a second list was kept, expected one per class"):
        scene.keep([2])


def test_a_scene_that_completed_without_keeping_it_is_an_error_of_the_scenario() -> None:
    with pytest.raises(LookupError, match="no dict was kept"):
        Scene().kept(dict)


@pytest.mark.parametrize("outcome", ["cancelled", "raised"])
def test_a_scene_that_was_cut_before_keeping_it_has_none(outcome: SceneOutcome) -> None:
    scene = Scene()
    scene.outcome = outcome
    assert scene.kept(dict) is None


def test_work_that_starts_is_noted_with_whether_the_stop_had_come() -> None:
    scene = Scene()
    scene.started("before")
    scene.stop(lambda: scene.started("during"))
    scene.started("after")
    assert [(each.name, each.after_stop) for each in scene.starts] == [
        ("before", False),
        ("during", True),
        ("after", True),
    ]


def test_a_stop_cancels_unless_the_scenario_chose_something_else() -> None:
    done: list[str] = []
    scene = Scene()
    scene.stop(lambda: done.append("cancel"))
    assert scene.act is None
    chosen = Scene()

    def act() -> None:
        done.append("act")

    chosen.on_cut(act)
    chosen.stop(lambda: done.append("cancel"))
    assert chosen.act is act
    assert done == ["cancel", "act"]


def test_checks_are_called_in_order_and_may_be_decorated() -> None:
    scene, called = Scene(), list[int]()

    @scene.afterwards
    def first() -> None:
        called.append(1)

    scene.afterwards(lambda: called.append(2))
    scene.judge()
    first()
    assert called == [1, 2, 1]
