"""Three providers, two of them in trouble, and the answer that comes out."""

import trio

import harness
from harness.errors import ProviderError
from harness.events import AttemptFinished, TextDelta, TextReset
from harness.models import ModelTransport, Route, RoutedModel
from harness.routing import Hedge
from harness.testing import Timed, final_answer, run_virtual, scripted_model, streamed

# Stand in for three providers; a `ChatModel` for each is what a service would have here.
overloaded = ProviderError(
    "overloaded", kind="http", category="server_error", phase="stream", status_code=529
)
breaks_off = scripted_model([[harness.Chunk(text="The harbour is "), Timed(1, overloaded)]])
silent = scripted_model([[Timed(600, harness.Chunk(text="Sorry for the wait."))]])
well = scripted_model([streamed(final_answer("Take the tram to the harbour."), size=30)])

model = RoutedModel(
    Route("openai/gpt-5", fallback="meta/llama-4"),
    [
        ModelTransport("openai", {"openai/gpt-5": breaks_off}),
        ModelTransport("azure", {"openai/gpt-5": silent}),
        ModelTransport("groq", {"meta/llama-4": well}),
    ],
    hedge=Hedge(after=2),
)


async def main() -> None:
    async with harness.open_run(model, "How do I get to the harbour?") as run:
        async for event in run.events:
            at = f"{trio.current_time():3.0f} s "
            match event:
                case TextDelta(text=text):
                    print(at, repr(text))
                case TextReset():
                    print(at, "what was shown is void")
                case AttemptFinished(tried=tried, outcome=outcome, failure=failure):
                    why = "" if failure is None else f": {failure.category}"
                    print(at, f"{tried.model} at {tried.provider} {outcome}{why}")
    print(run.result.text)


run_virtual(main)
