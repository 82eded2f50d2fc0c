"""The two tools of the demo, over a folder of short texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import attrs
import msgspec

from harness._json import JSON
from harness._toolset import CallContext
from harness.tools import Tool, define_tool, tool

__all__ = ["Folder", "example_folder"]

_MOST_LINES = 12
"""Found lines that a model is shown: what it reads costs it time."""


def example_folder(source: Path = Path(__file__)) -> Path:
    """The folder of texts that belongs to this file at *source*.

    An installed package has it beside the file, a checkout has it under ``docs``.
    """
    installed = source.with_name("folder")
    if installed.is_dir():
        return installed
    return source.parents[2] / "docs" / "examples" / "folder"


@attrs.frozen
class Folder:
    """Text files in one folder, with one sentence on each line."""

    path: Path

    @property
    def names(self) -> list[str]:
        """The names of the files, in order."""
        return sorted(file.name for file in self.path.glob("*.txt"))

    def tools(self) -> list[Tool]:
        """What a model may do with it."""
        read_file = define_tool(
            "read_file",
            "Read one file of the folder.",
            # The names are known only here, so the schema is written out: a server that holds a
            # model to it cannot be asked for a file that is not there.
            schema={
                "type": "object",
                "properties": {"name": {"type": "string", "enum": [*self.names]}},
                "required": ["name"],
            },
            execute=self._read_file,
        )
        return [tool(self.search_text), read_file]

    def search_text(self, word: Annotated[str, msgspec.Meta(max_length=20)]) -> list[str]:
        """Find the lines of all files that contain a word.

        Args:
            word: What to look for, in the lines and in the names of the files.
        """
        found = [line for line in self._lines() if word.casefold() in line.casefold()]
        return found[:_MOST_LINES]

    def _read_file(self, arguments: dict[str, JSON], _: CallContext[object]) -> str:
        name = arguments["name"]
        if not isinstance(name, str) or name not in self.names:
            raise ValueError(f"there is no file {name!r}, expected one of {self.names}")
        return self._text(name)

    def _text(self, name: str) -> str:
        return (self.path / name).read_text("utf-8")

    def _lines(self) -> Iterator[str]:
        for name in self.names:
            for line in self._text(name).splitlines():
                if line:
                    yield f"{name}: {line}"
