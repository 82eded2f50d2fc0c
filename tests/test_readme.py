"""The README: its example is a file that runs, and the demo prints what it shows of that."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Final

from tests.cli.test_demo import CLAIMS

ROOT: Final = Path(__file__).resolve().parent.parent
TEXT: Final = (ROOT / "README.rst").read_text("utf-8")
EXAMPLES: Final = ROOT / "docs" / "examples"


def block_after(line_end: str) -> str:
    """Return the indented block that follows the one line that ends like this."""
    (before,) = re.findall(rf"{re.escape(line_end)}\n\n((?:   .*\n|\n)+)", TEXT)
    return textwrap.dedent(before).strip("\n") + "\n"


def test_the_first_example_is_a_file_that_the_tests_run() -> None:
    assert block_after(".. code-block:: python") == (EXAMPLES / "quickstart.py").read_text("utf-8")


def test_its_output_is_what_the_file_prints() -> None:
    shown = block_after("(``python quickstart.py``)::")
    assert shown == (EXAMPLES / "quickstart.txt").read_text("utf-8")


def test_the_demos_output_claims_what_the_demo_claims() -> None:
    shown = block_after("begins with ``[…``::")
    watched = [claim.format(watch="the server's slot was busy", rest="idle") for claim in CLAIMS]
    claims = [line for line in shown.splitlines() if re.match("[✓✗] (?![a-z_]+ completed)", line)]
    unknown = [line for line in claims if not any(re.fullmatch(each, line) for each in watched)]
    assert unknown == []
    assert shown.splitlines()[-1] == f"{len(claims)} of {len(claims)} claims were seen"
    assert all(re.search(f"^{each}$", shown, re.MULTILINE) for each in watched)


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"<([^<>\s]+)>`__|^\.\. _.+: (\S+)$", TEXT, re.MULTILINE)
    assert len(links) > 8
    assert [here or there for here, there in links if not (ROOT / (here or there)).is_file()] == []


def test_every_promise_is_a_rule_of_the_contract() -> None:
    rules = (ROOT / "docs" / "reference" / "contract" / "promises.rst").read_text("utf-8")
    named = re.findall(r"\((R-PROM-\d\d)_\)", TEXT)
    assert named == re.findall(r"^\.\. rule:: (\S+)$", rules, re.MULTILINE)


def test_it_stays_short() -> None:
    assert len(TEXT.splitlines()) <= 150
