from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest
import trio

from harness._cli import _child
from harness._cli._child import LocalModelError, open_child

WAITS = (sys.executable, "-c", "import sys; sys.stdin.read()")
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    time.sleep(1)
"""


class OopsError(Exception):
    pass


async def test_the_child_is_gone_after_a_normal_exit(gone: Callable[..., bool]) -> None:
    async with open_child(WAITS) as child:
        os.kill(child.process.pid, 0)
    assert gone(child.process.pid)


async def test_an_error_in_the_block_leaves_as_itself(gone: Callable[..., bool]) -> None:
    oops = OopsError()
    with pytest.raises(OopsError) as caught:
        async with open_child(WAITS) as child:
            raise oops
    assert caught.value is oops
    assert gone(child.process.pid)


async def test_cancelling_the_block_stops_the_child(gone: Callable[..., bool]) -> None:
    with trio.move_on_after(0.05) as scope:
        async with open_child(WAITS) as child:
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert gone(child.process.pid)


async def test_leaving_while_cancelled_still_waits_for_the_child(
    gone: Callable[..., bool],
) -> None:
    with trio.CancelScope() as scope:
        async with open_child(WAITS) as child:
            scope.cancel()
    assert child.process.returncode is not None
    assert gone(child.process.pid)


async def test_a_child_that_ignores_the_request_is_killed(
    gone: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_child, "STOP_GRACE", 0.1)
    async with open_child([sys.executable, "-c", DEAF], reads_stdout=True) as child:
        assert child.process.stdout is not None
        assert await child.process.stdout.receive_some(1)
    assert child.process.returncode == -signal.SIGKILL
    assert gone(child.process.pid)


async def test_a_child_is_asked_to_end_before_it_is_killed() -> None:
    program = "import time; print('up', flush=True); time.sleep(60)"
    async with open_child([sys.executable, "-c", program], reads_stdout=True) as child:
        assert child.process.stdout is not None
        assert await child.process.stdout.receive_some(1)
    assert child.process.returncode == -signal.SIGTERM


async def test_a_child_that_has_ended_is_left_in_peace() -> None:
    async with open_child([sys.executable, "-c", "raise SystemExit(7)"]) as child:
        await child.process.wait()
    assert child.process.returncode == 7


async def test_the_last_lines_are_what_the_child_wrote_last() -> None:
    program = (
        "import sys; print('\\n'.join(map(str, range(5000))), 'é', '', file=sys.stderr, sep='\\n')"
    )
    async with open_child([sys.executable, "-X", "utf8", "-c", program]) as child:
        await child.process.wait()
        assert child.last_lines(3) == ["4998", "4999", "é"]
        assert child.last_lines(2) == ["4999", "é"]


async def test_unread_output_never_blocks_the_child() -> None:
    program = "import sys; sys.stderr.write('x' * 5_000_000); sys.stdout.write('x' * 5_000_000)"
    async with open_child([sys.executable, "-c", program]) as child:
        with trio.fail_after(20):
            assert await child.process.wait() == 0


async def test_a_program_that_is_not_there_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        async with open_child(["/nowhere/program"]):
            raise AssertionError("entered")


def test_the_error_carries_the_reason_and_the_lines() -> None:
    error = LocalModelError("it ended", lines=["one", "two"])
    assert (error.reason, error.lines, error.code) == ("it ended", ("one", "two"), "local.model")
    assert str(error) == "it ended\n  one\n  two"
