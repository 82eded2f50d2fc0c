"""An answer as an object, from a model that needs two tries."""

import attrs
import trio

import harness
from harness.events import TextDelta, TextReset
from harness.models import Output, StructuredModel
from harness.testing import final_answer, scripted_model, streamed


@attrs.frozen
class Forecast:
    """The weather of one day."""

    city: str
    degrees: int
    dry: bool


# Stands in for a model: its first answer has the degrees in words, and leaves something out.
model = scripted_model(
    [
        streamed(final_answer('{"city": "Oslo", "degrees": "three"}')),
        streamed(final_answer('{"city": "Oslo", "degrees": 3, "dry": false}')),
    ]
)


async def main() -> None:
    asked = StructuredModel(model, Output(Forecast))
    async with harness.open_run(asked, "What is the weather in Oslo?") as run:
        async for event in run.events:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case TextReset(reason=reason):
                    print(f"\n(taken back: {reason})")
    match run.result.parsed:
        case Forecast(city=city, dry=False):
            print(f"\nAn umbrella for {city}.")
        case _:
            print("\nNothing to pack.")
    print(f"The model was told: {model.requests[1].messages[-1]['content']}")


trio.run(main)
