import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

from harness.testing import (
    CutReport,
    RecordingSink,
    RunHarness,
    Scene,
    ScheduleReport,
    final_answer,
    run_virtual,
)
from tests.testing import plugin_sample

ROOT: Final = Path(__file__).resolve().parents[2]
SAMPLE: Final = Path(__file__).with_name("plugin_sample.py")
CONFTEST: Final = 'pytest_plugins = ["harness.testing.pytest_plugin"]\n'
# Unlike this suite, the sample leaves warnings as they come: the plugin has to be strict itself.
OPTIONS: Final = "[pytest]\ntrio_mode = true\n"


def _pytest(directory: Path, *options: str) -> str:
    """Run the sample in a process of its own; return what it printed."""
    shutil.copy(SAMPLE, directory / "test_sample.py")
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "pytest.ini").write_text(OPTIONS)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options]
    storage = {"PYTHONPATH": str(ROOT), "HYPOTHESIS_STORAGE_DIRECTORY": str(directory)}
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **storage},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return done.stdout


def _ends(output: str) -> Iterator[tuple[str, str]]:
    """Yield each test and each way it ended: one may pass and then fail in its tear-down."""
    yield from re.findall(r"(?m)^test_sample\.py::(\S+) (PASSED|FAILED|ERROR|SKIPPED)", output)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _pytest(tmp_path_factory.mktemp("sample"))


def _named(start: str) -> list[str]:
    return sorted(name for name in vars(plugin_sample) if name.startswith(start))


def _section(output: str, name: str) -> str:
    """Return what was printed about the failure of one test."""
    heading = rf"^__+ (?:ERROR at teardown of )?{name} __+$"
    found = re.search(rf"(?ms){heading}(.*?)(?=^__+ \w|^==+ )", output)
    assert found, f"no failure of {name}"
    return found[1]


@pytest.mark.rule("R-KIT-20")
@pytest.mark.parametrize("name", _named("test_passes"))
def test_a_sound_test_passes(output: str, name: str) -> None:
    ends = {end for test, end in _ends(output) if test.partition("[")[0] == name}
    assert ends == {"PASSED"}


@pytest.mark.rule("R-KIT-20")
@pytest.mark.parametrize("name", _named("test_fails"))
def test_a_test_that_hangs_or_leaves_something_fails(output: str, name: str) -> None:
    ends = {end for test, end in _ends(output) if test == name}
    assert ends & {"FAILED", "ERROR"}


@pytest.mark.rule("R-KIT-20")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("test_fails_by_deadlock", r"every task waits and nothing can wake one"),
        ("test_fails_by_deadlock", r"<test 'test_fails_by_deadlock'>, test_sample.py:\d+ in"),
        ("test_fails_by_deadlock_behind_a_shield", r"every task waits"),
        ("test_fails_by_a_task", r"left behind, expected nothing: task trio\.sleep_forever"),
        ("test_fails_by_a_thread", r"threads still run, expected none: \['a lingering thread'\]"),
        ("test_fails_by_a_suspended_generator", r"async generator numbers"),
        ("test_fails_by_a_dropped_generator", r"was garbage collected before"),
        ("test_fails_by_an_unawaited_coroutine", r"coroutine 'sleep' was never awaited"),
        ("test_fails_by_a_socket", r"unclosed <socket"),
        ("test_fails_by_a_socket_in_a_cycle", r"unclosed <socket"),
    ],
)
def test_the_failure_says_what_was_left(output: str, name: str, complaint: str) -> None:
    assert re.search(complaint, _section(output, name))


@pytest.mark.rule("R-KIT-20")
def test_an_error_alone_in_its_groups_is_shown_as_itself(output: str) -> None:
    section = _section(output, "test_fails_plainly")
    assert re.search(r"(?m)^E +ValueError: only this$", section)
    assert "ExceptionGroup" not in section
    assert re.search(r"(?m)^\s*\| ExceptionGroup", _section(output, "test_fails_with_several"))


@pytest.mark.rule("R-KIT-20")
def test_the_seed_is_shown_at_the_top_and_with_each_failure(output: str) -> None:
    assert re.search(r"(?m)^trio scheduler seed: 0$", output)
    assert "--trio-seed=0" in _section(output, "test_fails_plainly")


@pytest.mark.rule("R-KIT-20", "R-TRIO-21")
def test_several_seeds_run_each_async_test_once_for_each(tmp_path: Path) -> None:
    output = _pytest(tmp_path, "--trio-seed=3", "--trio-seed=8", "-k", "passes")
    assert re.search(r"(?m)^trio scheduler seed: 3, 8$", output)
    ends = list(_ends(output))
    assert {end for _, end in ends} == {"PASSED"}
    names = [name for name, _ in ends]
    for name in _named("test_passes"):
        runs = [each for each in names if each.partition("[")[0] == name]
        seeds = {found for each in runs for found in re.findall(r"seed\d", each)}
        is_async = name not in {
            "test_passes_with_a_thread_that_is_just_ending",
            "test_passes_when_its_mark_allows_the_leak",
            "test_passes_under_hypothesis",  # which has seeds of its own
            "test_passes_as_an_async_test_under_hypothesis",
        }
        assert seeds == ({"seed3", "seed8"} if is_async else set())


# -- fixtures ----------------------------------------------------------------------------------


async def _sleep(scene: Scene) -> None:
    await trio.sleep(1)


def test_the_fixtures_do_what_the_functions_do(
    cancel_everywhere: Callable[..., CutReport],
    explore_schedules: Callable[..., ScheduleReport],
    run_harness: Callable[..., RunHarness],
    recording_sink: Callable[..., RecordingSink],
    run_virtual: Callable[..., object],
) -> None:
    assert cancel_everywhere(_sleep).cuts == (3,)
    assert explore_schedules(_sleep, minimum=1).schedules == 20
    assert run_virtual(run_harness([final_answer("x")]).run)
    assert recording_sink().events == []


def test_the_fixtures_play_under_the_seed_of_the_session(
    run_virtual: Callable[..., object], trio_seed: int
) -> None:
    assert run_virtual(plugin_sample.the_order) == _order_under(trio_seed)


def _order_under(seed: int) -> object:
    return run_virtual(plugin_sample.the_order, seed=seed)
