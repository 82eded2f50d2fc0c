"""A pytest plugin for tests on trio, beside pytest-trio.

Switch it on in the top-level ``conftest.py``, or with ``pytest -p harness.testing.pytest_plugin``::

    pytest_plugins = ["harness.testing.pytest_plugin"]

It then holds for every test:

* tasks run in one fixed order, that of ``--trio-seed`` (0 unless given), which is shown at the
  top and with every failure; given several times, async tests are run once for each;
* a deadlock under a mock clock that jumps ends with the list of what each task waited for,
  instead of spinning for ever;
* a test fails if it leaves a task, a working thread, a suspended async generator or an unclosed
  resource behind (a ``filterwarnings`` mark on the test can allow the last);
* an error that comes wrapped in groups of one is shown as itself.

And there are fixtures: `cancel_everywhere`, `explore_schedules` and `run_virtual` with the
seed filled in, and `run_harness` and `recording_sink` as they are.

An async test under Hypothesis's ``given`` is run by pytest-trio itself and is not watched. Write
it as a synchronous test that calls `run_virtual`, which watches by itself.
"""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable, Generator, Iterator
from typing import Final

import pytest
import trio

import harness.testing as kit
from harness.testing._leftovers import busy_threads
from harness.testing._schedule import schedule
from harness.testing._virtual import run_watched

__all__: list[str] = []

_MOMENTS: Final = 300
_MOMENT: Final = 0.01
"""Seconds, so many times, that a thread has to end before it counts as left."""

_STRICT: Final = (
    "error::ResourceWarning",
    "error:coroutine .* was never awaited:RuntimeWarning",
    "error::pytest.PytestUnraisableExceptionWarning",
    "error::pytest.PytestUnhandledThreadExceptionWarning",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--trio-seed``."""
    parser.getgroup("harness").addoption(
        "--trio-seed",
        action="append",
        type=int,
        metavar="N",
        help="the order in which trio runs its tasks; several times: each async test for each",
    )


def _seeds(config: pytest.Config) -> list[int]:
    seeds: list[int] | None = config.getoption("--trio-seed")
    return seeds or [0]


def pytest_report_header(config: pytest.Config) -> str:
    """Show the seed."""
    return f"trio scheduler seed: {', '.join(map(str, _seeds(config)))}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat async tests, and those that ask for the seed, if there are several."""
    seeds = _seeds(metafunc.config)
    asks = "trio_seed" in inspect.signature(metafunc.function).parameters
    if len(seeds) > 1 and (asks or inspect.iscoroutinefunction(metafunc.function)):
        metafunc.parametrize("trio_seed", seeds, ids=lambda seed: f"seed{seed}", indirect=True)


@pytest.hookimpl(trylast=True)  # after pytest-trio has marked what it will run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have async tests run under watch, and leaks be errors. A test's own marks win."""
    for item in items:
        for rule in _STRICT:
            item.add_marker(pytest.mark.filterwarnings(rule), append=False)
        runs = [mark.kwargs.get("run") for mark in item.iter_markers("trio")]
        if runs and all(run in (None, trio.run) for run in runs):
            item.add_marker(pytest.mark.trio(run=run_watched), append=False)


@pytest.hookimpl(tryfirst=True)  # before pytest collects for the last time
def pytest_unconfigure() -> None:
    """Take back what was set aside after each test."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Show an error that is alone in its group, and in that one's group, as itself."""
    __tracebackhide__ = True
    try:
        return (yield)
    except BaseExceptionGroup as group:
        error = _innermost(group)
        if error is group:
            raise
        raise error from error.__cause__


def _innermost(error: BaseException) -> BaseException:
    """Return what is in groups of one, or the first group that has more in it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with a failure how to have the same order again."""
    report = yield
    if report.failed and isinstance(item, pytest.Function) and "trio_seed" in item.funcargs:
        report.sections.append(("trio scheduler", f"--trio-seed={item.funcargs['trio_seed']}"))
    return report


@pytest.fixture(scope="session")
def trio_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the order in which trio runs its tasks."""
    seed: int = getattr(request, "param", _seeds(request.config)[0])
    return seed


@pytest.fixture(autouse=True)
def _watched(trio_seed: int) -> Iterator[None]:
    """Fix the schedule, and look for what was left."""
    known = busy_threads()
    with schedule(trio_seed):
        yield
    # What is unclosed says so now, and not in the middle of some other test. What is still there
    # is set aside, or every collection would go through all that was left by those before it.
    gc.collect()
    gc.freeze()
    left = busy_threads(known)
    for _ in range(_MOMENTS):
        if not left:
            return
        left[0].join(_MOMENT)
        left = busy_threads(known)
    pytest.fail(
        f"threads still run, expected none: {[thread.name for thread in left]}", pytrace=False
    )


@pytest.fixture(scope="session", name="cancel_everywhere")
def _cancel_everywhere(trio_seed: int) -> Callable[..., kit.CutReport]:
    return functools.partial(kit.cancel_everywhere, seeds=(trio_seed,))


@pytest.fixture(scope="session", name="explore_schedules")
def _explore_schedules() -> Callable[..., kit.ScheduleReport]:
    return kit.explore_schedules


@pytest.fixture(scope="session", name="run_virtual")
def _run_virtual(trio_seed: int) -> Callable[..., object]:
    return functools.partial(kit.run_virtual, seed=trio_seed)


@pytest.fixture(scope="session", name="run_harness")
def _run_harness() -> Callable[..., kit.RunHarness]:
    return kit.run_harness


@pytest.fixture(scope="session", name="recording_sink")
def _recording_sink() -> Callable[..., kit.RecordingSink]:
    return kit.recording_sink
