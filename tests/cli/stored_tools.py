"""Tools whose effects are counted outside of the process."""

import os
import time

import trio

from harness import Suspend, tool


def _note(line: str) -> None:
    number = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(number, f"{line}\n".encode())
    os.close(number)


@tool
async def pay(amount: int) -> str:
    """Pay once, whoever asks twice."""
    _note(f"pay {amount}")
    return f"paid {amount}"


@tool
async def pay_slowly(amount: int) -> str:
    """Pay, and say so much later."""
    _note(f"pay {amount}")
    await trio.sleep(60)
    return f"paid {amount}"


@tool(effect="none")
async def dawdle() -> str:
    """Take a minute, and change nothing."""
    _note("dawdle")
    await trio.sleep(float(os.environ.get("DAWDLE", "0")))
    return "here"


@tool
async def approve() -> Suspend:
    """Ask whether it is all right."""
    return Suspend.answer("Is it all right?")


def clock() -> float:
    """Say what time it is."""
    return time.time()
