"""The public face: what `__all__` says is there, once, in order, and explained."""

import importlib
import inspect
import pkgutil
import typing
from collections import Counter
from types import ModuleType

import pytest

import harness

PACKAGES = [
    importlib.import_module(f"harness.{found.name}")
    for found in pkgutil.iter_modules(harness.__path__)
    if not found.name.startswith("_")
]
"""The public modules below the top level: packages, and namespaces of the vocabulary."""

EVERY = pytest.mark.parametrize("package", [harness, *PACKAGES], ids=lambda p: p.__name__)

pytestmark = pytest.mark.rule("R-FENCE-18")


def order(name: str) -> tuple[int, str]:
    """Constants first, then classes, then the rest, as the linter sorts them."""
    kind = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    return kind, name


def public_attributes(package: ModuleType) -> set[str]:
    """What a reader would take for public: no module, no underscore, no ``from __future__``."""
    return {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }


def exported(package: ModuleType) -> dict[str, object]:
    return {name: getattr(package, name) for name in package.__all__}


@EVERY
def test_all_is_sorted_and_says_nothing_twice(package: ModuleType) -> None:
    assert package.__all__ == sorted(set(package.__all__), key=order)


@EVERY
def test_all_is_complete(package: ModuleType) -> None:
    listed = {name for name, value in exported(package).items() if not inspect.ismodule(value)}
    assert listed == public_attributes(package)


def test_the_top_level_stays_small() -> None:
    assert 0 < len(harness.__all__) <= 60


def test_every_package_is_looked_at() -> None:
    assert {"harness.kernel", "harness.tools", "harness.testing", "harness.providers"} <= {
        package.__name__ for package in PACKAGES
    }


def test_a_name_has_one_home_below_the_top_level() -> None:
    homes = Counter(name for package in PACKAGES for name in package.__all__)
    assert [name for name, count in homes.items() if count > 1] == []


def test_the_top_level_shows_the_same_object_as_its_home() -> None:
    below = {name: value for package in PACKAGES for name, value in exported(package).items()}
    differing = [name for name, v in exported(harness).items() if below.get(name, v) is not v]
    assert differing == []


@EVERY
def test_what_is_exported_is_ours_and_explained(package: ModuleType) -> None:
    for name, value in exported(package).items():
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__.partition(".")[0] == "harness", name
            # A TypedDict with keys that are no identifiers is made by a call, which takes none.
            documented = bool(value.__doc__) or typing.is_typeddict(value)
            assert documented, f"{package.__name__}.{name} has no docstring"


@EVERY
def test_public_methods_are_explained(package: ModuleType) -> None:
    silent = [
        f"{package.__name__}.{name}.{method}"
        for name, value in exported(package).items()
        if inspect.isclass(value)
        for method, function in vars(value).items()
        if not method.startswith("_") and inspect.isfunction(function)
        if not inspect.getdoc(getattr(value, method))
    ]
    assert silent == []
