"""A pytest plugin that says whether the tests marked ``local_model`` ran, and why not.

They need a model file that is downloaded once, so a run without it is a good run, but nobody
should take it for the whole: ``pytest -p scripts.local_model`` ends with a line about them.
``--require-local-model`` makes the session fail unless at least one ran and none was skipped.
"""

from __future__ import annotations

import pytest


class LocalModelReport:
    """Watches the marked tests of one pytest session."""

    def __init__(self, *, required: bool) -> None:
        self.required = required
        self.selected: set[str] = set()
        self.ran: set[str] = set()
        self.reasons: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether a marked test ran."""
        if "local_model" not in report.keywords:
            return
        self.selected.add(report.nodeid)
        if report.skipped:
            where = report.longrepr
            reason = where[2] if isinstance(where, tuple) else str(where)
            self.reasons[report.nodeid] = reason.removeprefix("Skipped: ")
        elif report.when == "call":
            self.ran.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the session if these tests were required and did not all run."""
        if hasattr(session.config, "workerinput"):
            return
        complete = bool(self.selected) and self.ran == self.selected
        if self.required and not complete and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what became of them."""
        terminalreporter.section("local model", sep="-")
        terminalreporter.line(self.summary())

    def summary(self) -> str:
        """Return one sentence about the marked tests."""
        if not self.selected:
            return "no test with the real model was selected"
        every = f"of {len(self.selected)} tests with the real model"
        if not self.reasons:
            return f"{len(self.ran)} {every} ran"
        reasons = "; ".join(sorted(set(self.reasons.values())))
        return f"{len(self.reasons)} {every} did NOT run: {reasons}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--require-local-model``."""
    parser.addoption(
        "--require-local-model",
        action="store_true",
        help="fail unless the tests marked local_model ran",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start watching."""
    required = bool(config.getoption("--require-local-model"))
    config.pluginmanager.register(LocalModelReport(required=required), "local-model-report")
