import gc
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest
import trio

from harness.testing import (
    FindingError,
    Invariant,
    ScenarioFailedError,
    Scene,
    UnrepeatableError,
)
from harness.testing._judge import Judge
from harness.testing._play import Step


async def _wait(scene: Scene) -> None:
    await trio.lowlevel.checkpoint()


def _judge(**changes: object) -> Judge:
    return Judge(**{"scenario": _wait, "invariants": (), "raises": (), **changes})  # type: ignore[arg-type]


_COURSE: list[Step] = [("park", "scenario"), ("resume", "scenario")]


def test_a_sound_playing_is_returned() -> None:
    assert _judge().play(0, None).trace == _COURSE
    assert _judge().play(0, None, _COURSE).trace == _COURSE
    assert _judge().play(0, 0, _COURSE).scene.stopped


@pytest.mark.parametrize(
    ("at", "course", "complaint"),
    [
        (None, _COURSE[:1], "step 1 was resume scenario, expected the end as before"),
        (None, [*_COURSE, _COURSE[0]], "step 2 was the end, expected park scenario as before"),
        (None, [_COURSE[0], ("resume", "a")], "step 1 was resume scenario, expected resume a as"),
        (1, [("park", "b"), _COURSE[1]], "step 0 was park scenario, expected park b as before"),
        (5, [*_COURSE, _COURSE[0]], "step 2 was the end, expected park scenario as before"),
    ],
)
def test_another_course_than_before_is_refused(
    at: int | None, course: list[Step], complaint: str
) -> None:
    with pytest.raises(UnrepeatableError, match=f"^under seed 0 {complaint}"):
        _judge().play(0, at, course)


def test_a_course_without_steps_is_a_course_too() -> None:
    with pytest.raises(UnrepeatableError, match="step 0 was park scenario, expected the end as"):
        _judge().play(0, None, [])


async def a_claim_that_is_async(scene: Scene) -> None:
    raise AssertionError("never seen")


def a_claim_that_yields(scene: Scene) -> Iterator[None]:
    yield
    raise AssertionError("never seen")


async def a_claim_that_is_async_and_yields(  # noqa: ASYNC900  # never run, which is the point
    scene: Scene,
) -> AsyncIterator[None]:
    yield  # noqa: ASYNC911
    raise AssertionError("never seen")


_NEVER_RUN = [
    (a_claim_that_is_async, "coroutine"),
    (a_claim_that_yields, "generator"),
    (a_claim_that_is_async_and_yields, "async_generator"),
]


@pytest.mark.rule("R-KIT-13")
@pytest.mark.parametrize(("claim", "kind"), _NEVER_RUN)
@pytest.mark.parametrize("own", [False, True])
def test_a_claim_that_nothing_would_run_is_refused_by_name(
    claim: Invariant, kind: str, own: bool
) -> None:
    async def scenario(scene: Scene) -> None:
        if own:
            scene.afterwards(lambda: None)
            scene.afterwards(partial(claim, scene))

    judge = _judge(scenario=scenario, invariants=() if own else [claim])
    with pytest.raises(
        ScenarioFailedError, match=rf"returned <{kind} object .*>, expected a check"
    ) as caught:
        judge.play(0, None)
    assert claim.__name__ in str(caught.value)
    assert isinstance(caught.value.__cause__, FindingError)
    gc.collect()  # a coroutine that was forgotten warns now


def test_invariants_are_asked_in_order_after_the_scenarios_own_checks() -> None:
    asked: list[str] = []

    async def scenario(scene: Scene) -> None:
        scene.afterwards(lambda: asked.append("own"))

    invariants = [lambda scene: asked.append("first"), lambda scene: asked.append("second")]
    _judge(scenario=scenario, invariants=invariants).play(0, None)
    assert asked == ["own", "first", "second"]


def test_an_expected_error_is_judged_like_any_other_end() -> None:
    async def fail(scene: Scene) -> None:
        raise BaseExceptionGroup("both", [ValueError("a"), ExceptionGroup("c", [KeyError("b")])])

    def complain(scene: Scene) -> None:
        assert scene.outcome != "raised"

    playing = _judge(scenario=fail, raises=(ValueError, KeyError)).play(0, None)
    assert playing.scene.outcome == "raised"
    with pytest.raises(ScenarioFailedError, match="BaseExceptionGroup|ExceptionGroup: both"):
        _judge(scenario=fail, raises=ValueError).play(0, None)
    with pytest.raises(ScenarioFailedError, match="assert 'raised' != 'raised'"):
        _judge(scenario=fail, raises=(ValueError, KeyError), invariants=[complain]).play(0, None)
