"""Describe every public object once, on the page of its home, and link signatures to there.

An object is defined in a private module and shown by one or two public ones. Its *home* is the top
level if that shows it, else the package that does. ::

    .. home:: harness.kernel

describes all that lives in a module, its type aliases and tables too, which autodoc passes over
when they come from elsewhere. References to type aliases, which annotations keep as bare names, and
to private modules are sent to the home.

Setting ``__module__`` on the objects would say the same without this file, but msgspec and attrs
resolve a class's annotations in the module which that names.
"""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

import harness


class JSON:
    """A JSON value: a dictionary with text as keys, a list, text, a number, a boolean or None."""

    # Stands in for the alias of that name, whose recursive definition would fill a line each time.
    __module__ = "harness"


IN_FULL = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"


def name_json() -> None:
    """Let every annotation of the package say JSON."""
    alias = harness.JSON
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == "harness" and vars(module).get("JSON") is alias:
            vars(module)["JSON"] = JSON


def public_modules() -> Iterator[ModuleType]:
    """Yield the public modules, the top level last."""
    for found in pkgutil.iter_modules(harness.__path__):
        if not found.name.startswith("_"):
            yield importlib.import_module(f"harness.{found.name}")
    yield harness


def shown_at() -> dict[str, str]:
    """Return the public path of each public name; of two, the top level's."""
    return {name: module.__name__ for module in public_modules() for name in module.__all__}


class Home(SphinxDirective):
    """Describe what lives in one public module."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return what autodoc makes of the module, then of its aliases and tables."""
        name = self.arguments[0]
        module = importlib.import_module(name)
        self.env.temp_data["harness:home"] = name
        lines = [f".. automodule:: {name}", ""]
        for each in module.__all__:
            value = getattr(module, each)
            if self.config.harness_homes[each] == name and not _is_code(value):
                lines += [f".. autodata:: {name}.{each}", "   :no-value:", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _is_code(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value)


def skip_what_lives_elsewhere(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave a name of a module to the page of its home."""
    if what != "module" or "harness:home" not in app.env.temp_data:
        # Keys of a message that are no identifiers cannot be described one by one.
        return None if name.isidentifier() else True
    home = app.config.harness_homes.get(name)
    return home != app.env.temp_data["harness:home"] or None


def link_to_home(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Resolve a reference to a private module, or to a bare name, at the object's home."""
    *path, name = node["reftarget"].split(".")
    home = app.config.harness_homes.get(name)
    if home is None or (path and path[0] != "harness"):
        return None
    python = env.domains.python_domain
    role = "obj" if node["reftype"] == "class" else node["reftype"]
    return python.resolve_xref(
        env, node["refdoc"], app.builder, role, f"{home}.{name}", node, content
    )


def keep_first_lines(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep napoleon from reading ``word: text`` under a field as the field's type."""
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment, which has no colon


def plain_signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """Show no signature for a protocol, which nobody calls; tidy what attrs makes of others."""
    if what == "class" and getattr(obj, "_is_protocol", False):
        return "", ""
    if signature is None:
        return None
    shown = signature.replace("= NOTHING", "= ...")
    while IN_FULL in shown:
        shown = shown.replace(IN_FULL, "JSON")
    return shown, returns


def setup(app: Sphinx) -> ExtensionMetadata:
    """Adjust autodoc."""
    name_json()
    app.add_directive("home", Home)
    app.add_config_value("harness_homes", shown_at(), "env")
    app.connect("autodoc-skip-member", skip_what_lives_elsewhere)
    app.connect("autodoc-process-docstring", keep_first_lines, priority=400)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("missing-reference", link_to_home)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
