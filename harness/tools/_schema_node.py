"""One schema while it is rewritten: its keywords, where it stands, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from harness._json import JSON

__all__ = ["Node", "Place"]

Place: TypeAlias = Literal["root", "branch of the root", "branch", "elsewhere"]
"""Where a schema stands. A branch is one of a composition, and tells of the same object."""


@attrs.define(eq=False, kw_only=True)
class Node:
    """One schema while it is rewritten."""

    keywords: dict[str, JSON]
    """A copy of its own; what is below is still the original's."""
    place: Place
    level: int
    """How many objects and arrays are around it."""
    parent: Node | None = None
    under: str = ""
    """The keyword of its parent that it stands under."""
    scope: tuple[Mapping[str, JSON], ...] = ()
    """The properties of the schemas around it that tell of the same object."""
    loosened: bool = False
    """Accepts more than it did."""
    unseen: bool = False
    """Accepts the same, but ``unevaluatedProperties`` around it no longer sees all of it."""
    united: bool = False
    """Its keywords were moved into the first branch of a union."""

    def note(self, text: str) -> None:
        """Append *text* to the description, unless it says so already."""
        given = self.keywords.get("description", "")
        if not isinstance(given, str) or not given:
            self.keywords["description"] = text
        elif text not in given:
            self.keywords["description"] = f"{given} {text}"

    def lose(self, text: str) -> None:
        """Note in the description that a constraint has gone."""
        self.note(text)
        self.loosened = True

    def is_property(self, name: object) -> bool:
        """Whether *name* is a property of the object that this schema tells of."""
        own = self.keywords.get("properties")
        return (isinstance(own, dict) and name in own) or self._is_around(name)

    def leans_on_parent(self) -> bool:
        """Whether it requires a property that only a schema around it has."""
        own, required = self.keywords.get("properties"), self.keywords.get("required")
        return isinstance(required, list) and any(
            isinstance(each, str)
            and not (isinstance(own, dict) and each in own)
            and self._is_around(each)
            for each in required
        )

    def _is_around(self, name: object) -> bool:
        return any(name in properties for properties in self.scope)
