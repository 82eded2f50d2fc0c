"""The tool that holds the contract pages against the tests must itself be able to say no."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts import rules
from scripts.rules import Record, Rule, Verdict
from scripts.rules_plugin import asserts_something

PAGE = """\
Sample
======

.. rule:: R-SAMPLE-01

   A passing test proves this.

.. rule:: R-SAMPLE-02
   :doc:

   Only said.
"""

TESTS = '''\
import pytest
from hypothesis import given, strategies as st

@pytest.mark.rule("R-SAMPLE-01")
def test_holds():
    assert len("one") == 3

@pytest.mark.rule("R-SKIP-01")
def test_skipped_inside():
    pytest.skip("not today")
    assert len("one") == 3

@pytest.mark.rule("R-SKIP-02")
@pytest.mark.skip
def test_skipped_by_mark():
    assert len("one") == 3

@pytest.mark.rule("R-XFAIL-01")
@pytest.mark.xfail(strict=False)
def test_expected_to_fail():
    assert len("one") == 4

@pytest.mark.rule("R-XPASS-01")
@pytest.mark.xfail(strict=False)
def test_passes_although_expected_to_fail():
    assert len("one") == 3

@pytest.mark.rule("R-EMPTY-01")
def test_without_assertion():
    len("one")

@pytest.mark.rule("R-CONSTANT-01")
def test_with_a_constant_assertion():
    len("one")
    assert True
    assert 1 + 1 == 2, "never"

@pytest.mark.rule("R-FAIL-01")
def test_fails():
    assert len("one") == 4

@pytest.mark.rule("R-SETUP-01")
def test_whose_fixture_fails(broken):
    assert len("one") == 3

@pytest.mark.rule("R-TEARDOWN-01")
def test_whose_tear_down_fails(breaks_later):
    assert len("one") == 3

@pytest.mark.rule("R-CASES-01", "R-CASES-02")
@pytest.mark.parametrize("size", [3, 4])
def test_of_which_one_case_fails(size):
    assert len("one") == size

@pytest.mark.rule("R-GIVEN-01")
@given(st.integers())
def test_property(number):
    """Text at the left edge
must not confuse the reader of sources."""
    assert number == int(str(number))

@pytest.mark.rule("R-CLASS-01")
class TestClass:
    def test_method(self):
        with pytest.raises(ValueError):
            int("x")

@pytest.fixture
def broken():
    raise RuntimeError

@pytest.fixture
def breaks_later():
    yield
    raise RuntimeError
'''


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of one page and one test file, where the tests are all of the odd kinds."""
    root = tmp_path_factory.mktemp("planted")
    pages = root / "docs" / "reference" / "contract"
    pages.mkdir(parents=True)
    pages.joinpath("sample.rst").write_text(PAGE, "utf-8")
    root.joinpath("test_sample.py").write_text(TESTS, "utf-8")
    ini = "[pytest]\nmarkers =\n    rule\naddopts = -p no:cacheprovider\n"
    root.joinpath("pytest.ini").write_text(ini, "utf-8")
    return root


