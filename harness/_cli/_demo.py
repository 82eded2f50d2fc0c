"""``harness demo``: three runs of a real model, and a verdict on what was seen of them.

Without options it brings its own model: the file is fetched once, and served on loopback for as
long as the demo lasts. With ``--model`` it uses an endpoint of the user's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TextIO

import attrs
import trio

from harness._cli._child import LocalModelError
from harness._cli._exit import ERROR, INTERRUPTED, USAGE
from harness._cli._fetch import fetch_model, user_cache
from harness._cli._folder import Folder, example_folder
from harness._cli._output import discard_rest
from harness._cli._scenes import Claim, Endpoint, Stage, play_abort, play_deadline, play_whole
from harness._cli._show import Lines, Styles
from harness._errors import HarnessError, UsageError

__all__ = ["Page", "Remote", "add_demo_parser", "demo", "demo_command", "play"]

OPENAI_URL = "https://api.openai.com/v1"
SHORTEST = 0.05
"""Seconds that the third run gets at least."""


@attrs.frozen(kw_only=True)
class Remote:
    """An endpoint of the user's."""

    model: str
    base_url: str
    api_key: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Page:
    """Where the demo writes what is not an event."""

    _out: TextIO
    _styles: Styles

    def heading(self, text: str) -> None:
        """Begin a part."""
        self._line(f"\n{self._styles.strong}{text}{self._styles.plain}")

    def note(self, text: str) -> None:
        """Write a line beside the events."""
        self._line(f"{self._styles.dim}{text}{self._styles.plain}")

    def claims(self, claims: Sequence[Claim]) -> None:
        """Write claims, and whether each was seen."""
        for claim in claims:
            style = self._styles.good if claim.seen else self._styles.bad
            mark = "✓" if claim.seen else "✗ NOT SEEN:"
            self._line(f"{style}{mark} {claim.text}{self._styles.plain}")

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def add_demo_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``demo`` command."""
    parser = commands.add_parser(
        "demo", help="three runs of a small model that is fetched and served here"
    )
    parser.add_argument(
        "--model", help="a model at OPENAI_BASE_URL, with OPENAI_API_KEY, instead of our own"
    )
    parser.add_argument("--base-url", help="of that endpoint, instead of OPENAI_BASE_URL")
    parser.add_argument(
        "--fetch-only", action="store_true", help="fetch our model's file, and no more"
    )
    parser.set_defaults(command=demo_command)


def demo_command(options: argparse.Namespace) -> int:
    """Run the demo that the command line asks for; return the exit code."""
    cache = user_cache(os.environ)
    try:
        if options.fetch_only:
            print(trio.run(_fetch, cache, sys.stdout))
            return 0
        # Ctrl-C then comes out of one place, and as itself rather than in a group.
        return trio.run(
            demo,
            _remote(options),
            cache,
            sys.stdout,
            restrict_keyboard_interrupt_to_checkpoints=True,
        )
    except BrokenPipeError:
        discard_rest(sys.stdout)
        return ERROR
    except (HarnessError, OSError) as error:
        print(f"harness demo: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else ERROR
    except KeyboardInterrupt:
        print("harness demo: interrupted", file=sys.stderr)
        return INTERRUPTED


def _remote(options: argparse.Namespace) -> Remote | None:
    if options.model is None:
        if options.base_url is not None:
            raise UsageError(f"--base-url is {options.base_url!r}, expected --model with it")
        return None
    base_url = options.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    return Remote(model=options.model, base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY"))


async def _fetch(cache: Path, out: TextIO) -> Path:
    return await fetch_model(cache, out=out)


async def demo(remote: Remote | None, cache: Path, out: TextIO) -> int:
    """Play the three runs on *out*; return 0 if everything they claim was seen, else 1.

    A checkpoint. Cancelled, it settles the run in progress and stops the server.

    Raises:
        HarnessError: there is no model, there are no texts, or a run failed.
    """
    page = Page(out, Styles.of(out))
    folder = Folder(example_folder())
    if not folder.names:
        raise LocalModelError(f"there are no texts in {folder.path}, expected those of the demo")
    async with await _endpoint(remote, cache, out) as endpoint:
        page.note(f"model   {endpoint.about}")
        page.note(f"folder  {folder.path}: {', '.join(folder.names)}")
        stage = Stage(endpoint=endpoint, tools=folder.tools(), show=Lines(out), say=page.note)
        claims = await play(stage, page)
    missing = sum(not claim.seen for claim in claims)
    page.heading(f"{len(claims) - missing} of {len(claims)} claims were seen")
    return ERROR if missing else 0


async def _endpoint(
    remote: Remote | None, cache: Path, out: TextIO
) -> AbstractAsyncContextManager[Endpoint]:
    # Imported when it is needed, since each needs an extra of its own.
    if remote is None:
        from harness._cli._embedded import open_embedded  # noqa: PLC0415  # an extra

        return open_embedded(await fetch_model(cache, out=out))
    from harness._cli._remote import open_remote  # noqa: PLC0415  # an extra

    return open_remote(remote.model, base_url=remote.base_url, api_key=remote.api_key)


async def play(stage: Stage, page: Page) -> list[Claim]:
    """Play the three runs and write what was seen of each; return all claims. A checkpoint."""
    page.heading("1. A run: the model has to call a tool first, then it answers")
    whole = await play_whole(stage)
    page.claims(whole.claims)

    page.heading("2. The same run, aborted in the middle of its answer")
    aborted = await play_abort(stage)
    page.claims(aborted.claims)

    page.heading("3. The same run, with a deadline in the middle of its answer")
    half = (whole.sight.last_text - whole.sight.first_text) / 2
    late = await play_deadline(stage, max(aborted.sight.first_text + half, SHORTEST))
    page.claims(late.claims)
    return [*whole.claims, *aborted.claims, *late.claims]
