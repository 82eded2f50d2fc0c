"""A hotel, and the tool with which an agent books its rooms."""

import trio


class Hotel:
    """Some rooms. One that is held cannot be had by anybody else."""

    def __init__(self) -> None:
        self.held = 0
        self.booked = 0

    async def book_room(self) -> str:
        """Book one room."""
        self.held += 1
        await trio.sleep(0.5)  # the payment
        self.held -= 1
        self.booked += 1
        return f"room {self.booked}"
