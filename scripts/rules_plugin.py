"""A pytest plugin that records what became of every test marked with a rule.

``pytest -p scripts.rules_plugin --rules-report=FILE`` writes a JSON list, one entry per test:
which rules it is marked with, how it ended, and whether it asserts anything.

A rule is proved by a test that could have failed, so two kinds of green are not proof. A test that
was skipped, or that was expected to fail, says nothing about the rule. And a test without an
assertion passes whatever the code does. Whether there is one is read from the test's own syntax
tree: an ``assert`` whose value depends on something, a ``with`` or call that raises when its claim
is false (`ASSERTING`), or a call to a function named ``assert_…`` or ``check_…``. Counting executed
assertions instead was turned down: it needs the assertion rewriter's internals, and does not see
the ones in a function that the test calls.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

ASSERTING: Final = frozenset(
    {
        "RaisesGroup",
        "cancel_everywhere",
        "deprecated_call",
        "explore_schedules",
        "raises",
        "run_state_machine_as_test",
        "warns",
    }
)
"""Names of what fails the test by itself when its claim does not hold."""

ONLY_FOR_TYPE_CHECKERS: Final = frozenset({"assert_never", "assert_type"})
"""Named like an assertion, and no claim about what the code does."""

PROPERTY: Final = "rules"
"""The user property in which a test's reports carry what it claims."""

NEVER_CONSTANT: Final = (ast.Name, ast.Call, ast.Attribute, ast.Await)
"""An expression without any of these has the same value in every run."""


def asserts_something(function: Callable[..., object]) -> bool:
    """Tell whether the source of *function* holds an assertion that can fail."""
    given = getattr(function, "hypothesis", None)
    inner = inspect.unwrap(given.inner_test if given is not None else function)
    code = inner.__code__
    tree = _parse(code.co_filename)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
            if node.name == code.co_name and first == code.co_firstlineno:
                return any(_can_fail(part) for part in ast.walk(node))
    return False  # no source, no proof


@functools.cache
def _parse(filename: str) -> ast.Module:
    return ast.parse(Path(filename).read_bytes())


def _can_fail(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return any(isinstance(part, NEVER_CONSTANT) for part in ast.walk(node.test))
    if isinstance(node, ast.Call):
        name = _last_name(node.func)
        if name in ONLY_FOR_TYPE_CHECKERS:
            return False
        return name in ASSERTING or name.startswith(("assert_", "check_"))
    return False


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _outcome(seen: set[str]) -> str:
    """Return how a test ended, from all of its reports (set-up, call, tear-down, subtests)."""
    for outcome in ("failed", "xfailed", "xpassed", "skipped", "passed"):
        if outcome in seen:
            return outcome
    return "not run"


class RuleReport:
    """Collects the marked tests of one pytest session, wherever they run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.claims: dict[str, dict[str, object]] = {}
        self.seen: dict[str, set[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one report of a marked test."""
        claim = dict(report.user_properties).get(PROPERTY)
        if claim is None:
            return
        assert isinstance(claim, dict), claim
        self.claims[report.nodeid] = claim
        seen = self.seen.setdefault(report.nodeid, set())
        if hasattr(report, "wasxfail"):
            seen.add("xpassed" if report.passed else "xfailed")
        elif report.when == "call" or not report.passed:
            seen.add(report.outcome)

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        records = [
            {"nodeid": nodeid, **claim, "outcome": _outcome(self.seen[nodeid])}
            for nodeid, claim in self.claims.items()
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(records, indent=1) + "\n", "utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--rules-report``."""
    parser.addoption("--rules-report", help="write what became of marked tests to this file")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each marked test's reports say what it claims, in whichever process it runs."""
    for item in items:
        marks = list(item.iter_markers("rule"))
        if marks and isinstance(item, pytest.Function):
            # A mark without an id is kept as an empty one, which no page knows.
            rules = sorted({str(rule) for mark in marks for rule in mark.args or ("",)})
            claim = {"rules": rules, "asserts": asserts_something(item.function)}
            item.user_properties.append((PROPERTY, claim))


def pytest_configure(config: pytest.Config) -> None:
    """Start a report, if one was asked for; the workers of a parallel run write none."""
    path = config.getoption("--rules-report")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(RuleReport(Path(path)), "rules-report")
