"""How the documentation is built: ``make docs``."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "harness"
author = "The harness authors"
copyright = "2026, The harness authors"  # noqa: A001 - the name that Sphinx reads
release = version = installed_version("trio-harness")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "homes", "rule", "tables"]
exclude_patterns = ["_build"]
default_role = "code"
html_theme = "furo"
html_title = f"harness {release}"

# Every reference must lead somewhere; the builds turn warnings into errors.
nitpicky = True
# An annotation `type[...]` is taken for a field of that name: "more than one target".
suppress_warnings = ["ref.python"]
# No inventory is fetched, so the build needs no network, and other projects' names lead nowhere.
THEIRS = "attrs?|collections|contextlib|datetime|httpx2|msgspec|os|psycopg|threading|trio|typing"
nitpick_ignore_regex = [
    (r"py:.*", rf"({THEIRS})\..*"),
    (r"py:(class|exc)", r"[a-z]+|[A-Z]\w*(Error|Exception|Group|Interrupt)|SearchStrategy"),
    # Type variables, and what only we construct: these stand in signatures but are not offered.
    (r"py:class", r"(harness\.(\w+\.)*_\w+\.)?([PRT]|\w+T(_co)?)"),
    (r"py:class", r"harness\.(\w+\.)*_\w+\.\w+|IdSource"),
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
autodoc_default_options = {"members": True, "undoc-members": True}
