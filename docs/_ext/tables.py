"""The ``decisions`` directive: a table of the reference, made of the rows that the code decides by.

::

    .. decisions:: stop-order

`TABLES` says which rows and columns a name stands for. What a cell holds is reST, so a row's own
words may mark code. A table that is empty, or a name that is not here, is an error of the build.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from harness._cli._exit import EXIT_CODES, USAGE
from harness.checkpoints import INPUT_ROWS
from harness.completion import _defects
from harness.delegation import ADMISSION_ROWS, CHILD_END_ROWS
from harness.kernel import OUTCOME_ROWS, STOP_ORDER
from harness.mcp._results import ERROR_ROWS
from harness.providers._http import TRANSPORT_ROWS
from harness.receipts import RECEIPT_ROWS
from harness.routing import BREAKER_ROWS, DISPOSITIONS, STATUS_ROWS
from harness.skills import RESOURCE_ROWS
from harness.stores import POSTGRES_FAILURES, SQLITE_FAILURES
from harness.tools import REWRITES
from harness.transcript import REFUSALS, REPAIRS

RowT = TypeVar("RowT")


def cells(rows: Iterable[RowT], columns: Mapping[str, Callable[[RowT], str]]) -> list[list[str]]:
    """Return the headings, then for each row what its columns make of it."""
    return [list(columns), *([show(row) for show in columns.values()] for row in rows)]


def code(value: object) -> str:
    """Show a value of the vocabulary; None is a dash."""
    return "–" if value is None else f"``{value}``"


def codes(values: Iterable[object]) -> str:
    """Show several."""
    return ", ".join(map(code, values))


def yes(value: bool) -> str:
    """Show a truth."""
    return "yes" if value else "no"


def rule(id: str) -> str:
    """Link to a rule of the contract."""
    return f":rule:`{id}`"


def span(first: int, last: int) -> str:
    """Show the statuses from *first* to *last*."""
    return code(first) if first == last else f"{code(first)} to {code(last)}"


def exits() -> list[tuple[int, list[str]]]:
    """Return each exit code of ``harness run`` with the stop reasons that it stands for."""
    reasons: dict[int, list[str]] = {USAGE: []}
    for reason, number in EXIT_CODES.items():
        reasons.setdefault(number, []).append(reason)
    return sorted(reasons.items())


TABLES: dict[str, list[list[str]]] = {
    "stop-order": cells(
        STOP_ORDER,
        {
            "Fact": lambda row: code(row.fact),
            "Reported as": lambda row: code(row.reason),
            "It holds when": lambda row: row.meaning,
        },
    ),
    "outcomes": cells(
        OUTCOME_ROWS,
        {
            "What left the tool": lambda row: code(row.left),
            "After a stop": lambda row: yes(row.stopped),
            "Outcome": lambda row: code(row.kind),
            "Failure kind": lambda row: code(row.failure_kind),
            "Text": lambda row: code(row.text),
            "Ends the run": lambda row: yes(row.ends_run),
        },
    ),
    "defects": cells(
        _defects.ROWS,
        {
            "Defect": lambda row: code(row.kind),
            "When": lambda row: row.when,
            "Rule": lambda row: rule(row.rule),
        },
    ),
    "refusals": cells(
        REFUSALS,
        {
            "Code": lambda row: code(row.code),
            "Refused by": lambda row: codes(row.checks),
            "Why": lambda row: row.description,
            "Rule": lambda row: rule(f"R-VALID-{row.number:02}"),
        },
    ),
    "repairs": cells(
        REPAIRS,
        {
            "Code": lambda row: code(row.code),
            "When": lambda row: row.when,
            "Repair": lambda row: row.repair,
            "What is lost": lambda row: row.loses,
            "Ends": lambda row: codes(row.ends),
        },
    ),
    "skill-resources": cells(
        RESOURCE_ROWS,
        {
            "Led to": lambda row: code(row.obstacle),
            "Failure kind": lambda row: code(row.kind),
            "Text": lambda row: row.text,
        },
    ),
    "rewrites": cells(
        REWRITES,
        {
            "Row": lambda row: str(row.number),
            "Seen": lambda row: row.seen,
            "Becomes": lambda row: row.becomes,
            "Note": lambda row: code(row.note),
            "Rule": lambda row: rule(row.rule),
        },
    ),
    "mcp-errors": cells(
        ERROR_ROWS,
        {
            "Code": lambda row: code(row.code),
            "Failure kind": lambda row: code(row.kind),
            "Is the effect known": lambda row: yes(row.effect_known),
            "Text": lambda row: row.text,
        },
    ),
    "statuses": cells(
        STATUS_ROWS,
        {
            "Status": lambda row: span(row.first, row.last),
            "Category": lambda row: code(row.category),
            "Why": lambda row: row.why,
        },
    ),
    "dispositions": cells(
        DISPOSITIONS,
        {
            "Kind": lambda row: code(row.kind),
            "Category": lambda row: code(row.category),
            "Same endpoint again": lambda row: yes(row.retry_same),
            "Next provider, next model": lambda row: yes(row.traverse),
            "Circuit": lambda row: code(row.breaker),
            "Why": lambda row: row.why,
        },
    ),
    "breaker": cells(
        BREAKER_ROWS,
        {
            "State": lambda row: code(row.state),
            "Event": lambda row: code(row.event),
            "Then": lambda row: code(row.then),
            "What is done": lambda row: code(row.action),
            "Why": lambda row: row.why,
        },
    ),
    "transport": cells(
        TRANSPORT_ROWS,
        {
            "Exception": lambda row: code(f"httpx2.{row.error.__name__}"),
            "Kind": lambda row: code(row.kind),
            "Category": lambda row: code(row.category),
            "Phase": lambda row: code(row.phase) if row.phase else "as far as the call had come",
        },
    ),
    "receipts": cells(
        RECEIPT_ROWS,
        {
            "Found": lambda row: code(row.status),
            "Its lease": lambda row: (
                "–" if row.lease_live is None else "live" if row.lease_live else "over"
            ),
            "Effect": lambda row: codes(row.effects),
            "Then": lambda row: code(row.action),
            "Why": lambda row: row.why,
        },
    ),
    "checkpoint-inputs": cells(
        INPUT_ROWS,
        {
            "Status": lambda row: code(row.status),
            "Takes": lambda row: code(row.takes),
            "Everything else is refused: it needs": lambda row: row.needs,
        },
    ),
    "child-admission": cells(
        ADMISSION_ROWS,
        {
            "Code": lambda row: code(row.code),
            "When": lambda row: row.when,
            "Failure kind": lambda row: code(row.kind),
        },
    ),
    "child-ends": cells(
        CHILD_END_ROWS,
        {
            "The child ended": lambda row: code(row.reason),
            "The call": lambda row: row.end,
            "What the model reads": lambda row: row.text or "–",
        },
    ),
    "sqlite-failures": cells(
        SQLITE_FAILURES,
        {
            "SQLite's code": lambda row: code(row.name),
            "Error": lambda row: code(row.code),
            "The file": lambda row: row.what,
        },
    ),
    "postgres-failures": cells(
        POSTGRES_FAILURES,
        {
            "SQLSTATE begins with": lambda row: code(row.state),
            "Error": lambda row: code(row.code),
            "The store": lambda row: row.what,
        },
    ),
    "exits": cells(
        exits(),
        {
            "Code": lambda row: code(row[0]),
            "Stop reason": lambda row: codes(row[1]) or "none: wrong usage, or a missing extra",
        },
    ),
}


def list_table(table: list[list[str]]) -> str:
    """Return *table* as the text of a ``list-table``, its first row the heading."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in table:
        marks = ["* -", *["  -"] * (len(row) - 1)]
        lines += [f"   {mark} {cell}" for mark, cell in zip(marks, row, strict=True)]
    return "\n".join(lines)


class Decisions(SphinxDirective):
    """Show one of `TABLES`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        name = self.arguments[0]
        if name not in TABLES:
            raise self.error(f"there is no table {name!r}, expected one of {list(TABLES)}")
        table = TABLES[name]
        if len(table) == 1:
            raise self.error(f"the table {name!r} has no rows, expected some")
        return self.parse_text_to_nodes(list_table(table))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("decisions", Decisions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
