"""Build the wheel and use it as a stranger would: elsewhere, and without extras.

In a flat layout every test imports the checkout, so a module that the wheel forgot, and an import
that only works because some extra happens to be installed, both go unseen. Here the wheel is
installed with its declared dependencies alone into a fresh environment, and a process outside the
checkout imports every module but the optional ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

EXTRAS: Final = {
    "harness.mcp": ("mcp", "mcp"),
    "harness.providers": ("httpx2", "http"),
    "harness.stores._postgres_requests": ("psycopg", "postgres"),
}
"""Optional package: the distribution it needs, and the extra that its error must name."""

OPTIONAL: Final = (
    *EXTRAS,
    "harness.__main__",
    "harness._cli",
    "harness.stores._postgres_rows",
    "harness.stores._postgres_schema",
    "harness.testing.pytest_plugin",
)
"""Not imported without extras; that the command line starts is looked at apart."""

PROBE: Final = """
import importlib, importlib.util, json, pkgutil, sys

extras, optional, checkout = json.loads(sys.argv[1])
import harness
assert checkout not in harness.__file__, f"{harness.__file__} is the checkout, not the wheel"

names = ["harness", *(m.name for m in pkgutil.walk_packages(harness.__path__, "harness.",
                                                            onerror=lambda name: None))]
core = [n for n in names if not any(n == o or n.startswith(o + ".") for o in optional)]
for name in core:
    importlib.import_module(name)
for package, (module, extra) in extras.items():
    assert importlib.util.find_spec(module) is None, f"{module} is installed, expected no extra"
    try:
        importlib.import_module(package)
    except ImportError as error:
        assert f"trio-harness[{extra}]" in str(error), f"{package} failed without a hint: {error}"
    else:
        raise AssertionError(f"{package} imports although {module} is absent")
print(f"{len(core)} modules import without extras: {', '.join(n for n in core if '._' not in n)}")
"""


def run(fault: str, *command: str, cwd: Path) -> str:
    """Run *command* and return what it printed; exit with *fault* and its errors if it fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=env, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{fault}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> Path:
    """Build the wheel into *folder* and return its path."""
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder))
    run("the wheel does not build", *command, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """Hold the wheel's files against the checkout's: all of the package, nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    moved = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    wanted = {
        str(Path(target, path.relative_to(ROOT / source)))
        for source, target in {"harness": "harness", **moved}.items()
        for path in (ROOT / source).rglob("*")
        if path.is_file() and not _is_left_over(path.relative_to(ROOT))
    }
    if packed != wanted:
        missing, strange = sorted(wanted - packed), sorted(packed - wanted)
        sys.exit(f"the wheel lacks {missing} and should not have {strange}")


def _is_left_over(path: Path) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in path.parts)


def check_imports(wheel: Path, folder: Path) -> None:
    """Install the wheel without extras below *folder* and use it there."""
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    scripts = folder / "venv" / "bin"
    python = str(scripts / "python")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run("the wheel does not install", *pip, "install", "--quiet", str(wheel), cwd=folder)
    arguments = json.dumps([EXTRAS, OPTIONAL, str(ROOT)])
    fault = "the wheel does not import without extras"
    print(run(fault, python, "-W", "error", "-c", PROBE, arguments, cwd=folder), end="")
    fault = "the command line does not start without extras"
    run(fault, str(scripts / "harness"), "--help", cwd=folder)


def main() -> int:
    """Check, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="harness-wheel-") as scratch:
        wheel = build(Path(scratch, "dist"))
        check_contents(wheel)
        check_imports(wheel, Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
