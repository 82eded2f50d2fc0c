"""How this suite waits and looks at clocks: in virtual time, and at trio's alone."""

import ast
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import pytest
import trio

from harness.testing import (
    RUN_INVARIANTS,
    RunHarness,
    Scene,
    cancel_everywhere,
    explore_schedules,
    failing_tool,
    final_answer,
    run_harness,
    slow_tool,
    streamed,
    timed,
    tool_call,
    tool_call_turn,
)
from tests.fences import EDGES

TESTS: Final = Path(__file__).resolve().parent.parent
FILES: Final = sorted(TESTS.rglob("*.py"))

REAL_TIME: Final = {
    "audited_run.py": "one of its tools runs in a thread",
    "cli": "processes and servers of their own",
    "mcp": "processes and servers of their own",
    "providers": "a real server",
    "receipts/test_lease.py": "a process that is stopped, and that wakes up too late",
    "stores": "a database, real threads and processes",
    "test_postgres.py": "a real server",
    "test_shield.py": "a sleep in a scope that has been cancelled",
    "testing/plugin_sample.py": "a sleep that is never awaited",
    "torture": "processes that are killed",
    "tools/test_thread.py": "a thread that has to be caught at the right moment",
}
"""Where waiting takes real time, and what for; a folder or a file."""

SLEEPS: Final = frozenset({"trio.sleep", "trio.sleep_until"})
CLOCKS: Final = frozenset({"autojump_clock"})


async def _busy_run(scene: Scene) -> None:
    calls = [tool_call("first"), tool_call("slow"), tool_call("graceful"), tool_call("fail")]
    kit = run_harness(
        [timed(1, tool_call_turn(calls)), streamed(final_answer("Done."), size=2)],
        tools=[
            slow_tool(1, "first", serial=True),
            slow_tool(2),
            slow_tool(3, "graceful", grace=1, time_limit=5),  # no two end in the same instant
            failing_tool(ValueError("no")),
        ],
        scene=scene,
    )
    async with kit.open(deadline=trio.current_time() + 60) as run:
        scene.on_cut(run.abort)
        await run.wait()


# -- waiting -----------------------------------------------------------------------------------


def real_waits(tree: ast.Module) -> Iterator[str]:
    """Yield the calls of a test file that may take real time."""
    for node in ast.walk(tree):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if name == "time.sleep":
            yield f"line {node.lineno}: time.sleep"  # type: ignore[attr-defined]  # a call
        elif name.endswith("MockClock") and isinstance(node, ast.Call):
            jumps = [word.arg for word in node.keywords] == ["autojump_threshold"]
            if not jumps:
                yield f"line {node.lineno}: a clock that does not jump"
        elif isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield from _sleeps_of(node)


def _sleeps_of(test: ast.AsyncFunctionDef) -> Iterator[str]:
    if CLOCKS & {argument.arg for argument in (*test.args.args, *test.args.kwonlyargs)}:
        return
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS:
            yield f"line {node.lineno}: {test.name} sleeps, and has no clock that jumps"


def _excuse(file: Path) -> str | None:
    place = file.relative_to(TESTS).as_posix()
    return next((each for each in REAL_TIME if place == each or place.startswith(f"{each}/")), None)


@pytest.mark.rule("R-TRIO-20")
def test_no_test_waits_in_real_time_without_a_reason() -> None:
    waits = {file: list(real_waits(ast.parse(file.read_bytes()))) for file in FILES}
    assert {str(file): found for file, found in waits.items() if found and not _excuse(file)} == {}
    assert {_excuse(file) for file, found in waits.items() if found} - {None} == set(REAL_TIME)


@pytest.mark.parametrize(
    "text",
    [
        "import time\ndef test_x():\n    time.sleep(1)",
        "async def test_x():\n    await trio.sleep(1)",
        "async def test_x():\n    async def child():\n        await trio.sleep(1)",
        "class TestX:\n    async def test_x(self, mock_clock):\n        await trio.sleep_until(5)",
        "clock = MockClock(rate=10)",
        "clock = trio.testing.MockClock()",
        "clock = trio.testing.MockClock(rate=10, autojump_threshold=0)",
    ],
)
def test_a_real_wait_is_seen(text: str) -> None:
    assert list(real_waits(ast.parse(text)))


def test_a_virtual_wait_is_fine() -> None:
    text = """
        async def test_x(autojump_clock):
            await trio.sleep(1)

        async def scenario(scene):
            await trio.sleep(1)

        def test_y():
            trio.run(scenario, clock=MockClock(autojump_threshold=0))
    """
    assert not list(real_waits(ast.parse(textwrap.dedent(text))))


@pytest.mark.rule("R-TRIO-20")
def test_an_hour_of_a_run_takes_no_time() -> None:
    async def scenario(scene: Scene) -> None:
        kit = run_harness(
            [timed(1200, tool_call_turn([tool_call("slow")])), final_answer("Done.")],
            tools=[slow_tool(2400)],
        )
        assert (await kit.run(deadline=trio.current_time() + 9999)).stop_reason == "done"
        assert trio.current_time() == 3600

    started = time.perf_counter()
    explore_schedules(scenario, seeds=[0])
    assert time.perf_counter() - started < 5


# -- order -------------------------------------------------------------------------------------


@pytest.mark.rule("R-TRIO-21")
def test_what_a_run_does_and_tells_is_the_same_under_every_schedule() -> None:
    def what_stands(scene: Scene) -> object:
        kit = scene.kept(RunHarness)
        assert kit is not None
        return kit.states[0].messages, kit.ran, kit.side_effects, kit.events

    report = explore_schedules(
        _busy_run, invariants=RUN_INVARIANTS, seeds=range(20), same=what_stands
    )
    assert report.orders > 10


# -- clocks ------------------------------------------------------------------------------------

_CLOCK_METHODS: Final = frozenset(
    {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
)


def clock_reads(work: Callable[[], object]) -> list[str]:
    """Do *work* and return where a module below the edges asked for the time of day, or slept."""
    seen: list[str] = []

    def look(frame: FrameType, event: str, called: object) -> None:
        if event != "c_call":
            return
        name = getattr(called, "__qualname__", "")
        if getattr(called, "__module__", None) != "time" and name not in _CLOCK_METHODS:
            return
        package, _, inner = str(frame.f_globals.get("__name__")).partition(".")
        if package == "harness" and inner.partition(".")[0] not in EDGES:
            seen.append(f"{package}.{inner}:{frame.f_lineno} {name}")

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(before)
    return seen


@pytest.mark.rule("R-GEN-01")
def test_a_run_asks_no_clock_but_trios() -> None:
    def everything() -> None:
        explore_schedules(_busy_run, invariants=RUN_INVARIANTS, seeds=[0])
        for cut in (-1, 20, 40):
            cancel_everywhere(_busy_run, invariants=RUN_INVARIANTS, only=cut)

    assert clock_reads(everything) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time; time.monotonic()",
        "from time import perf_counter; perf_counter()",
        "import time; time.sleep(0)",
        "from datetime import datetime; datetime.now()",
        "import datetime; datetime.date.today()",
    ],
)
def test_a_module_that_asks_another_clock_is_seen(text: str) -> None:
    def ask(name: str) -> list[str]:
        return clock_reads(lambda: exec(text, {"__name__": name}))

    assert len(ask("harness.kernel._sample")) == 1
    assert ask("harness.testing._sample") == []
    assert ask("somebody.else") == []
