"""The rewrites that make a schema acceptable to every provider, one row each.

Strict providers refuse a whole request, with every tool in it, for one keyword of one schema. A
row says what they refuse and what comes instead. Two things bound what a row may do. A value
that the schema accepted stays acceptable, so that no call that was right becomes impossible. And
where a constraint has to go, the description says so in a fixed sentence: a model reads
descriptions, and whoever wrote the schema checks the values anyway.

A nullable value is the one that matters most. A plain type with "or null" in its description is
what a strict provider likes best, but then a model cannot say "none" in the part of the schema
that binds it, and makes up a value that fits: ``""``, ``"/"``, ``"null"``. So null becomes a
branch of a union wherever a union can stand.

To accept more is safe only where acceptance counts for the value. Under ``not`` it is the other
way round, and a value that fits a second branch of a ``oneOf`` fits the ``oneOf`` no longer. The
rows with an `under` mend that: they are applied to a schema when one below it, by that keyword,
was loosened.

Rejected: one type instead of every union (see above), references replaced by what they refer to
(a recursive one has no end), and any repair of what no provider is known to refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from harness.tools._constraint_rewrites import (
    FURTHER,
    TOO_DEEP,
    clean_required,
    cut_depth,
    drop,
    list_values,
    make_root,
    open_objects,
    open_one_of,
)
from harness.tools._schema_node import Node
from harness.tools._type_rewrites import (
    clean_types,
    collapse_types,
    fold_nullable,
    narrow_types,
    unite_null,
)

__all__ = ["REWRITES", "Rewrite"]


@attrs.frozen(kw_only=True)
class Rewrite:
    """One row: what is not accepted everywhere, and what comes instead."""

    number: int
    """Stable, and the order in which the rows are applied to a schema."""
    seen: str
    becomes: str
    note: str | None = None
    """What the description then says, with the part that varies in braces."""
    rule: str
    under: str | None = None
    """Applied when a schema below it, by this keyword, was loosened; without, to every schema."""
    apply: Callable[[Node], None] = attrs.field(repr=False)


REWRITES: Final = (
    Rewrite(
        number=1,
        seen="a root that is no object schema, or names no properties",
        becomes="an object schema, with no properties if it named none",
        rule="R-SCHEMA-05",
        apply=make_root,
    ),
    Rewrite(
        number=2,
        seen="nesting beyond 100 levels of objects and arrays",
        becomes="a schema that accepts anything; a keyword with such a value goes",
        note=TOO_DEEP,
        rule="R-SCHEMA-06",
        apply=cut_depth,
    ),
    Rewrite(
        number=3,
        seen="``nullable: true`` beside a type",
        becomes="``null`` as one more type",
        rule="R-SCHEMA-11",
        apply=fold_nullable,
    ),
    Rewrite(
        number=4,
        seen="a type array with one entry, duplicates, or none",
        becomes="that entry, each entry once, no ``type``",
        rule="R-SCHEMA-07",
        apply=clean_types,
    ),
    Rewrite(
        number=5,
        seen="types of which no listed value is, or listed values of one type and no ``type``",
        becomes="the types that the values have, and the values that have one of the types",
        rule="R-SCHEMA-11",
        apply=narrow_types,
    ),
    Rewrite(
        number=6,
        seen="several types besides ``null``",
        becomes="``string`` if it is one, else the first; ``number`` takes in ``integer``",
        note="Accepts {types}.",
        rule="R-SCHEMA-12",
        apply=collapse_types,
    ),
    Rewrite(
        number=7,
        seen="a type and ``null``",
        becomes="a union of the two; the type alone where no union can stand",
        note="Accepts {types}.",
        rule="R-SCHEMA-08",
        apply=unite_null,
    ),
    Rewrite(
        number=8,
        seen="``enum`` with values that are no strings",
        becomes="no ``enum``",
        note="Allowed values: {values}.",
        rule="R-SCHEMA-15",
        apply=list_values,
    ),
    Rewrite(
        number=9,
        seen="``required`` with names that are no properties, or twice",
        becomes="the others, once; no ``required`` if there are none",
        note="Also required: {names}.",
        rule="R-SCHEMA-16",
        apply=clean_required,
    ),
    Rewrite(
        number=10,
        seen="``additionalProperties`` true or false, below the root",
        becomes="no such keyword",
        note="No other properties.",
        rule="R-SCHEMA-18",
        apply=open_objects,
    ),
    Rewrite(
        number=11,
        seen="``oneOf``, a branch of which accepts more than it did",
        becomes="``anyOf``; nothing if there is one already",
        note="Exactly one of the alternatives applies.",
        rule="R-SCHEMA-02",
        under="oneOf",
        apply=open_one_of,
    ),
    Rewrite(
        number=12,
        seen="``not`` of a schema that accepts more than it did",
        becomes="no ``not``",
        note=FURTHER,
        rule="R-SCHEMA-02",
        under="not",
        apply=drop("not"),
    ),
    Rewrite(
        number=13,
        seen="``if`` with a schema that accepts more than it did",
        becomes="no ``if``, ``then`` and ``else``",
        note=FURTHER,
        rule="R-SCHEMA-02",
        under="if",
        apply=drop("if", "then", "else"),
    ),
    Rewrite(
        number=14,
        seen="``maxContains`` of a schema that accepts more than it did",
        becomes="no ``maxContains``",
        note=FURTHER,
        rule="R-SCHEMA-02",
        under="contains",
        apply=drop("maxContains"),
    ),
    Rewrite(
        number=15,
        seen="``unevaluatedProperties`` or ``unevaluatedItems`` where a schema was loosened",
        becomes="no such keyword",
        note=FURTHER,
        rule="R-SCHEMA-02",
        under="itself",
        apply=drop("unevaluatedProperties", "unevaluatedItems"),
    ),
)
"""All that the sanitizer does to one schema, in this order."""
