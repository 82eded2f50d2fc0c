"""Describe every public object once, on the page of its home, and link signatures to there.

An object is defined in a private module and shown by one or two public ones. Its *home* is the top
level if that shows it, else the package that does. ::

    .. home:: harness.kernel

describes all that lives in a module, its type aliases and constants too, which autodoc passes over
when they come from elsewhere. Signatures name a type alias instead of spelling it out, and
references to aliases and to private modules are sent to the home.

Setting ``__module__`` on the objects would say the same without this file, but msgspec and attrs
resolve a class's annotations in the module which that names.
"""

import importlib
import inspect
import pkgutil
import re
import sys
import typing
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Final

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata, stringify_annotation

import harness


def public_modules() -> Iterator[ModuleType]:
    """Yield the public modules, the top level last."""
    for found in pkgutil.iter_modules(harness.__path__):
        if not found.name.startswith("_"):
            yield importlib.import_module(f"harness.{found.name}")
    yield harness


def shown_at() -> dict[str, str]:
    """Return the public path of each public name; of two, the top level's."""
    return {name: module.__name__ for module in public_modules() for name in module.__all__}


def name_aliases() -> dict[str, object]:
    """Let every annotation of the package name an alias; return what the aliases stand for.

    Annotations are read when the pages are built, so a class of the alias's name, put in its place
    in every module, is what they then find.
    """
    homes = shown_at()
    aliases = {
        name: getattr(sys.modules[home], name)
        for name, home in homes.items()
        if typing.get_origin(getattr(sys.modules[home], name)) is not None
    }
    aliases["JSON"] = harness.JSON  # recursive, so it is a text until it is used
    for name, value in aliases.items():
        stand_in = type(name, (), {"__module__": homes[name]})
        for module in package_modules():
            if vars(module).get(name) is value:
                vars(module)[name] = stand_in
    return aliases


def in_full(alias: str) -> str:
    """Return what *alias* stands for, as autodoc would write it."""
    value = ALIASES[alias]
    return value if isinstance(value, str) else stringify_annotation(value, "smart")


def package_modules() -> list[ModuleType]:
    """Return all modules of the package that are imported, private ones too."""
    return [
        each for name, each in sorted(sys.modules.items()) if name.partition(".")[0] == "harness"
    ]


def words_under(name: str) -> list[str]:
    """Return what the source says under the alias or constant *name*; nothing if it is silent."""
    for module in package_modules():
        docs = ModuleAnalyzer.for_module(module.__name__).find_attr_docs()
        if ("", name) in docs:
            return docs["", name]
    return []


class Home(SphinxDirective):
    """Describe what lives in one public module."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return what autodoc makes of the module, then its aliases and constants."""
        name = self.arguments[0]
        module = importlib.import_module(name)
        self.env.temp_data["harness:home"] = name
        lines = [f".. automodule:: {name}", ""]
        for each in module.__all__:
            if self.config.harness_homes[each] != name:
                continue
            if each in ALIASES:
                lines += [f".. py:type:: {each}", f"   :module: {name}"]
                lines += [f"   :canonical: {in_full(each)}", ""]
            elif not _is_code(getattr(module, each)):
                lines += [f".. py:data:: {each}", f"   :module: {name}", ""]
            else:
                continue
            lines += [*(f"   {line}" for line in words_under(each)), ""]
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
    if name in ALIASES:
        return True  # described below the rest of its home
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
    """Show no signature where nobody makes one; tidy what attrs makes of others."""
    if what == "class" and (getattr(obj, "_is_protocol", False) or name in HANDED_OUT):
        return "", ""
    if signature is None:
        return None
    # What attrs has written keeps no names, and the default of a port is nothing to read.
    shown = re.sub("= (NOTHING|<[^<>]*>)", "= ...", signature)
    for alias, value in ALIASES.items():
        # Any function of the same shape would be taken for one.
        while typing.get_origin(value) is not Callable and in_full(alias) in shown:
            shown = shown.replace(in_full(alias), alias)
    return shown, returns


HANDED_OUT: Final = (
    "harness.receipts.HeldLease",
    "harness.routing.Slot",
    "harness.routing.Try",
    "harness.stores.PostgresStore",
    "harness.stores.SQLiteStore",
)
"""Classes whose objects a host is given and never makes."""
ALIASES: Final = name_aliases()
"""What each public type alias stands for."""


def setup(app: Sphinx) -> ExtensionMetadata:
    """Adjust autodoc."""
    app.add_directive("home", Home)
    app.add_config_value("harness_homes", shown_at(), "env")
    app.connect("autodoc-skip-member", skip_what_lives_elsewhere)
    app.connect("autodoc-process-docstring", keep_first_lines, priority=400)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("missing-reference", link_to_home)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
