import re

import trio

from harness.testing import final_answer, run_harness, timed
from harness.testing._frames import describe, place, task_name, tasks_below


async def _wait_here() -> None:
    await trio.sleep_forever()


async def test_a_task_is_described_by_its_name_and_the_line_of_the_test() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_wait_here)
        await trio.testing.wait_all_tasks_blocked()
        (task,) = nursery.child_tasks
        line = _wait_here.__code__.co_firstlineno + 1
        assert re.fullmatch(
            rf"\S*test_frames\._wait_here, \S*test_frames\.py:{line} in _wait_here",
            describe(task),
        )
        nursery.cancel_scope.cancel()


async def test_a_task_inside_the_package_is_described_by_both_lines(
    autojump_clock: trio.testing.MockClock,
) -> None:
    kit = run_harness([timed(5, final_answer("x"))])

    async def run_it() -> None:
        await kit.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_it)
        await trio.testing.wait_all_tasks_blocked()
        (task,) = nursery.child_tasks
        assert re.fullmatch(
            r"\S*test_frames\.py:\d+ in run_it, harness/kernel/_run\.py:\d+ in wait", place(task)
        )
        (leg,) = [each for each in tasks_below(task) if each is not task]
        assert re.fullmatch(r"harness/kernel/_asking\.py:\d+ in complete", place(leg))


async def test_a_task_that_stands_nowhere_says_so() -> None:
    tasks: list[trio.lowlevel.Task] = []

    async def note() -> None:
        tasks.append(trio.lowlevel.current_task())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(note)
        nursery.start_soon(trio.sleep_forever)
        await trio.testing.wait_all_tasks_blocked()
        (sleeping,) = nursery.child_tasks
        assert place(sleeping) == "in trio"
        nursery.cancel_scope.cancel()
    assert place(tasks[0]) == "ended"


async def test_a_file_elsewhere_is_told_by_its_name_alone() -> None:
    names: dict[str, object] = {"trio": trio}
    text = "async def wait(): await trio.sleep_forever()"
    exec(compile(text, "/nowhere/near/elsewhere.py", "exec"), names)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(names["wait"])  # type: ignore[arg-type]  # made by exec
        await trio.testing.wait_all_tasks_blocked()
        (task,) = nursery.child_tasks
        assert place(task) == "elsewhere.py:1 in wait"
        nursery.cancel_scope.cancel()


async def test_names_have_no_addresses() -> None:
    class Work:
        async def __call__(self) -> None:
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Work())
        (task,) = nursery.child_tasks
        assert " at 0x" in task.name
        assert task_name(task).endswith("Work object>")
        nursery.cancel_scope.cancel()


async def test_all_tasks_of_a_tree_are_found() -> None:
    async def parent() -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(_wait_here)
            inner.start_soon(_wait_here)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(parent)
        await trio.testing.wait_all_tasks_blocked()
        (task,) = nursery.child_tasks
        names = [task_name(each).rpartition(".")[2] for each in tasks_below(task)]
        assert names == ["parent", "_wait_here", "_wait_here"]
        nursery.cancel_scope.cancel()
