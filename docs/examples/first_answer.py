import trio

import harness


async def parrot(request: harness.ModelRequest, stream: harness.TurnStream) -> harness.ModelTurn:
    said = request.messages[-1]["content"]
    return harness.ModelTurn(message=harness.assistant_message(f"You said: {said}"))


async def main() -> None:
    result = await harness.run(parrot, "Hello!")
    print(result.text)
    print(result.stop_reason)


trio.run(main)
