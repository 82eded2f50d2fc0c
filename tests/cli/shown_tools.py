"""Tools that the command line is told of by name."""

import time
from datetime import UTC, datetime

import trio

from harness import Outcome, Suspend, tool


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@tool
async def wait(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "waited"


@tool
async def ask() -> Suspend:
    """Ask somebody."""
    return Suspend.answer("Really?")


@tool
async def nap() -> Outcome:
    """Go on tomorrow."""
    return Outcome.completed("zzz", suspend=Suspend.wake(datetime(2031, 1, 1, tzinfo=UTC)))


@tool
def block() -> None:
    """Block a thread that nobody can stop."""
    time.sleep(60)


several = [shout, wait]
not_a_tool = 3