def record(root: Path, *flags: str) -> list[Record]:
    """Run pytest with the plugin over *root* and return what it recorded."""
    report = root / "report.json"
    plugin = ["-p", "scripts.rules_plugin", f"--rules-report={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, *flags],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(rules.ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return rules.load(report)


@pytest.fixture(scope="module")
def records(planted: Path) -> list[Record]:
    """The records of one real pytest run over `planted`."""
    return record(planted)


def test_a_run_in_several_processes_records_the_same(planted: Path, records: list[Record]) -> None:
    parallel = record(planted, "-p", "xdist", "-n", "2")
    assert sorted(parallel, key=str) == sorted(records, key=str)


@pytest.mark.parametrize(
    ("rule", "outcome", "asserts"),
    [
        ("R-SAMPLE-01", "passed", True),
        ("R-SKIP-01", "skipped", True),
        ("R-SKIP-02", "skipped", True),
        ("R-XFAIL-01", "xfailed", True),
        ("R-XPASS-01", "xpassed", True),
        ("R-EMPTY-01", "passed", False),
        ("R-CONSTANT-01", "passed", False),
        ("R-FAIL-01", "failed", True),
        ("R-SETUP-01", "failed", True),
        ("R-TEARDOWN-01", "failed", True),
        ("R-GIVEN-01", "passed", True),
        ("R-CLASS-01", "passed", True),
    ],
)
def test_a_run_records_how_each_marked_test_ended(
    records: list[Record], rule: str, outcome: str, asserts: bool
) -> None:
    (record,) = [record for record in records if record["rules"] == [rule]]
    assert (record["outcome"], record["asserts"]) == (outcome, asserts)


def test_only_what_ran_asserted_and_passed_proves_a_rule(records: list[Record]) -> None:
    ids = set(re.findall(r'"(R-[A-Z]+-\d\d)"', TESTS))
    verdict = rules.judge([a_rule(id) for id in ids], records)
    assert {line.partition(":")[0] for line in verdict.unproved} == {
        "R-SKIP-01",
        "R-SKIP-02",
        "R-XFAIL-01",
        "R-XPASS-01",
        "R-EMPTY-01",
        "R-CONSTANT-01",
        "R-FAIL-01",
        "R-SETUP-01",
        "R-TEARDOWN-01",
    }
    assert {line.partition(":")[0] for line in verdict.failed} == {
        "R-FAIL-01",
        "R-SETUP-01",
        "R-TEARDOWN-01",
        "R-CASES-01",
        "R-CASES-02",
    }


def test_the_command_runs_the_tests_and_fails_on_what_it_finds(
    planted: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(rules.ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    code = rules.main(["--root", str(planted)])
    printed = capfd.readouterr().out
    assert code == 1
    assert "'R-CLASS-01' in test_sample.py::TestClass::test_method" in printed
    assert "R-SAMPLE-01:" not in printed
    assert "rules: 1 to prove, 0 with no passing test, 1 only documented" in printed


def a_record(rule: str, outcome: str = "passed", *, asserts: bool = True) -> Record:
    return {"nodeid": f"test for {rule}", "rules": [rule], "asserts": asserts, "outcome": outcome}


def a_rule(id: str = "R-SAMPLE-01", *, doc_only: bool = False) -> Rule:
    return Rule(id, "sample.rst", doc_only)


def judge_one(*records: Record) -> Verdict:
    return rules.judge([a_rule()], list(records))


def test_a_rule_with_a_passing_test_holds() -> None:
    assert judge_one(a_record("R-SAMPLE-01")).holds


def test_a_rule_without_any_test_does_not_hold() -> None:
    verdict = judge_one()
    assert verdict.unproved == ["R-SAMPLE-01: no test is marked with it"]
    assert not verdict.holds


def test_a_failing_test_is_not_outweighed_by_a_passing_one() -> None:
    verdict = judge_one(a_record("R-SAMPLE-01"), a_record("R-SAMPLE-01", "failed"))
    assert verdict.unproved == []
    assert verdict.failed == ["R-SAMPLE-01: 1 failed, 1 passed"]
    assert not verdict.holds


def test_a_skipped_test_is_outweighed_by_a_passing_one() -> None:
    assert judge_one(a_record("R-SAMPLE-01"), a_record("R-SAMPLE-01", "skipped")).holds


def test_an_id_that_no_page_knows_is_refused() -> None:
    verdict = judge_one(a_record("R-SAMPLE-01"), a_record("R-SAMPLE-1"))
    assert verdict.unknown == ["'R-SAMPLE-1' in test for R-SAMPLE-1"]
    assert not verdict.holds


def test_an_id_on_two_pages_is_refused() -> None:
    verdict = rules.judge([a_rule(), a_rule()], [a_record("R-SAMPLE-01")])
    assert verdict.duplicated == ["R-SAMPLE-01"]
    assert not verdict.holds


def test_a_rule_that_only_documents_needs_no_test() -> None:
    assert rules.judge([a_rule(doc_only=True)], []).holds


@pytest.mark.parametrize("id", ["", "R-SAMPLE-1", "SAMPLE-01", "R-sample-01", "R-SAMPLE-01 more"])
def test_an_id_of_another_form_is_refused(id: str) -> None:
    verdict = rules.judge([a_rule(id)], [a_record(id)])
    assert verdict.malformed == [f"{id!r} on sample.rst"]
    assert not verdict.holds


def test_no_rule_at_all_is_no_success() -> None:
    assert not rules.judge([], []).holds


def test_a_rule_inside_of_something_else_is_a_rule_too(tmp_path: Path) -> None:
    tmp_path.joinpath("sample.rst").write_text(
        "* .. rule:: R-A-01\n\n  .. rule:: R-A-02\n", "utf-8"
    )
    assert [rule.id for rule in rules.read_rules(tmp_path)] == ["R-A-01", "R-A-02"]


def test_pages_are_read_with_their_options(tmp_path: Path) -> None:
    tmp_path.joinpath("sample.rst").write_text(PAGE, "utf-8")
    assert list(rules.read_rules(tmp_path)) == [
        Rule("R-SAMPLE-01", "sample.rst", doc_only=False),
        Rule("R-SAMPLE-02", "sample.rst", doc_only=True),
    ]


@given(
    outcomes=st.lists(
        st.tuples(
            st.sampled_from(["passed", "failed", "skipped", "xfailed", "xpassed", "not run"]),
            st.booleans(),
        )
    )
)
def test_a_rule_holds_iff_one_asserting_test_passed_and_none_failed(
    outcomes: list[tuple[str, bool]],
) -> None:
    records = [a_record("R-SAMPLE-01", outcome, asserts=asserts) for outcome, asserts in outcomes]
    failed = any(outcome == "failed" for outcome, _ in outcomes)
    assert judge_one(*records).holds == (("passed", True) in outcomes and not failed)


def asserts_by_helper() -> None:
    async def inner() -> None:
        rules_checks.assert_settled([])

    _ = inner


def asserts_for_the_type_checker() -> None:
    rules_checks.assert_never(0)


def asserts_a_group() -> None:
    with pytest.RaisesGroup(ValueError):
        pass


class rules_checks:  # noqa: N801 - stands for a module
    @staticmethod
    def assert_settled(messages: list[object]) -> None: ...

    @staticmethod
    def assert_never(value: object) -> None: ...


def test_what_counts_as_an_assertion() -> None:
    assert asserts_something(asserts_by_helper)
    assert asserts_something(asserts_a_group)
    assert not asserts_something(asserts_for_the_type_checker)
