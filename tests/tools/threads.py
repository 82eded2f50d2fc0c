"""Functions that block, and waiting for the threads they are in."""

import threading

import trio


class Blocking:
    """A function that blocks until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.end = threading.Event()

    def __call__(self) -> str:
        self.entered.set()
        assert self.end.wait(10)
        return "ended"

    async def until_entered(self) -> None:
        own = trio.CapacityLimiter(1)
        assert await trio.to_thread.run_sync(self.entered.wait, 10, limiter=own)


async def threads_over() -> None:
    """Wait until trio has heard from every thread, those that were left behind too."""
    limiter = trio.to_thread.current_default_thread_limiter()
    tokens, limiter.total_tokens = limiter.total_tokens, 1
    async with limiter:  # there is one, so nobody has any
        limiter.total_tokens = tokens
