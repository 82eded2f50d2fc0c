"""Whatever stops a booking, no room stays held."""

from hotel import Hotel

import harness
from harness.testing import (
    RUN_INVARIANTS,
    RunHarness,
    Scene,
    cancel_everywhere,
    final_answer,
    run_harness,
    tool_call,
    tool_call_turn,
)

TURNS = [
    tool_call_turn([tool_call("book_room"), tool_call("book_room")]),
    final_answer("You have two rooms."),
]


def open_hotel(scene: Scene) -> RunHarness:
    """Return a run's ports with a new hotel behind its tool, whose rooms are looked at later."""
    hotel = Hotel()

    @scene.afterwards
    def no_room_stays_held() -> None:
        assert hotel.held == 0

    return run_harness(TURNS, tools=[harness.tool(hotel.book_room)], scene=scene)


async def cancelled(scene: Scene) -> None:
    kit = open_hotel(scene)
    await kit.run("Two rooms, please.")


async def aborted(scene: Scene) -> None:
    kit = open_hotel(scene)
    async with kit.open("Two rooms, please.") as run:
        scene.on_cut(run.abort)
        await run.wait()
    assert run.result.stop_reason in ("aborted", "done")


def test_a_booking_can_be_cancelled_anywhere() -> None:
    print(cancel_everywhere(cancelled, invariants=RUN_INVARIANTS, minimum=25))


def test_a_booking_can_be_aborted_anywhere() -> None:
    print(cancel_everywhere(aborted, invariants=RUN_INVARIANTS, minimum=25))
