"""What the documentation says by hand, held against the code that it speaks of."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from harness._cli._demo import add_demo_parser
from harness._cli._run import add_run_parser
from tests import fences

PAGES: Final = Path(__file__).resolve().parent.parent / "docs"

AddParser = Callable[["argparse._SubParsersAction[argparse.ArgumentParser]"], None]


def text_of(page: str) -> str:
    return (PAGES / f"{page}.rst").read_text("utf-8")


def options_of(add: AddParser) -> set[str]:
    """Return the names that a command takes, as its help shows them."""
    commands = argparse.ArgumentParser().add_subparsers()
    add(commands)
    ((name, parser),) = commands.choices.items()
    usage = parser.format_usage().partition(name)[2]
    return set(re.findall(r"--[a-z-]+|\bquestion\b", usage))


@pytest.mark.parametrize(("command", "add"), [("run", add_run_parser), ("demo", add_demo_parser)])
def test_the_page_of_the_command_line_has_every_option(command: str, add: AddParser) -> None:
    page = text_of("reference/command-line")
    (part,) = [
        each for each in page.split("\n.. program:: ") if each.startswith(f"harness {command}\n")
    ]
    described = {each.lower() for each in re.findall(r"^\.\. option:: (\S+)", part, re.MULTILINE)}
    assert described == options_of(add)


def test_the_map_of_stops_has_every_file_that_opens_a_scope() -> None:
    table = text_of("explanation/stopping").partition("Who opens a scope\n")[2]
    files = re.findall(r"^   \* - ``([a-z_/]+)``$", table, re.MULTILINE)
    assert len(files) == len(set(files))
    assert {file.replace("/", ".") for file in files} == fences.SCOPE_FILES


def test_every_example_is_on_a_page() -> None:
    pages = "".join(path.read_text("utf-8") for path in sorted(PAGES.rglob("*.rst")))
    shown = set(re.findall(r"\.\. literalinclude:: \S*/examples/(\S+)", pages))
    files = {path.name for path in (PAGES / "examples").iterdir() if path.is_file()}
    assert shown == files
