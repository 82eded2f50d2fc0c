"""Hold the contract pages against the tests: is every rule proved?

``rules.py``                  run the marked tests, then judge
``rules.py --report FILE``    judge what an earlier pytest run recorded (see `rules_plugin`)

The pages under ``docs/reference/contract`` define the rules; a test claims one with
``@pytest.mark.rule("R-AREA-NN")``. A rule *holds* when at least one of its tests ran, asserted
something and passed, and none of them failed. A rule with the option ``:doc:`` only documents and
needs no test. Exit code 0 means that every rule holds, that every claimed rule is on a page, and
that no page repeats one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

ROOT: Final = Path(__file__).resolve().parent.parent
DIRECTIVE: Final = re.compile(r"[\s*-]*\.\. rule::(?P<id>.*)")
WELL_FORMED: Final = re.compile(r"R-[A-Z]+-[0-9]{2,}")


class Record(TypedDict):
    """One marked test, as `rules_plugin` reports it."""

    nodeid: str
    rules: list[str]
    asserts: bool
    outcome: str


@dataclass(frozen=True)
class Rule:
    """A rule as its page defines it."""

    id: str
    page: str
    doc_only: bool


@dataclass(frozen=True)
class Verdict:
    """What the pages and the tests say together; each list is empty when all is well."""

    rules: list[Rule]
    malformed: list[str]
    duplicated: list[str]
    unproved: list[str]
    failed: list[str]
    unknown: list[str]

    @property
    def holds(self) -> bool:
        """Whether there is nothing to complain of, and something was judged."""
        faults = (self.malformed, self.duplicated, self.unproved, self.failed, self.unknown)
        return bool(self.rules) and not any(faults)


def read_rules(pages: Path) -> Iterator[Rule]:
    """Yield the rules of every page in *pages*, in order."""
    for page in sorted(pages.glob("*.rst")):
        lines = page.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            found = DIRECTIVE.fullmatch(line)
            if found:
                options = lines[number + 1 : number + 2]
                doc_only = [option.strip() for option in options] == [":doc:"]
                yield Rule(found["id"].strip(), page.name, doc_only)


def judge(rules: list[Rule], records: list[Record]) -> Verdict:
    """Return what *records*, the marked tests of one run, say about *rules*."""
    outcomes: dict[str, Counter[str]] = {}
    places: dict[str, str] = {}
    for record in records:
        outcome = record["outcome"]
        if outcome == "passed" and not record["asserts"]:
            outcome = "passed without an assertion"
        for rule in record["rules"]:
            outcomes.setdefault(rule, Counter())[outcome] += 1
            places.setdefault(rule, record["nodeid"])
    known = Counter(rule.id for rule in rules)
    needed = [rule for rule in rules if not rule.doc_only]
    tally = {rule.id: outcomes.get(rule.id, Counter()) for rule in needed}
    return Verdict(
        rules=rules,
        malformed=[f"{r.id!r} on {r.page}" for r in rules if not WELL_FORMED.fullmatch(r.id)],
        duplicated=[id for id, count in known.items() if count > 1],
        unproved=[_explain(id, seen) for id, seen in tally.items() if not seen["passed"]],
        failed=[_explain(id, seen) for id, seen in tally.items() if seen["failed"]],
        unknown=[f"{id!r} in {where}" for id, where in sorted(places.items()) if id not in known],
    )


def _explain(rule: str, seen: Counter[str]) -> str:
    what = ", ".join(f"{count} {outcome}" for outcome, count in sorted(seen.items()))
    return f"{rule}: {what or 'no test is marked with it'}"


def report(verdict: Verdict) -> str:
    """Return the verdict as lines of text."""
    sections = {
        "ids of another form than R-AREA-NN": verdict.malformed,
        "ids that stand on the pages more than once": verdict.duplicated,
        "rules with no passing test": verdict.unproved,
        "rules with a failing test": verdict.failed,
        "ids in test marks that no page knows": verdict.unknown,
    }
    lines: list[str] = []
    for title, entries in sections.items():
        if entries:
            lines += [f"{title}:", *(f"  {entry}" for entry in entries)]
    documented = sum(rule.doc_only for rule in verdict.rules)
    tested = len(verdict.rules) - documented
    lines.append(
        f"rules: {tested} to prove, {len(verdict.unproved)} with no passing test,"
        f" {documented} only documented"
    )
    if not verdict.rules:
        lines.append("no page defines a rule, expected at least one")
    return "\n".join(lines)


def run_marked_tests(root: Path) -> list[Record]:
    """Run the marked tests below *root* and return their records; pytest's output is shown."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "rules.json")
        plugin = ["-p", "scripts.rules_plugin", f"--rules-report={path}"]
        command = [sys.executable, "-m", "pytest", "-q", "-m", "rule", *plugin]
        # Its exit code is of no interest: what failed, and what was not run, is in the report.
        code = subprocess.run(command, cwd=root, check=False).returncode
        if not path.exists():
            sys.exit(f"pytest exited with {code} and wrote no report of the marked tests")
        return load(path)


def load(path: Path) -> list[Record]:
    """Return the records in the report at *path*."""
    records: list[Record] = json.loads(path.read_text("utf-8"))
    return records


def main(arguments: list[str] | None = None) -> int:
    """Judge, print, and return the exit code."""
    parser = argparse.ArgumentParser(description="Is every rule of the contract proved by a test?")
    parser.add_argument("--report", type=Path, help="a report of `rules_plugin`")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to judge")
    options = parser.parse_args(arguments)
    rules = list(read_rules(options.root / "docs" / "reference" / "contract"))
    records = load(options.report) if options.report else run_marked_tests(options.root)
    verdict = judge(rules, records)
    print(report(verdict))
    return 0 if verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
