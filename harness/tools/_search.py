"""Finding tools by words.

The rule: a tool is found by any word of the query that is in its name, in its plugin's name or in
the description of either, as a whole or as the beginning of a longer one. More words found come
first; of equals, those found in names; of equals, those that were added first. So the same query
has the same answer in every process, and the answer can be foretold by reading the tools.

Words are runs of letters and digits, compared without case, and ``readFile`` and ``read_file``
are two words each. It needs no library, no model and no network. What it cannot do is find
*invoice* by *bill*: that is what descriptions are for.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import Final

import attrs

__all__ = ["SearchResult", "ToolIndex", "ToolMatch"]

_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_QUERY_LENGTH: Final = 1_000
_QUERY_WORDS: Final = 16
"""What is read of a query, so that a long one costs no more."""
_SHORT: Final = 3
"""Letters that a word needs to be looked for as the beginning of others."""
_LONG: Final = 4_000
"""How much of a description is read: hostile ones are megabytes."""
_ABOUT: Final = 500
"""How much of a plugin's description is read, for each of its tools anew."""

_IN_NAME: Final = 8
_IN_PLUGIN: Final = 4
_IN_DESCRIPTION: Final = 2


@attrs.frozen(kw_only=True)
class ToolMatch:
    """A tool that a search found."""

    tool: str
    plugin: str
    """The plugin to load it by."""
    description: str


@attrs.frozen(kw_only=True)
class SearchResult:
    """What a search found: the best, and how many there were."""

    matches: tuple[ToolMatch, ...]
    total: int


@attrs.define(eq=False)
class ToolIndex:
    """Tools by their words. Adding is linear in their texts, and so is a search in what it finds.

    A description is indexed as far as its first 4,000 characters (a plugin's, its first 500), and
    of a query the first 16 different words are looked for.
    """

    _tools: list[ToolMatch] = attrs.field(factory=list, init=False)
    _places: dict[str, list[tuple[int, int]]] = attrs.field(factory=dict, init=False)
    """For each word, which tools have it, and its weight there."""
    _sorted: list[str] = attrs.field(factory=list, init=False)
    """The words in order, for beginnings; made by the first search after an addition."""

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} tools>"

    def add(self, tool: ToolMatch, about: str = "") -> None:
        """Take *tool* in, after all others; *about* is the description of its plugin."""
        weights: dict[str, int] = {}
        for text, weight in (
            (about[:_ABOUT], _IN_DESCRIPTION),
            (tool.description[:_LONG], _IN_DESCRIPTION),
            (tool.plugin, _IN_PLUGIN),
            (tool.tool, _IN_NAME),
        ):
            for word in _words(text):
                weights[word] = weight
        for word, weight in weights.items():
            self._places.setdefault(word, []).append((len(self._tools), weight))
        self._tools.append(tool)

    def search(self, query: str, limit: int) -> SearchResult:
        """Return the best *limit* tools for *query*; without a word in it, the first ones."""
        found: dict[int, tuple[int, int]] = {}
        words = tuple(islice(dict.fromkeys(_words(query[:_QUERY_LENGTH])), _QUERY_WORDS))
        for word in words:
            for tool, weight in self._having(word).items():
                count, total = found.get(tool, (0, 0))
                found[tool] = (count + 1, total + weight)
        ranked = sorted(found, key=lambda tool: (-found[tool][0], -found[tool][1], tool))
        chosen = ranked if words else range(len(self._tools))
        matches = tuple(self._tools[tool] for tool in chosen[:limit])
        return SearchResult(matches=matches, total=len(chosen))

    def _having(self, word: str) -> dict[int, int]:
        """Return the tools that have *word*, or a longer one that begins so, which counts less."""
        weights: dict[int, int] = {}
        for longer in self._beginning(word):
            for tool, weight in self._places[longer]:
                weights[tool] = max(weights.get(tool, 0), weight - 1)
        for tool, weight in self._places.get(word, ()):
            weights[tool] = max(weights.get(tool, 0), weight)
        return weights

    def _beginning(self, word: str) -> Iterator[str]:
        if len(word) < _SHORT:
            return
        if len(self._sorted) != len(self._places):
            self._sorted = sorted(self._places)
        for place in range(bisect_left(self._sorted, word), len(self._sorted)):
            if not self._sorted[place].startswith(word):
                return
            yield self._sorted[place]


def _words(text: str) -> list[str]:
    parted = _HUMP.sub(" ", unicodedata.normalize("NFKC", text))
    words: list[str] = _WORD.findall(parted.casefold())
    return words
