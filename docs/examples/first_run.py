"""Ask a model about a folder of texts, and watch the answer come.

With the address and the key of a chat-completions endpoint in OPENAI_BASE_URL and OPENAI_API_KEY:

    python first_run.py MODEL
"""

import os
import sys
from pathlib import Path

import trio

import harness
from harness.events import TextDelta, ToolFinished
from harness.providers import ChatModel

FOLDER = Path(__file__).parent / "folder"


@harness.tool
def search_text(word: str) -> list[str]:
    """Find the lines of all texts that contain a word."""
    lines = [line for file in FOLDER.glob("*.txt") for line in file.read_text().splitlines()]
    return sorted(line for line in lines if word.lower() in line.lower())


async def main(name: str) -> None:
    """Run the model *name* once."""
    url, key = os.environ["OPENAI_BASE_URL"], os.environ.get("OPENAI_API_KEY")
    async with (
        ChatModel(name, base_url=url, api_key=key) as model,
        harness.open_run(
            model,
            "Why does bread rise? Search the texts first.",
            tools=[search_text],
            deadline=trio.current_time() + 60,
        ) as run,
    ):
        async for event in run.events:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case ToolFinished(name=tool, outcome=outcome):
                    print(f"[{tool}: {outcome}]")
    print(f"\n{run.result.stop_reason} after {run.result.stats.turns} turns")


trio.run(main, sys.argv[1])
