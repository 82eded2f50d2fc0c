import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.rule("R-MCP-21")
def test_without_the_extra_the_error_names_it() -> None:
    script = (
        "import sys\n"
        "sys.modules['mcp'] = None\n"
        "from harness.errors import MissingExtraError\n"
        "try:\n    import harness.mcp\n"
        "except MissingExtraError as error:\n    print(error.extra, error.module)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("mcp mcp\n", "")
